#include "tessera/graph/ahead.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/graph/carried.h"
#include "tessera/graph/kinds.h"

namespace tessera {
namespace {

// Copies the graph op by op, in the new order.
class AheadPass {
 public:
  AheadPass(const Graph& graph, const AheadOps& ops)
      : graph_(graph),
        moved_(graph.ops().size()),
        stale_(graph.ops().size()),
        tensors_(graph.tensors().size()),
        ops_(graph.ops().size()),
        next_(graph.tensors().size()),
        newest_(graph.tensors().size()) {
    for (const OpId op : ops.exact) moved_[op.index()] = true;
    for (const OpId op : ops.stale) moved_[op.index()] = stale_[op.index()] = true;
    for (const Tensor& tensor : graph.tensors()) {
      if (tensor.update_of.valid()) newest_[tensor.update_of.index()] = tensor.id;
    }
    find_what_stays();
  }

  Result<Graph> run() {
    TESSERA_TRY_VOID(check());
    to_.graph().name = graph_.name;
    for (const Tensor& tensor : graph_.tensors()) {
      if (!tensor.producer.valid()) tensors_[tensor.id.index()] = add(tensor);
    }
    add_buffers();
    const std::vector<bool> first = updates_of_what_is_read();
    for (const Op& op : graph_.ops()) {
      if (op.phase == Phase::kUpdate) continue;
      if (!moved_[op.id.index()] || stays_[op.id.index()]) copy(op);
      if (stale_[op.id.index()]) ahead(op);
    }
    const auto updates = [&](bool wanted) {
      for (const Op& op : graph_.ops()) {
        if (op.phase == Phase::kUpdate && first[op.id.index()] == wanted) copy(op);
      }
    };
    updates(true);
    for (const Op& op : graph_.ops()) {
      if (moved_[op.id.index()] && !stale_[op.id.index()]) ahead(op);
    }
    updates(false);
    for (const auto& [tensor, buffer] : buffers_) carry(to_, buffer, next_[tensor.index()]);
    link();
    return to_.finish();
  }

 private:
  // Finds the moved ops that the step also computes for itself, instead of reading their results
  // from a buffer. These are ops that depend on no input, because they make the same values for
  // every batch, and ops that make integers from inputs alone (pieces of ids), which updates of a
  // table need in addition to the rows that were looked up.
  void find_what_stays() {
    stays_.resize(graph_.ops().size());
    std::vector<bool> of_inputs(graph_.ops().size()), of_inputs_alone(graph_.ops().size());
    for (const Op& op : graph_.ops()) {
      bool any = false, all = true;
      for (const TensorId id : op.inputs) {
        const Tensor& tensor = graph_.tensor(id);
        const bool made = tensor.producer.valid(), input = tensor.role == Role::kInput;
        any = any || (made ? of_inputs[tensor.producer.index()] : input);
        all = all && (made ? of_inputs_alone[tensor.producer.index()] : input);
      }
      const bool integers = std::none_of(op.outputs.begin(), op.outputs.end(), [&](TensorId id) {
        return is_floating(graph_.tensor(id).dtype);
      });
      of_inputs[op.id.index()] = any;
      of_inputs_alone[op.id.index()] = all;
      stays_[op.id.index()] = moved_[op.id.index()] && (!any || (all && integers));
    }
  }

  // Checks that each moved op reads only tensors that exist one step early: inputs of the next
  // step, tensors at rest, and outputs of other moved ops of the same list (`exact` or `stale`).
  Status check() const {
    for (const Op& op : graph_.ops()) {
      if (!moved_[op.id.index()]) continue;
      for (const TensorId input : op.inputs) {
        const OpId producer = graph_.tensor(input).producer;
        if (!producer.valid()) continue;
        const bool with_it =
            moved_[producer.index()] && stale_[producer.index()] == stale_[op.id.index()];
        if (with_it) continue;
        return invalid_input(
            fmt::format("expected ops that read inputs, parameters and what others of them make, "
                        "found op '{}', "
                        "which reads '{}' of op '{}'",
                        op.path, graph_.tensor(input).name, graph_.op(producer).path));
      }
    }
    return {};
  }

