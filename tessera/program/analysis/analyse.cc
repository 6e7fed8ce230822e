#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/graph/ahead.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/optimizers.h"
#include "tessera/program/analysis/parts.h"

namespace tessera {
namespace {

// Removes from the time loop over which an op sums the skew of all axes that cut no dim of the op.
// Ranks along such an axis compute the same value, and with a skew they would sum in
// different orders. Their replicas would then differ by rounding errors, and a checkpoint, which
// has only one replica, could not restore the others.
void sum_replicas_in_one_order(const Op& op, OpPlan& plan) {
  const LoopOf loop = loop_of(plan);
  if (!loop.exists() || loop.split.skew.empty()) return;
  bool sums = false;
  for (size_t output = 0; output < op.annotation.outputs.size(); ++output)
    sums = sums || op.annotation.reduces(loop.op_dim, output);
  if (!sums) return;
  const auto cuts_nothing = [&](const SkewAxis& skew) {
    return std::none_of(plan.dims.begin(), plan.dims.end(), [&](const DimSplit& split) {
      return std::find(split.axes.begin(), split.axes.end(), skew.axis) != split.axes.end();
    });
  };
  DimSplit& split = plan.dims[static_cast<size_t>(loop.op_dim)];
  const size_t before = split.skew.size();
  std::erase_if(split.skew, cuts_nothing);
  // Nested rings have as many steps as all their axes together have ranks. If an axis was
  // removed, the number no longer fits, so the loop is not skewed at all.
  if (split.order == StepOrder::kNested && split.skew.size() < before) split.skew.clear();
  if (split.skew.empty()) split.order = StepOrder::kAligned;
}

// Checks that a tensor dim with the name of the micro-batch dim is made of the op dim of that
// name alone. Needed only if there are several micro-batches.
Status check_micro_batch_dim(const Analysing& a, const Op& op) {
  const std::string& name = a.plan.plan.micro_batch_dim;
  const int dim_of_op = op.annotation.find(name);
  const auto check = [&](TensorId id, const OperandDims& operand) -> Status {
    const Tensor& tensor = a.graph.tensor(id);
    for (size_t d = 0; d < operand.dims.size(); ++d) {
      const DimGroup& group = operand.dims[d];
      const bool in_group =
          dim_of_op >= 0 && std::find(group.begin(), group.end(), dim_of_op) != group.end();
      if (in_group == (tensor.dims[d].name == name) && (!in_group || group.size() == 1)) continue;
      return invalid_input(fmt::format(
          "{}: micro_batches = {}: op '{}' relates dim '{}' of tensor '{}' to something else; "
          "use micro_batches = 1",
          a.plan.plan.file, a.plan.plan.micro_batches, op.path, tensor.dims[d].name, tensor.name));
    }
    return {};
  };
  for (size_t i = 0; i < op.inputs.size(); ++i)
    TESSERA_TRY_VOID(check(op.inputs[i], op.annotation.inputs[i]));
  for (size_t i = 0; i < op.outputs.size(); ++i)
    TESSERA_TRY_VOID(check(op.outputs[i], op.annotation.outputs[i]));
  return {};
}

// Returns whether all inputs of the op are at rest or made in the prologue. This is false for a
// constant that a forward block makes.
bool reads_what_is_ahead(const Analysing& a, const Op& op) {
  return std::all_of(op.inputs.begin(), op.inputs.end(), [&](TensorId input) {
    const OpId producer = a.graph.tensor(input).producer;
    return !producer.valid() || a.out.blocks[producer.index()].kind == BlockKind::kPrologue;
  });
}

bool kept_for_the_step(const Analysing& a, const Op& op) {
  return std::all_of(op.outputs.begin(), op.outputs.end(), [&](TensorId output) {
    return a.plan.tensors[output.index()].keep == Keep::kStep;
  });
}

// Returns whether the op is a cast of a parameter that rests in shards on the device.
bool works_on_shards(const Analysing& a, const Op& op) {
  const KindInfo* kind = op.info;
  if (kind == nullptr || !kind->linear || op.inputs.size() != 1) return false;
  const TensorPlan& input = a.plan.tensors[op.inputs[0].index()];
  return a.graph.tensor(op.inputs[0]).role == Role::kParameter && !input.over.numbers().empty() &&
         input.tier == Tier::kDevice;
}

BlockRef phase_block(const Analysing& a, const Op& op) {
  return {op.phase == Phase::kForward ? BlockKind::kForward : BlockKind::kBackward,
          a.plan.ops[op.id.index()].stage.value};
}

Status assign_blocks(const Analysing& a) {
  const bool many = a.plan.plan.micro_batches > 1;
  enum class Dependence : uint8_t { kNone, kInside, kAfter };
  std::vector<Dependence> tensors(a.graph.tensors().size(), Dependence::kNone);
  const std::vector<bool> behind = behind_updates(a.graph);
  for (const Op& op : a.graph.ops()) {
    Dependence before = Dependence::kNone;
    OpId culprit;
    for (TensorId input : op.inputs) {
      if (tensors[input.index()] > before) {
        before = tensors[input.index()];
        culprit = a.graph.tensor(input).producer;
      }
    }
    const bool inside = op.annotation.find(a.plan.plan.micro_batch_dim) >= 0;
    if (many) TESSERA_TRY_VOID(check_micro_batch_dim(a, op));
    if (behind[op.id.index()]) {
      a.out.blocks.emplace_back(BlockKind::kUpdate);
    } else if (!many) {
      // With one micro-batch the phase decides. There is one exception: an op that reads only
      // tensors at rest runs in the prologue if its result is kept for the step, or if it works
      // on shards from which blocks gather what they need.
      const bool ahead = !inside && before == Dependence::kNone && reads_what_is_ahead(a, op) &&
                         (kept_for_the_step(a, op) || works_on_shards(a, op));
      a.out.blocks.push_back(ahead ? BlockRef(BlockKind::kPrologue) : phase_block(a, op));
    } else if (inside) {
      if (before == Dependence::kAfter) {
        return invalid_input(fmt::format(
            "{}: micro_batches = {}: op '{}' works on one micro-batch but reads what '{}' makes "
            "of all of them; use micro_batches = 1",
            a.plan.plan.file, a.plan.plan.micro_batches, op.path, a.graph.op(culprit).path));
      }
      a.out.blocks.push_back(phase_block(a, op));
    } else {
      a.out.blocks.emplace_back(before == Dependence::kNone ? BlockKind::kPrologue
                                                            : BlockKind::kUpdate);
    }
    a.out.once_a_step.push_back(!many || !inside);
    for (TensorId output : op.outputs) {
      const Tensor& tensor = a.graph.tensor(output);
      const bool per_micro_batch =
          std::any_of(tensor.dims.begin(), tensor.dims.end(),
                      [&](const Dim& dim) { return dim.name == a.plan.plan.micro_batch_dim; });
      Dependence made = before;
      if (inside) made = per_micro_batch || !many ? Dependence::kInside : Dependence::kAfter;
      tensors[output.index()] = made;
    }
  }
  return {};
}

// Moves backward ops to the weight block of their stage, if the schedule has one: those whose results are read only by the weight block itself, by updates and by sums over the step.
void set_weight_parts_apart(const Analysing& a) {
  std::set<StageId> apart;
  for (const auto& row : a.plan.schedule) {
    for (const BlockRun& run : row) {
      if (run.kind == BlockRun::kWeight) apart.insert(StageId(static_cast<int32_t>(run.stage)));
    }
  }
  if (apart.empty()) return;
  for (auto op = a.graph.ops().rbegin(); op != a.graph.ops().rend(); ++op) {
    BlockRef& block = a.out.blocks[op->id.index()];
    const StageId stage = a.plan.ops[op->id.index()].stage;
    if (block.kind != BlockKind::kBackward || !apart.contains(stage)) continue;
    const BlockRef weight{BlockKind::kWeight, block.chunk};
    const bool waits = std::all_of(op->outputs.begin(), op->outputs.end(), [&](TensorId output) {
      const auto& readers = a.out.consumers[output.index()];
      return std::all_of(readers.begin(), readers.end(), [&](OpId reader) {
        const BlockRef where = a.out.blocks[reader.index()];
        return where == weight || where.kind == BlockKind::kUpdate;
      });
    });
    if (waits) block = weight;
  }
}

}  // namespace

bool Analysis::sums_micro_batches(const Graph& graph, TensorId tensor) const {
  const Tensor& t = graph.tensor(tensor);
  if (shapes.micro_batches == 1 || !t.producer.valid() || once_a_step[t.producer.index()])
    return false;
  return std::none_of(t.dims.begin(), t.dims.end(),
                      [&](const Dim& dim) { return dim.name == shapes.micro_batch_dim; });
}

Result<Analysis> analyse(const Graph& graph, const ResolvedPlan& plan) {
  Analysis out;
  out.shapes = {&graph, plan.plan.micro_batch_dim, plan.plan.micro_batches, false};
  out.tensor_shapes.reserve(graph.tensors().size());
  for (const Tensor& tensor : graph.tensors())
    out.tensor_shapes.push_back(out.shapes.shape(tensor.id));
  out.ops = plan.ops;
  out.consumers = graph.consumers();
  out.homes.resize(graph.tensors().size());
  const std::vector<TensorId> updates = updated_parameters(graph);
  std::vector<TensorId> first_state(graph.tensors().size());
  const Analysing a{graph, plan, updates, out, first_state};
  for (const Op& op : graph.ops()) sum_replicas_in_one_order(op, out.ops[op.id.index()]);
  TESSERA_TRY_VOID(assign_blocks(a));
  set_weight_parts_apart(a);
  place_homes(a);
  for (const Op& op : graph.ops()) follow(a, op);
  return out;
}

}  // namespace tessera
