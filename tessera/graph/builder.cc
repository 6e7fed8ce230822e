#include "tessera/graph/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/graph/kinds.h"

namespace tessera {

GraphBuilder::GraphBuilder(std::string graph_name) { graph_.name = std::move(graph_name); }

GraphBuilder::GraphBuilder(Graph graph) : graph_(std::move(graph)) {}

void GraphBuilder::push(std::string_view scope) { scopes_.push_back({std::string(scope), false}); }

void GraphBuilder::push_shared(std::string_view scope) {
  scopes_.push_back({std::string(scope), true});
}

void GraphBuilder::pop() {
  TESSERA_CHECK(!scopes_.empty(), "pop() without push()");
  scopes_.pop_back();
}

std::string GraphBuilder::full_path(std::string_view name, bool with_shared) const {
  std::string path;
  for (const Scope& scope : scopes_) {
    if (!scope.name.empty() && (with_shared || !scope.shared)) path += scope.name + ".";
  }
  return path + std::string(name);
}

void GraphBuilder::fail(std::string message) {
  if (ok()) error_ = Error{ErrorCode::kInvalidInput, std::move(message)};
}

const Tensor& GraphBuilder::tensor(TensorId id) const {
  static const Tensor none;
  return id.valid() && id.index() < graph_.tensors().size() ? graph_.tensor(id) : none;
}

TensorId GraphBuilder::add(std::string_view name, std::vector<Dim> dims, DType dtype, Role role,
                           Init init) {
  if (!ok()) return {};
  Tensor tensor;
  tensor.name = full_path(name);
  tensor.dims = std::move(dims);
  tensor.dtype = dtype;
  tensor.role = role;
  tensor.init = init;
  tensor.trained = role != Role::kParameter || trains_;
  return graph_.add_tensor(std::move(tensor));
}

TensorId GraphBuilder::input(std::string_view name, std::vector<Dim> dims, DType dtype) {
  return add(name, std::move(dims), dtype, Role::kInput, {});
}

TensorId GraphBuilder::parameter(std::string_view name, std::vector<Dim> dims, Init init,
                                 DType dtype) {
  const bool shared =
      std::any_of(scopes_.begin(), scopes_.end(), [](const Scope& scope) { return scope.shared; });
  if (!shared) return add(name, std::move(dims), dtype, Role::kParameter, init);
  const std::string path = full_path(name, /*with_shared=*/false);
  const TensorId known = graph_.find_tensor(path);
  if (!known.valid()) {
    const std::vector<Scope> scopes = std::exchange(scopes_, {});
    const TensorId made = add(path, std::move(dims), dtype, Role::kParameter, init);
    scopes_ = scopes;
    return made;
  }
  const Tensor& tensor = graph_.tensor(known);
  if (tensor.dims != dims || tensor.dtype != dtype || tensor.role != Role::kParameter) {
    fail(fmt::format("expected the shared parameter '{}' with dims {}, found {}", path,
                     describe(dims), describe(tensor)));
  }
  return known;
}

void GraphBuilder::publish(TensorId parameter, std::string_view dims) {
  if (!ok()) return;
  Tensor& target = graph_.tensor(parameter);
  auto published = parse_published(dims, target.dims);
  if (!published) return fail(fmt::format("'{}': {}", target.name, published.error().message));
  target.published = std::move(*published);
}

TensorId GraphBuilder::buffer(std::string_view name, std::vector<Dim> dims, Init init,
                              DType dtype) {
  return add(name, std::move(dims), dtype, Role::kBuffer, init);
}

TensorId GraphBuilder::state(std::string_view name, TensorId parameter, Init init) {
  if (!ok()) return {};
  const Tensor& owner = tensor(parameter);
  const TensorId id = add(name, owner.dims, owner.dtype, Role::kOptimizerState, init);
  if (id.valid()) graph_.tensor(id).of = parameter;
  return id;
}

TensorId GraphBuilder::scalar_state(std::string_view name, DType dtype, Init init) {
  return add(name, {}, dtype, Role::kOptimizerState, init);
}

std::vector<TensorId> GraphBuilder::op(std::string_view name, std::string_view kind,
                                       std::vector<TensorId> inputs, Attributes attributes) {
  const KindInfo* info = find_kind(kind);
  std::vector<TensorId> nothing(info != nullptr ? info->outputs : 1);
  if (!ok()) return nothing;
  const std::string path = full_path(name);
  auto inferred = infer_op(graph_, kind, inputs, attributes);
  if (!inferred) {
    fail(fmt::format("op '{}' ({}): {}", path, kind, inferred.error().message));
    return nothing;
  }
  Op op;
  op.kind = std::string(kind);
  op.path = path;
  op.phase = phase_;
  op.mirror = mirror_;
  op.step = step_;
  op.inputs = std::move(inputs);
  op.attributes = std::move(attributes);
  op.annotation = std::move(inferred->annotation);
  for (size_t i = 0; i < inferred->outputs.size(); ++i) {
    Tensor tensor;
    tensor.name =
        inferred->outputs.size() == 1 ? path : fmt::format("{}.{}", path, info->output_names[i]);
    tensor.dims = std::move(inferred->outputs[i]);
    tensor.dtype = inferred->dtypes[i];
    tensor.role = role_;
    op.outputs.push_back(graph_.add_tensor(std::move(tensor)));
  }
  std::vector<TensorId> outputs = op.outputs;
  graph_.add_op(std::move(op));
  return outputs;
}

TensorId GraphBuilder::op1(std::string_view name, std::string_view kind,
                           std::vector<TensorId> inputs, Attributes attributes) {
  return op(name, kind, std::move(inputs), std::move(attributes))[0];
}

Result<Graph> GraphBuilder::finish() {
  if (!ok()) return tl::unexpected(error_);
  TESSERA_TRY_VOID(graph_.verify_made());
  return std::move(graph_);
}

}  // namespace tessera
