#include "tessera/models/graph_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/transform.h"
#include "tessera/models/model_name.h"

namespace tessera {
namespace {

int64_t size_of_dim(const Tensor& tensor, std::string_view name) {
  for (const Dim& dim : tensor.dims) {
    if (dim.name == name) return dim.size;
  }
  return 0;
}

// Returns whether the op belongs to the model: it is a forward op, or it changes running
// state (graph/carried.h).
bool is_of_the_model(const Graph& graph, const Op& op) {
  return op.phase == Phase::kForward ||
         (op.phase == Phase::kUpdate &&
          std::all_of(op.outputs.begin(), op.outputs.end(), [&](TensorId output) {
            const TensorId old = graph.tensor(output).update_of;
            return old.valid() && graph.tensor(old).role == Role::kBuffer;
          }));
}

// Returns the graph of the forward ops and the ops that change running state, with their tensors.
// Tensors that only other ops read or make (gradients, states, the learning rate) are left out.
Graph forward_part(const Graph& graph) {
  std::vector<bool> kept(graph.tensors().size());
  std::vector<bool> read(graph.tensors().size());
  for (const Op& op : graph.ops()) {
    const bool forward = is_of_the_model(graph, op);
    for (const TensorId input : op.inputs) {
      read[input.index()] = true;
      if (forward) kept[input.index()] = true;
    }
    for (const TensorId output : op.outputs) kept[output.index()] = forward;
  }
  Graph out;
  out.name = graph.name;
  std::vector<TensorId> now(graph.tensors().size());
  for (const Tensor& tensor : graph.tensors()) {
    const bool idle = !tensor.producer.valid() && !read[tensor.id.index()];
    if (!kept[tensor.id.index()] && !idle) continue;
    Tensor copy = tensor;
    copy.producer = {};
    now[tensor.id.index()] = out.add_tensor(std::move(copy));
  }
  for (size_t i = 0; i < out.tensors().size(); ++i) {
    TensorId& old = out.tensor(TensorId(i)).update_of;
    if (old.valid()) old = now[old.index()];
  }
  const auto renumber = [&](std::vector<TensorId>& ids) {
    for (TensorId& id : ids) id = now[id.index()];
  };
  for (const Op& op : graph.ops()) {
    if (!is_of_the_model(graph, op)) continue;
    Op copy = op;
    renumber(copy.inputs);
    renumber(copy.outputs);
    out.add_op(std::move(copy));
  }
  if (graph.loss.valid()) out.loss = now[graph.loss.index()];
  return out;
}

// Returns the size below which the elements of an input must be, if the input has indices into a
// dim of an op: the smallest such size. Ops that only move elements of the input are followed to
// their readers.
int64_t values_of(const Graph& graph, TensorId input) {
  int64_t least = 0;
  std::vector<bool> holds(graph.tensors().size());
  holds[input.index()] = true;
  for (const Op& op : graph.ops()) {
    const bool reads = std::any_of(op.inputs.begin(), op.inputs.end(),
                                   [&](TensorId id) { return holds[id.index()]; });
    if (!reads) continue;
    for (size_t d = 0; d < op.annotation.dims.size(); ++d) {
      const PositionRule rule = position_rule(op, static_cast<int>(d));
      const bool row = looks_up_rows(op) && rule == PositionRule::kWithin;
      if (rule != PositionRule::kIndex && !row) continue;
      const int64_t size = op.annotation.dims[d].size;
      least = least == 0 ? size : std::min(least, size);
    }
    for (const TensorId output : op.outputs)
      holds[output.index()] = !is_floating(graph.tensor(output).dtype);
  }
  return std::max<int64_t>(least, 1);
}

void describe_inputs(Model& model) {
  const Graph& graph = model.graph;
  bool texts = false;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role != Role::kInput || is_floating(tensor.dtype)) continue;
    int64_t row = 1;
    for (size_t d = 1; d < tensor.dims.size(); ++d) row *= tensor.dims[d].size;
    // Samples of sequences have one number more than the tensor has tokens. The targets are the
    // tokens shifted by one.
    const bool sequences = tensor.dims.size() == 2;
    const int64_t values = values_of(graph, tensor.id);
    model.inputs.push_back({tensor.name, values, "tokens", row + (sequences ? 1 : 0),
                            sequences && tensor.name == "targets" ? 1 : 0});
    model.vocab = std::max(model.vocab, values);
    if (sequences) model.seq = std::max(model.seq, row);
    texts = texts || (sequences && tensor.name == "tokens");
  }
  const bool all_texts =
      std::all_of(graph.tensors().begin(), graph.tensors().end(), [&](const Tensor& tensor) {
        return tensor.role != Role::kInput ||
               (!is_floating(tensor.dtype) && tensor.dims.size() == 2 &&
                tensor.dims[1].size == model.seq);
      });
  if (texts && all_texts) model.text = model.seq + 1;
}

}  // namespace

Result<Model> load_graph_model(const std::string& path, int64_t batch, std::optional<DType> dtype,
                               const std::string& keys) {
  TESSERA_TRY(const std::string text,
              path.ends_with(kGraphSuffix) ? read_file(path) : read_archive(path, keys, batch));
  TESSERA_TRY(const Graph whole, parse_graph(text, path));
  const auto failed = [&](const std::string& message) {
    return invalid_input(fmt::format("{}: {}", path, short_line(message)));
  };
  Model model{.graph = forward_part(whole), .family = "graph", .spec = path, .seq = 1};
  if (!model.graph.loss.valid()) {
    return failed("expected a line 'loss %name' that names a scalar made by a forward op");
  }
  model.batch = 1;
  for (const Tensor& tensor : model.graph.tensors()) {
    if (tensor.role != Role::kInput) continue;
    if (const int64_t size = size_of_dim(tensor, "batch"); size > 0) model.batch = size;
  }
  if (batch != 0 && batch != model.batch) {
    return failed(fmt::format(
        "expected --batch {}, the size of the dim 'batch' that the file fixes, found {}",
        model.batch, batch));
  }
  if (dtype) model.graph = in_one_dtype(std::move(model.graph), *dtype);
  if (auto verified = model.graph.verify(); !verified) return failed(verified.error().message);
  describe_inputs(model);
  return model;
}

}  // namespace tessera
