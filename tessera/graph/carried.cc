#include "tessera/graph/carried.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/graph/kinds.h"

namespace tessera {
namespace {

// Makes `output` the new value of `buffer`.
void becomes(GraphBuilder& g, TensorId buffer, TensorId output) {
  const Tensor old = g.tensor(buffer);
  Tensor& made = g.graph().tensor(output);
  made.name = "updated." + old.name;
  made.role = Role::kBuffer;
  made.update_of = buffer;
}

bool is_new_value_of_a_buffer(const Graph& graph, TensorId id) {
  const TensorId old = graph.tensor(id).update_of;
  return old.valid() && graph.tensor(old).role == Role::kBuffer;
}

}  // namespace

void carry(GraphBuilder& g, TensorId buffer, TensorId value, const Carry& how) {
  if (!g.ok()) return;
  // The builder's op() is not used, because it would add the open scopes before the name, and the
  // buffer's name already has them.
  Op op;
  op.kind = "carry";
  op.path = g.tensor(buffer).name + ".carry";
  op.phase = Phase::kUpdate;
  op.inputs = {buffer, value};
  op.attributes = {{"keep", how.keep}, {"factor", how.factor}, {"offset", how.offset}};
  auto inferred = infer_op(g.graph(), op.kind, op.inputs, op.attributes);
  if (!inferred) {
    return g.fail(fmt::format("op '{}' ({}): {}", op.path, op.kind, inferred.error().message));
  }
  op.annotation = std::move(inferred->annotation);
  Tensor made;
  made.dims = std::move(inferred->outputs[0]);
  made.dtype = inferred->dtypes[0];
  op.outputs = {g.graph().add_tensor(std::move(made))};
  becomes(g, buffer, op.outputs[0]);
  g.graph().add_op(std::move(op));
}

std::vector<bool> carried_buffers(const Graph& graph) {
  std::vector<bool> carried(graph.tensors().size(), false);
  for (const Tensor& tensor : graph.tensors()) {
    if (is_new_value_of_a_buffer(graph, tensor.id)) carried[tensor.update_of.index()] = true;
  }
  return carried;
}

bool has_updates(const Graph& graph) {
  return std::any_of(graph.ops().begin(), graph.ops().end(),
                     [](const Op& op) { return op.phase == Phase::kUpdate; });
}

Result<WithoutUpdates> without_updates(const Graph& forward) {
  WithoutUpdates out;
  std::vector<bool> gone(forward.tensors().size(), false);
  for (const Op& op : forward.ops()) {
    if (op.phase != Phase::kUpdate) continue;
    CarriedUpdate update{op.path, op.kind, op.attributes, {}, {}};
    for (const TensorId input : op.inputs) update.inputs.push_back(forward.tensor(input).name);
    for (const TensorId output : op.outputs) {
      if (!is_new_value_of_a_buffer(forward, output)) {
        return invalid_input(
            fmt::format("update op '{}' of a forward graph: expected the new value "
                        "of a buffer, found '{}'",
                        op.path, forward.tensor(output).name));
      }
      update.buffers.push_back(forward.tensor(forward.tensor(output).update_of).name);
      gone[output.index()] = true;
    }
    out.updates.push_back(std::move(update));
  }
  std::vector<TensorId> now(forward.tensors().size());
  for (const Tensor& tensor : forward.tensors()) {
    if (gone[tensor.id.index()]) continue;
    Tensor copy = tensor;
    copy.producer = {};
    now[tensor.id.index()] = out.forward.add_tensor(std::move(copy));
  }
  for (const Op& op : forward.ops()) {
    if (op.phase == Phase::kUpdate) continue;
    Op copy = op;
    for (TensorId& input : copy.inputs) {
      if (gone[input.index()]) {
        return invalid_input(fmt::format("op '{}' reads '{}', which is there after the step only",
                                         op.path, forward.tensor(input).name));
      }
      input = now[input.index()];
    }
    for (TensorId& output : copy.outputs) output = now[output.index()];
    out.forward.add_op(std::move(copy));
  }
  out.forward.name = forward.name;
  if (forward.loss.valid()) out.forward.loss = now[forward.loss.index()];
  return out;
}

Result<Graph> with_updates_last(Graph forward) {
  if (!has_updates(forward)) return forward;
  TESSERA_TRY(WithoutUpdates parts, without_updates(forward));
  return with_updates(std::move(parts.forward), parts.updates);
}

Result<Graph> with_updates(Graph graph, const std::vector<CarriedUpdate>& updates) {
  GraphBuilder builder(std::move(graph));
  builder.set_phase(Phase::kUpdate);
  builder.set_role(Role::kBuffer);
  for (const CarriedUpdate& update : updates) {
    const auto find = [&](const std::string& name) -> Result<TensorId> {
      const TensorId id = builder.graph().find_tensor(name);
      if (id.valid()) return id;
      return invalid_input(fmt::format(
          "update op '{}' reads '{}', which the plan does not make as a whole (a loop over what it "
          "is a sum of): leave its op out of the loop",
          update.path, name));
    };
    std::vector<TensorId> inputs, buffers;
    for (const std::string& name : update.inputs) {
      TESSERA_TRY(const TensorId id, find(name));
      inputs.push_back(id);
    }
    for (const std::string& name : update.buffers) {
      TESSERA_TRY(const TensorId id, find(name));
      buffers.push_back(id);
    }
    const std::vector<TensorId> outputs =
        builder.op(update.path, update.kind, inputs, update.attributes);
    for (size_t i = 0; i < outputs.size() && builder.ok(); ++i)
      becomes(builder, buffers[i], outputs[i]);
  }
  return builder.finish();
}

}  // namespace tessera
