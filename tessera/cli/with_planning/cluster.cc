// tessera cluster: jobs that share a cluster.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/memory_text.h"
#include "tessera/base/text.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/machine.h"
#include "tessera/cli/output.h"
#include "tessera/cli/progress_line.h"
#include "tessera/cli/with_planning/cluster_live.h"
#include "tessera/cli/with_planning/cluster_speeds.h"
#include "tessera/cli/with_planning/commands.h"
#include "tessera/cli/with_planning/prices.h"
#include "tessera/orchestrate/share/metrics.h"
#include "tessera/orchestrate/share/page.h"
#include "tessera/orchestrate/workloads/workload.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ClusterOptions {
  std::string trace, cluster, policy = "default", format, traces, predicted, links, page,
                              objective = "time";
  std::vector<std::string> prices;
  std::optional<double> round_s, switch_s;
  uint64_t seed = 1;
  bool json = false, list_jobs = false;
};

// A simulated run with all that its answer needs.
struct ClusterRun {
  share::Machines machines;
  share::Workload workload;
  share::Outcome outcome;
  share::Summary summary;
  bool has_prices = false;
};

// Returns the rates of the links of the machine's nodes, for what moves when a job changes.
Result<share::LinkRates> read_links(const std::string& text) {
  share::LinkRates out;
  if (text.empty()) return out;
  TESSERA_TRY(const Cluster machine, load_machine(text));
  const NodeType& node = machine.type_of(0);
  out.node = static_cast<double>(node.nics) * node.nic.rate;
  // Without a switch all devices share one link.
  out.gpu = node.inner.rate / (node.inner.switched ? 1.0 : static_cast<double>(node.devices));
  if (node.devices == 1) out.gpu = out.node;
  if (machine.parts.size() == 1 && out.is_known()) return out;
  return invalid_input(fmt::format(
      "--links: expected a machine of equal nodes with network cards, as a800, found '{}'", text));
}

// Says how many jobs pause for a constant although links were named, if there are any.
void note_constant_pauses(ClusterRun& run, share::BatchRule rule) {
  int64_t unknown = 0;
  for (const share::JobSpec& job : run.workload.jobs)
    unknown += job.state_bytes(run.machines.packed(job.gpus), rule).is_known() ? 0 : 1;
  if (unknown == 0) return;
  run.workload.left_out.push_back(fmt::format(
      "links, for {} whose bytes of state are not known: a pause is that of --switch or "
      "of the format",
      plural(unknown, "job")));
}

Result<ClusterRun> simulate_cluster(const ClusterOptions& options) {
  ClusterRun out;
  TESSERA_TRY(out.machines, share::parse_machines(options.cluster));
  TESSERA_TRY(const share::Prices prices, read_prices(options.prices, out.machines.types));
  out.has_prices = !prices.empty();
  share::PolicyOptions wanted{.seed = options.seed};
  if (options.objective == "cost") {
    if (prices.empty())
      return invalid_input("--objective cost: expected --price TYPE=USD for each type, found none");
    wanted.objective = share::Objective::kCost;
    wanted.prices = prices;
  }
  TESSERA_TRY(const auto policy, share::make_policy(options.policy, wanted));
  TESSERA_TRY(out.workload, share::read_workload(options.trace, {.format = options.format,
                                                                 .traces = options.traces,
                                                                 .predicted = options.predicted,
                                                                 .seed = options.seed,
                                                                 .machines = out.machines}));
  TESSERA_TRY_VOID(share::check_jobs(out.workload.jobs, out.machines, options.trace));
  ProgressLine line("cluster simulate");
  share::ControllerOptions settings;
  settings.round_s = options.round_s.value_or(out.workload.round_s);
  settings.switching.seconds = options.switch_s.value_or(out.workload.switch_s);
  settings.switching.live_seconds =
      options.switch_s ? *options.switch_s : out.workload.live_switch_s;
  TESSERA_TRY(settings.switching.links, read_links(options.links));
  if (settings.switching.links.is_known()) note_constant_pauses(out, policy->batch_rule());
  const size_t count = out.workload.jobs.size();
  settings.progress = [&](double now_s, size_t done) {
    line.say(fmt::format("{} of {} jobs are done at {:.1f} h", done, count, now_s / 3600));
  };
  TESSERA_TRY(out.outcome,
              share::simulate_jobs(out.workload.jobs, out.machines, *policy, settings));
  out.summary =
      share::summarize(out.workload.jobs, out.machines, out.outcome, policy->batch_rule(), prices);
  return out;
}

