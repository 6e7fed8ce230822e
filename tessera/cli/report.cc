// tessera report: simulated plans as one HTML page.
#include <fmt/format.h>

#include <memory>

#include "tessera/base/text.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/output.h"
#include "tessera/cluster/cluster.h"
#include "tessera/compile/compile.h"
#include "tessera/plan/load.h"
#include "tessera/report/report.h"
#include "tessera/simulate/simulate.h"

namespace tessera::cli {
namespace {

struct ReportOptions {
  std::string model, cluster = "local", style = "tessera", precision = "float32", out;
  std::vector<std::string> plans;
  int64_t batch = 0;
};

Result<int> report(const ReportOptions& options) {
  TESSERA_TRY(const Cluster cluster, load_cluster(options.cluster));
  SimulateOptions simulate_options;
  TESSERA_TRY(simulate_options.style, parse_style(options.style));
  simulate_options.events = true;
  std::vector<Compiled> planned;  // the page's runs point at their lowerings
  Report page;
  page.capacity_bytes = cluster.parts.front().type.device.memory_bytes;
  for (const ClusterPart& part : cluster.parts) {
    page.capacity_bytes = std::min(page.capacity_bytes, part.type.device.memory_bytes);
  }
  for (const std::string& plan : options.plans) {
    TESSERA_TRY(Compiled item, compile({options.model, plan, options.batch, options.precision}));
    TESSERA_TRY(const PlanText text, load_plan_text(plan, item.model->graph, "", item.compute));
    TESSERA_TRY(Simulation simulation, simulate(*item.lowering, cluster, simulate_options));
    const bool plain = item.computes_in() == DType::kFloat32;
    const std::string name =
        plain ? plan : fmt::format("{} in {}", plan, dtype_name(item.computes_in()));
    page.runs.push_back({name, text.text, item.lowering.get(), std::move(simulation)});
    planned.push_back(std::move(item));
  }
  page.title = planned.front().model->spec;
  page.subtitle =
      fmt::format("batch {} on {} ({}), style {}", grouped(planned.front().batch), options.cluster,
                  plural(cluster.devices(), "device"), to_string(simulate_options.style));
  TESSERA_TRY(const std::string html, to_html(page));
  TESSERA_TRY_VOID(write_file(options.out, html));
  return print(fmt::format("{}: {} of {}\n", options.out,
                           short_bytes(static_cast<int64_t>(html.size())),
                           plural(static_cast<int64_t>(options.plans.size()), "plan")));
}

}  // namespace

void add_report(Commands& commands) {
  auto options = std::make_shared<ReportOptions>();
  Command command = commands.add(
      "report", "One HTML page: timeline, memory, communication, costs, plan beside graph");
  command.option("MODEL", options->model, "What is trained").required();
  command
      .option("--plan", options->plans,
              "Plan file or recipe call; again for each plan to be compared")
      .required();
  command.option("--cluster", options->cluster,
                 "Preset with nodes (dgx-a100:8), a TOML file, or local (default)");
  command
      .option("--batch", options->batch,
              "Sequences a step over all ranks (default: one a replica and micro-batch)")
      .at_least(1);
  add_precision(command, options->precision);
  command.option("--style", options->style,
                 "How the framework executes (default tessera; docs/reference/styles.md)");
  command.option("-o,--out", options->out, "The page").required();
  command.footer(
      "Example:\n  tessera report gpt:layers=4,hidden=512,heads=8,seq=256,vocab=1024 --cluster "
      "dgx-a100 --batch 16 \\\n    --plan 'megatron(tp=2,pp=2,dp=2,micro_batches=4)' --plan "
      "'zero(stage=3,dp=8)' -o report.html");
  command.action([options] { return report(*options); });
}

}  // namespace tessera::cli
