// Kinds that move data or give dims other names: broadcast_to, group, ungroup, transpose, rename,
// rearrange, roll, slice, slice_grad, concat, fill.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/graph/kinds/common.h"

namespace tessera::kinds {
namespace {

Result<size_t> position_of(const Tensor& x, const std::string& dim) {
  const int position = find_dim(x.dims, dim);
  if (position < 0) {
    return invalid_input(
        fmt::format("expected a dim of the input, found '{}' for {}", dim, describe(x)));
  }
  return static_cast<size_t>(position);
}

// Spells the names of `dims`, with `name` in place of the name at `position`.
std::string spell_replaced(const std::vector<Dim>& dims, size_t position, const std::string& name) {
  Names names = names_of(dims);
  names[position] = name;
  return spell(names);
}

std::vector<int64_t> shape_of(const std::vector<Dim>& dims) {
  std::vector<int64_t> shape;
  for (const Dim& dim : dims) shape.push_back(dim.size);
  return shape;
}

// ---- broadcast_to, fill
// --------------------------------------------------------------------------
Result<Inferred> infer_broadcast_to(const Operands& x) {
  TESSERA_TRY_VOID(expect_numbers(x));
  TESSERA_TRY(std::vector<Dim> output, parse_dims(x.text("dims")));
  if (!is_subsequence(x[0].dims, output)) {
    return invalid_input(
        fmt::format("expected the dims of the input among {} in the same order, found {}",
                    describe(output), describe(x[0])));
  }
  return conclude(x, fmt::format("{} -> {}", spell(x[0].dims), spell(output)), {output},
                  {x[0].dtype});
}

InputGradients differentiate_broadcast_to(GraphBuilder& builder, const Op& op,
                                          const OutputGradients& dy, const std::vector<bool>&) {
  return {sum_to(builder, op.path + ".dx", dy[0], builder.tensor(op.inputs[0]).dims)};
}

Result<Inferred> infer_fill(const Operands& x) {
  TESSERA_TRY(const std::vector<Dim> output, parse_dims(x.text("dims")));
  TESSERA_TRY(const DType dtype, parse_dtype(x.text("dtype")));
  return conclude(x, fmt::format("-> {}", spell(output)), {output}, {dtype});
}

// ---- group, ungroup
// ------------------------------------------------------------------------------
Result<Inferred> infer_group(const Operands& x) {
  const int64_t first = x.integer("first");
  const int64_t count = x.integer("count");
  const auto rank = static_cast<int64_t>(x[0].dims.size());
  if (first < 0 || count < 1 || first + count > rank) {
    return invalid_input(fmt::format("expected dims {} to {} within the input, found {}", first,
                                     first + count - 1, describe(x[0])));
  }
  const auto begin = x[0].dims.begin() + first;
  const std::vector<Dim> grouped(begin, begin + count);
  int64_t size = 1;
  for (const Dim& dim : grouped) size *= dim.size;
  const auto position = static_cast<size_t>(first);
  std::vector<Dim> output = x[0].dims;
  output.erase(output.begin() + first, output.begin() + first + count);
  output.insert(output.begin() + first, Dim{x.text("name"), size});
  const std::string bracket = fmt::format("({})", spell(grouped));
  return conclude(
      x, fmt::format("{} -> {}", spell(x[0].dims), spell_replaced(output, position, bracket)),
      {output}, {x[0].dtype});
}

InputGradients differentiate_group(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                   const std::vector<bool>&) {
  const std::vector<Dim>& dims = builder.tensor(op.inputs[0]).dims;
  const auto begin = dims.begin() + op.integer("first");
  const std::vector<Dim> grouped(begin, begin + op.integer("count"));
  return {builder.op1(op.path + ".dx", "ungroup", {dy[0]},
                      {{"dim", op.text("name")}, {"names", dims_text(grouped)}})};
}

Result<Inferred> infer_ungroup(const Operands& x) {
  TESSERA_TRY(const size_t position, position_of(x[0], x.text("dim")));
  TESSERA_TRY(const std::vector<Dim> parts, parse_dims(x.text("names")));
  int64_t size = 1;
  for (const Dim& dim : parts) size *= dim.size;
  if (parts.empty() || size != x[0].dims[position].size) {
    return invalid_input(fmt::format("expected names whose product is {}, found {}",
                                     x[0].dims[position].size, describe(parts)));
  }
  std::vector<Dim> output = x[0].dims;
  const auto at = static_cast<std::ptrdiff_t>(position);
  output.erase(output.begin() + at);
  output.insert(output.begin() + at, parts.begin(), parts.end());
  const std::string bracket = fmt::format("({})", spell(parts));
  return conclude(
      x, fmt::format("{} -> {}", spell_replaced(x[0].dims, position, bracket), spell(output)),
      {output}, {x[0].dtype});
}

InputGradients differentiate_ungroup(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                     const std::vector<bool>&) {
  const int64_t first = find_dim(builder.tensor(op.inputs[0]).dims, op.text("dim"));
  const auto count = static_cast<int64_t>(words(op.text("names")).size());
  return {builder.op1(op.path + ".dx", "group", {dy[0]},
                      {{"first", first}, {"count", count}, {"name", op.text("dim")}})};
}

// ---- transpose, rename
// ---------------------------------------------------------------------------
Result<Inferred> infer_transpose(const Operands& x) {
  std::vector<Dim> output;
  for (const std::string& name : words(x.text("dims"))) {
    TESSERA_TRY(const size_t position, position_of(x[0], name));
    output.push_back(x[0].dims[position]);
  }
  if (output.size() != x[0].dims.size()) {
    return invalid_input(fmt::format("expected all {} dims of the input, found '{}'",
                                     x[0].dims.size(), x.text("dims")));
  }
  return conclude(x, fmt::format("{} -> {}", spell(x[0].dims), spell(output)), {output},
                  {x[0].dtype});
}

InputGradients differentiate_transpose(GraphBuilder& builder, const Op& op,
                                       const OutputGradients& dy, const std::vector<bool>&) {
  return {builder.op1(op.path + ".dx", "transpose", {dy[0]},
                      {{"dims", spell(builder.tensor(op.inputs[0]).dims)}})};
}

Result<Inferred> infer_rename(const Operands& x) {
  TESSERA_TRY(const size_t position, position_of(x[0], x.text("from")));
  std::vector<Dim> output = x[0].dims;
  output[position].name = x.text("to");
  return conclude(x, fmt::format("{} -> {}", spell(output), spell(output)), {output}, {x[0].dtype});
}

InputGradients differentiate_rename(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                    const std::vector<bool>&) {
  return {builder.op1(op.path + ".dx", "rename", {dy[0]},
                      {{"from", op.text("to")}, {"to", op.text("from")}})};
}

// ---- rearrange, roll
// ---------------------------------------------------------------------------
using Members = std::vector<int>;  // the op dims that make one tensor dim

int64_t product_of(const Annotation& annotation, const Members& members) {
  int64_t size = 1;
  for (const int dim : members) size *= annotation.dims[static_cast<size_t>(dim)].size;
  return size;
}

// Sets the sizes of the op dims. Those in `given` have the given sizes. In each input dim one
// member may be missing there, and its size follows from the size of the input dim.
Status size_members(Annotation& annotation, const std::vector<Dim>& given, const Tensor& x) {
  std::vector<OpDim>& dims = annotation.dims.own();
  for (OpDim& dim : dims) dim.size = 0;
  for (const Dim& dim : given) {
    const int at = annotation.find(dim.name);
    if (at < 0) {
      return invalid_input(fmt::format("expected sizes of dims of the spec, found '{}'", dim.name));
    }
    dims[static_cast<size_t>(at)].size = dim.size;
  }
  for (size_t t = 0; t < x.dims.size(); ++t) {
    const Members& members = annotation.inputs[0].dims[t];
    int64_t known = 1, unknown = -1, unknowns = 0;
    for (const int dim : members) {
      const int64_t size = dims[static_cast<size_t>(dim)].size;
      if (size == 0) {
        unknown = dim;
        ++unknowns;
      } else {
        known *= size;
      }
    }
    const int64_t whole = x.dims[t].size;
    if (unknowns > 1 || whole % known != 0 || (unknowns == 0 && whole != known)) {
      return invalid_input(
          fmt::format("expected sizes of all but one dim of each bracket that divide the input, "
                      "found {} for {}",
                      dims_text(given), describe(x)));
    }
    if (unknowns == 1) dims[static_cast<size_t>(unknown)].size = whole / known;
  }
  return {};
}

Result<Inferred> infer_rearrange(const Operands& x) {
  Inferred inferred;
  TESSERA_TRY(inferred.annotation, parse_annotation(x.text("spec")));
  TESSERA_TRY(const std::vector<Dim> given, parse_dims(x.text("sizes")));
  Annotation& annotation = inferred.annotation;
  const std::vector<std::string> names = words(x.text("dims"));
  if (annotation.inputs.size() != 1 || annotation.outputs.size() != 1 ||
      annotation.inputs[0].dims.size() != x[0].dims.size() ||
      annotation.outputs[0].dims.size() != names.size()) {
    return invalid_input(
        fmt::format("expected a spec from the {} dims of the input to the dims '{}', found '{}'",
                    x[0].dims.size(), x.text("dims"), x.text("spec")));
  }
  std::vector<bool> in(annotation.dims.size()), out(annotation.dims.size());
  for (const Members& members : annotation.inputs[0].dims) {
    for (const int dim : members) in[static_cast<size_t>(dim)] = true;
  }
  for (const Members& members : annotation.outputs[0].dims) {
    for (const int dim : members) out[static_cast<size_t>(dim)] = true;
  }
  if (in != out) {
    return invalid_input(
        fmt::format("expected the same dims on both sides, found '{}'", x.text("spec")));
  }
  TESSERA_TRY_VOID(size_members(annotation, given, x[0]));
  std::vector<Dim> output;
  std::vector<int64_t> shape;
  for (size_t t = 0; t < names.size(); ++t) {
    shape.push_back(product_of(annotation, annotation.outputs[0].dims[t]));
    output.push_back({names[t], shape.back()});
  }
  TESSERA_TRY_VOID(bind_sizes(annotation, {x[0].shape()}, {shape}));
  inferred.outputs = {std::move(output)};
  inferred.dtypes = {x[0].dtype};
  return inferred;
}

InputGradients differentiate_rearrange(GraphBuilder& builder, const Op& op,
                                       const OutputGradients& dy, const std::vector<bool>&) {
  const std::string& spec = op.text("spec");
  const size_t arrow = spec.find("->");
  std::vector<Dim> sizes;
  for (const OpDim& dim : op.annotation.dims) sizes.push_back({dim.name, dim.size});
  return {builder.op1(op.path + ".dx", "rearrange", {dy[0]},
                      {{"spec", spec.substr(arrow + 2) + " -> " + spec.substr(0, arrow)},
                       {"sizes", dims_text(sizes)},
                       {"dims", spell(builder.tensor(op.inputs[0]).dims)}})};
}

Result<Inferred> infer_roll(const Operands& x) {
  TESSERA_TRY(const size_t position, position_of(x[0], x.text("dim")));
  const std::string dims = spell_replaced(x[0].dims, position, x.text("dim") + "^");
  return conclude(x, fmt::format("{} -> {}", dims, dims), {x[0].dims}, {x[0].dtype});
}

InputGradients differentiate_roll(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                  const std::vector<bool>&) {
  return {builder.op1(op.path + ".dx", "roll", {dy[0]},
                      {{"dim", op.text("dim")}, {"shift", -op.integer("shift")}})};
}

// ---- slice, slice_grad, concat
// Reads the number of blocks. With one block the cut dim is frozen: it is called `dim` in inputs
// and `dim.out` in the output. With blocks > 1 the dim is cut into that many blocks, and one part
// is taken from each block (or put into each block). Then the op dim `dim` counts blocks and is not
// frozen. It is followed by a frozen dim, the place inside a block. Blocks are as even as possible,
// the first ones longer by one. A part that ends at the end of the longer blocks ends at the end of
// the shorter blocks too.
Result<int64_t> read_blocks(const Operands& x) {
  const int64_t blocks = x.integer("blocks");
  if (blocks >= 1) return blocks;
  return invalid_input(fmt::format("expected blocks of at least 1, found {}", blocks));
}

int64_t longest_block(int64_t extent, int64_t blocks) {
  return extent / blocks + (extent % blocks == 0 ? 0 : 1);
}

// Returns how many elements of a dim of `extent` elements are at the places [begin, begin + size)
// of their blocks, in all blocks together.
int64_t part_of_blocks(int64_t extent, int64_t blocks, int64_t begin, int64_t size) {
  const bool to_the_end = begin + size == longest_block(extent, blocks) && extent % blocks != 0;
  return blocks * size - (to_the_end ? blocks - extent % blocks : 0);
}

// Adds to the annotation what the shapes do not tell: the number of blocks, and which operands have
// uneven blocks.
void set_blocks(Annotation& annotation, const std::string& dim, int64_t blocks,
                const std::vector<int64_t>& input_extents, int64_t output_extent) {
  if (blocks == 1) return;
  std::vector<OpDim>& dims = annotation.dims.own();
  dims[static_cast<size_t>(annotation.find(dim))].size = blocks;
  const auto set = [&](const OperandDims& operand, int64_t extent) {
    if (extent % blocks == 0) return;
    for (const DimGroup& group : operand.dims) {
      if (group.size() < 2) continue;  // only the cut dim has a bracket
      OpDim& place = dims[static_cast<size_t>(group.back())];
      place.size = longest_block(extent, blocks);
      place.uneven_extent = extent;
    }
  };
  for (size_t i = 0; i < input_extents.size(); ++i) set(annotation.inputs[i], input_extents[i]);
  set(annotation.outputs[0], output_extent);
}

std::string cut_name(const std::string& dim, std::string_view suffix, int64_t blocks) {
  if (blocks == 1) return fmt::format("{}{}^", dim, suffix);
  return fmt::format("({} {}{}^)", dim, dim, suffix.empty() ? ".in" : suffix);
}

// Checks that each block of a dim of size `whole` contains the places [begin, begin + size).
Status check_part(const Operands& x, int64_t whole, int64_t blocks, int64_t size) {
  const int64_t begin = x.integer("begin"), longest = longest_block(whole, blocks);
  if (begin >= 0 && size >= 1 && begin <= longest - size) return {};
  return invalid_input(
      fmt::format("expected a part of dim '{}' of size {}, found begin {} and size {}",
                  x.text("dim"), longest, begin, size));
}

Result<Inferred> infer_cut(const Operands& x, size_t position, int64_t blocks,
                           int64_t output_size) {
  std::vector<Dim> output = x[0].dims;
  output[position].size = output_size;
  const std::string& dim = x.text("dim");
  std::string annotation = spell_replaced(x[0].dims, position, cut_name(dim, "", blocks));
  annotation += " -> " + spell_replaced(output, position, cut_name(dim, ".out", blocks));
  TESSERA_TRY(Annotation parsed, parse_annotation(annotation));
  set_blocks(parsed, dim, blocks, {x[0].dims[position].size}, output_size);
  TESSERA_TRY_VOID(bind_sizes(parsed, {x[0].shape()}, {shape_of(output)}));
  return Inferred{std::move(parsed), {output}, {x[0].dtype}};
}

Result<Inferred> infer_slice(const Operands& x) {
  TESSERA_TRY(const size_t position, position_of(x[0], x.text("dim")));
  TESSERA_TRY(const int64_t blocks, read_blocks(x));
  const int64_t whole = x[0].dims[position].size, size = x.integer("size");
  TESSERA_TRY_VOID(check_part(x, whole, blocks, size));
  return infer_cut(x, position, blocks, part_of_blocks(whole, blocks, x.integer("begin"), size));
}

Result<Inferred> infer_slice_grad(const Operands& x) {
  TESSERA_TRY(const size_t position, position_of(x[0], x.text("dim")));
  TESSERA_TRY(const int64_t blocks, read_blocks(x));
  const int64_t size = x.integer("size"), shorter = x.integer("shorter");
  if (size < 1 || size > INT64_MAX / blocks || shorter < 0 || shorter >= blocks) {
    return invalid_input(
        fmt::format("expected blocks of at least one element, not all of them shorter, found size "
                    "{}, of which {} of {} are shorter",
                    size, shorter, blocks));
  }
  const int64_t whole = blocks * size - shorter, part = x[0].dims[position].size;
  const int64_t longest = longest_block(part, blocks);
  TESSERA_TRY_VOID(check_part(x, whole, blocks, longest));
  const int64_t expected = part_of_blocks(whole, blocks, x.integer("begin"), longest);
  if (part == expected) return infer_cut(x, position, blocks, whole);
  return invalid_input(
      fmt::format("expected {} elements of dim '{}', what {} blocks of {} elements have there, "
                  "found {}",
                  expected, x.text("dim"), blocks, whole, part));
}

InputGradients differentiate_pad(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                 const std::vector<bool>&) {
  const std::vector<Dim>& dims = builder.tensor(op.inputs[0]).dims;
  const int64_t blocks = op.integer("blocks");
  const int64_t size =
      longest_block(dims[static_cast<size_t>(find_dim(dims, op.text("dim")))].size, blocks);
  return {builder.op1(op.path + ".dx", "slice", {dy[0]},
                      {{"dim", op.text("dim")},
                       {"begin", op.integer("begin")},
                       {"size", size},
                       {"blocks", blocks}})};
}

InputGradients differentiate_slice(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                   const std::vector<bool>&) {
  const std::vector<Dim>& dims = builder.tensor(op.inputs[0]).dims;
  const int64_t blocks = op.integer("blocks");
  const int64_t whole = dims[static_cast<size_t>(find_dim(dims, op.text("dim")))].size;
  const int64_t longest = longest_block(whole, blocks);
  return {builder.op1(op.path + ".dx", "slice_grad", {dy[0]},
                      {{"dim", op.text("dim")},
                       {"begin", op.integer("begin")},
                       {"size", longest},
                       {"blocks", blocks},
                       {"shorter", longest * blocks - whole}})};
}

Result<Inferred> infer_concat(const Operands& x) {
  const std::string& dim = x.text("dim");
  TESSERA_TRY(const size_t position, position_of(x[0], dim));
  TESSERA_TRY(const int64_t blocks, read_blocks(x));
  std::vector<Dim> output = x[0].dims;
  std::string annotation;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<int64_t> extents;
  int64_t size = 0;
  for (size_t i = 0; i < x.count(); ++i) {
    std::vector<Dim> expected = x[0].dims;
    if (position < x[i].dims.size()) expected[position].size = x[i].dims[position].size;
    TESSERA_TRY_VOID(expect_dims(x[i], fmt::format("input {}", i), expected));
    TESSERA_TRY_VOID(expect_dtype(x[i], fmt::format("input {}", i), x[0].dtype));
    extents.push_back(x[i].dims[position].size);
    if (i + 1 < x.count() && extents.back() % blocks != 0) {
      return invalid_input(fmt::format(
          "expected pieces of dim '{}' whose sizes, but for the last one, are multiples "
          "of {} blocks, found {}",
          dim, blocks, extents.back()));
    }
    size += extents.back();
    const std::string suffix = i == 0 ? "" : fmt::format(".{}", i);
    annotation +=
        (i == 0 ? "" : ", ") + spell_replaced(x[i].dims, position, cut_name(dim, suffix, blocks));
    shapes.push_back(x[i].shape());
  }
  output[position].size = size;
  annotation += " -> " + spell_replaced(output, position, cut_name(dim, ".out", blocks));
  TESSERA_TRY(Annotation parsed, parse_annotation(annotation));
  set_blocks(parsed, dim, blocks, extents, size);
  TESSERA_TRY_VOID(bind_sizes(parsed, shapes, {shape_of(output)}));
  return Inferred{std::move(parsed), {output}, {x[0].dtype}};
}

InputGradients differentiate_concat(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                    const std::vector<bool>& wanted) {
  InputGradients out(op.inputs.size());
  const int64_t blocks = op.integer("blocks");
  int64_t begin = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const std::vector<Dim>& dims = builder.tensor(op.inputs[i]).dims;
    const int64_t size =
        longest_block(dims[static_cast<size_t>(find_dim(dims, op.text("dim")))].size, blocks);
    if (wanted[i]) {
      out[i] = builder.op1(
          fmt::format("{}.dx{}", op.path, i), "slice", {dy[0]},
          {{"dim", op.text("dim")}, {"begin", begin}, {"size", size}, {"blocks", blocks}});
    }
    begin += size;
  }
  return out;
}

// Returns kSize for the dim that counts blocks, because attribute `blocks` holds their number,
// else kFree.
PositionRule place_in_blocks(const Op& op, int dim) {
  return op.annotation.dims[static_cast<size_t>(dim)].name == op.text("dim") ? PositionRule::kSize
                                                                             : PositionRule::kFree;
}

// Returns kSize for the dims whose sizes attribute `sizes` holds, else kFree.
PositionRule place_in_brackets(const Op& op, int dim) {
  const std::string start = op.annotation.dims[static_cast<size_t>(dim)].name + "=";
  const std::vector<std::string> sizes = words(op.text("sizes"));
  return std::any_of(sizes.begin(), sizes.end(),
                     [&](const std::string& size) { return size.starts_with(start); })
             ? PositionRule::kSize
             : PositionRule::kFree;
}

using Rule = decltype(&differentiate_slice);

KindInfo mover(std::string name, std::string summary, std::vector<AttributeInfo> attributes,
               InferFunction infer, Rule rule) {
  KindInfo info{.name = std::move(name),
                .summary = std::move(summary),
                .attributes = std::move(attributes),
                .infer = infer_by(infer),
                .flops = no_flops,
                .work = WorkClass::kMove,
                .position = position_free};
  if (rule != nullptr) info.differentiate = rule;
  return info;
}

}  // namespace

