// Products of a sparse matrix, in compressed rows, with a dense matrix, and the gradients of the
// products. A product may use only a sample of the edges of each row
// (docs/strategies/graph-partitions.md). Its gradients use the same sample.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/graph/kinds/common.h"

namespace tessera::kinds {
namespace {

constexpr std::array<std::string_view, 2> kReduces = {"sum", "mean"};
constexpr std::array<std::string_view, 5> kSamplers = {"none", "bucket", "stride", "quadratic",
                                                       "permutation"};

std::vector<AttributeInfo> sampling_attributes() {
  return {text_attribute("reduce", "sum"),  text_attribute("sampler", "none"),
          integer_attribute("width", 0),    integer_attribute("seed", 0),
          number_attribute("norm_bias", 0), integer_attribute("rescale", 0),
          integer_attribute("each_step", 0)};
}

Attributes sampling_of(const Op& op) {
  Attributes out;
  for (const AttributeInfo& info : sampling_attributes()) {
    out.emplace(info.name, op.attributes.at(info.name));
  }
  return out;
}

template <size_t N>
Status expect_word(const Operands& x, std::string_view name,
                   const std::array<std::string_view, N>& words) {
  if (std::find(words.begin(), words.end(), x.text(name)) != words.end()) return {};
  std::string known;
  for (const std::string_view word : words)
    known += (known.empty() ? "" : ", ") + std::string(word);
  return invalid_input(
      fmt::format("expected a {} among {}, found '{}'", name, known, x.text(name)));
}

// Checks inputs 0 to 2: the begin and end of each row's edges, and the columns of the edges.
Status check_rows(const Operands& x) {
  TESSERA_TRY_VOID(expect_word(x, "reduce", kReduces));
  TESSERA_TRY_VOID(expect_word(x, "sampler", kSamplers));
  const bool sampled = x.text("sampler") != kSamplers[0];
  if (x.integer("width") < (sampled ? 1 : 0)) {
    return invalid_input(fmt::format("expected a width of at least {} for the sampler {}, found {}",
                                     sampled ? 1 : 0, x.text("sampler"), x.integer("width")));
  }
  if (x.integer("seed") < 0) {
    return invalid_input(fmt::format("expected a seed of at least 0, found {}", x.integer("seed")));
  }
  if (!(x.number("norm_bias") >= 0)) {
    return invalid_input(
        fmt::format("expected a norm_bias of at least 0, found {}", x.number("norm_bias")));
  }
  TESSERA_TRY_VOID(expect_dtype(x[0], "begin", DType::kInt64));
  TESSERA_TRY_VOID(expect_dtype(x[1], "end", DType::kInt64));
  TESSERA_TRY_VOID(expect_dtype(x[2], "columns", DType::kInt64));
  if (x[0].dims.size() != 1) {
    return invalid_input(fmt::format("expected begin with one dim, found {}", describe(x[0])));
  }
  TESSERA_TRY_VOID(expect_dims(x[1], "end", x[0].dims));
  if (x[2].dims.size() != 1) {
    return invalid_input(fmt::format("expected columns with one dim, found {}", describe(x[2])));
  }
  return {};
}

Status expect_matrix(const Tensor& tensor, std::string_view what) {
  if (tensor.dims.size() == 2 && is_floating(tensor.dtype)) return {};
  return invalid_input(fmt::format("expected {} of a floating dtype with two dims, found {}", what,
                                   describe(tensor)));
}

// The op's dims. Nodes are the rows of the result and also the rows of x. These are two op dims,
// the second one called `source` if the tensors give both the same name. Any row of the result may
// need all edges and all rows of x, so neither dim is cut.
struct Spelled {
  std::string rows, edges, source, features;
};
Result<Spelled> spell_dims(const Operands& x, const Dim& source, const Dim& features) {
  Spelled out{x[0].dims[0].name, x[2].dims[0].name, source.name, features.name};
  if (out.source == out.rows) out.source = "source";
  const std::array<const std::string*, 4> names = {&out.rows, &out.edges, &out.source,
                                                   &out.features};
  for (size_t i = 0; i < names.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (*names[i] == *names[j]) {
        return invalid_input(
            fmt::format("expected different names of the dims of rows, edges, x's rows and "
                        "features, found '{}' "
                        "twice",
                        *names[i]));
      }
    }
  }
  return out;
}

Result<Inferred> infer_spmm(const Operands& x) {
  TESSERA_TRY_VOID(check_rows(x));
  TESSERA_TRY_VOID(expect_matrix(x[3], "x"));
  TESSERA_TRY(const Spelled s, spell_dims(x, x[3].dims[0], x[3].dims[1]));
  std::string values;
  if (x.count() == 5) {
    TESSERA_TRY_VOID(expect_dims(x[4], "values", x[2].dims));
    TESSERA_TRY_VOID(expect_dtype(x[4], "values", x[3].dtype));
    values = ", " + s.edges;
  }
  return conclude(x,
                  fmt::format("{0}, {0}, {1}^, {2}^ {3}{4} -> {0} {3}", s.rows, s.edges, s.source,
                              s.features, values),
                  {{x[0].dims[0], x[3].dims[1]}}, {x[3].dtype});
}

InputGradients differentiate_spmm(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                  const std::vector<bool>& wanted) {
  InputGradients out(op.inputs.size());
  const std::vector<TensorId> edges(op.inputs.begin(), op.inputs.begin() + 3);
  if (wanted[3]) {
    std::vector<TensorId> inputs = edges;
    inputs.push_back(dy[0]);
    if (op.inputs.size() == 5) inputs.push_back(op.inputs[4]);
    Attributes attributes = sampling_of(op);
    attributes.emplace("dims", dims_text(builder.tensor(op.inputs[3]).dims));
    out[3] = builder.op1(op.path + ".dx", "spmm_grad", inputs, attributes);
  }
  if (op.inputs.size() == 5 && wanted[4]) {
    std::vector<TensorId> inputs = edges;
    inputs.push_back(op.inputs[3]);
    inputs.push_back(dy[0]);
    out[4] = builder.op1(op.path + ".dvalues", "spmm_grad_values", inputs, sampling_of(op));
  }
  return out;
}

// Infers dx. If ranks have different rows of dy, each makes a part of dx, and the parts are added.
Result<Inferred> infer_spmm_grad(const Operands& x) {
  TESSERA_TRY_VOID(check_rows(x));
  TESSERA_TRY(const std::vector<Dim> output, parse_dims(x.text("dims")));
  if (output.size() != 2) {
    return invalid_input(fmt::format("expected two dims of x, found '{}'", x.text("dims")));
  }
  TESSERA_TRY_VOID(expect_matrix(x[3], "dy"));
  TESSERA_TRY_VOID(expect_dims(x[3], "dy", {x[0].dims[0], output[1]}));
  TESSERA_TRY(const Spelled s, spell_dims(x, output[0], output[1]));
  std::string values;
  if (x.count() == 5) {
    TESSERA_TRY_VOID(expect_dims(x[4], "values", x[2].dims));
    TESSERA_TRY_VOID(expect_dtype(x[4], "values", x[3].dtype));
    values = ", " + s.edges;
  }
  return conclude(x,
                  fmt::format("{0}, {0}, {1}^, {0} {3}{4} -> {2}^ {3}", s.rows, s.edges, s.source,
                              s.features, values),
                  {output}, {x[3].dtype});
}

// Infers the gradient of the values. If ranks have different rows or features, each rank makes a
// part of the gradient, and the parts are added. A rank that lacks the row of an edge has 0 for
// the edge.
Result<Inferred> infer_spmm_grad_values(const Operands& x) {
  TESSERA_TRY_VOID(check_rows(x));
  TESSERA_TRY_VOID(expect_matrix(x[3], "x"));
  TESSERA_TRY_VOID(expect_dims(x[4], "dy", {x[0].dims[0], x[3].dims[1]}));
  TESSERA_TRY_VOID(expect_dtype(x[4], "dy", x[3].dtype));
  TESSERA_TRY(const Spelled s, spell_dims(x, x[3].dims[0], x[3].dims[1]));
  return conclude(x,
                  fmt::format("{0}, {0}, {1}^, {2}^ {3}, {0} {3} -> {1}^", s.rows, s.edges,
                              s.source, s.features),
                  {x[2].dims}, {x[3].dtype});
}

// Counts a multiplication and an addition for each feature of each edge that is used.
int64_t spmm_flops(const Op& op) {
  const auto size = [&](const OperandDims& operand, size_t i) {
    return op.annotation.dims[static_cast<size_t>(operand.dims[i][0])].size;
  };
  const Annotation& a = op.annotation;
  int64_t edges = size(a.inputs[2], 0);
  if (const int64_t width = op.integer("width"); width > 0) {
    edges = std::min(edges, width * size(a.inputs[0], 0));
  }
  return 2 * edges * size(a.inputs[3], 1);
}

// Returns the position rule of a dim. It is kIndex for the rows of the result if the sampler draws
// at random, by the number of the row; for the rows of x, because columns are numbers of rows of x;
// and for the edges, because begin and end are numbers of edges. Else it is kFree.
PositionRule place_in_spmm(const Op& op, int dim) {
  const Annotation& a = op.annotation;
  if (DimGroup{dim} == a.inputs[0].dims[0]) {
    return op.text("sampler") == kSamplers.back() ? PositionRule::kIndex : PositionRule::kFree;
  }
  return DimGroup{dim} == a.inputs[3].dims[1] ? PositionRule::kFree : PositionRule::kIndex;
}

}  // namespace

