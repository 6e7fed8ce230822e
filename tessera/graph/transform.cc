#include "tessera/graph/transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/graph/builder.h"
#include "tessera/graph/carried.h"
#include "tessera/graph/kinds.h"

namespace tessera {
namespace {

// --- apply_precision
// ---------------------------------------------------------------------------------------------

class PrecisionPass {
 public:
  PrecisionPass(const Graph& from, DType compute, std::optional<DType> parameter)
      : from_(from),
        compute_(compute),
        parameter_(parameter),
        to_(from.name),
        tensors_(from.tensors().size()) {}

  Result<Graph> run() {
    for (const Op& op : from_.ops()) {
      if (op.phase != Phase::kForward) {
        return invalid_input(fmt::format("expected a forward graph, found {} op '{}'",
                                         phase_name(op.phase), op.path));
      }
      for (const TensorId input : op.inputs) add_sources(input);
      for (const TensorId output : op.outputs) add_sources(output);
      copy(op);
      if (!to_.ok()) break;
    }
    if (!from_.tensors().empty()) add_sources(from_.tensors().back().id);
    if (to_.ok() && from_.loss.valid()) to_.graph().loss = tensors_[from_.loss.index()];
    return to_.finish();
  }

 private:
  // Adds the sources (tensors without a producer) up to `last`, so that they keep their places
  // among the outputs of ops.
  void add_sources(TensorId last) {
    for (; next_source_ <= last.index() && next_source_ < from_.tensors().size(); ++next_source_) {
      Tensor tensor = from_.tensors()[next_source_];
      if (tensor.producer.valid()) continue;
      // A parameter that is not trained needs no more precision than its readers use.
      if (tensor.role == Role::kParameter && is_floating(tensor.dtype))
        tensor.dtype = parameter_.value_or(tensor.trained ? tensor.dtype : compute_);
      tensors_[next_source_] = to_.graph().add_tensor(std::move(tensor));
    }
  }

  void copy(const Op& op) {
    const bool of_table = info_of(op).in_dtype_of_table;
    const DType dtype =
        of_table ? to_.tensor(tensors_[op.inputs[1].index()]).dtype : working_dtype(op);
    std::vector<TensorId> inputs;
    for (const TensorId input : op.inputs) inputs.push_back(as(tensors_[input.index()], dtype));
    const std::vector<TensorId> outputs = to_.op(op.path, op.kind, inputs, op.attributes);
    if (!to_.ok()) return;
    for (size_t i = 0; i < outputs.size(); ++i) {
      to_.graph().tensor(outputs[i]).name = from_.tensor(op.outputs[i]).name;
      tensors_[op.outputs[i].index()] = of_table ? as(outputs[i], compute_) : outputs[i];
    }
  }

  // Returns the dtype in which the op computes: the dtype of an activation of another floating
  // dtype that the op reads, if there is one, else `compute`.
  DType working_dtype(const Op& op) const {
    for (const TensorId input : op.inputs) {
      const Tensor& tensor = to_.tensor(tensors_[input.index()]);
      const bool made =
          tensor.producer.valid() && !from_.op(from_.tensor(input).producer).inputs.empty();
      if (made && is_floating(tensor.dtype) && tensor.dtype != compute_) return tensor.dtype;
    }
    return compute_;
  }

  TensorId as(TensorId id, DType dtype) {
    const Tensor tensor = to_.tensor(id);
    if (!is_floating(tensor.dtype) || tensor.dtype == dtype) return id;
    const auto [at, is_new] = casts_.try_emplace({id, dtype});
    if (is_new) {
      const std::string suffix = dtype == compute_ ? "" : fmt::format(".{}", dtype_name(dtype));
      at->second = to_.op1(tensor.name + ".cast" + suffix, "cast", {id},
                           {{"dtype", std::string(dtype_name(dtype))}});
    }
    return at->second;
  }