Json summary_json(const ClusterRun& run, const ClusterOptions& options) {
  const share::Summary& s = run.summary;
  Json out{{"trace", options.trace},
           {"format", run.workload.format},
           {"cluster", options.cluster},
           {"policy", options.policy},
           {"seed", options.seed},
           {"objective", options.objective},
           {"mean_jct_s", s.mean_jct_s},
           {"median_jct_s", s.median_jct_s},
           {"p90_jct_s", s.p90_jct_s},
           {"p99_jct_s", s.p99_jct_s},
           {"makespan_s", s.makespan_s},
           {"mean_queueing_s", s.mean_queueing_s},
           {"mean_execution_s", s.mean_execution_s},
           {"gpu_h", s.gpu_h},
           {"switching_gpu_h", s.switching_gpu_h},
           {"moved_bytes", s.moved_bytes},
           {"utilisation", s.utilisation},
           {"finish_time_fairness",
            {{"mean", s.mean_fairness}, {"worst", s.worst_fairness}, {"over_1", s.unfair}}},
           {"decisions", run.outcome.decisions},
           {"longest_decision_s", run.outcome.longest_decision_s},
           {"decisions_s", run.outcome.all_decisions_s},
           {"deadlines", s.deadlines},
           {"missed_deadlines", s.missed_deadlines},
           {"left_out", run.workload.left_out}};
  if (run.has_prices) out["cost_usd"] = s.cost_usd;
  return out;
}

Json jobs_json(const ClusterRun& run) {
  Json out = Json::array();
  for (size_t i = 0; i < run.workload.jobs.size(); ++i) {
    const share::JobSpec& job = run.workload.jobs[i];
    const share::JobOutcome& outcome = run.outcome.jobs[i];
    out.push_back({{"name", job.name},
                   {"application", job.application},
                   {"gpus", job.gpus},
                   {"submit_s", job.submit_s},
                   {"start_s", outcome.start_s},
                   {"end_s", outcome.end_s},
                   {"restarts", outcome.usage.switches},
                   {"gpu_s", outcome.usage.gpu_seconds},
                   {"moved_bytes", outcome.usage.moved_bytes},
                   {"waited_s", outcome.waited_s},
                   {"waits_for", outcome.waits_for.text},
                   {"waits_at_s", outcome.waits_for.at_s}});
  }
  return out;
}

// Returns the jobs in descending order of the time for which they waited; without --jobs the first
// ten that waited.
std::string wait_table(const ClusterRun& run, bool all) {
  const auto& jobs = run.outcome.jobs;
  std::vector<size_t> order(jobs.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return jobs[a].waited_s > jobs[b].waited_s; });
  Table table({"job", "GPUs", "JCT", "waited", "restarts"});
  std::string reasons;
  size_t shown = 0;
  for (const size_t i : order) {
    if (!all && (shown == 10 || jobs[i].waited_s <= 0)) break;
    ++shown;
    const share::JobSpec& job = run.workload.jobs[i];
    table.add({job.name, fmt::format("{}", job.gpus),
               fmt::format("{:.0f} s", jobs[i].end_s - job.submit_s),
               fmt::format("{:.0f} s", jobs[i].waited_s),
               fmt::format("{}", jobs[i].usage.switches)});
    if (jobs[i].waits_for.text.empty()) continue;
    reasons += fmt::format("  {}: at {}: {}\n", job.name, share::time_text(jobs[i].waits_for.at_s),
                           jobs[i].waits_for.text);
  }
  if (shown == 0) return "";
  return (all ? "\n" : "\nThe longest waits\n") + table.to_string() +
         (reasons.empty() ? "" : "\nWhy they waited\n" + reasons);
}

std::string cluster_text(const ClusterRun& run, const ClusterOptions& options) {
  const share::Summary& s = run.summary;
  const auto seconds = [](double value) { return fmt::format("{:.3f} s", value); };
  std::string out = fmt::format("{} of {} on {}, policy {}\n",
                                plural(static_cast<int64_t>(run.workload.jobs.size()), "job"),
                                options.trace, options.cluster, options.policy);
  const auto add = [&](const char* name, const std::string& value) {
    out += fmt::format("{:<22} {}\n", name, value);
  };
  add("mean JCT", seconds(s.mean_jct_s));
  add("median, p90, p99",
      fmt::format("{:.0f} s, {:.0f} s, {:.0f} s", s.median_jct_s, s.p90_jct_s, s.p99_jct_s));
  add("makespan", seconds(s.makespan_s));
  add("queueing, execution",
      fmt::format("{:.0f} s, {:.0f} s on average", s.mean_queueing_s, s.mean_execution_s));
  add("GPUs", fmt::format("{:.1f} h held ({} of all), {:.1f} h of them lost in switches", s.gpu_h,
                          percent(s.utilisation), s.switching_gpu_h));
  if (!options.links.empty()) add("moved state", memory_text(s.moved_bytes) + " in switches");
  add("finish-time fairness",
      fmt::format("{:.2f} on average, {:.2f} at worst, above 1 for {} of {}", s.mean_fairness,
                  s.worst_fairness, s.unfair, run.workload.jobs.size()));
  if (s.deadlines > 0)
    add("deadlines", fmt::format("{} of {} missed", s.missed_deadlines, s.deadlines));
  if (run.has_prices) add("cost", fmt::format("{:.2f} USD", s.cost_usd));
  for (const std::string& line : run.workload.left_out) add("left out", line);
  return out + wait_table(run, options.list_jobs);
}

