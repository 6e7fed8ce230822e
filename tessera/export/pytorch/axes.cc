// Finds what each axis of the mesh is for, and refuses what PyTorch cannot run whatever the layouts
// are.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/export/compare.h"
#include "tessera/export/pytorch/facts.h"
#include "tessera/graph/kinds.h"

namespace tessera::pytorch {
namespace {

std::string at_line(const Facts& facts, int line, const std::string& entry) {
  const std::string where =
      line > 0 ? fmt::format("{}:{}", facts.plan.file, line) : facts.plan.file;
  return fmt::format("{} ({})", where, entry);
}

// `Cuts` lists what an axis cuts of ops. Each number is the split entry that says so; unset: the axis
// cuts none of it.
struct Cuts {
  std::optional<int> batch, features, experts, tokens, small;
  static void take(std::optional<int>& what, int entry) {
    if (!what) what = entry;
  }
};

// Adds what a dim of the op is.
void add_cut(Cuts& cuts, const Facts& facts, const Op& op, size_t d, int entry) {
  const auto in = [&](const OperandDims& operand) { return operand.contains(static_cast<int>(d)); };
  const OpDim& dim = op.annotation.dims[d];
  if (dim.name == facts.plan.micro_batch_dim) return Cuts::take(cuts.batch, entry);
  bool of_weight = false, of_other = false;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const bool weight = parameter_read(*facts.graph, op.inputs[i]) != nullptr;
    (weight ? of_weight : of_other) |= in(op.annotation.inputs[i]);
  }
  const bool made = in(op.annotation.outputs[0]);
  switch (*info_of(op).work) {
    case WorkClass::kMatmul:
    case WorkClass::kConvolution:
      if (of_weight) {
        return Cuts::take(of_other && made ? cuts.experts : cuts.features, entry);
      }
      // A product of activations is a part of attention: its heads belong to features, tokens do
      // not.
      return Cuts::take(dim.name == "heads" || dim.name == "group" ? cuts.features : cuts.tokens,
                        entry);
    case WorkClass::kLookup: return Cuts::take(of_weight ? cuts.features : cuts.small, entry);
    case WorkClass::kAttention:
      return Cuts::take(dim.name == "heads" || dim.name == "group" ? cuts.features : cuts.tokens,
                        entry);
    case WorkClass::kScan: return Cuts::take(cuts.tokens, entry);
    case WorkClass::kRouting: return Cuts::take(cuts.experts, entry);
    case WorkClass::kElementwise:
    case WorkClass::kNorm:
    case WorkClass::kLoss:
    case WorkClass::kOptimizer:
    case WorkClass::kMove: return Cuts::take(cuts.small, entry);
  }
}

Cuts cuts_of(const Facts& facts, const std::string& axis) {
  Cuts out;
  for (const Op& op : facts.graph->ops()) {
    if (op.phase != Phase::kForward) continue;
    const OpPlan& planned = facts.resolved.ops[op.id.index()];
    for (size_t d = 0; d < planned.dims.size(); ++d) {
      const std::vector<std::string> axes = axes_of(facts, op, d);
      if (std::find(axes.begin(), axes.end(), axis) != axes.end())
        add_cut(out, facts, op, d, planned.dims[d].entry);
    }
  }
  return out;
}

Status find_use(Facts& facts, UsedAxis& axis) {
  const Cuts cuts = cuts_of(facts, axis.name);
  const auto refuse = [&](const std::optional<int>& entry, const std::string& why,
                          const std::string& nearest) {
    return cannot_run(split_place(facts, entry.value_or(-1)), why, nearest);
  };
  if (cuts.experts) {
    return refuse(
        cuts.experts,
        fmt::format(
            "the axis '{}' cuts experts: torch.distributed.tensor.parallel has no style that "
            "sends tokens to them (2.13; grouped_mm works on the experts of a rank)",
            axis.name),
        "whole experts: cut the batch over this axis (fsdp(dp=N) shards their parameters)");
  }
  if (cuts.tokens) {
    return refuse(cuts.tokens,
                  fmt::format("the axis '{}' cuts the tokens of products or attention", axis.name),
                  "tokens cut between the products of tensor ranks alone "
                  "(megatron(tp=N,sequence_shard=true))");
  }
  if (cuts.batch && cuts.features) {
    return refuse(cuts.features,
                  fmt::format("the axis '{}' cuts the batch of some products and the features of "
                              "others (2-D and 3-D products)",
                              axis.name),
                  "an axis of its own for each (megatron(tp=N,dp=M))");
  }
  if (cuts.features) {
    axis.use = AxisUse::kTensor;
    axis.entry = *cuts.features;
    return {};
  }
  if (cuts.batch) {
    axis.entry = *cuts.batch;
    return {};  // replicas, until find_rest() finds shards over it
  }
  return refuse(
      cuts.small,
      fmt::format("the axis '{}' cuts neither the batch nor features of products", axis.name),
      "a mesh without it");
}

Status check_pieces(const Facts& facts) {
  for (const Op& op : facts.graph->ops()) {
    if (op.phase != Phase::kForward) continue;
    const OpPlan& planned = facts.resolved.ops[op.id.index()];
    for (size_t d = 0; d < planned.dims.size(); ++d) {
      int64_t pieces = 1;
      for (const std::string& name : axes_of(facts, op, d)) {
        for (const UsedAxis& axis : facts.axes) pieces *= axis.name == name ? axis.size : 1;
      }
      const OpDim& dim = op.annotation.dims[d];
      if (dim.name == facts.plan.micro_batch_dim) pieces *= facts.plan.micro_batches;
      if (pieces == 1 || dim.size % pieces == 0) continue;
      int64_t divisor = pieces;
      while (dim.size % divisor != 0) --divisor;
      return cannot_run(split_place(facts, planned.dims[d].entry),
                        fmt::format("it cuts '{}' of '{}', which has {} elements, in {} unequal "
                                    "pieces",
                                    dim.name, op.path, dim.size, pieces),
                        fmt::format("{} pieces", divisor));
    }
  }
  return {};
}

}  // namespace

