// Kinds that depend on positions along a dim: reorder, causal_mask, segment_mask, sinusoid_add.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/graph/kinds/common.h"
#include "tessera/graph/order.h"
#include "tessera/graph/within.h"

namespace tessera::kinds {
namespace {

Result<bool> read_flag(const Operands& x, std::string_view name) {
  const int64_t flag = x.integer(name);
  if (flag != 0 && flag != 1) {
    return invalid_input(fmt::format("expected {} 0 or 1, found {}", name, flag));
  }
  return flag == 1;
}

// x -> y with y[.., i, ..] = x[.., position(i), ..] along `dim`, or with `inverse` the inverse of
// this map. The dim is read as a whole.
Result<Inferred> infer_reorder(const Operands& x) {
  TESSERA_TRY_VOID(read_flag(x, "inverse"));
  TESSERA_TRY_VOID(parse_order(x.text("order")));
  return infer_along_whole_dim(x);
}

InputGradients differentiate_reorder(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                     const std::vector<bool>&) {
  Attributes back = op.attributes;
  back["inverse"] = int64_t{1} - op.integer("inverse");
  return {builder.op1(op.path + ".dx", "reorder", {dy[0]}, back)};
}

// scores [.., seq, .., kv] -> the scores with -inf (in a gradient: 0) where the position of the key
// is after that of the query (if causal = 1), or at least `window` positions away from it
Result<Inferred> infer_causal_mask(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  TESSERA_TRY_VOID(read_flag(x, "gradient"));
  TESSERA_TRY_VOID(read_flag(x, "causal"));
  TESSERA_TRY_VOID(parse_order(x.text("order")));
  if (x.integer("window") < 0) {
    return invalid_input(
        fmt::format("expected a window of at least 1 (0: none), found {}", x.integer("window")));
  }
  const int query = find_dim(x[0].dims, "seq");
  const bool fits = query >= 0 && x[0].dims.back().name == "kv" &&
                    x[0].dims[static_cast<size_t>(query)].size == x[0].dims.back().size;
  if (!fits) {
    return invalid_input(fmt::format(
        "expected a dim 'seq' and, last, a dim 'kv' of the same size, found {}", describe(x[0])));
  }
  return conclude(x, fmt::format("{} -> {}", spell(x[0].dims), spell(x[0].dims)), {x[0].dims},
                  {x[0].dtype});
}

InputGradients differentiate_causal_mask(GraphBuilder& builder, const Op& op,
                                         const OutputGradients& dy, const std::vector<bool>&) {
  Attributes attributes = op.attributes;
  attributes["gradient"] = int64_t{1};
  return {builder.op1(op.path + ".dx", "causal_mask", {dy[0]}, attributes)};
}

// scores [.., seq, .., kv] -> the scores with -inf (in a gradient: 0) where query and key have
// different segment numbers. The dim of the keys' segment numbers may be called seq, as that of
// the queries.
Result<Inferred> infer_segment_mask(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x, 1));
  TESSERA_TRY_VOID(read_flag(x, "gradient"));
  std::string annotation = spell(x[0].dims);
  for (const size_t i : {1, 2}) {
    TESSERA_TRY_VOID(expect_dtype(x[i], fmt::format("input {}", i), DType::kInt64));
    Names names = names_of(x[i].dims);
    if (i == 2) std::replace(names.begin(), names.end(), std::string("seq"), std::string("kv"));
    for (size_t d = 0; d < names.size(); ++d) {
      const int at = find_dim(x[0].dims, names[d]);
      if (at >= 0 && x[0].dims[static_cast<size_t>(at)].size == x[i].dims[d].size) continue;
      return invalid_input(fmt::format("expected dims of the scores {}, found {}",
                                       describe(x[0].dims), describe(x[i])));
    }
    annotation += ", " + spell(names);
  }
  return conclude(x, fmt::format("{} -> {}", annotation, spell(x[0].dims)), {x[0].dims},
                  {x[0].dtype});
}