  TensorId add(Tensor tensor) {
    tensor.producer = {};
    tensor.of = {};  // set by link()
    tensor.update_of = {};
    return to_.graph().add_tensor(std::move(tensor));
  }

  bool is_read_by_others(TensorId tensor) const {
    return std::any_of(graph_.ops().begin(), graph_.ops().end(), [&](const Op& op) {
      return !moved_[op.id.index()] &&
             std::find(op.inputs.begin(), op.inputs.end(), tensor) != op.inputs.end();
    });
  }

  // Adds a buffer for each tensor that a moved op makes and an op that is not moved reads.
  void add_buffers() {
    for (const Op& op : graph_.ops()) {
      if (!moved_[op.id.index()] || stays_[op.id.index()]) continue;
      for (const TensorId output : op.outputs) {
        if (!is_read_by_others(output)) continue;
        const Tensor& made = graph_.tensor(output);
        const TensorId buffer =
            to_.buffer("ahead." + made.name, made.dims, {Init::Kind::kZeros, 0}, made.dtype);
        buffers_.emplace_back(output, buffer);
        tensors_[output.index()] = buffer;
      }
    }
  }

  // Returns for each op whether it is an update op that makes, directly or through other update
  // ops, a new value that an exact op reads.
  std::vector<bool> updates_of_what_is_read() const {
    std::vector<bool> wanted(graph_.ops().size());
    const auto want = [&](TensorId tensor) {
      const OpId producer = tensor.valid() ? graph_.tensor(tensor).producer : OpId();
      if (producer.valid() && graph_.op(producer).phase == Phase::kUpdate)
        wanted[producer.index()] = true;
    };
    for (const Op& op : graph_.ops()) {
      if (!moved_[op.id.index()] || stale_[op.id.index()]) continue;
      for (const TensorId input : op.inputs) want(newest_[input.index()]);
    }
    for (auto op = graph_.ops().rbegin(); op != graph_.ops().rend(); ++op) {
      if (!wanted[op->id.index()]) continue;
      for (const TensorId input : op->inputs) want(input);
    }
    return wanted;
  }

  void add_op(const Op& op, const std::vector<TensorId>& inputs, std::vector<TensorId>& made) {
    const bool again = &made == &next_ && stays_[op.id.index()];
    Op copied = op;
    copied.inputs = inputs;
    if (again) copied.path += ".ahead";
    for (TensorId& output : copied.outputs) {
      const TensorId from = output;
      Tensor tensor = graph_.tensor(from);
      if (again) tensor.name += ".ahead";
      output = add(std::move(tensor));
      made[from.index()] = output;
    }
    const OpId id = to_.graph().add_op(std::move(copied));
    if (!again) ops_[op.id.index()] = id;
  }

  void copy(const Op& op) {
    std::vector<TensorId> inputs;
    for (const TensorId input : op.inputs) inputs.push_back(tensors_[input.index()]);
    add_op(op, inputs, tensors_);
  }

  // Adds the op so that it works on the batch of the next step.
  void ahead(const Op& op) {
    std::vector<TensorId> inputs;
    for (const TensorId input : op.inputs) {
      const Tensor& tensor = graph_.tensor(input);
      TensorId& next = next_[input.index()];
      if (!next.valid() && tensor.role == Role::kInput) {
        Tensor later = tensor;
        later.name = "next." + tensor.name;
        next = add(std::move(later));
        inputs_of_next_.emplace_back(next, tensors_[input.index()]);
      }
      const TensorId newest = newest_[input.index()];
      const bool changes = newest.valid() && !stale_[op.id.index()];
      inputs.push_back(next.valid() ? next : tensors_[(changes ? newest : input).index()]);
    }
    add_op(op, inputs, next_);
  }