tl::unexpected<Error> cannot_run(const std::string& where, const std::string& why,
                                 const std::string& nearest) {
  return invalid_input(
      fmt::format("{}: PyTorch cannot run this: {}; nearest: {}", where, why, nearest));
}

std::string split_place(const Facts& facts, int entry) {
  return entry < 0 ? facts.plan.file
                   : entry_text(facts.plan, facts.plan.splits[static_cast<size_t>(entry)]);
}

std::string store_place(const Facts& facts, int entry) {
  return entry < 0 ? facts.plan.file
                   : entry_text(facts.plan, facts.plan.stores[static_cast<size_t>(entry)]);
}

std::vector<std::string> axes_of(const Facts& facts, const Op& op, size_t dim) {
  const OpPlan& planned = facts.resolved.ops[op.id.index()];
  const Mesh& mesh = facts.resolved.stages[planned.stage.index()].mesh;
  std::vector<std::string> out;
  if (dim >= planned.dims.size()) return out;
  for (const AxisId id : planned.dims[dim].axes) {
    if (mesh.axis(id).size > 1) out.push_back(mesh.axis(id).name);
  }
  return out;
}

Status check_entries(const Facts& facts) {
  const Plan& plan = facts.plan;
  const auto refuse = [&](int line, const std::string& entry, const std::string& why,
                          const std::string& nearest) {
    return cannot_run(at_line(facts, line, entry), why, nearest);
  };
  for (const SplitEntry& split : plan.splits) {
    if (split.steps > 1 || split.rims)
      return cannot_run(entry_text(plan, split), "it has no loops over time", "no steps in `over`");
    if (split.computes_halo)
      return cannot_run(entry_text(plan, split), "it has no halos", "a cut of the batch");
  }
  for (const LoopEntry& loop : plan.loops) {
    return refuse(loop.line, fmt::format("ops = \"{}\", dim = \"{}\"", loop.ops, loop.dim),
                  "it has no loops over time", "the plan without the loop, or more micro_batches");
  }
  for (const PinEntry& pin : plan.pins) {
    return refuse(pin.line, fmt::format("pin of ops = \"{}\"", pin.ops),
                  "it has no op on one rank of an axis alone", "a split of the op");
  }
  for (const CompressEntry& entry : plan.compress) {
    return refuse(entry.line, fmt::format("tensors = \"{}\"", entry.tensors),
                  "it sends what it has", "precision = { gradient = \"bfloat16\" }");
  }
  for (const StageEntry& stage : plan.stages) {
    if (!stage.mesh.empty()) {
      return cannot_run(entry_text(plan, stage), "it gives no stage a mesh of its own",
                        "the plan's mesh for all stages");
    }
  }
  for (const ReorderEntry& entry : plan.reorders) {
    return refuse(entry.line, fmt::format("dim = \"{}\"", entry.dim), "it reorders no dim",
                  "the plan without it");
  }
  if (plan.outer) return refuse(0, "outer", "it has no outer steps", "replicas");
  if (!plan.schedule_table.empty())
    return refuse(plan.schedule_line, "schedule", "this file takes no table", "\"1f1b\"");
  if (!plan.device_order.empty()) {
    return refuse(plan.device_order.line, "device_order",
                  "its launcher numbers ranks along the mesh", "the plan without it");
  }
  if (plan.micro_batch_dim != "batch") {
    return refuse(plan.micro_batches_line, "micro_batch_dim", "micro-batches are of the batch",
                  "\"batch\"");
  }
  return {};
}

Status find_axes(Facts& facts) {
  for (const auto& [name, size] : facts.plan.mesh) {
    if (size == 1) continue;
    UsedAxis axis{name, size, AxisUse::kReplicas, -1};
    if (name == facts.plan.stage_axis) {
      axis.use = AxisUse::kStages;
    } else {
      TESSERA_TRY_VOID(find_use(facts, axis));
    }
    facts.axes.push_back(std::move(axis));
  }
  const UsedAxis* tensor = nullptr;
  for (const UsedAxis& axis : facts.axes) {
    if (axis.use != AxisUse::kTensor) continue;
    if (tensor != nullptr) {
      return cannot_run(split_place(facts, axis.entry),
                        fmt::format("features are cut over two axes, '{}' and '{}' (2-D products)",
                                    tensor->name, axis.name),
                        fmt::format("one axis of {} ranks", tensor->size * axis.size));
    }
    tensor = &axis;
  }
  return check_pieces(facts);
}

int64_t Facts::size_of(AxisUse use) const {
  int64_t out = 1;
  for (const UsedAxis& axis : axes) out *= axis.use == use ? axis.size : 1;
  return out;
}

const UsedAxis* Facts::tensor_axis() const {
  const auto found = std::find_if(
      axes.begin(), axes.end(), [](const UsedAxis& axis) { return axis.use == AxisUse::kTensor; });
  return found == axes.end() ? nullptr : &*found;
}

}  // namespace tessera::pytorch
