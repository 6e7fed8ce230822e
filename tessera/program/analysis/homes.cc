#include <algorithm>
#include <utility>

#include "tessera/program/analysis/parts.h"

namespace tessera {

void take_shards(const Layout& from, const Tensor& source, Layout& to, const Tensor& target) {
  for (size_t t = 0; t < target.dims.size(); ++t) {
    const auto dim = std::find(source.dims.begin(), source.dims.end(), target.dims[t]);
    if (dim == source.dims.end()) continue;
    const Axes own = std::exchange(to.shards[t], {});
    const Axes& axes = from.shards[static_cast<size_t>(dim - source.dims.begin())];
    const bool free =
        std::none_of(axes.begin(), axes.end(), [&](AxisId axis) { return to.shards_over(axis); });
    to.shards[t] = free ? axes : own;
    if (free) to.grain[t] = from.grain[static_cast<size_t>(dim - source.dims.begin())];
  }
}

namespace {

// Returns the first op that reads the tensor at this stage; null if there is none.
const Op* first_reader(const Analysing& a, TensorId tensor, StageId stage) {
  for (const OpId id : a.out.consumers[tensor.index()]) {
    if (a.out.ops[id.index()].stage == stage) return &a.graph.op(id);
  }
  return nullptr;
}

PlaceId home_place(const Analysing& a, TensorId tensor) {
  return a.plan.place_of(a.home_stage(tensor));
}

size_t looped_dim(const Analysing& a, const Op& reader, TensorId tensor) {
  const size_t none = a.graph.tensor(tensor).dims.size();
  const LoopOf loop = loop_of(a.out.ops[reader.id.index()]);
  if (!loop.exists() || !loop.rims.empty()) return none;
  for (size_t i = 0; i < reader.inputs.size(); ++i) {
    if (reader.inputs[i] != tensor) continue;
    const OperandDims& operand = reader.annotation.inputs[i];
    for (size_t d = 0; d < operand.dims.size(); ++d) {
      if (leading_dim(reader.annotation, operand.dims[d]) == loop.op_dim) return d;
    }
  }
  return none;
}

// Cuts a layout further over the axes of a store entry (`over`). The dim that is cut is the one
// that the entry names; else the dim that the time loop of the first reader cuts, so that the
// loop's steps can fetch the pieces; else the first dim that the axes divide evenly; else the
// largest dim. Optimizer states and gradients are not fetched by steps, so their looped dim is
// taken only if the axes divide it evenly.
OfPlace<Layout> add_over(const Analysing& a, Layout layout, const Tensor& tensor,
                         const TensorPlan& rule) {
  const PlaceId place = a.plan.place_of(rule.home);
  const std::vector<int64_t> shape = tensor.shape();
  const Mesh& mesh = a.plan.places[place.index()].mesh;
  if (shape.empty()) return {place, normalise(std::move(layout), mesh, shape)};
  const Axes over = rule.over.numbers().empty() ? Axes() : rule.over.at(place);
  for (AxisId axis : over) {
    const int64_t n = mesh.axis(axis).size;
    if (n == 1 || layout.uses(axis)) continue;
    size_t chosen = shape.size();
    for (size_t d = 0; d < shape.size(); ++d) {
      if (!rule.dim.empty() && tensor.dims[d].name == rule.dim) chosen = d;
    }
    const auto local = [&](size_t d) {
      return cut_interval(shape[d], layout.grain[d], layout.shards[d], mesh,
                          std::vector<int64_t>(mesh.axes.size(), 0))
          .size;
    };
    const auto divides = [&](size_t d) { return local(d) >= n && local(d) % n == 0; };
    if (chosen == shape.size()) {
      const Tensor& read = tensor.of.valid() ? a.graph.tensor(tensor.of) : tensor;
      const Op* reader = first_reader(a, read.id, rule.home);
      const size_t walked = reader == nullptr ? chosen : looped_dim(a, *reader, read.id);
      if (walked < shape.size() && (!tensor.of.valid() || divides(walked))) chosen = walked;
    }
    for (size_t d = 0; d < shape.size() && chosen >= shape.size(); ++d) {
      if (divides(d)) chosen = d;
    }
    if (chosen >= shape.size()) {
      chosen = 0;
      for (size_t d = 1; d < shape.size(); ++d) {
        if (local(d) > local(chosen)) chosen = d;
      }
    }
    layout.shards[chosen].push_back(axis);
  }
  return {place, normalise(std::move(layout), mesh, shape)};
}

// Returns the op whose operand layout a tensor at rest takes, and the tensor that this op reads.
// The op is the first reader. But if only updates read the tensor itself, it is the first op that
// reads the tensor's new value (ops that work ahead do so, graph/ahead.h).
std::pair<const Op*, TensorId> first_to_read(const Analysing& a, TensorId tensor) {
  const StageId home = a.home_stage(tensor);
  const Op* reader = first_reader(a, tensor, home);
  if (reader == nullptr || reader->phase != Phase::kUpdate) return {reader, tensor};
  for (const OpId id : a.out.consumers[tensor.index()]) {
    for (const TensorId made : a.graph.op(id).outputs) {
      if (a.graph.tensor(made).update_of != tensor) continue;
      const Op* next = first_reader(a, made, home);
      if (next != nullptr && next->phase != Phase::kUpdate) return {next, made};
    }
  }
  return {reader, tensor};
}

void place_at_rest(const Analysing& a, const Tensor& tensor) {
  Layout layout = Layout::whole(tensor.dims.size());
  if (const auto [reader, read_as] = first_to_read(a, tensor.id); reader != nullptr) {
    const OpPlan& plan = a.out.ops[reader->id.index()];
    const size_t operand = static_cast<size_t>(
        std::find(reader->inputs.begin(), reader->inputs.end(), read_as) - reader->inputs.begin());
    const Mesh& mesh = a.plan.stages[plan.stage.index()].mesh;
    const OperandDims& read = reader->annotation.inputs[operand];
    layout = without_windows(operand_layout(*reader, plan, read, mesh, tensor.shape()), mesh,
                             tensor.shape());
  }
  a.out.homes[tensor.id.index()] =
      add_over(a, std::move(layout), tensor, a.plan.tensors[tensor.id.index()]);
}

void place_state(const Analysing& a, const Tensor& state) {
  const Layout& of = a.out.homes[state.of.index()].at(home_place(a, state.id));
  Layout base = of;
  const Tensor& parameter = a.graph.tensor(state.of);
  if (state.dims != parameter.dims) {  // the state has only some of the parameter's dims
    base.shards.assign(state.dims.size(), {});
    base.grain.assign(state.dims.size(), 1);  // grains of the parameter's dims come with the cuts
    take_shards(of, parameter, base, state);
  }
  a.out.homes[state.id.index()] =
      add_over(a, std::move(base), state, a.plan.tensors[state.id.index()]);
  TensorId& first = a.first_state[state.of.index()];
  if (!first.valid()) first = state.id;
}

void place_gradient(const Analysing& a, const Tensor& gradient) {
  // The gradient of a narrow copy of a parameter rests as the parameter's own gradient does.
  Tensor as_parameters = gradient;
  as_parameters.of = a.graph.parameter_of(gradient.of);
  a.out.homes[gradient.id.index()] =
      add_over(a, a.out.homes[as_parameters.of.index()].at(home_place(a, gradient.id)),
               as_parameters, a.plan.tensors[gradient.id.index()]);
}

bool persistent(Role role) {
  return role == Role::kParameter || role == Role::kBuffer || role == Role::kOptimizerState;
}

}  // namespace

void place_homes(const Analysing& a) {
  const auto is_state = [](const Tensor& tensor) {
    return tensor.role == Role::kOptimizerState && tensor.of.valid();
  };
  for (const Tensor& tensor : a.graph.tensors()) {
    if (persistent(tensor.role) && !is_state(tensor) && !tensor.update_of.valid())
      place_at_rest(a, tensor);
  }
  for (const Tensor& tensor : a.graph.tensors()) {
    if (is_state(tensor) && !tensor.update_of.valid()) place_state(a, tensor);
    if (a.graph.is_parameter_gradient(tensor.id)) place_gradient(a, tensor);
  }
}

}  // namespace tessera