  const Graph& from_;
  const DType compute_;
  const std::optional<DType> parameter_;
  GraphBuilder to_;
  std::vector<TensorId> tensors_;  // by tensor of from_
  size_t next_source_ = 0;
  std::map<std::pair<TensorId, DType>, TensorId> casts_;
};

// --- expand_ops, recompute_ops: edit a copy of the graph, then number it anew
// --------------------------------------

// Numbers tensors in the order of the ops that make them. Parameters and other sources keep their
// places among these tensors.
class Renumbering {
 public:
  // Makes the graph of the ops `order`. Outputs of ops that are not in `order` are dropped.
  // Wherever an op, a link or the loss refers to tensor t, instead[t] takes its place.
  Renumbering(const Graph& graph, const std::vector<OpId>& order,
              const std::vector<TensorId>& instead)
      : graph_(graph),
        instead_(instead),
        tensors_(graph.tensors().size()),
        ops_(graph.ops().size()) {
    out_.name = graph.name;
    for (const Tensor& tensor : graph.tensors()) {
      if (!tensor.producer.valid()) sources_.push_back(tensor.id);
    }
    for (size_t i = 0; i < order.size(); ++i) {
      ops_[order[i].index()] = OpId(i);
      number_tensors(graph.op(order[i]));
    }
    add_sources(TensorId(graph.tensors().size()));
    for (const OpId id : order) out_.add_op(mapped(graph.op(id)));
    for (size_t i = 0; i < out_.tensors().size(); ++i) {
      Tensor& tensor = out_.tensor(TensorId(i));
      tensor.of = mapped(tensor.of);
      tensor.update_of = mapped(tensor.update_of);
    }
    out_.loss = mapped(graph.loss);
  }

  Result<Graph> finish() {
    TESSERA_TRY_VOID(out_.verify_made());
    return std::move(out_);
  }

 private:
  void add(TensorId id) {
    tensors_[id.index()] = out_.add_tensor(graph_.tensor(id));
    out_.tensor(tensors_[id.index()]).producer = {};
  }

  void add_sources(TensorId before) {
    while (next_source_ < sources_.size() && sources_[next_source_] < before) {
      add(sources_[next_source_++]);
    }
  }

  void number_tensors(const Op& op) {
    for (const TensorId input : op.inputs) {
      if (!graph_.tensor(input).producer.valid()) add_sources(TensorId(input.index() + 1));
    }
    for (const TensorId output : op.outputs) {
      // The numbers of outputs of appended ops are above those of all sources, so they do not tell
      // where the sources belong.
      if (output.index() < instead_.size()) add_sources(output);
      add(output);
    }
  }

  TensorId mapped(TensorId id) const {
    if (!id.valid()) return id;
    // More than one step is needed if the expansion of an op passes on, as its result, the output
    // of another replaced op.
    while (id.index() < instead_.size() && instead_[id.index()] != id) id = instead_[id.index()];
    TESSERA_CHECK(tensors_[id.index()].valid(), "'{}' is made by no op", graph_.tensor(id).name);
    return tensors_[id.index()];
  }

  Op mapped(Op op) const {
    for (TensorId& input : op.inputs) input = mapped(input);
    for (TensorId& output : op.outputs) output = tensors_[output.index()];
    if (op.mirror.valid()) {
      TESSERA_CHECK(ops_[op.mirror.index()].valid(), "the mirror of '{}' is gone", op.path);
      op.mirror = ops_[op.mirror.index()];
    }
    return op;
  }

  const Graph& graph_;
  // By tensor of the graph as it was before ops were appended.
  const std::vector<TensorId>& instead_;
  std::vector<TensorId> tensors_;  // by old tensor: its new id
  std::vector<OpId> ops_;
  std::vector<TensorId> sources_;  // tensors without a producer, in order
  size_t next_source_ = 0;
  Graph out_;
};

std::vector<TensorId> identity(size_t count) {
  std::vector<TensorId> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) out.emplace_back(i);
  return out;
}

class ExpandPass {
 public:
  explicit ExpandPass(const Graph& from)
      : from_(from),
        to_(from),
        expansions_(from.ops().size()),
        instead_(identity(from.tensors().size())) {}

