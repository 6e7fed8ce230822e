// Kinds of running state (graph/carried.h): the update of a buffer, and the choice between a value
// that a step computes and its carried value, which an evaluation uses.
#include <fmt/format.h>

#include "tessera/graph/kinds/common.h"

namespace tessera::kinds {
namespace {

// (buffer, value; keep, factor, offset) -> the buffer's new value
Result<Inferred> infer_carry(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  TESSERA_TRY_VOID(expect_dims(x[1], "value", x[0].dims));
  const double keep = x.number("keep");
  if (!(keep >= 0 && keep < 1)) {
    return invalid_input(fmt::format("expected 0 <= keep < 1, found {}", keep));
  }
  const std::string dims = spell(x[0].dims);
  return conclude(x, fmt::format("{0}, {0} -> {0}", dims), {x[0].dims}, {x[0].dtype});
}

// (x, other) -> x in a step; in an evaluation `other`, repeated along the dims that it lacks
Result<Inferred> infer_in_evaluation(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  if (!is_subsequence(x[1].dims, x[0].dims)) {
    return invalid_input(
        fmt::format("expected the dims of the second input among those of the first in the same "
                    "order, found {} and {}",
                    describe(x[1]), describe(x[0])));
  }
  const std::string dims = spell(x[0].dims);
  return conclude(x, fmt::format("{}, {} -> {}", dims, spell(x[1].dims), dims), {x[0].dims},
                  {x[0].dtype});
}

// Passes dy on to x, because only steps have a derivative, and there the output is x.
InputGradients differentiate_in_evaluation(GraphBuilder&, const Op&, const OutputGradients& dy,
                                           const std::vector<bool>& wanted) {
  return {wanted[0] ? dy[0] : TensorId(), {}};
}

}  // namespace

std::vector<KindInfo> carried_kinds() {
  return {
      {.name = "carry",
       .summary = "keep * buffer + (1 - keep) * (factor * value + offset)",
       .min_inputs = 2,
       .max_inputs = 2,
       .attributes = {number_attribute("keep", 0.0), number_attribute("factor", 1.0),
                      number_attribute("offset", 0.0)},
       .infer = infer_by(infer_carry),
       .flops = flops_per_point(4),
       .work = WorkClass::kOptimizer,
       .position = position_free},
      {.name = "in_evaluation",
       .summary = "x; while an evaluation runs the other input",
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = infer_by(infer_in_evaluation),
       .differentiate = differentiate_in_evaluation,
       .flops = no_flops,
       .work = WorkClass::kElementwise,
       .position = position_free,
       .in_place = true},
  };
}

}  // namespace tessera::kinds