  // Sets `of`, `update_of` and mirrors, once all tensors and ops have their new numbers.
  void link() {
    const auto mapped = [&](TensorId id) { return id.valid() ? tensors_[id.index()] : id; };
    Graph& out = to_.graph();
    for (const Tensor& tensor : graph_.tensors()) {
      for (const TensorId now : {tensors_[tensor.id.index()], next_[tensor.id.index()]}) {
        if (!now.valid() || out.tensor(now).role != tensor.role) continue;
        if (tensor.of.valid()) out.tensor(now).of = mapped(tensor.of);
        if (tensor.update_of.valid()) out.tensor(now).update_of = mapped(tensor.update_of);
      }
    }
    for (const auto& [next, now] : inputs_of_next_) out.tensor(next).of = now;
    for (const Op& op : graph_.ops()) {
      if (op.mirror.valid()) out.op(ops_[op.id.index()]).mirror = ops_[op.mirror.index()];
    }
    out.loss = mapped(graph_.loss);
  }

  const Graph& graph_;
  GraphBuilder to_{"ahead"};
  std::vector<bool> moved_, stale_;  // by op
  std::vector<bool> stays_;          // by op: whether it is moved and this step computes it, too
  std::vector<TensorId> tensors_;    // by old tensor: the new tensor with its value in this step
  std::vector<OpId> ops_;
  std::vector<TensorId> next_;  // by old tensor: the new tensor with its value for the next step
  // By old tensor: the old tensor that is its new value after the update.
  std::vector<TensorId> newest_;
  std::vector<std::pair<TensorId, TensorId>> buffers_;  // old tensor, the buffer that replaces it
  // Input of the next step, the same input of this step.
  std::vector<std::pair<TensorId, TensorId>> inputs_of_next_;
};

}  // namespace

Result<Graph> moved_ahead(const Graph& graph, const AheadOps& ops) {
  return AheadPass(graph, ops).run();
}

std::vector<bool> behind_updates(const Graph& graph) {
  std::vector<bool> behind(graph.ops().size());
  for (const Op& op : graph.ops()) {
    behind[op.id.index()] = op.phase == Phase::kUpdate ||
                            std::any_of(op.inputs.begin(), op.inputs.end(), [&](TensorId input) {
                              const OpId producer = graph.tensor(input).producer;
                              return producer.valid() && behind[producer.index()];
                            });
  }
  return behind;
}

bool works_on_old_values(const Graph& graph) {
  std::vector<bool> changes(graph.tensors().size()), of_next(graph.tensors().size());
  for (const Tensor& tensor : graph.tensors()) {
    of_next[tensor.id.index()] = is_of_next_step(tensor);
    if (tensor.update_of.valid()) changes[tensor.update_of.index()] = true;
  }
  for (const Op& op : graph.ops()) {
    const auto any = [&](const std::vector<bool>& of) {
      return std::any_of(op.inputs.begin(), op.inputs.end(),
                         [&](TensorId input) { return of[input.index()]; });
    };
    if (!any(of_next) || op.phase == Phase::kUpdate) continue;
    if (any(changes)) return true;
    for (const TensorId output : op.outputs) of_next[output.index()] = true;
  }
  return false;
}

std::vector<bool> buffers_ahead(const Graph& graph) {
  std::vector<bool> ahead(graph.tensors().size()), buffers(graph.tensors().size());
  for (const Tensor& tensor : graph.tensors()) ahead[tensor.id.index()] = is_of_next_step(tensor);
  for (const Op& op : graph.ops()) {
    const bool reads = std::any_of(op.inputs.begin(), op.inputs.end(),
                                   [&](TensorId input) { return ahead[input.index()]; });
    if (!reads) continue;
    for (const TensorId output : op.outputs) {
      ahead[output.index()] = true;
      const TensorId old = graph.tensor(output).update_of;
      if (old.valid() && graph.tensor(old).role == Role::kBuffer) buffers[old.index()] = true;
    }
  }
  return buffers;
}

}  // namespace tessera