std::vector<KindInfo> shape_kinds() {
  const AttributeInfo dim = text_attribute("dim");
  const AttributeInfo dims = text_attribute("dims");
  const AttributeInfo begin = integer_attribute("begin");
  const AttributeInfo size = integer_attribute("size");
  const AttributeInfo blocks = integer_attribute("blocks", 1);
  KindInfo concat = mover("concat", "tensors joined along a dim", {dim, blocks}, infer_concat,
                          differentiate_concat);
  KindInfo slice_grad =
      mover("slice_grad", "dy in a larger tensor of zeros",
            {dim, begin, size, blocks, integer_attribute("shorter", 0)}, infer_slice_grad, nullptr);
  slice_grad.accumulates = true;
  KindInfo pad = mover(
      "pad", "x in a larger tensor that is `value` elsewhere",
      {dim, begin, size, blocks, integer_attribute("shorter", 0), number_attribute("value", 0.0)},
      infer_slice_grad, differentiate_pad);
  concat.max_inputs = SIZE_MAX;
  KindInfo fill =
      mover("fill", "a constant", {number_attribute("value"), dims, text_attribute("dtype")},
            infer_fill, nullptr);
  fill.min_inputs = 0;
  fill.max_inputs = 0;
  KindInfo broadcast_to = mover("broadcast_to", "repeats x along new dims", {dims},
                                infer_broadcast_to, differentiate_broadcast_to);
  KindInfo group =
      mover("group", "joins neighbouring dims into one",
            {integer_attribute("first"), integer_attribute("count"), text_attribute("name")},
            infer_group, differentiate_group);
  KindInfo ungroup = mover("ungroup", "cuts a dim into several", {dim, text_attribute("names")},
                           infer_ungroup, differentiate_ungroup);
  KindInfo rename =
      mover("rename", "the same data, one dim under another name",
            {text_attribute("from"), text_attribute("to")}, infer_rename, differentiate_rename);
  KindInfo rearrange =
      mover("rearrange", "dims cut, reordered and joined, as a spec with brackets says",
            {text_attribute("spec"), text_attribute("sizes"), dims}, infer_rearrange,
            differentiate_rearrange);
  KindInfo slice = mover("slice", "a part of a dim", {dim, begin, size, blocks}, infer_slice,
                         differentiate_slice);
  broadcast_to.size_attributes = fill.size_attributes = {"dims"};
  ungroup.size_attributes = {"names"};
  group.view = ungroup.view = rename.view = true;
  slice.bytes = ByteRule::kPart;
  slice_grad.gradient = true;
  slice.position = slice_grad.position = pad.position = concat.position = place_in_blocks;
  rearrange.position = place_in_brackets;
  return {
      broadcast_to,
      group,
      ungroup,
      mover("transpose", "the same dims in another order", {dims}, infer_transpose,
            differentiate_transpose),
      rename,
      rearrange,
      mover("roll", "cyclic shift along a dim: element i goes to i + shift",
            {dim, integer_attribute("shift")}, infer_roll, differentiate_roll),
      slice,
      slice_grad,
      pad,
      concat,
      fill,
  };
}

}  // namespace tessera::kinds
