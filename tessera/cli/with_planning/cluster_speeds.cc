#include "tessera/cli/with_planning/cluster_speeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/memory_text.h"
#include "tessera/base/text.h"
#include "tessera/base/toml_reader.h"
#include "tessera/cli/machine.h"
#include "tessera/cli/output.h"
#include "tessera/cli/planned_model.h"
#include "tessera/cli/progress_line.h"
#include "tessera/cli/with_planning/plan_speeds.h"
#include "tessera/cli/with_planning/pricing.h"
#include "tessera/compile/optimizer_text.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct SpeedsOptions {
  std::string model, cluster, optimizer = "adamw", plans_file, out;
  std::vector<std::string> plans, placements;  // NAME=PLAN; as "233"
  std::vector<int64_t> gpus;
  PricingOptions pricing;
  int64_t batch = 0;
  bool json = false;
};

// Reads "NAME=PLAN"; a plan without a name is named by its recipe.
NamedPlan named_plan(const std::string& text) {
  const size_t equals = text.find('='), bracket = std::min(text.find('('), text.size());
  if (equals < bracket)
    return {std::string(trim(text.substr(0, equals))), std::string(trim(text.substr(equals + 1)))};
  return {text.substr(0, bracket), text};
}

// Reads a file of lines NAME = "PLAN".
Status read_plans(const std::string& path, std::vector<NamedPlan>& plans) {
  TESSERA_TRY(const std::string text, read_file(path));
  TESSERA_TRY(const toml::table table, parse_toml(text, path));
  const TomlReader reader(table, "plans", path, 1);
  for (const auto& [key, node] : reader.in_order()) {
    NamedPlan& plan = plans.emplace_back(NamedPlan{std::string(key->str()), ""});
    TESSERA_TRY_VOID(reader.string(plan.name, plan.text));
  }
  return {};
}

Result<std::vector<NamedPlan>> plans_of(const SpeedsOptions& options) {
  std::vector<NamedPlan> out;
  if (!options.plans_file.empty()) TESSERA_TRY_VOID(read_plans(options.plans_file, out));
  for (const std::string& text : options.plans) out.push_back(named_plan(text));
  if (out.empty()) out.push_back({"auto", "auto"});
  for (const NamedPlan& plan : out) {
    if (plan.name.empty() || plan.text.empty()) {
      return invalid_input(
          fmt::format("--plan: expected NAME=PLAN, as ga='data_parallel({{}})', found '{}={}'",
                      plan.name, plan.text));
    }
    const bool is_once = std::count_if(out.begin(), out.end(), [&](const NamedPlan& other) {
                           return other.name == plan.name;
                         }) == 1;
    if (!is_once) {
      return invalid_input(
          fmt::format("--plan: expected a name for each plan, found two plans '{}'", plan.name));
    }
  }
  return out;
}

// Returns the placements that are named; else those of the numbers of GPUs, packed on few nodes.
Result<std::vector<std::vector<int>>> placements_of(const SpeedsOptions& options,
                                                    const Cluster& cluster) {
  std::vector<std::vector<int>> out;
  for (const std::string& text : options.placements) {
    TESSERA_TRY(out.emplace_back(), parse_placement(text));
  }
  std::vector<int64_t> sizes = options.gpus;
  const int64_t all = cluster.devices(), node = cluster.type_of(0).devices;
  if (sizes.empty() && out.empty()) {
    for (int64_t gpus = 1; gpus < node; gpus *= 2) sizes.push_back(gpus);
    for (int64_t gpus = node; gpus < all; gpus *= 2) sizes.push_back(gpus);
    sizes.push_back(all);
  }
  for (const int64_t gpus : sizes) {
    if (gpus < 1 || gpus > all) {
      return invalid_input(fmt::format("--gpus: expected at most {} GPUs, those of {}, found {}",
                                       all, cluster.name, gpus));
    }
    out.push_back(packed_placement(gpus, node));
  }
  return out;
}

// Returns the fastest row of each number of GPUs and nodes, by its place in the list.
std::vector<bool> fastest_of(const std::vector<SpeedRow>& rows) {
  std::map<std::vector<int>, size_t> best;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto [at, is_new] = best.emplace(rows[i].placement, i);
    if (!is_new && rows[i].step_s < rows[at->second].step_s) at->second = i;
  }
  std::vector<bool> out(rows.size());
  for (const auto& [placement, row] : best) out[row] = true;
  return out;
}

std::string first_line(const std::string& text) {
  const size_t end = text.find('\n');
  return end == std::string::npos ? text : text.substr(0, end);
}

