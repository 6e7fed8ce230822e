#include "tessera/export/export.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/plan/load.h"

namespace tessera {
namespace {

Result<int64_t> batch_of_request(const ExportRequest& request, DType dtype, Compiler& compiler) {
  TESSERA_TRY(const int64_t batch, compiler.batch_of(request.model, request.batch, 0, dtype));
  if (batch > 0) return batch;
  TESSERA_TRY(const auto smallest, compiler.model(request.model, 1, dtype));
  TESSERA_TRY(const Plan plan, load_plan(request.plan, smallest->graph));
  return smallest_batch(plan);
}

// Returns the settings in which the two differ, as "the plan has recompute=selective, this text
// says recompute=norm+core"; "" if there are none.
std::string difference(const ExportSettings& plan, const ExportSettings& said) {
  const auto words = split_text(plan.str(), ' '), others = split_text(said.str(), ' ');
  const auto only = [](const std::vector<std::string>& in, const std::vector<std::string>& not_in) {
    std::vector<std::string> out;
    for (const std::string& word : in) {
      if (std::find(not_in.begin(), not_in.end(), word) == not_in.end()) out.push_back(word);
    }
    return out.empty() ? "nothing" : join(out, " ");
  };
  if (words == others) return "";
  return fmt::format("the plan has {}, this text says {}", only(words, others),
                     only(others, words));
}

Status check_family(const ExportRequest& request, const Model& model) {
  const std::vector<std::string>& families = request.target->families;
  if (families.empty() ||
      std::find(families.begin(), families.end(), model.family) != families.end())
    return {};
  return invalid_input(fmt::format(
      "{}: {} cannot express this: it trains the families {}; expected a model of one of them, "
      "found '{}'",
      plan_label(request.plan), request.target->name, join(families, ", "), model.family));
}

struct Predicted {
  double step_s = 0;
  int64_t memory_bytes = 0;
};
Result<Predicted> predict_step(const std::string& model, const std::string& plan, int64_t batch,
                               const std::string& precision, const Cluster& cluster,
                               const SimulateOptions& options) {
  TESSERA_TRY(const Compiled compiled, compile({model, plan, batch, precision}));
  TESSERA_TRY(const Simulation result, simulate(*compiled.lowering, cluster, options));
  Predicted out{result.step_time_s, 0};
  for (const RankResult& role : result.roles)
    out.memory_bytes = std::max(out.memory_bytes, role.memory.total_bytes());
  return out;
}

}  // namespace

Result<Exported> export_plan(const ExportRequest& request) {
  Exported out;
  TESSERA_TRY(const DType compute, parse_dtype(request.precision));
  Compiler own(1);
  Compiler& compiler = request.compiler == nullptr ? own : *request.compiler;
  const DType dtype = storage_dtype(compute);
  TESSERA_TRY(const int64_t batch, batch_of_request(request, dtype, compiler));
  TESSERA_TRY(out.model, compiler.model(request.model, batch, dtype));
  const Model& model = *out.model;
  TESSERA_TRY_VOID(check_family(request, model));
  TESSERA_TRY(PlanText plan, load_plan_text(request.plan, model.graph, "", compute));
  TESSERA_TRY(Recognized found, recognize({out.model, plan, compute, &compiler}));
  ExportJob job{found.settings, found.origins,     model,      plan_label(request.plan),
                plan.file,      request.node_size, found.notes};
  TESSERA_TRY(out.text, request.target->write(job));
  // Reads the text back. If the framework could not express a setting, the settings read back
  // differ in it.
  TESSERA_TRY(const ReadSettings back,
              read_settings(*request.target, out.text, found.settings.ranks(), model.graph));
  if (const std::string lost = difference(found.settings, back.settings); !lost.empty()) {
    job.notes.push_back(lost);
    TESSERA_TRY(out.text, request.target->write(job));
  }
  out.notes = std::move(job.notes);
  if (request.target->start) {
    out.notes.push_back(
        fmt::format("for {}; start: {}", request.target->version, request.target->start(job)));
  }
  out.settings = std::move(found.settings);
  out.plan_text = std::move(plan.text);
  return out;
}

const ExportTarget* find_target_of_plan(const ExportRequest& request) {
  ExportRequest asked = request;
  Compiler own(1);
  if (asked.compiler == nullptr) asked.compiler = &own;
  for (const ExportTarget& target : export_targets()) {
    asked.target = &target;
    if (export_plan(asked)) return &target;
  }
  return nullptr;
}

Result<ReadBack> read_export(const ExportTarget& target, const std::string& text, int64_t ranks,
                             const Model& model) {
  ReadBack out;
  TESSERA_TRY(ReadSettings read, read_settings(target, text, ranks, model.graph));
  out.settings = std::move(read.settings);
  out.unread = std::move(read.unread);
  TESSERA_TRY(const Plan plan, plan_of(out.settings, model.graph));
  out.plan_text =
      fmt::format("# {} of a configuration of {}\n{}", plan.file, target.name, to_toml(plan));
  return out;
}

Result<RoundTrip> check_export(const ExportRequest& request, const Exported& exported,
                               const Cluster& cluster, const SimulateOptions& options) {
  RoundTrip out;
  TESSERA_TRY(out.back, read_export(*request.target, exported.text, exported.settings.ranks(),
                                    *exported.model));
  const int64_t batch = exported.settings.batch;
  TESSERA_TRY(const Predicted given, predict_step(exported.model->spec, exported.plan_text, batch,
                                                  request.precision, cluster, options));
  TESSERA_TRY(const Predicted back,
              predict_step(exported.model->spec, out.back.plan_text, out.back.settings.batch,
                           "float32", cluster, options));
  out.step_s = given.step_s;
  out.memory_bytes = given.memory_bytes;
  out.back_step_s = back.step_s;
  out.back_memory_bytes = back.memory_bytes;
  return out;
}

}  // namespace tessera
