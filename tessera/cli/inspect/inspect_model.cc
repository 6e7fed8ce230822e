// Implements tessera inspect for a model, and for a plan without a model.
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/cli/inspect/inspect.h"
#include "tessera/cli/output.h"
#include "tessera/graph/kinds.h"
#include "tessera/models/contract.h"
#include "tessera/models/families.h"
#include "tessera/models/model_title.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct PhaseSum {
  int64_t ops = 0;
  double flops = 0;  // floating-point, because the sums of large models exceed 63 bits
};
using PhaseSums = std::array<PhaseSum, 3>;  // by Phase

PhaseSums sums_of(const Graph& graph) {
  PhaseSums sums;
  for (const Op& op : graph.ops()) {
    PhaseSum& sum = sums[static_cast<size_t>(op.phase)];
    ++sum.ops;
    sum.flops += static_cast<double>(op_flops(op));
  }
  return sums;
}

constexpr std::array kPhases = {Phase::kForward, Phase::kBackward, Phase::kUpdate};

int64_t parameter_bytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::kParameter && !tensor.update_of.valid()) bytes += tensor.bytes();
  }
  return bytes;
}

int64_t trained_parameters(const Graph& graph) {
  int64_t count = 0;
  for (const Tensor& tensor : graph.tensors()) {
    const bool parameter = tensor.role == Role::kParameter && !tensor.update_of.valid();
    if (parameter && tensor.trained) count += tensor.elements();
  }
  return count;
}

std::string model_json(const Model& model, const Graph& graph, const PhaseSums& sums) {
  Json ops = Json::object(), flops = Json::object();
  for (const Phase phase : kPhases) {
    const PhaseSum& sum = sums[static_cast<size_t>(phase)];
    ops[std::string(phase_name(phase))] = sum.ops;
    flops[std::string(phase_name(phase))] = sum.flops;
  }
  const Json json{{"model", model.spec},
                  {"title", model_title(model)},
                  {"batch", model.batch},
                  {"seq", model.seq},
                  {"vocab", model.vocab},
                  {"parameters", parameter_count(graph)},
                  {"trained_parameters", trained_parameters(graph)},
                  {"parameter_bytes", parameter_bytes(graph)},
                  {"tensors", graph.tensors().size()},
                  {"ops", std::move(ops)},
                  {"flops", std::move(flops)}};
  return dumped(json) + "\n";
}

std::string model_text(const Model& model, const Graph& graph, const PhaseSums& sums,
                       bool default_batch) {
  const int64_t all = parameter_count(graph), trained = trained_parameters(graph);
  std::string out = fmt::format(
      "{}\n{}\nparameters  {} ({}){}\nbatch       {}{}\ntokens      {} a step\n\n",
      model_title(model), model.spec, grouped(all), short_bytes(parameter_bytes(graph)),
      trained < all ? fmt::format(", {} of them trained", grouped(trained)) : "",
      plural(model.batch, model.seq == 1 ? "row" : "sequence"),
      default_batch ? " (default; --batch sets it)" : "", grouped(model.batch * model.seq));
  Table table({"phase", "ops", "flops a step"});
  for (const Phase phase : kPhases) {
    const PhaseSum& sum = sums[static_cast<size_t>(phase)];
    table.add({std::string(phase_name(phase)), grouped(sum.ops), short_number(sum.flops)});
  }
  if (const Status kept = check_contract(model.graph); !kept)
    out += fmt::format("contract    {}\n\n", kept.error().message);
  return out + table.to_string();
}

}  // namespace

Result<int> inspect_model(const InspectOptions& options) {
  constexpr int64_t kDefaultBatch = 8;
  const bool default_batch = options.batch == 0 && !names_graph_file(options.subject);
  TESSERA_TRY(const Model model, build_model_of(options.subject, options.batch, kDefaultBatch));
  TESSERA_TRY(const Graph graph, differentiate(model.graph, OptimizerSpec{}));
  if (options.text) return print(to_text(graph));
  const PhaseSums sums = sums_of(graph);
  return print(options.json ? model_json(model, graph, sums)
                            : model_text(model, graph, sums, default_batch));
}

Result<int> list_models(bool json) {
  if (!json) return print(model_help());
  Json families = Json::array();
  for (const ModelFamily& family : all_families()) {
    Json keys = Json::array();
    for (const ModelKeyText& key : family.keys) {
      keys.push_back({{"name", key.name},
                      {"default", key.value},
                      {"meaning", key.meaning},
                      {"choices", key.choices}});
    }
    families.push_back({{"name", family.name},
                        {"summary", family.summary},
                        {"keys", std::move(keys)},
                        {"examples", family.examples}});
  }
  return print(dumped(Json{{"families", std::move(families)}}) + "\n");
}

Result<int> inspect_plan_text(const InspectOptions& options) {
  TESSERA_TRY(const std::string text, read_file(options.subject));
  TESSERA_TRY(const Plan plan, parse_plan(text, options.subject));
  TESSERA_TRY_VOID(stage_meshes(plan));
  if (!options.op.empty() || options.rank) {
    return invalid_input(
        fmt::format("inspect: {} needs --model", options.op.empty() ? "--rank" : "--op"));
  }
  if (!options.json) {
    return print(fmt::format("# {}: {}, {} (--model shows what they do)\n{}", options.subject,
                             plural(plan.ranks(), "rank"),
                             plan.micro_batches == 1
                                 ? "1 micro-batch"
                                 : fmt::format("{} micro-batches", plan.micro_batches),
                             to_toml(plan)));
  }
  Json mesh = Json::object();
  for (const auto& [name, size] : plan.mesh) mesh[name] = size;
  const Json json{{"plan", options.subject},
                  {"ranks", plan.ranks()},
                  {"mesh", std::move(mesh)},
                  {"micro_batches", plan.micro_batches},
                  {"text", to_toml(plan)}};
  return print(dumped(json) + "\n");
}

}  // namespace tessera::cli
