#include <algorithm>

#include "tessera/graph/kinds.h"
#include "tessera/program/analysis/parts.h"

namespace tessera {
namespace {

// Pins the op as the layout is pinned, except an op without dims, which is computed on all ranks.
void pin_as(const Analysing& a, const Op& op, const Layout& layout) {
  if (!op.annotation.dims.empty()) a.out.ops[op.id.index()].at = layout.at;
}

// Splits the op as its operand at rest is cut. If the operand rests at another place, axes are
// matched by name; the op is not changed if its mesh lacks one of these axes.
void adopt(const Analysing& a, const Op& op, const OperandDims& operand,
           const OfPlace<Layout>& rests) {
  OpPlan& plan = a.out.ops[op.id.index()];
  const std::optional<Layout> layout = translate(rests, a.plan, a.plan.place_of(plan.stage));
  if (!layout) return;
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    const int lead = leading_dim(op.annotation, operand.dims[d]);
    if (lead >= 0) plan.dims[static_cast<size_t>(lead)].axes = layout->shards[d];
  }
  pin_as(a, op, *layout);
}

// Returns whether the op makes the new value of that buffer.
bool is_new_value_of(const Analysing& a, const Op& op, TensorId buffer) {
  return a.graph.tensor(buffer).role == Role::kBuffer &&
         std::any_of(op.outputs.begin(), op.outputs.end(),
                     [&](TensorId output) { return a.graph.tensor(output).update_of == buffer; });
}

bool is_state_of_parameter(const Analysing& a, const Tensor& tensor) {
  return tensor.role == Role::kOptimizerState && tensor.of.valid() && !tensor.update_of.valid() &&
         a.graph.tensor(tensor.of).role == Role::kParameter;
}

// Returns the layout in which a parameter is updated. This is the layout of its first optimizer
// state, or the parameter's own if it has no state.
OfPlace<Layout> update_layout(const Analysing& a, TensorId parameter) {
  const OfPlace<Layout>& home = a.out.homes[parameter.index()];
  const TensorId state = a.first_state[parameter.index()];
  if (!state.valid()) return home;
  const Tensor& of = a.graph.tensor(state);
  if (of.dims == a.graph.tensor(parameter).dims) return a.out.homes[state.index()];
  const PlaceId place = home.place();
  Layout layout = home.at(place);
  take_shards(a.out.homes[state.index()].at(place), of, layout, a.graph.tensor(parameter));
  return {place, std::move(layout)};
}

// Splits op dims by the layout in which the parameter is updated (update_layout): an op dim with
// the same name as a parameter's dim is split over the axes that cut this dim. The op dim must be
// the first in its bracket in every operand.
void adopt_update(const Analysing& a, const Op& op, TensorId parameter) {
  const std::vector<Dim>& dims = a.graph.tensor(parameter).dims;
  OpPlan& plan = a.out.ops[op.id.index()];
  const auto layout = translate(update_layout(a, parameter), a.plan, a.plan.place_of(plan.stage));
  if (!layout) return;
  pin_as(a, op, *layout);
  for (size_t d = 0; d < dims.size(); ++d) {
    const int dim = op.annotation.find(dims[d].name);
    if (dim < 0 || layout->shards[d].empty()) continue;
    const auto leads = [&](const OperandDims& operand) {
      return std::none_of(operand.dims.begin(), operand.dims.end(), [&](const DimGroup& group) {
        return std::find(group.begin(), group.end(), dim) != group.end() &&
               leading_dim(op.annotation, group) != dim;
      });
    };
    const bool first =
        std::all_of(op.annotation.inputs.begin(), op.annotation.inputs.end(), leads) &&
        std::all_of(op.annotation.outputs.begin(), op.annotation.outputs.end(), leads);
    if (first) plan.dims[static_cast<size_t>(dim)].axes = layout->shards[d];
  }
}

}  // namespace

void follow(const Analysing& a, const Op& op) {
  const KindInfo* kind = op.info;
  const OpPlan& plan = a.out.ops[op.id.index()];
  if (op.inputs.empty()) return;
  const Tensor& first = a.graph.tensor(op.inputs[0]);
  if (op.phase == Phase::kUpdate) {
    if (plan.named()) return;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Tensor& input = a.graph.tensor(op.inputs[i]);
      if (is_state_of_parameter(a, input))
        return adopt(a, op, op.annotation.inputs[i], a.out.homes[input.id.index()]);
    }
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (is_new_value_of(a, op, op.inputs[i]))
        return adopt(a, op, op.annotation.inputs[i], a.out.homes[op.inputs[i].index()]);
    }
    const TensorId parameter = a.updates[op.id.index()];
    if (parameter.valid()) return adopt_update(a, op, parameter);
    const bool others_are_scalars =
        std::all_of(op.inputs.begin() + 1, op.inputs.end(),
                    [&](TensorId input) { return a.graph.tensor(input).dims.empty(); });
    if (first.role == Role::kGradient && first.of.valid() && others_are_scalars) {
      adopt(a, op, op.annotation.inputs[0], update_layout(a, first.of));
    }
    return;
  }
  if (kind == nullptr || !kind->linear || op.outputs.size() != 1) return;
  const Tensor& made = a.graph.tensor(op.outputs[0]);
  const bool makes_gradient = made.role == Role::kGradient && made.of.valid() &&
                              a.graph.tensor(made.of).role == Role::kParameter;
  if (makes_gradient && loop_of(plan).op_dim < 0 &&
      op.annotation.find(a.plan.plan.micro_batch_dim) < 0) {
    const bool rests = a.plan.tensors[made.id.index()].over_entry >= 0;
    adopt(a, op, op.annotation.outputs[0],
          rests ? a.out.homes[made.id.index()] : update_layout(a, made.of));
  } else if (op.inputs.size() == 1 && first.role == Role::kParameter &&
             plan.stage == a.home_stage(first.id) && loop_of(plan).op_dim < 0) {
    adopt(a, op, op.annotation.inputs[0], a.out.homes[first.id.index()]);
  }
}

}  // namespace tessera
