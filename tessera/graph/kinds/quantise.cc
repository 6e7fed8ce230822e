// Kinds that find the nearest of a list of codes, for vector quantisation. The codebook may be cut
// over ranks. code_score finds the largest score, which is minus the squared distance. code_place
// then finds the first place that has this score. Both are maxima, so the results of parts of a
// codebook merge by max and need no combiner of their own. Among equally near codes the first is
// taken under every plan.
#include <fmt/format.h>

#include "tessera/graph/kinds/common.h"

namespace tessera::kinds {
namespace {

// Checks x [.., width] and codes [codes, width].
Status check_codes(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x, 2));
  TESSERA_TRY_VOID(expect_rank(x[0], "x", 1));
  if (x[1].dims.size() == 2 && x[1].dims[1] == x[0].dims.back() &&
      find_dim(x[0].dims, x[1].dims[0].name) < 0)
    return {};
  return invalid_input(
      fmt::format("expected codes with a dim that x lacks and the last dim of x, found {} for {}",
                  describe(x[1]), describe(x[0])));
}

std::string spell_codes(const Operands& x) {
  return fmt::format("{}, {}",
                     spell(names_of(without_last(x[0].dims)), x[0].dims.back().name + "^"),
                     spell(x[1].dims));
}

// (x, codes) -> score
Result<Inferred> infer_score(const Operands& x) {
  TESSERA_TRY_VOID(check_codes(x));
  const std::vector<Dim> lead = without_last(x[0].dims);
  return conclude(x, fmt::format("{} -> {} {{max}}", spell_codes(x), spell(lead)), {lead},
                  {statistics_dtype(x[0].dtype)});
}

// (x, codes, score) -> place
Result<Inferred> infer_place(const Operands& x) {
  TESSERA_TRY_VOID(check_codes(x));
  const std::vector<Dim> lead = without_last(x[0].dims);
  const DType dtype = statistics_dtype(x[0].dtype);
  TESSERA_TRY_VOID(expect_dims(x[2], "score", lead));
  TESSERA_TRY_VOID(expect_dtype(x[2], "score", dtype));
  return conclude(x, fmt::format("{0}, {1} -> {1} {{max}}", spell_codes(x), spell(lead)), {lead},
                  {dtype});
}

// (place) -> ids
Result<Inferred> infer_ids(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  const std::string dims = spell(x[0].dims);
  return conclude(x, fmt::format("{0} -> {0}", dims), {x[0].dims}, {DType::kInt64});
}

// Counts a subtraction, a multiplication and an addition for each number of each code, for
// each point.
int64_t distance_flops(const Op& op) { return 3 * iteration_points(op); }

// Returns kIndex for the codes, because a place is a number in the whole list of codes, else kFree.
PositionRule place_in_codes(const Op& op, int dim) {
  return op.annotation.reduces(dim, 0) ? PositionRule::kIndex : PositionRule::kFree;
}

}  // namespace

std::vector<KindInfo> quantise_kinds() {
  return {
      {.name = "code_score",
       .summary = "minus the squared distance of x to the nearest code",
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = infer_by(infer_score),
       .flops = distance_flops,
       .work = WorkClass::kElementwise,
       .position = position_free},
      {.name = "code_place",
       .summary = "minus the place of the first code with that score",
       .min_inputs = 3,
       .max_inputs = 3,
       .infer = infer_by(infer_place),
       .flops = distance_flops,
       .work = WorkClass::kElementwise,
       .position = place_in_codes},
      {.name = "code_ids",
       .summary = "places of codes as ids",
       .infer = infer_by(infer_ids),
       .flops = no_flops,
       .work = WorkClass::kElementwise,
       .position = position_free},
  };
}

}  // namespace tessera::kinds
