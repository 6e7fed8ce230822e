// tessera report: makes one HTML page about simulated plans, or about the choices that a search for
// a plan tried. Prints the record of a run as text.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "tessera/base/text.h"
#include "tessera/base/text_file.h"
#include "tessera/cli/auto_plan.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/machine.h"
#include "tessera/cli/output.h"
#include "tessera/cli/with_planning/commands.h"
#include "tessera/cluster/cluster.h"
#include "tessera/compile/compile.h"
#include "tessera/compile/optimizer_text.h"
#include "tessera/plan/load.h"
#include "tessera/report/report.h"
#include "tessera/report/run_record.h"
#include "tessera/simulate/simulate.h"

namespace tessera::cli {
namespace {

struct ReportOptions {
  std::string model, cluster = "local", style = "tessera", precision = "float32", out, curve,
                     optimizer;
  std::vector<std::string> plans;
  int64_t batch = 0;
};

Status check_report_options(const ReportOptions& options) {
  if (options.model.empty() != options.plans.empty() ||
      (options.model.empty() && options.curve.empty())) {
    return invalid_input(
        "report: expected MODEL with --plan, or --curve, or both (tessera report --help)");
  }
  if (options.out.empty()) return invalid_input("report: expected --out PAGE.html, found none");
  return {};
}

Status add_curve(const ReportOptions& options, Report& page) {
  TESSERA_TRY(const std::string json, read_file(options.curve));
  TESSERA_TRY(page.curve, parse_plan_curve(json, options.curve));
  page.title = page.curve->model;
  page.subtitle = fmt::format("batch {} on {}, planner {}", grouped(page.curve->batch),
                              page.curve->cluster, page.curve->planner);
  return {};
}

// Simulates the plans. The runs of the page point to the compiled plans, which `planned` keeps.
Status add_runs(const ReportOptions& options, std::vector<Compiled>& planned, Report& page) {
  TESSERA_TRY(const Cluster cluster, load_machine(options.cluster));
  SimulateOptions simulate_options;
  TESSERA_TRY(simulate_options.style, parse_style(options.style));
  simulate_options.events = true;
  page.capacity_bytes = cluster.parts.front().type.device.memory_bytes;
  for (const ClusterPart& part : cluster.parts) {
    page.capacity_bytes = std::min(page.capacity_bytes, part.type.device.memory_bytes);
  }
  for (const std::string& plan : options.plans) {
    CompileTexts texts{options.model, "", options.batch, options.precision};
    TESSERA_TRY(texts.optimizer, parse_optimizer_text(options.optimizer));
    TESSERA_TRY(texts.plan, find_auto({plan, options.model, options.batch, options.precision,
                                       &cluster, simulate_options.style, 0, texts.optimizer}));
    TESSERA_TRY(Compiled item, compile(texts));
    TESSERA_TRY(const PlanText text,
                load_plan_text(texts.plan, item.model->graph, "", item.compute));
    TESSERA_TRY(Simulation simulation, simulate(*item.lowering, cluster, simulate_options));
    const bool plain = item.computes_in() == DType::kFloat32;
    const std::string label = plan_label(texts.plan);
    const std::string name =
        plain ? label : fmt::format("{} in {}", label, dtype_name(item.computes_in()));
    page.runs.push_back({name, text.text, item.lowering.get(), std::move(simulation),
                         tables_of(item.model->graph)});
    planned.push_back(std::move(item));
  }
  page.title = planned.front().model->spec;
  page.subtitle =
      fmt::format("batch {} on {} ({}), style {}", grouped(planned.front().batch), options.cluster,
                  plural(cluster.devices(), "device"), to_string(simulate_options.style));
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

Result<int> report_run(const std::string& file) {
  TESSERA_TRY(const std::string text, read_text_file(file, kMostDataTextBytes));
  TESSERA_TRY(const RunRecord record, parse_run_record(text, file));
  return print(draw(record));
}

Result<int> report(const ReportOptions& options) {
  const std::string record = record_of_run(options.model);
  if (!record.empty() && options.plans.empty() && options.curve.empty()) return report_run(record);
  TESSERA_TRY_VOID(check_report_options(options));
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
                 "What is trained; or the folder of a run, whose loss, throughput and memory are "
                 "then drawn as text");
  command.option("--plan", options->plans,
                 "Plan file, recipe call or auto; again for each plan to be compared");
  command.option("--curve", options->curve,
                 "What 'tessera plan MODEL --json' printed: throughput against memory; with or "
                 "without MODEL and plans");
  command.option("--cluster", options->cluster,
                 "Preset with nodes (dgx-a100:8), a TOML file, or local (default)");
  add_batch(command, options->batch);
  add_precision(command, options->precision);
  add_optimizer(command, options->optimizer);
  command.option("--style", options->style,
                 "How the framework executes (default tessera; docs/reference/styles.md)");
  command.option("-o,--out", options->out, "The page; required but for a run's folder");
  command.footer(
      "Examples:\n  tessera report gpt:layers=4,hidden=512,heads=8,seq=256,vocab=1024 --cluster "
      "dgx-a100 --batch 16 \\\n    --plan 'megatron(tp=2,pp=2,dp=2,micro_batches=4)' --plan "
      "'zero(stage=3,dp=8)' -o report.html\n"
      "  tessera plan gpt:layers=4,hidden=512,heads=8,seq=256,vocab=1024 --cluster dgx-a100 "
      "--batch 16 --json > answer.json\n  tessera report --curve answer.json -o curve.html\n"
      "  tessera report runs/a");
  command.action([options] { return report(*options); });
}

}  // namespace tessera::cli