Result<int> run_cluster(const ClusterOptions& options) {
  TESSERA_TRY(const ClusterRun run, simulate_cluster(options));
  if (!options.page.empty()) {
    const share::PageText text{
        fmt::format("{} on {} under {}", options.trace, options.cluster, options.policy),
        fmt::format("tessera cluster simulate {} --cluster {} --policy {} --seed {}", options.trace,
                    options.cluster, options.policy, options.seed)};
    TESSERA_TRY_VOID(write_file(options.page, share::to_page(text, run.workload.jobs, run.machines,
                                                             run.outcome, run.summary)));
  }
  if (!options.json) return print(cluster_text(run, options));
  Json out = summary_json(run, options);
  out["jobs"] = jobs_json(run);
  return print(dumped(out) + "\n");
}

}  // namespace

namespace {

void add_cluster_simulate(Command& cluster) {
  const auto options = std::make_shared<ClusterOptions>();
  Command command = cluster.command("simulate", "Share a cluster among jobs of a trace");
  command
      .option("TRACE", options->trace, "A file of a format below, or a generator, as ones:jobs=50")
      .required();
  command
      .option("--cluster", options->cluster,
              "Nodes x GPUs, as 16x4; of several types as k80:4x4,v100:8x4")
      .required();
  add_policy(command, options->policy, options->seed);
  std::string formats;
  std::vector<std::string> format_names;
  for (const share::WorkloadFormat& format : share::workload_formats()) {
    format_names.push_back(format.name);
    formats += fmt::format("  {:<17} {}\n", format.name, format.summary);
  }
  command.option("--format", options->format, "Of the trace; found from its head by default")
      .one_of(format_names);
  command.option("--throughputs", options->traces,
                 "Folder or file of throughputs; beside the trace by default");
  command.option("--predicted", options->predicted,
                 "Throughputs by which the policy decides, in the form of --throughputs, by which "
                 "the jobs then advance");
  command.option("--round", options->round_s, "Seconds between decisions; the format's by default")
      .at_least(0.001);
  command
      .option("--switch", options->switch_s,
              "Seconds that a job pauses when its GPUs change; the format's by default")
      .at_least(0);
  command.option(
      "--links", options->links,
      "Machine, as a800, over whose links the state of changed jobs moves: pauses follow "
      "from its bytes, and --switch is what a start takes beside");
  command.option("--price", options->prices, "TYPE=USD an hour of a GPU, once for each type")
      .one_value_each();
  command
      .option("--objective", options->objective,
              "What the policy default makes small: time, or cost under the deadlines of the jobs, "
              "by --price")
      .one_of({"time", "cost"});
  command.option("-o,--out", options->page,
                 "Write a page about the run: nodes, sizes, queue, reasons");
  command.flag("--jobs", options->list_jobs, "List all jobs, with why they waited");
  command.flag("--json", options->json, "Print JSON");
  command.footer(policies_text() + "\nFormats of traces:\n" + formats +
                 "\nExamples:\n"
                 "  tessera cluster simulate workload-1.csv --cluster 16x4 --policy tiresias\n"
                 "  tessera cluster simulate ones:jobs=50 --cluster 16x4 --seed 3 -o run.html\n"
                 "  tessera cluster simulate jobs.sacct --cluster 40x8 --policy fifo --json\n");
  command.action([options] { return run_cluster(*options); });
}

}  // namespace

void add_cluster(Commands& commands) {
  Command command =
      commands.add("cluster", "Share a cluster: simulate jobs, price their plans, or run them");
  add_cluster_simulate(command);
  add_cluster_speeds(command);
  add_cluster_live(command);
  command.footer(
      "Examples:\n"
      "  tessera cluster simulate ones:jobs=50 --cluster 16x4 --policy default\n"
      "  tessera cluster serve --cluster 1x4 --policy optimus &\n"
      "  tessera cluster submit run.toml --gpus 2 --plan 'data_parallel({})'\n"
      "  tessera cluster status\n");
}

}  // namespace tessera::cli