InputGradients differentiate_segment_mask(GraphBuilder& builder, const Op& op,
                                          const OutputGradients& dy, const std::vector<bool>&) {
  return {builder.op1(op.path + ".dx", "segment_mask", {dy[0], op.inputs[1], op.inputs[2]},
                      {{"gradient", int64_t{1}}}),
          {},
          {}};
}

// Returns the dims of queries and keys. All points of the scores are work, also keys at positions
// after their query.
std::optional<QueryKey> query_and_key(const Op& op) {
  return QueryKey{op.annotation.find("seq"), op.annotation.find("kv"), /*skips=*/false};
}

PositionRule place_in_mask(const Op& op, int dim) {
  const QueryKey dims = *query_and_key(op);
  return dim == dims.query || dim == dims.key ? PositionRule::kOrder : PositionRule::kFree;
}

// x [.., dim, .., features] -> y: adds to each pair of features a wave along the positions of
// `dim`. Each pair has another wavelength.
Result<Inferred> infer_sinusoid_add(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  const int position = find_dim(x[0].dims, x.text("dim"));
  if (position < 0 || position + 1 == static_cast<int>(x[0].dims.size())) {
    return invalid_input(
        fmt::format("expected a dim of the input before its last, found '{}' for {}", x.text("dim"),
                    describe(x[0])));
  }
  if (!(x.number("base") > 1)) {
    return invalid_input(fmt::format("expected a base above 1, found {}", x.number("base")));
  }
  TESSERA_TRY_VOID(check_within(x.text("within"), x[0]));
  return conclude(x, fmt::format("{} -> {}", spell(x[0].dims), spell(x[0].dims)), {x[0].dims},
                  {x[0].dtype});
}

InputGradients differentiate_sinusoid_add(GraphBuilder&, const Op&, const OutputGradients& dy,
                                          const std::vector<bool>&) {
  return {dy[0]};
}

// Returns kIndex for the features, because the wavelength depends on the feature's index in the
// whole, kWithin for the dim of the positions, else kFree.
PositionRule place_in_waves(const Op& op, int dim) {
  if (op.annotation.outputs[0].dims.back() == DimGroup{dim}) return PositionRule::kIndex;
  return op.annotation.dims[static_cast<size_t>(dim)].name == op.text("dim") ? PositionRule::kWithin
                                                                             : PositionRule::kFree;
}

}  // namespace

std::vector<KindInfo> position_kinds() {
  return {
      {.name = "reorder",
       .summary = "a dim permuted: zigzag or striped",
       .attributes = {text_attribute("dim"), text_attribute("order"),
                      integer_attribute("inverse", 0)},
       .infer = infer_by(infer_reorder),
       .differentiate = differentiate_reorder,
       .flops = no_flops,
       .work = WorkClass::kMove,
       .position = position_free},
      {.name = "causal_mask",
       .summary = "scores of keys behind their query, or far from it, are -inf",
       .attributes = {text_attribute("order", ""), integer_attribute("gradient", 0),
                      integer_attribute("causal", 1), integer_attribute("window", 0)},
       .infer = infer_by(infer_causal_mask),
       .differentiate = differentiate_causal_mask,
       .flops = no_flops,
       .work = WorkClass::kElementwise,
       .position = place_in_mask,
       .query_key = query_and_key,
       .in_place = true},
      {.name = "segment_mask",
       .summary = "scores of keys of another segment than their query's are -inf",
       .min_inputs = 3,
       .max_inputs = 3,
       .attributes = {integer_attribute("gradient", 0)},
       .infer = infer_by(infer_segment_mask),
       .differentiate = differentiate_segment_mask,
       .flops = no_flops,
       .work = WorkClass::kElementwise,
       .position = position_free,
       .in_place = true},
      {.name = "sinusoid_add",
       .summary = "x + sin or cos of the position over base^(2 pair / features)",
       .attributes = {text_attribute("dim"), number_attribute("base", 10000.0),
                      text_attribute("within", "")},
       .infer = infer_by(infer_sinusoid_add),
       .differentiate = differentiate_sinusoid_add,
       .flops = flops_per_point(1),
       .work = WorkClass::kElementwise,
       .position = place_in_waves,
       .in_place = true},
  };
}

}  // namespace tessera::kinds
