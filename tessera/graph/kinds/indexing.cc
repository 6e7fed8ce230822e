// gather and scatter_add (the derivative of each is the other), scatter_max, collect and cumsum.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/graph/kinds/common.h"

namespace tessera::kinds {
namespace {

Status expect_ids(const Tensor& ids) { return expect_dtype(ids, "ids", DType::kInt64); }

// Returns the dims of x in which the dim at `position` is replaced by those dims of `ids` that
// x lacks.
std::vector<Dim> picked_dims(const std::vector<Dim>& x, size_t position,
                             const std::vector<Dim>& ids) {
  std::vector<Dim> out(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(position));
  for (const Dim& dim : ids) {
    if (find_dim(x, dim.name) < 0) out.push_back(dim);
  }
  out.insert(out.end(), x.begin() + static_cast<std::ptrdiff_t>(position) + 1, x.end());
  return out;
}

// Checks that dims which x and ids share (batch dims) have the same size in both, and that ids
// lacks the indexed dim `name`.
Status check_shared(const Tensor& ids, const std::vector<Dim>& x, const std::string& name) {
  for (const Dim& dim : ids.dims) {
    const int there = find_dim(x, dim.name);
    if (there < 0) continue;
    if (dim.name != name && x[static_cast<size_t>(there)].size == dim.size) continue;
    return invalid_input(fmt::format(
        "expected ids with dims of {} of the same sizes, without '{}', or with new ones, "
        "found {}",
        describe(x), name, describe(ids)));
  }
  return {};
}

Result<Inferred> infer_gather(const Operands& x) {
  TESSERA_TRY_VOID(expect_ids(x[1]));
  if (!is_floating(x[0].dtype)) {
    return invalid_input(fmt::format("expected x of a floating dtype, found {}", describe(x[0])));
  }
  const int position = find_dim(x[0].dims, x.text("dim"));
  if (position < 0) {
    return invalid_input(fmt::format("expected a dim of the input, found '{}' for {}",
                                     x.text("dim"), describe(x[0])));
  }
  TESSERA_TRY_VOID(check_shared(x[1], x[0].dims, x.text("dim")));
  const std::vector<Dim> output = picked_dims(x[0].dims, static_cast<size_t>(position), x[1].dims);
  return conclude(x, fmt::format("{}, {} -> {}", spell(x[0].dims), spell(x[1].dims), spell(output)),
                  {output}, {x[0].dtype});
}

InputGradients differentiate_gather(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                    const std::vector<bool>& wanted) {
  InputGradients out(2);
  if (!wanted[0]) return out;
  out[0] = builder.op1(
      op.path + ".dx", "scatter_add", {dy[0], op.inputs[1]},
      {{"dim", op.text("dim")}, {"dims", dims_text(builder.tensor(op.inputs[0]).dims)}});
  return out;
}

Result<Inferred> infer_scatter_add(const Operands& x) {
  TESSERA_TRY_VOID(expect_ids(x[1]));
  TESSERA_TRY(const std::vector<Dim> output, parse_dims(x.text("dims")));
  if (!is_floating(x[0].dtype)) {
    return invalid_input(fmt::format("expected x of a floating dtype, found {}", describe(x[0])));
  }
  const int position = find_dim(output, x.text("dim"));
  if (position < 0) {
    return invalid_input(fmt::format("expected a dim among the output's {}, found '{}'",
                                     describe(output), x.text("dim")));
  }
  TESSERA_TRY_VOID(check_shared(x[1], output, x.text("dim")));
  TESSERA_TRY_VOID(
      expect_dims(x[0], "x", picked_dims(output, static_cast<size_t>(position), x[1].dims)));
  return conclude(x, fmt::format("{}, {} -> {}", spell(x[0].dims), spell(x[1].dims), spell(output)),
                  {output}, {x[0].dtype});
}

// Infers as scatter_add does, except that elements which go to the same place are merged by
// their maximum.
Result<Inferred> infer_scatter_max(const Operands& x) {
  TESSERA_TRY(Inferred out, infer_scatter_add(x));
  return conclude(x,
                  fmt::format("{}, {} -> {} {{max}}", spell(x[0].dims), spell(x[1].dims),
                              spell(out.outputs[0])),
                  {out.outputs[0]}, {x[0].dtype});
}

// Shares the gradient of a place evenly among the elements that equal the place's maximum.
InputGradients differentiate_scatter_max(GraphBuilder& builder, const Op& op,
                                         const OutputGradients& dy,
                                         const std::vector<bool>& wanted) {
  InputGradients out(2);
  if (!wanted[0]) return out;
  const TensorId ids = op.inputs[1];
  const Attributes along = {{"dim", op.text("dim")}};
  const Attributes onto = {{"dim", op.text("dim")}, {"dims", op.text("dims")}};
  const std::string path = op.path + ".dx";
  const TensorId most = builder.op1(path + ".most", "gather", {op.outputs[0], ids}, along);
  const TensorId is = builder.op1(path + ".is", "equal", {op.inputs[0], most});
  const TensorId count = builder.op1(path + ".count", "scatter_add", {is, ids}, onto);
  const TensorId sharers = builder.op1(path + ".sharers", "clamp", {count}, {{"min", 1.0}});
  const TensorId share = builder.op1(path + ".share", "div", {dy[0], sharers});
  const TensorId there = builder.op1(path + ".there", "gather", {share, ids}, along);
  out[0] = builder.op1(path, "mul", {is, there});
  return out;
}

InputGradients differentiate_scatter_add(GraphBuilder& builder, const Op& op,
                                         const OutputGradients& dy,
                                         const std::vector<bool>& wanted) {
  InputGradients out(2);
  if (wanted[0]) {
    out[0] =
        builder.op1(op.path + ".dx", "gather", {dy[0], op.inputs[1]}, {{"dim", op.text("dim")}});
  }
  return out;
}

// Returns kIndex for the dim that attribute `dim` names, because ids are places in the whole dim
// and a running sum depends on all elements before, else kFree.
PositionRule place_in_index(const Op& op, int dim) {
  return op.annotation.dims[static_cast<size_t>(dim)].name == op.text("dim") ? PositionRule::kIndex
                                                                             : PositionRule::kFree;
}

// Counts one addition for each element of x.
int64_t scatter_flops(const Op& op) {
  const int dim = op.annotation.find(op.text("dim"));
  return iteration_points(op) / op.annotation.dims[static_cast<size_t>(dim)].size;
}

// Infers y with the dims of x, where the dim `dim` of y has the size of the whole. A piece of x
// gives its elements at their places in y and zeros elsewhere. So the results of the micro-batches,
// which are pieces of x, add up to all elements.
Result<Inferred> infer_collect(const Operands& x) {
  const int position = find_dim(x[0].dims, x.text("dim"));
  if (position < 0) {
    return invalid_input(fmt::format("expected a dim of the input, found '{}' for {}",
                                     x.text("dim"), describe(x[0])));
  }
  std::vector<Dim> output = x[0].dims;
  Dim& whole = output[static_cast<size_t>(position)];
  whole.name += ".all";
  Names made = names_of(output);
  made[static_cast<size_t>(position)] += "^";
  return conclude(x, fmt::format("{} -> {}", spell(x[0].dims), spell(made)), {output},
                  {x[0].dtype});
}

PositionRule place_in_collect(const Op& op, int dim) {
  return op.annotation.find(op.text("dim")) == dim ? PositionRule::kIndex : PositionRule::kFree;
}

// Infers y[i] as the sum of x[j] for j <= i (with reverse: j >= i). An element may need all
// elements of the dim, so the dim is frozen.
Result<Inferred> infer_cumsum(const Operands& x) {
  TESSERA_TRY_VOID(expect_numbers(x));
  return infer_along_whole_dim(x);
}

InputGradients differentiate_cumsum(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                    const std::vector<bool>&) {
  return {builder.op1(
      op.path + ".dx", "cumsum", {dy[0]},
      {{"dim", op.text("dim")}, {"reverse", int64_t{op.integer("reverse") == 0 ? 1 : 0}}})};
}

}  // namespace

std::vector<KindInfo> indexing_kinds() {
  return {
      {.name = "gather",
       .summary = "elements of x along a dim, at the places that ids name",
       .min_inputs = 2,
       .max_inputs = 2,
       .attributes = {text_attribute("dim")},
       .infer = infer_by(infer_gather),
       .differentiate = differentiate_gather,
       .flops = no_flops,
       .work = WorkClass::kLookup,
       .bytes = ByteRule::kPart,
       .position = place_in_index,
       .accumulates = true},
      {.name = "scatter_add",
       .summary = "elements of x added up at the places along a dim that ids name",
       .min_inputs = 2,
       .max_inputs = 2,
       .attributes = {text_attribute("dim"), text_attribute("dims")},
       .infer = infer_by(infer_scatter_add),
       .differentiate = differentiate_scatter_add,
       .flops = scatter_flops,
       .work = WorkClass::kLookup,
       .position = place_in_index,
       .size_attributes = {"dims"},
       .accumulates = true},
      {.name = "scatter_max",
       .summary = "the largest elements of x at the places along a dim that ids name",
       .min_inputs = 2,
       .max_inputs = 2,
       .attributes = {text_attribute("dim"), text_attribute("dims")},
       .infer = infer_by(infer_scatter_max),
       .differentiate = differentiate_scatter_max,
       .flops = scatter_flops,
       .work = WorkClass::kLookup,
       .position = place_in_index,
       .size_attributes = {"dims"}},
      {.name = "collect",
       .summary = "x at its places along a dim, zeros at the others: pieces add up to the whole",
       .attributes = {text_attribute("dim")},
       .infer = infer_by(infer_collect),
       .flops = no_flops,
       .work = WorkClass::kMove,
       .bytes = ByteRule::kPart,
       .position = place_in_collect,
       .accumulates = true},
      {.name = "cumsum",
       .summary = "running sum along a dim; reverse: from the end",
       .attributes = {text_attribute("dim"), integer_attribute("reverse", 0)},
       .infer = infer_by(infer_cumsum),
       .differentiate = differentiate_cumsum,
       .flops = flops_per_point(1),
       .work = WorkClass::kElementwise,
       .position = place_in_index,
       .linear = true},
  };
}

}  // namespace tessera::kinds
