// Writes the explanations of `tessera inspect`: the entries of a plan that decided the stage and
// each dim of an op, and the store keys of a tensor.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/plan/plan.h"

namespace tessera {
namespace {

std::string place_of(const Plan& plan, int line) {
  return line > 0 ? fmt::format("{}:{}", plan.file, line) : plan.file;
}

std::string split_text_of(const DimSplit& split, const Mesh& mesh) {
  std::vector<std::string> parts;
  for (AxisId axis : split.axes)
    parts.push_back(fmt::format("{}={}", mesh.axis(axis).name, mesh.axis(axis).size));
  if (split.steps > 1) {
    parts.push_back(fmt::format("time:{}{}", split.steps,
                                split.order == StepOrder::kRotated  ? " rotated"
                                : split.order == StepOrder::kNested ? " nested"
                                                                    : ""));
  }
  if (split.rims) parts.emplace_back("time:rims");
  if (!split.grown.empty()) parts.emplace_back("with its halo");
  return parts.empty() ? "not split" : "over " + join(parts, ", ");
}

const SplitEntry& entry_of(const Plan& plan, const LeftWhole& left) {
  return plan.splits[static_cast<size_t>(left.entry)];
}

const LeftWhole* find_left(const ResolvedPlan& resolved, OpId op, int dim) {
  const auto at = std::ranges::lower_bound(resolved.left_whole, std::pair{op, dim}, {},
                                           [](const LeftWhole& left) {
                                             return std::pair{left.op, left.dim};
                                           });
  const bool found = at != resolved.left_whole.end() && at->op == op && at->dim == dim;
  return found ? &*at : nullptr;
}

std::string why_text(const ResolvedPlan& resolved, const Graph& graph, const LeftWhole& left) {
  const Op& op = graph.op(left.op);
  const OpDim& dim = op.annotation.dims[static_cast<size_t>(left.dim)];
  switch (left.why) {
    case WhyWhole::kFrozen:
      return dim.mark == Mark::kFrozen && !dim.hidden
                 ? fmt::format("the kind '{}' freezes it", op.kind)
                 : fmt::format("in ops of the kind '{}' it stands behind another dim in a bracket",
                               op.kind);
    case WhyWhole::kWindow:
      return fmt::format("the kind '{}' reads it through windows, which do not move around rings",
                         op.kind);
    case WhyWhole::kNoAxis: {
      const StageId stage = resolved.ops[op.id.index()].stage;
      return fmt::format("stage {} has the mesh {}", stage.value,
                         resolved.stages[stage.index()].mesh.to_string());
    }
  }
  return "";
}

std::string dim_line(const ResolvedPlan& resolved, const Graph& graph, const Op& op, size_t d) {
  const Plan& plan = resolved.plan;
  const OpPlan& op_plan = resolved.ops[op.id.index()];
  const DimSplit& split = op_plan.dims[d];
  std::string text =
      fmt::format("  {} ({}): {}", op.annotation.dims[d].name, op.annotation.dims[d].size,
                  split_text_of(split, resolved.stages[op_plan.stage.index()].mesh));
  const LeftWhole* left = find_left(resolved, op.id, static_cast<int>(d));
  if (left != nullptr && left->entry > split.entry) {
    return text + fmt::format(" though {} (ops = \"{}\") names it: {}",
                              place_of(plan, entry_of(plan, *left).line), entry_of(plan, *left).ops,
                              why_text(resolved, graph, *left));
  }
  if (split.entry < 0 && op.phase == Phase::kBackward && op.mirror.valid()) {
    const Op& mirror = graph.op(op.mirror);
    const int m = mirror.annotation.find(op.annotation.dims[d].name);
    if (m >= 0 && find_left(resolved, mirror.id, m) != nullptr)
      return text + fmt::format(", as in '{}'", mirror.path);
  }
  if (split.entry < 0) return text + ", no entry names it";
  const SplitEntry& entry = plan.splits[static_cast<size_t>(split.entry)];
  text += fmt::format(", by {} (ops = \"{}\")", place_of(plan, entry.line), entry.ops);
  if (op.phase == Phase::kBackward && entry.phase.value_or(Phase::kForward) == Phase::kForward) {
    text += fmt::format(", inherited from '{}'", graph.op(op.mirror).path);
  }
  return text;
}

// Returns whether the op is computed from parameters and inputs alone, and no stage entry names the
// op or any op before it on the way (stages.h).
bool is_of_sources(const ResolvedPlan& resolved, const Graph& graph, const Op& op) {
  return resolved.ops[op.id.index()].stage_entry < 0 &&
         std::all_of(op.inputs.begin(), op.inputs.end(), [&](TensorId input) {
           const OpId producer = graph.tensor(input).producer;
           return !producer.valid() || is_of_sources(resolved, graph, graph.op(producer));
         });
}

// Returns the first op at the op's stage that reads its output; null if there is none.
const Op* reader_beside(const ResolvedPlan& resolved, const Graph& graph, const Op& op) {
  const StageId stage = resolved.ops[op.id.index()].stage;
  for (const Op& reader : graph.ops()) {
    if (resolved.ops[reader.id.index()].stage != stage) continue;
    for (const TensorId output : op.outputs) {
      if (std::find(reader.inputs.begin(), reader.inputs.end(), output) != reader.inputs.end())
        return &reader;
    }
  }
  return nullptr;
}

std::string stage_line(const ResolvedPlan& resolved, const Graph& graph, const Op& op) {
  const OpPlan& op_plan = resolved.ops[op.id.index()];
  std::string text =
      fmt::format("  stage {} of {}, mesh {}", op_plan.stage.value, resolved.stages.size(),
                  resolved.stages[op_plan.stage.index()].mesh.to_string());
  if (op_plan.stage_entry >= 0) {
    const StageEntry& entry = resolved.plan.stages[static_cast<size_t>(op_plan.stage_entry)];
    return text +
           fmt::format(", by {} (ops = \"{}\")", place_of(resolved.plan, entry.line), entry.ops);
  }
  if (resolved.stages.size() == 1) return text;
  if (op.mirror.valid()) return text + fmt::format(", with '{}'", graph.op(op.mirror).path);
  const bool is_free = op.phase == Phase::kForward && is_of_sources(resolved, graph, op);
  if (const Op* reader = is_free ? reader_beside(resolved, graph, op) : nullptr; reader != nullptr)
    return text + fmt::format(", with '{}', which reads it", reader->path);
  return text + (op.phase == Phase::kForward ? ", with the op before it" : ", with its tensor");
}

}  // namespace

std::string explain(const ResolvedPlan& resolved, const Graph& graph, OpId id) {
  const Op& op = graph.op(id);
  std::string text = fmt::format("{} ({}, {})\n{}\n", op.path, op.kind, phase_name(op.phase),
                                 stage_line(resolved, graph, op));
  for (size_t d = 0; d < op.annotation.dims.size(); ++d)
    text += dim_line(resolved, graph, op, d) + "\n";
  const OpPlan& plan = resolved.ops[id.index()];
  const Mesh& mesh = resolved.stages[plan.stage.index()].mesh;
  for (const AxisPin& pin : plan.at)
    text += fmt::format("  at {} = {} alone\n", mesh.axis(pin.axis).name, pin.coordinate);
  return text;
}

std::vector<WholeOps> ops_left_whole(const ResolvedPlan& resolved, const Graph& graph) {
  std::vector<WholeOps> out;
  std::map<std::tuple<int, WhyWhole, std::string>, size_t> known;  // the reason, as in the text
  for (const LeftWhole& left : resolved.left_whole) {
    if (left.entry <= resolved.ops[left.op.index()].dims[static_cast<size_t>(left.dim)].entry)
      continue;
    const auto [it, fresh] =
        known.try_emplace({left.entry, left.why, why_text(resolved, graph, left)}, out.size());
    if (fresh) out.push_back({left, {}});
    out[it->second].ops.push_back(left.op);
  }
  return out;
}

std::string to_text(const WholeOps& whole, const ResolvedPlan& resolved, const Graph& graph) {
  const SplitEntry& entry = entry_of(resolved.plan, whole.first);
  const size_t count = whole.ops.size();
  std::string named = graph.op(whole.ops[0]).path;
  if (count > 1) named += ", " + graph.op(whole.ops[1]).path;
  if (count > 2) named += fmt::format(" and {} more", count - 2);
  return fmt::format("{} (ops = \"{}\", dim = \"{}\") leaves {} op{} whole, as {}: {}",
                     place_of(resolved.plan, entry.line), entry.ops, entry.dim, count,
                     count == 1 ? "" : "s", why_text(resolved, graph, whole.first), named);
}

std::string explain_tensor(const ResolvedPlan& resolved, const Graph& graph, TensorId id) {
  const Plan& plan = resolved.plan;
  const TensorPlan& tensor_plan = resolved.tensors[id.index()];
  const Tensor& tensor = graph.tensor(id);
  std::string text = fmt::format("{} ({})\n", tensor.name, role_name(tensor.role));
  const auto add = [&](int entry_index, const std::string& what) {
    if (entry_index < 0) return;
    const StoreEntry& entry = plan.stores[static_cast<size_t>(entry_index)];
    text += fmt::format("  {}, by {} (tensors = \"{}\")\n", what, place_of(plan, entry.line),
                        entry.tensors);
  };
  if (tensor_plan.has_over) {
    const auto& names = *plan.stores[static_cast<size_t>(tensor_plan.over_entry)].over;
    add(tensor_plan.over_entry,
        names.empty() ? std::string("stored whole")
                      : fmt::format("stored over {}{}", join(names, ", "),
                                    tensor_plan.dim.empty() ? "" : " on dim " + tensor_plan.dim));
  }
  if (tensor_plan.keep_over_entry >= 0) {
    const auto entry = static_cast<size_t>(tensor_plan.keep_over_entry);
    add(tensor_plan.keep_over_entry,
        "kept over " + join(*plan.stores[entry].keep_over, ", ") + " for the backward pass");
  }
  const Tier rests = tensor_plan.cache ? tensor_plan.cache->rest : tensor_plan.tier;
  add(tensor_plan.tier_entry, fmt::format("tier {}{}", tier_name(rests),
                                          tensor_plan.cache ? ", some rows on the device" : ""));
  add(tensor_plan.recompute_entry, tensor_plan.recompute ? "recomputed" : "kept");
  return text;
}

}  // namespace tessera
