// cross_entropy and its gradient. The loss of a token is lse - picked: the log-sum-exp of its
// logits minus the logit of its target.
#include <fmt/format.h>

#include "tessera/graph/kinds/common.h"

namespace tessera::kinds {
namespace {

Status check_logits(const Operands& x) {
  TESSERA_TRY_VOID(expect_rank(x[0], "logits", 1));
  if (!is_floating(x[0].dtype)) {
    return invalid_input(
        fmt::format("expected logits of a floating dtype, found {}", describe(x[0])));
  }
  TESSERA_TRY_VOID(expect_dtype(x[1], "targets", DType::kInt64));
  return expect_dims(x[1], "targets", without_last(x[0].dims));
}

Result<Inferred> infer_cross_entropy(const Operands& x) {
  TESSERA_TRY_VOID(check_logits(x));
  const std::vector<Dim>& rows = x[1].dims;
  const DType dtype = statistics_dtype(x[0].dtype);
  const std::string row = spell(rows);
  return conclude(x, fmt::format("{}, {} -> {} {{logsumexp}}, {}", spell(x[0].dims), row, row, row),
                  {rows, rows}, {dtype, dtype});
}

InputGradients differentiate_cross_entropy(GraphBuilder& builder, const Op& op,
                                           const OutputGradients& dy,
                                           const std::vector<bool>& wanted) {
  InputGradients out(2);
  if (!wanted[0]) return out;
  OutputGradients both = dy;
  const char* const suffixes[] = {".dlse", ".dpicked"};
  for (size_t i = 0; i < 2; ++i) {
    if (both[i].valid()) continue;
    const Tensor& output = builder.tensor(op.outputs[i]);
    const std::string dims = dims_text(output.dims);
    const std::string dtype(dtype_name(output.dtype));
    both[i] = builder.op1(op.path + suffixes[i], "fill", {},
                          {{"value", 0.0}, {"dims", dims}, {"dtype", dtype}});
  }
  out[0] = builder.op1(op.path + ".dlogits", "cross_entropy_grad",
                       {op.inputs[0], op.inputs[1], op.outputs[0], both[0], both[1]});
  return out;
}

Result<Inferred> infer_cross_entropy_grad(const Operands& x) {
  TESSERA_TRY_VOID(check_logits(x));
  const char* const names[] = {"lse", "dlse", "dpicked"};
  for (size_t i = 2; i < 5; ++i) {
    TESSERA_TRY_VOID(expect_dims(x[i], names[i - 2], x[1].dims));
    TESSERA_TRY_VOID(expect_dtype(x[i], names[i - 2], statistics_dtype(x[0].dtype)));
  }
  const std::string row = spell(x[1].dims);
  const std::string all = spell(x[0].dims);
  return conclude(x, fmt::format("{}, {}, {}, {}, {} -> {}", all, row, row, row, row, all),
                  {x[0].dims}, {x[0].dtype});
}

// Returns kIndex for the last dim of the logits, because a target is an index in the whole
// vocabulary, else kFree.
PositionRule place_in_loss(const Op& op, int dim) {
  return op.annotation.inputs[0].dims.back() == DimGroup{dim} ? PositionRule::kIndex
                                                              : PositionRule::kFree;
}

}  // namespace

std::vector<KindInfo> loss_kinds() {
  return {
      {.name = "cross_entropy",
       .summary = "log-sum-exp of the logits and the logit of the target",
       .min_inputs = 2,
       .max_inputs = 2,
       .output_names = {"lse", "picked"},
       .outputs = 2,
       .infer = infer_by(infer_cross_entropy),
       .differentiate = differentiate_cross_entropy,
       .flops = flops_per_point(4),
       .work = WorkClass::kLoss,
       .statistics = 0,
       .position = place_in_loss},
      {.name = "cross_entropy_grad",
       .summary = "dlse * exp(logits - lse) + dpicked * [v == target]",
       .min_inputs = 5,
       .max_inputs = 5,
       .infer = infer_by(infer_cross_entropy_grad),
       .flops = flops_per_point(4),
       .work = WorkClass::kLoss,
       .gradient = true,
       .position = place_in_loss,
       .in_place = true},
  };
}

}  // namespace tessera::kinds
