// tessera verify: prints the proof as a table or as JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/cli/libraries/auto_plan.h"
#include "tessera/cli/output.h"
#include "tessera/cli/planned_model.h"
#include "tessera/cli/with_runtime/commands.h"
#include "tessera/compile/optimizer_text.h"
#include "tessera/models/model.h"
#include "tessera/plan/load.h"
#include "tessera/runtime/run_config.h"
#include "tessera/runtime/session.h"

namespace tessera::cli::with_runtime {
namespace {

using Json = nlohmann::ordered_json;

Result<VerifyConfig> verify_config(const VerifyOptions& options) {
  VerifyConfig config;
  TESSERA_TRY(config.model, planned_model(options.model));
  config.plan = options.plan;
  for (const std::string& text : options.changes) {
    TESSERA_TRY(PlanChange change, parse_plan_change(text));
    config.changes.push_back(std::move(change));
  }
  config.batch = options.batch;
  config.steps = options.steps;
  config.seed = options.seed;
  config.ranks = options.ranks;
  config.tolerance = options.tolerance;
  config.timeout_s = options.timeout_s;
  config.weights = options.weights;
  config.device = options.device;
  TESSERA_TRY(OptimizerSpec optimizer, parse_optimizer_text(options.optimizer));
  config.optimizer.kind = optimizer.kind;
  config.optimizer.groups = std::move(optimizer.groups);
  if (options.no_clip) config.optimizer.clip = 0;
  RunConfig run;
  run.optimizer = config.optimizer;
  for (const std::string& assignment : options.assignments) {
    if (!assignment.starts_with("optimizer.")) {
      return invalid_input(
          fmt::format("--set: expected a key optimizer.<...>, found '{}'", assignment));
    }
    TESSERA_TRY_VOID(set_run_key(run, assignment));
  }
  config.optimizer = run.optimizer;
  if (options.data.empty()) return config;
  if (auto read = set_run_key(run, "data=" + options.data); !read)
    return invalid_input("verify: --data: " + read.error().message);
  config.data = run.data;
  return config;
}

std::string json_text(const VerifyReport& report) {
  Json json{{"max_rel_error",
             {{"loss", report.loss_error},
              {"gradients", report.gradients_error},
              {"parameters", report.parameters_error}}},
            {"bytes", {{"predicted", report.bytes_predicted}, {"counted", report.bytes_counted}}},
            {"peak_memory_bytes",
             {{"predicted", report.peak_predicted}, {"counted", report.peak_counted}}},
            {"ok", report.ok}};
  if (report.lossy) json["lossy"] = true;
  if (report.not_finite > 0) json["not_finite"] = report.not_finite;
  if (const WithinNoise& within = report.within_noise; within.tensors > 0) {
    json["within_noise"] = {{"tensors", within.tensors},
                            {"worst", within.worst},
                            {"error", within.error},
                            {"noise", within.noise}};
  }
  return dumped(json) + "\n";
}

std::string table_text(const VerifyOptions& options, const VerifyReport& report) {
  const auto error = [](double value) { return fmt::format("{:.2e}", value); };
  std::string out =
      fmt::format("{} under {}: {} against 1, float64, batch {}, {}\n\n", options.model,
                  plan_label(options.plan), plural(report.ranks, "rank"), options.batch,
                  plural(report.steps, "step"));
  for (const std::string& change : options.changes) {
    const size_t colon = change.find(':');
    out += fmt::format("after step {}: {}\n", change.substr(0, colon), change.substr(colon + 1));
  }
  if (!options.changes.empty()) out += "\n";
  Table errors({"largest relative error", "found", "allowed", "in"});
  const std::string allowed = fmt::format("{:.0e}", options.tolerance);
  const std::string any = "any", margin = fmt::format("{:.0e}", VerifyConfig{}.lossy_tolerance);
  const std::string& others = report.lossy ? any : allowed;
  errors.add({"loss", error(report.loss_error), report.lossy ? margin : allowed, ""});
  errors.add({"gradients", error(report.gradients_error), others, report.worst_gradient});
  errors.add({"parameters", error(report.parameters_error), others, report.worst_parameter});
  Table counts({"all ranks, all steps", "predicted", "counted"});
  counts.add({"bytes sent", grouped(report.bytes_predicted), grouped(report.bytes_counted)});
  for (const auto& [kind, bytes] : report.bytes_by_kind) {
    counts.add({"  " + kind, "", grouped(bytes)});
  }
  counts.add({"messages", grouped(report.messages_predicted), grouped(report.messages_counted)});
  counts.add(
      {"peak memory of a rank", grouped(report.peak_predicted), grouped(report.peak_counted)});
  out += errors.to_string() + "\n" + counts.to_string() + "\n";
  if (const WithinNoise& within = report.within_noise; within.tensors > 0) {
    out += fmt::format(
        "within rounding: {} not counted above, since serial runs whose sums are rounded in "
        "another "
        "way differ as much; most {}, by {} (serial runs by {})\n",
        plural(within.tensors, "tensor"), within.worst, error(within.error), error(within.noise));
  }
  if (report.not_finite > 0) {
    out += fmt::format(
        "not finite: {} of the serial run with elements that are NaN or infinite; there the plan "
        "is "
        "equal if its elements are the same\n",
        plural(report.not_finite, "tensor"));
  }
  if (report.ok && report.lossy) {
    return out +
           "lossy: the plan compresses what ranks exchange, so it is not equal to the serial plan; "
           "the loss of each step is within the margin\n";
  }
  if (report.ok) out += "equal: the plan computes what the serial plan computes\n";
  return out;
}

}  // namespace

Result<int> verify(const VerifyOptions& given) {
  VerifyOptions options = given;
  TESSERA_TRY(options.batch, batch_of(given.model, given.batch, kDefaultBatch));
  TESSERA_TRY(VerifyConfig config, verify_config(options));
  TESSERA_TRY(options.plan,
              find_auto({options.plan, options.model, options.batch, "float64", nullptr, Style(),
                         options.ranks, specification(config.optimizer)}));
  config.plan = options.plan;
  TESSERA_TRY(const VerifyReport report, verify_plan(config));
  const int printed = print(options.json ? json_text(report) : table_text(options, report));
  if (printed != 0) return printed;
  if (report.ok) return 0;
  return check_failed(fmt::format("verify: not equal: {}", report.why));
}

}  // namespace tessera::cli::with_runtime