std::string speeds_text(const Speeds& speeds, const SpeedsOptions& options,
                        const Cluster& cluster) {
  std::string out =
      fmt::format("{} on {}, batch {}\n", options.model, machine_title(cluster), options.batch);
  const std::vector<bool> is_fastest = fastest_of(speeds.rows);
  Table table({"placement", "plan", "step", "memory", "fastest", "as"});
  for (size_t i = 0; i < speeds.rows.size(); ++i) {
    const SpeedRow& row = speeds.rows[i];
    table.add({placement_text(row.placement), row.plan, short_seconds(row.step_s),
               memory_text(static_cast<double>(row.memory_bytes)), is_fastest[i] ? "yes" : "",
               first_line(row.text)});
  }
  if (!speeds.rows.empty()) out += table.to_string();
  for (const std::string& line : speeds.left_out) out += fmt::format("left out  {}\n", line);
  return out;
}

Json speeds_json(const Speeds& speeds, const SpeedsOptions& options, const Cluster& cluster) {
  const std::vector<bool> is_fastest = fastest_of(speeds.rows);
  Json rows = Json::array();
  for (size_t i = 0; i < speeds.rows.size(); ++i) {
    const SpeedRow& row = speeds.rows[i];
    rows.push_back({{"plan", row.plan},
                    {"placement", row.placement},
                    {"step_time_s", row.step_s},
                    {"memory_bytes", row.memory_bytes},
                    {"state_bytes", row.state_bytes},
                    {"gpu_state_bytes", row.gpu_state_bytes},
                    {"fastest", static_cast<bool>(is_fastest[i])},
                    {"text", row.text}});
  }
  return {{"model", options.model},
          {"cluster", cluster.name},
          {"batch", options.batch},
          {"rows", std::move(rows)},
          {"left_out", speeds.left_out}};
}

Result<int> run_speeds(const SpeedsOptions& options) {
  SpeedQuestion question;
  question.named = options.model;
  TESSERA_TRY(question.model, planned_model(options.model));
  TESSERA_TRY(question.cluster, load_machine(options.cluster));
  TESSERA_TRY(question.optimizer, parse_optimizer_text(options.optimizer));
  TESSERA_TRY(question.plans, plans_of(options));
  TESSERA_TRY(question.placements, placements_of(options, question.cluster));
  question.batch = options.batch;
  question.pricing = options.pricing;
  ProgressLine line("cluster speeds");
  question.progress = [&](const std::string& what) { line.say(what); };
  TESSERA_TRY(const Speeds speeds, find_speeds(question));
  line.end();
  if (speeds.rows.empty()) {
    return check_failed(fmt::format("cluster speeds: no plan runs on any of the placements: {}",
                                    join(speeds.left_out, "; ")));
  }
  if (!options.out.empty()) TESSERA_TRY_VOID(write_file(options.out, to_csv(speeds)));
  return print(options.json ? dumped(speeds_json(speeds, options, question.cluster)) + "\n"
                            : speeds_text(speeds, options, question.cluster));
}

}  // namespace

void add_cluster_speeds(Command& cluster) {
  const auto options = std::make_shared<SpeedsOptions>();
  Command command =
      cluster.command("speeds", "Price the plans of a model on placements of a cluster");
  command.option("MODEL", options->model, "What is trained").required();
  command.option("--cluster", options->cluster, "A machine, as a800:8").required();
  command.option("--batch", options->batch, "Sequences a step over all ranks")
      .at_least(1)
      .required();
  command
      .option("--gpus", options->gpus, "Numbers of GPUs, as 1,2,4; default: 1, 2, 4, ... up to all")
      .delimiter(',')
      .one_value_each()
      .ranks();
  command
      .option("--placements", options->placements,
              "GPUs on each node, a digit a node, as 8,44,233; default: --gpus on as few nodes as "
              "possible")
      .delimiter(',')
      .one_value_each();
  command
      .option("--plan", options->plans,
              "NAME=PLAN, with {} for the number of GPUs and {micro} for the number of "
              "micro-batches that is fastest; default: auto")
      .one_value_each();
  command.option("--plans", options->plans_file, "File of lines NAME = \"PLAN\"");
  add_pricing(command, options->pricing);
  add_optimizer(command, options->optimizer);
  command.option("-o,--out", options->out,
                 "Write the table as CSV, for cluster simulate --throughputs");
  command.flag("--json", options->json, "Print JSON");
  command.footer(
      "Example:\n"
      "  tessera cluster speeds gpt:layers=24,hidden=1024,heads=16 --cluster a800:8 --batch 64 \\\n"
      "      --gpus 1,2,4,8 --plan 'ga=data_parallel({}, micro_batches={micro})' --plan auto \\\n"
      "      -o throughput/gpt.csv\n");
  command.action([options] { return run_speeds(*options); });
}

}  // namespace tessera::cli