  Result<Graph> run(const std::vector<OpId>& ops) {
    for (const OpId id : ops) {
      TESSERA_CHECK(id.valid() && id.index() < from_.ops().size(), "op {}", id.value);
      if (expansions_[id.index()].empty()) TESSERA_TRY_VOID(expand(from_.op(id)));
    }
    std::vector<OpId> order;
    for (const Op& op : from_.ops()) {
      const std::vector<OpId>& expansion = expansions_[op.id.index()];
      if (expansion.empty()) order.push_back(op.id);
      order.insert(order.end(), expansion.begin(), expansion.end());
    }
    for (const OpId id : order) {
      Op& op = to_.graph().op(id);
      if (op.mirror.valid()) op.mirror = mirror_of(op);
    }
    return Renumbering(to_.graph(), order, instead_).finish();
  }

 private:
  Status expand(const Op& op) {
    const KindInfo& kind = info_of(op);
    if (!kind.expand) {
      return invalid_input(fmt::format("op '{}': kind {} has no expansion", op.path, op.kind));
    }
    const size_t first_op = to_.graph().ops().size();
    const size_t first_tensor = to_.graph().tensors().size();
    to_.set_phase(op.phase);
    to_.set_mirror(op.mirror);
    to_.set_step(op.step);
    to_.set_role(from_.tensor(op.outputs[0]).role);
    const std::vector<TensorId> outputs = kind.expand(to_, op);
    if (!to_.ok()) return tl::unexpected(to_.finish().error());
    TESSERA_CHECK(outputs.size() == op.outputs.size(), "the expansion of '{}'", op.path);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!has_sum_dtype(op, i)) continue;
      const bool widened = widen_sum(to_.graph(), outputs[i], *sum_dtype(op), outputs);
      TESSERA_CHECK(widened, "the expansion of '{}'", op.path);
    }
    name_below(op.path, first_op, first_tensor);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].valid() && !is_read(op.outputs[i])) continue;
      replace(from_.tensor(op.outputs[i]), outputs[i], first_tensor);
    }
    for (size_t i = first_op; i < to_.graph().ops().size(); ++i) {
      expansions_[op.id.index()].emplace_back(i);
    }
    return {};
  }

  bool is_read(TensorId tensor) const {
    return std::any_of(from_.ops().begin(), from_.ops().end(), [&](const Op& op) {
      return std::find(op.inputs.begin(), op.inputs.end(), tensor) != op.inputs.end();
    });
  }

  void name_below(const std::string& path, size_t first_op, size_t first_tensor) {
    const std::string prefix = path + ".";
    const auto put = [&](std::string& name) {
      if (!name.starts_with(prefix)) name.insert(0, prefix);
    };
    for (size_t i = first_op; i < to_.graph().ops().size(); ++i) put(to_.graph().op(OpId(i)).path);
    for (size_t i = first_tensor; i < to_.graph().tensors().size(); ++i) {
      put(to_.graph().tensor(TensorId(i)).name);
    }
  }

  void replace(const Tensor& before, TensorId after, size_t first_tensor) {
    TESSERA_CHECK(after.valid(), "the expansion does not make '{}', which is read", before.name);
    Tensor& tensor = to_.graph().tensor(after);
    TESSERA_CHECK(tensor.dims == before.dims && tensor.dtype == before.dtype,
                  "the expansion makes another '{}'", before.name);
    instead_[before.id.index()] = after;
    // The expansion passes on a tensor that it did not make.
    if (after.index() < first_tensor) return;
    tensor.name = before.name;
    tensor.role = before.role;
    tensor.of = before.of;
    tensor.update_of = before.update_of;
  }

  OpId mirror_of(const Op& op) {
    const std::vector<OpId>& expansion = expansions_[op.mirror.index()];
    if (expansion.empty()) return op.mirror;
    const Graph& graph = to_.graph();
    const auto shared = [&](OpId candidate) {
      const Annotation& annotation = graph.op(candidate).annotation;
      return std::count_if(op.annotation.dims.begin(), op.annotation.dims.end(),
                           [&](const OpDim& dim) { return annotation.find(dim.name) >= 0; });
    };
    return *std::max_element(expansion.begin(), expansion.end(),
                             [&](OpId a, OpId b) { return shared(a) < shared(b); });
  }

  const Graph& from_;
  GraphBuilder to_;                            // from_, followed by all expansions
  std::vector<std::vector<OpId>> expansions_;  // by op of from_; empty: the op is kept
  std::vector<TensorId> instead_;
};