std::vector<KindInfo> sparse_kinds() {
  std::vector<AttributeInfo> with_dims = sampling_attributes();
  with_dims.push_back(text_attribute("dims"));
  return {
      {.name = "spmm",
       .summary =
           "product of a sparse matrix in compressed rows with x, of sampled edges where asked",
       .min_inputs = 4,
       .max_inputs = 5,
       .attributes = sampling_attributes(),
       .infer = infer_by(infer_spmm),
       .differentiate = differentiate_spmm,
       .flops = spmm_flops,
       .work = WorkClass::kLookup,
       .position = place_in_spmm,
       .names_rows = RowNaming{.input = 3}},
      {.name = "spmm_grad",
       .summary = "gradient of spmm's x, on the same edges",
       .min_inputs = 4,
       .max_inputs = 5,
       .attributes = with_dims,
       .infer = infer_by(infer_spmm_grad),
       .flops = spmm_flops,
       .work = WorkClass::kLookup,
       .gradient = true,
       .position = place_in_spmm,
       .size_attributes = {"dims"},
       .names_rows = RowNaming{.output = 0}},
      {.name = "spmm_grad_values",
       .summary = "gradient of spmm's values, 0 at edges that are not sampled",
       .min_inputs = 5,
       .max_inputs = 5,
       .attributes = sampling_attributes(),
       .infer = infer_by(infer_spmm_grad_values),
       .flops = spmm_flops,
       .work = WorkClass::kLookup,
       .gradient = true,
       .position = place_in_spmm,
       .names_rows = RowNaming{.input = 3}},
  };
}

}  // namespace tessera::kinds
