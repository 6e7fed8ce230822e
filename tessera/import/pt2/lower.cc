#include "tessera/import/pt2/lower.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tessera/base/convert.h"
#include "tessera/base/text.h"
#include "tessera/import/pt2/aten.h"
#include "tessera/import/pt2/names.h"
#include "tessera/import/pt2/paths.h"
#include "tessera/import/pt2/payloads.h"

namespace tessera::pt2 {
namespace {

constexpr std::string_view kLossScope = "loss.";

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::vector<std::string> tensors_of(const Argument& argument) {
  if (const auto* one = std::get_if<TensorArg>(&argument)) return {one->name};
  if (const auto* several = std::get_if<TensorsArg>(&argument)) return several->names;
  return {};
}

DType graph_dtype(DType dtype) { return is_floating(dtype) ? dtype : DType::kInt64; }

std::string constant_name(std::string_view node) { return fmt::format("constants.{}", node); }

Row find_row(std::string_view name) {
  static const Rows table = [] {
    Rows all;
    for (Rows rows : {pointwise_rows(), shape_rows(), product_rows(), convolution_rows(),
                      attention_rows(), norm_rows(), loss_rows(), integer_rows(), expert_rows()})
      all.merge(rows);
    return all;
  }();
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

Lowering::Lowering(const Archive& archive, const Program& program, LowerOptions options)
    : archive_(archive), program_(program), options_(options) {}

// ---- for the rows
// ------------------------------------------------------------------------------------------------
Value Lowering::make(std::vector<Vars> dims, DType dtype) {
  Value value{slots_++, std::move(dims), dtype, {}};
  dims_.keep_distinct(value.flat());
  slot_dims_[value.slot] = value.dims;
  return value;
}

void Lowering::step(const Call& call, std::string name, std::function<void(Emitter&)> emit) {
  steps_.push_back({call.node().module, std::move(name), std::move(emit)});
}

Value Lowering::retarget(const Value& value, size_t dim, const Vars& vars) {
  Value out = value;
  out.renamed.emplace_back(value.dims[dim], vars);
  out.dims[dim] = vars;
  dims_.keep_distinct(out.flat());
  return out;
}

bool Lowering::align(const Value& a, size_t a_dim, Value& b, size_t b_dim) {
  const Vars& to = a.dims[a_dim];
  if (dims_.size(to) != dims_.size(b.dims[b_dim])) return false;
  if (dims_.unify(to, b.dims[b_dim])) return true;
  const Vars wanted = dims_.leaves(to);
  for (size_t d = 0; d < b.dims.size(); ++d) {
    if (d == b_dim) continue;
    for (const Var leaf : dims_.leaves(b.dims[d])) {
      if (std::find(wanted.begin(), wanted.end(), leaf) != wanted.end()) return false;
    }
  }
  b = retarget(b, b_dim, to);
  return true;
}

Value Lowering::whole(const Value& value, size_t dim) {
  const Vars leaves = dims_.leaves(value.dims[dim]);
  if (leaves.empty()) return value;
  if (leaves.size() == 1) {
    dims_.make_solid(leaves[0]);
    return value;
  }
  const Var joint = dims_.fresh(dims_.size(leaves));
  dims_.make_solid(joint);
  const bool pixels =
      std::all_of(leaves.begin(), leaves.end(), [&](Var leaf) { return dims_.spatial(leaf); });
  if (pixels) hints_.add({joint}, "seq", Sure::kWidth);
  return retarget(value, dim, {joint});
}

// ---- nodes
// ------------------------------------------------------------------------------------------------
// Checks that the tensors that the node reads exist and were not changed through another name
// (memory.h). Sets `known` to whether all of them are constants.
Status Lowering::check_operands(const Call& call, std::string_view op, bool& known) {
  known = true;
  for (const auto& [argument, given] : call.node().arguments) {
    for (const std::string& tensor : tensors_of(given)) {
      if (tensor.empty()) continue;
      if (const Node* const writer = memory_.read(tensor, op))
        return changed_in_place(*writer, tensor, fmt::format("node '{}'", call.node().name));
      if (late_.contains(tensor) || routed_.contains(tensor)) {
        known = false;
        continue;
      }
      const Item* const found = item(tensor);
      if (found == nullptr) {
        if (!error_.message.empty()) return tl::unexpected(error_);
        return call.failed(fmt::format("argument '{}': expected a tensor made before, found '{}'",
                                       argument, tensor));
      }
      known = known && std::holds_alternative<Constant>(*found);
    }
  }
  return {};
}

tl::unexpected<Error> Lowering::changed_in_place(const Node& writer, const std::string& tensor,
                                                 const std::string& reader) {
  const auto meta = program_.tensors.find(tensor);
  return Call(*this, writer)
      .failed(fmt::format(
          "an op without a counterpart: it changes elements in place that {} reads through '{}' {} "
          "afterwards, or in the next step; write x = x.add(y) for x.add_(y)",
          reader, tensor, meta == program_.tensors.end() ? "" : shape_text(meta->second.sizes)));
}

// Keeps the operand of a node that only repeats dims of a tensor which is known at import, for
// repeated_constant().
void Lowering::keep_repeated(const Call& call, std::string_view op) {
  const Constant* const x = call.constant("self");
  const TensorMeta* const meta = call.output_meta();
  if ((op != "expand" && op != "expand_as") || x == nullptr || meta == nullptr) return;
  Constant kept = *x;
  kept.shape.insert(kept.shape.begin(), meta->sizes.size() - x->shape.size(), 1);
  wide_[call.node().outputs[0]] = std::move(kept);
}

// Computes the node's results at import if possible (fold()). Returns whether it did so.
Result<bool> Lowering::fold_node(const Call& call, std::string_view op) {
  const TensorMeta* const meta = call.output_meta();
  if (meta != nullptr && folds_op(op) && !constant_elements(meta->sizes)) {
    if (find_row(op) != nullptr) {  // the row may make a view of a smaller tensor
      keep_repeated(call, op);
      return false;
    }
    return call.failed(
        fmt::format("expected a tensor that is known at import to have at most {} elements, found "
                    "{}",
                    kMaxConstant, shape_text(meta->sizes)));
  }
  if (std::optional<Constant> constant = fold(call, op)) {
    if (meta == nullptr || meta->sizes != constant->shape) {
      return call.failed(fmt::format("expected {}, found {}",
                                     meta == nullptr ? "an output" : shape_text(meta->sizes),
                                     shape_text(constant->shape)));
    }
    constant->dtype = meta->dtype;
    round_values(*constant);
    TESSERA_TRY_VOID(keep_constant(call.node().outputs[0], std::move(*constant)));
    return true;
  }
  std::vector<Constant> parts = fold_parts(call, op);
  for (size_t i = 0; i < parts.size(); ++i)
    TESSERA_TRY_VOID(keep_constant(call.node().outputs[i], std::move(parts[i])));
  return !parts.empty();
}

// Stores the node's results as constants if none of them has elements (an empty slice, an empty
// cache). Returns whether it did so.
Result<bool> Lowering::keep_empty(const Call& call) {
  const std::vector<std::string>& outputs = call.node().outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorMeta* const meta = call.output_meta(i);
    if (meta == nullptr || elements_of(meta->sizes) != 0) return false;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorMeta& meta = *call.output_meta(i);
    TESSERA_TRY_VOID(keep_constant(outputs[i], Constant{meta.dtype, meta.sizes, {}}));
  }
  return !outputs.empty();
}

// Checks that the results that a row made have the shape and dtype that the program states.
Status Lowering::check_results(const Call& call) {
  const Node& node = call.node();
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    const TensorMeta* const meta = call.output_meta(i);
    const auto made = items_.find(node.outputs[i]);
    if (made == items_.end()) continue;  // reading it will be an error
    const auto* value = std::get_if<Value>(&made->second);
    if (value == nullptr) continue;
    std::vector<int64_t> sizes;
    for (const Vars& dim : value->dims) sizes.push_back(dims_.size(dim));
    if (meta == nullptr || sizes != meta->sizes) {
      return call.failed(fmt::format("expected a result of {}, found {}",
                                     meta == nullptr ? "a shape" : shape_text(meta->sizes),
                                     shape_text(sizes)));
    }
    if (meta->dtype != value->dtype) {
      return call.failed(fmt::format("expected a result of {}, found {}", dtype_name(meta->dtype),
                                     dtype_name(value->dtype)));
    }
    if (node.frozen && is_floating(value->dtype)) {
      TESSERA_TRY(Value stopped, pointwise(call, "detach", "stop_gradient", {*value}));
      call.set(std::move(stopped), i);
    }
  }
  return {};
}

bool Lowering::reads_routed(const Node& node) const {
  for (const auto& [argument, given] : node.arguments) {
    for (const std::string& tensor : tensors_of(given)) {
      if (routed_.contains(tensor)) return true;
    }
  }
  return false;
}

Status Lowering::add_node(const Node& node) {
  const Call call(*this, node);
  const std::string_view op = op_name(node.target);
  bool known = true;
  TESSERA_TRY_VOID(check_operands(call, op, known));
  TESSERA_TRY(bool folded, keep_empty(call));
  if (!folded && (known || folds_shape(op))) {
    TESSERA_TRY(folded, fold_node(call, op));
  }
  if (!folded) {
    const bool routed = reads_routed(node);
    const Row row = routed ? nullptr : find_row(op);
    if (!routed && row == nullptr) {
      const TensorMeta* const meta = call.output_meta();
      return call.failed(fmt::format(
          "an op without a counterpart, which makes {}",
          meta == nullptr ? "no tensor"
                          : shape_text(meta->sizes) + " " + std::string(dtype_name(meta->dtype))));
    }
    if (Status done = routed ? lower_routed(call, op) : row(call); !done) {
      const std::string& message = done.error().message;
      return message.starts_with(archive_.path()) ? done : call.failed(message);
    }
    TESSERA_TRY_VOID(check_results(call));
  }
  if (!memory_.add(node, op)) return changed_in_place(node, node.outputs[0], "the module");
  if ((op == "slice" || op == "select") && !node.outputs.empty()) makers_[node.outputs[0]] = &node;
  if (!Memory::in_place(op)) return {};
  const Status written = write_back(call);
  return written ? written : call.failed(written.error().message);
}

// ---- the loss
// ------------------------------------------------------------------------------------------------
Result<std::string> Lowering::choose_loss() {
  std::string first;
  for (const OutputSpec& output : program_.outputs) {
    if (!output.user || output.tensor.empty()) continue;
    const auto meta = program_.tensors.find(output.tensor);
    const bool scalar = meta != program_.tensors.end() && meta->second.sizes.empty();
    if (first.empty()) first = output.tensor;
    if (scalar && !options_.cross_entropy) return output.tensor;
  }
  if (first.empty()) {
    return invalid_input(
        fmt::format("{}: expected an output that is a tensor, found none", archive_.path()));
  }
  if (options_.cross_entropy) return first;
  const auto meta = program_.tensors.find(first);
  return invalid_input(fmt::format(
      "{}: expected a module that returns its loss, a scalar, found {}; with loss=cross_entropy "
      "the outputs are logits (--set of import; elsewhere model.pt2:loss=cross_entropy)",
      archive_.path(), meta == program_.tensors.end() ? first : shape_text(meta->second.sizes)));
}

Status Lowering::add_loss(const std::string& output) {
  TESSERA_TRY(Value value, value_of(output));
  if (options_.cross_entropy) {
    if (value.dims.size() < 2 || !is_floating(value.dtype)) {
      return invalid_input(
          fmt::format("{}: loss=cross_entropy: expected logits of at least 2 dims, "
                      "found {}",
                      archive_.path(), value.dims.size()));
    }
    std::vector<Vars> rows(value.dims.begin(), value.dims.end() - 1);
    Value targets = make(rows, DType::kInt64);
    sources_[targets.slot] = Source{Role::kInput, "targets", rows, DType::kInt64, true, {}};
    Node node;
    node.name = output;
    node.target = "torch.ops.aten.cross_entropy_loss.default";
    TESSERA_TRY(value, cross_entropy(Call(*this, node), value, targets, value.dims.size() - 1,
                                     Reduction::kMean, options_.ignored));
  }
  loss_ = std::move(value);
  return {};
}

// ---- the second pass
// ------------------------------------------------------------------------------------------------
// Returns the leaves of the dims, without those of size 1 that no op needs.
Vars Lowering::visible_leaves(const std::vector<Vars>& dims) const {
  Vars out;
  for (const Vars& dim : dims) {
    for (const Var leaf : dims_.leaves(dim, true)) {
      if (dims_.size(leaf) != 1 || dims_.kept(leaf)) out.push_back(leaf);
    }
  }
  return out;
}

// Adds an input in its shape in the module, which the arrays that a run feeds have. Also adds ops
// that cut those dims of this shape that are refined into several variables.
void Lowering::define_input(Emitter& emitter, int slot, const Source& source) const {
  std::vector<Dim> dims;
  std::vector<std::pair<std::string, Vars>> cuts;
  for (size_t d = 0; d < source.dims.size(); ++d) {
    const Vars leaves = visible_leaves({source.dims[d]});
    if (leaves.size() > 1) {
      dims.push_back({fmt::format("{}_{}", source.name, d), dims_.size(source.dims[d])});
      cuts.emplace_back(dims.back().name, leaves);
    } else if (!leaves.empty()) {
      dims.push_back(emitter.dim(leaves[0]));
    }
  }
  // Changes the name of a dim that will be cut if another dim has this name.
  const Vars all = visible_leaves(source.dims);
  for (auto& [joint, leaves] : cuts) {
    const std::string before = joint;
    while (
        std::any_of(all.begin(), all.end(), [&](Var leaf) { return emitter.name(leaf) == joint; }))
      joint += ".joint";
    for (Dim& dim : dims) {
      if (dim.name == before) dim.name = joint;
    }
  }
  TensorId id = emitter.builder().input(source.name, dims, source.dtype);
  emitter.begin(source.name);
  for (const auto& [joint, leaves] : cuts) {
    std::vector<std::string> parts;
    for (const Var leaf : leaves)
      parts.push_back(fmt::format("{}={}", emitter.name(leaf), dims_.size(leaf)));
    id = emitter.op("ungroup", {id}, {{"dim", joint}, {"names", join(parts, " ")}}, "ungroup");
  }
  emitter.define(slot, {id, all});
}

void Lowering::define_inputs(Emitter& emitter) const {
  for (const auto& [slot, source] : sources_) emitter.reserve(source.name);
  for (const auto& [slot, source] : sources_) {
    if (source.role == Role::kInput) emitter.slot(slot);
  }
}

std::vector<std::string> Lowering::step_paths() const {
  std::map<std::string, int> counts;
  std::set<std::string> parents;
  for (const Step& step : steps_) {
    ++counts[step.module];
    for (size_t dot = step.module.find('.'); dot != std::string::npos;
         dot = step.module.find('.', dot + 1))
      parents.insert(step.module.substr(0, dot));
  }
  std::vector<std::string> paths;
  for (const Step& step : steps_) {
    const bool alone = counts[step.module] == 1 && !parents.contains(step.module);
    const bool outside = step.module.empty() || step.name.starts_with(kLossScope);
    paths.push_back(outside ? step.name : alone ? step.module : step.module + "." + step.name);
  }
  return paths;
}

Result<Lowered> Lowering::run() {
  TESSERA_TRY_VOID(check_payloads(archive_, program_));
  TESSERA_TRY_VOID(add_inputs());
  find_last_readers();
  for (size_t i = 0; i < program_.nodes.size(); ++i) {
    TESSERA_TRY_VOID(add_node(program_.nodes[i]));
    drop_constants(i);
  }
  TESSERA_TRY(const std::string output, choose_loss());
  if (const Node* const writer = memory_.read(output, "output"))
    return changed_in_place(*writer, output, "the module's result");
  TESSERA_TRY_VOID(add_loss(output));

  Lowered out;
  const auto define = [&](Emitter& emitter, int slot) {
    const Source& source = sources_.at(slot);
    if (source.role == Role::kInput) {
      define_input(emitter, slot, source);
      return;
    }
    Vars leaves;
    PublishedDims published;  // for each dim in the module: the dims here that make it
    for (const Vars& dim : source.dims) {
      std::vector<int>& joined = published.emplace_back();
      for (const Var leaf : dims_.leaves(dim, true)) {
        if (dims_.size(leaf) == 1 && !dims_.kept(leaf)) continue;
        joined.push_back(static_cast<int>(leaves.size()));
        leaves.push_back(leaf);
      }
    }
    std::vector<Dim> dims;
    for (const Var leaf : leaves) dims.push_back(emitter.dim(leaf));
    GraphBuilder& g = emitter.builder();
    g.set_trains(source.trained);
    const TensorId id = g.parameter(source.name, dims, {Init::Kind::kNormal, 0.02}, source.dtype);
    g.set_trains(true);
    if (published != published_dims(g.tensor(id)))
      g.graph().tensor(id).published = std::move(published);
    if (source.weight) {
      out.weights.push_back(*source.weight);
      const std::optional<Payload>& payload = source.weight->payload;
      if (payload) out.parameters[identity(*payload)] = source.name;
    }
    emitter.define(slot, {id, leaves});
  };
  Emitter emitter("imported", dims_, name_dims(dims_, hints_), define);
  define_inputs(emitter);
  const std::vector<std::string> paths = step_paths();
  for (size_t i = 0; i < steps_.size() && emitter.builder().ok(); ++i) {
    emitter.begin(paths[i]);
    steps_[i].emit(emitter);
  }
  if (emitter.builder().ok()) {
    emitter.begin("loss.value");
    emitter.builder().graph().loss = emitter.read(*loss_).id;
  }
  Result<Graph> graph = emitter.builder().finish();
  if (!graph) return invalid_input(fmt::format("{}: {}", archive_.path(), graph.error().message));
  out.graph = with_block_paths(std::move(*graph));
  return out;
}

}  // namespace tessera::pt2