class RecomputePass {
 public:
  RecomputePass(const Graph& from, const std::vector<TensorId>& not_kept)
      : from_(from),
        to_(from),
        dropped_(from.tensors().size(), false),
        clone_of_(identity(from.tensors().size())),
        cloned_(from.ops().size(), false) {
    for (const TensorId id : not_kept) {
      TESSERA_CHECK(id.valid() && id.index() < from.tensors().size(), "tensor {}", id.value);
      const OpId producer = from.tensor(id).producer;
      dropped_[id.index()] = producer.valid() && from.op(producer).phase == Phase::kForward;
    }
  }

  Result<Graph> run() {
    std::vector<OpId> order;
    for (const Op& op : from_.ops()) {
      if (op.phase == Phase::kBackward) {
        for (const OpId producer : producers_to_clone(op)) order.push_back(clone(producer));
        redirect(to_.op(op.id));
      }
      order.push_back(op.id);
    }
    const std::vector<TensorId> instead = identity(from_.tensors().size());
    return Renumbering(to_, order, instead).finish();
  }

 private:
  // Returns, in order, the forward ops that must run again for `reader` and that have no clone yet.
  std::vector<OpId> producers_to_clone(const Op& reader) {
    std::vector<OpId> found;
    const auto visit = [&](const Op& op) {
      for (const TensorId input : op.inputs) {
        if (!dropped_[input.index()]) continue;
        const OpId producer = from_.tensor(input).producer;
        if (cloned_[producer.index()]) continue;
        cloned_[producer.index()] = true;
        found.push_back(producer);
      }
    };
    visit(reader);
    for (size_t i = 0; i < found.size(); ++i) visit(from_.op(found[i]));
    std::sort(found.begin(), found.end());
    return found;
  }

  OpId clone(OpId id) {
    Op op = from_.op(id);
    op.phase = Phase::kBackward;
    op.mirror = id;
    op.path += "@recompute";
    redirect(op);
    for (TensorId& output : op.outputs) {
      Tensor tensor = from_.tensor(output);
      tensor.name += "@recompute";
      const TensorId made = to_.add_tensor(std::move(tensor));
      if (dropped_[output.index()]) clone_of_[output.index()] = made;
      output = made;
    }
    return to_.add_op(std::move(op));
  }

  void redirect(Op& op) const {
    for (TensorId& input : op.inputs) input = clone_of_[input.index()];
  }

  const Graph& from_;
  Graph to_;                        // from_, followed by the clones
  std::vector<bool> dropped_;       // by tensor of from_: whether it is made again
  std::vector<TensorId> clone_of_;  // by tensor of from_: the tensor that the backward pass reads
  std::vector<bool> cloned_;        // by op of from_
};

}  // namespace

Result<Graph> apply_precision(const Graph& forward, DType compute, std::optional<DType> parameter) {
  if (!is_floating(compute)) {
    return invalid_input(
        fmt::format("expected a floating dtype to compute in, found {}", dtype_name(compute)));
  }
  if (has_updates(forward)) {
    TESSERA_TRY(const WithoutUpdates parts, without_updates(forward));
    TESSERA_TRY(Graph narrow, apply_precision(parts.forward, compute, parameter));
    return with_updates(std::move(narrow), parts.updates);
  }
  return PrecisionPass(forward, compute, parameter).run();
}

Graph in_one_dtype(Graph graph, DType dtype) {
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    Tensor& tensor = graph.tensor(TensorId(i));
    if (is_floating(tensor.dtype)) tensor.dtype = dtype;
  }
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    Op& op = graph.op(OpId(i));
    for (const std::string_view key : {std::string_view("dtype"), kSumDType}) {
      const std::string name(key);
      if (!op.attributes.contains(name)) continue;
      const auto named = parse_dtype(op.text(name));
      if (named && is_floating(*named)) op.attributes[name] = std::string(dtype_name(dtype));
    }
  }
  return graph;
}

Result<Graph> expand_ops(const Graph& graph, const std::vector<OpId>& ops) {
  return ExpandPass(graph).run(ops);
}

Result<Graph> recompute_ops(const Graph& graph, const std::vector<TensorId>& not_kept) {
  return RecomputePass(graph, not_kept).run();
}

}  // namespace tessera
