// tessera report: makes one HTML page about simulated plans, about the choices that a search for a
// plan tried, or about a run. Prints the record of a run as text if no page is asked for.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/base/text_file.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/libraries/auto_plan.h"
#include "tessera/cli/machine.h"
#include "tessera/cli/output.h"
#include "tessera/cli/planned_model.h"
#include "tessera/cli/with_planning/commands.h"
#include "tessera/cli/with_planning/pricing.h"
#include "tessera/cli/with_planning/watched_run.h"
#include "tessera/cluster/cluster.h"
#include "tessera/compile/compile.h"
#include "tessera/compile/optimizer_text.h"
#include "tessera/models/model.h"
#include "tessera/models/model_title.h"
#include "tessera/plan/load.h"
#include "tessera/report/headline.h"
#include "tessera/report/report.h"
#include "tessera/report/run_record.h"
#include "tessera/simulate/simulate.h"

namespace tessera::cli {
namespace {

struct ReportOptions {
  std::string model, cluster, out, curve, optimizer;  // cluster "": this machine
  PricingOptions pricing;
  std::vector<std::string> plans;
  int64_t batch = 0;
  bool json = false;  // of a run
};

Status check_report_options(const ReportOptions& options) {
  if (options.model.empty() != options.plans.empty() ||
      (options.model.empty() && options.curve.empty())) {
    return invalid_input(
        "report: expected MODEL with --plan, or --curve, or both, or the folder of a run (tessera "
        "report --help)");
  }
  if (options.out.empty()) return invalid_input("report: expected --out PAGE.html, found none");
  return {};
}

// Returns the headline of a model, with the number of its parameters if the model can be built.
std::string headline_of(const std::string& spec, int64_t batch) {
  const auto model = build_model(spec, batch);
  return model_title(model ? model->spec : spec, model ? parameter_count(model->graph) : 0);
}

Status add_curve(const ReportOptions& options, Report& page) {
  TESSERA_TRY(const std::string json, read_file(options.curve));
  TESSERA_TRY(page.curve, parse_plan_curve(json, options.curve));
  page.model = page.curve->model;
  page.title =
      fmt::format("{} on {}", headline_of(page.model, page.curve->batch), page.curve->cluster);
  page.subtitle =
      fmt::format("Batch {}, planner {}", grouped(page.curve->batch), page.curve->planner);
  return {};
}

// Simulates the plans. The runs of the page point to the compiled plans, which `planned` keeps.
Status add_runs(const ReportOptions& options, std::vector<Compiled>& planned, Report& page) {
  const std::string machine = options.cluster.empty() ? "local" : options.cluster;
  TESSERA_TRY(const Cluster cluster, load_machine(machine));
  SimulateOptions simulate_options;
  simulate_options.events = true;
  page.capacity_bytes = cluster.parts.front().type.device.memory_bytes;
  for (const ClusterPart& part : cluster.parts) {
    page.capacity_bytes = std::min(page.capacity_bytes, part.type.device.memory_bytes);
  }
  TESSERA_TRY(const std::string model, planned_model(options.model));
  std::vector<std::string> said;  // with what plans are priced
  Compiler compiler;
  for (const std::string& plan : options.plans) {
    TESSERA_TRY(const Pricing pricing,
                decide_pricing(options.pricing, cluster,
                               {model, plan, options.batch, options.model, &compiler}));
    simulate_options.style = pricing.style;
    CompileTexts texts{model, "", options.batch, pricing.precision};
    TESSERA_TRY(texts.optimizer, parse_optimizer_text(options.optimizer));
    TESSERA_TRY(texts.plan, find_auto({plan, model, options.batch, pricing.precision,
                                       &pricing.cluster, pricing.style, 0, texts.optimizer}));
    if (std::find(said.begin(), said.end(), pricing.said) == said.end())
      said.push_back(pricing.said);
    TESSERA_TRY(Compiled item, compiler.compile(texts));
    TESSERA_TRY(const PlanText text,
                load_plan_text(texts.plan, item.model->graph, "", item.compute));
    TESSERA_TRY(Simulation simulation, simulate(*item.lowering, pricing.cluster, simulate_options));
    const bool plain = item.computes_in() == DType::kFloat32;
    const std::string label = plan_label(texts.plan);
    const std::string name =
        plain ? label : fmt::format("{} in {}", label, dtype_name(item.computes_in()));
    // The token embedding of a model that reads text is no table that anybody asks about.
    page.runs.push_back(
        {name, text.text, item.lowering.get(), std::move(simulation),
         item.model->text > 0 ? std::vector<std::string>() : tables_of(item.model->graph)});
    planned.push_back(std::move(item));
  }
  const Compiled& first = planned.front();
  page.model = first.model->spec;
  page.title = fmt::format("{} on {}", model_title(*first.model), machine_headline(cluster));
  page.subtitle =
      fmt::format("Batch {}, cluster {}, {}", grouped(first.batch), machine, join(said, "; "));
  return {};
}

// Returns the path of a run's record if `path`, which was given in place of MODEL, is the run's
// folder or the record itself; else "".
std::string record_of_run(const std::string& path) {
  std::error_code ignored;
  if (path.ends_with(kRunRecordFile)) return path;
  if (!std::filesystem::is_directory(path, ignored)) return "";
  return (std::filesystem::path(path) / kRunRecordFile).string();
}

// Returns the record of a run for programs: what a reader of the page sees first, and the ranks.
std::string run_json(const RunRecord& record, const std::optional<WatchedRun>& watched) {
  const RunRecord::Step& last = record.steps.back();
  nlohmann::ordered_json out{
      {"verdict", record_verdict(record)},
      {"steps", record.steps.size()},
      {"last_step", last.step},
      {"last_loss",
       std::isfinite(last.loss) ? nlohmann::ordered_json(last.loss) : nlohmann::ordered_json()},
      {"watch", watched ? watched_json(*watched) : nlohmann::ordered_json()}};
  return dumped(out) + "\n";
}

// Prints the record of a run as text or, if a page is asked for, writes the page about it.
Result<int> report_run(const std::string& file, const ReportOptions& options) {
  TESSERA_TRY(const std::string text, read_text_file(file, kMostDataTextBytes));
  TESSERA_TRY(RunRecord record, parse_run_record(text, file));
  const std::string folder = std::filesystem::path(file).parent_path().string();
  TESSERA_TRY(std::optional<WatchedRun> watched,
              read_watched_run(folder, options.cluster, options.pricing));
  if (options.json) return print(run_json(record, watched));
  if (options.out.empty()) {
    return print(draw(record) +
                 (watched ? "\n" + draw(watched->report, watched->predicted_for) : std::string()));
  }
  Report page;
  page.title = "Run";
  if (!record.starts.empty()) {
    RunRecord::Start& start = record.starts.back();
    page.model = start.model;
    // As on the page about a plan: the token embedding of a model that reads text is no table.
    const auto model = build_model(start.model, 1);
    if (model && model->text > 0) start.tables.clear();
    page.title = fmt::format("{} on {}", model_title(start.model, start.parameters),
                             plural(start.ranks, "rank"));
  }
  page.subtitle = "Run " + folder;
  page.record = std::move(record);
  if (watched) {
    page.watch = std::move(watched->report);
    page.predicted_for = watched->predicted_for;
  }
  TESSERA_TRY(const std::string html, to_html(page));
  TESSERA_TRY_VOID(write_file(options.out, html));
  return print(fmt::format("{}: {} of {}\n", options.out, short_bytes(std::ssize(html)),
                           plural(std::ssize(page.record->steps), "step")));
}

Result<int> report(const ReportOptions& options) {
  const std::string record = record_of_run(options.model);
  if (!record.empty() && options.plans.empty() && options.curve.empty()) {
    return report_run(record, options);
  }
  TESSERA_TRY_VOID(check_report_options(options));
  if (options.json)
    return invalid_input("report: expected the folder of a run with --json, found a page");
  std::vector<Compiled> planned;
  Report page;
  if (!options.curve.empty()) TESSERA_TRY_VOID(add_curve(options, page));
  if (!options.plans.empty()) TESSERA_TRY_VOID(add_runs(options, planned, page));
  TESSERA_TRY(const std::string html, to_html(page));
  TESSERA_TRY_VOID(write_file(options.out, html));
  std::vector<std::string> parts;
  if (page.curve) {
    const size_t choices = page.curve->estimated.size() + page.curve->simulated.size();
    parts.push_back(plural(static_cast<int64_t>(choices), "choice"));
  }
  if (!page.runs.empty()) {
    parts.push_back(plural(static_cast<int64_t>(page.runs.size()), "plan"));
  }
  return print(fmt::format("{}: {} of {}\n", options.out,
                           short_bytes(static_cast<int64_t>(html.size())), join(parts, " and ")));
}

}  // namespace

void add_report(Commands& commands) {
  auto options = std::make_shared<ReportOptions>();
  Command command = commands.add(
      "report",
      "One HTML page: timeline, memory, communication, costs, plan beside graph; or a run");
  command.option("MODEL", options->model,
                 "What is trained; or the folder of a run: its loss, throughput, memory and "
                 "restarts, and which of its ranks is slow, as a page with --out, else as text");
  command.option("--plan", options->plans,
                 "Plan file, recipe call or auto; again for each plan to be compared");
  command.option("--curve", options->curve,
                 "What 'tessera plan MODEL --json' printed: throughput against memory; with or "
                 "without MODEL and plans");
  command.option("--cluster", options->cluster,
                 "Preset with nodes (dgx-a100:8), a TOML file, or local (default); of a run: the "
                 "machine for which the times of its ranks are predicted");
  add_batch(command, options->batch);
  add_pricing(command, options->pricing);
  add_optimizer(command, options->optimizer);
  command.option("-o,--out", options->out, "The page; without it a run's folder is drawn as text");
  command.flag("--json", options->json, "Of a run: what came of it and its ranks, for programs");
  command.footer(
      "Examples:\n  tessera report gpt:layers=4,hidden=512,heads=8,seq=256,vocab=1024 --cluster "
      "dgx-a100 --batch 16 \\\n    --plan 'megatron(tp=2,pp=2,dp=2,micro_batches=4)' --plan "
      "'zero(stage=3,dp=8)' -o report.html\n"
      "  tessera plan gpt:layers=4,hidden=512,heads=8,seq=256,vocab=1024 --cluster dgx-a100 "
      "--batch 16 --json > answer.json\n  tessera report --curve answer.json -o curve.html\n"
      "  tessera report runs/a -o run.html\n"
      "  tessera train run.toml --set folder=runs/a --set watch=10 && tessera report runs/a");
  command.action([options] { return report(*options); });
}

}  // namespace tessera::cli
