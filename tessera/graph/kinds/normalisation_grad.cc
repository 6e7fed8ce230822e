// layer_norm_grad, rms_norm_grad, softmax_grad.
#include <fmt/format.h>

#include "tessera/graph/kinds/normalisation.h"

namespace tessera::kinds {
namespace {

Status check_dy(const Operands& x) {
  TESSERA_TRY_VOID(expect_dims(x[0], "dy", x[1].dims));
  return expect_dtype(x[0], "dy", x[1].dtype);
}

// (dy, x, gamma, mean, rstd) -> (dx, dgamma, dbeta)
Result<Inferred> infer_layer_norm_grad(const Operands& x) {
  TESSERA_TRY_VOID(check_norm_operands(x[1], {{"gamma", &x[2]}}));
  TESSERA_TRY_VOID(check_dy(x));
  TESSERA_TRY_VOID(check_statistics(x[1], {{"mean", &x[3]}, {"rstd", &x[4]}}));
  const Names lead = names_of(without_last(x[1].dims));
  const Dim& h = x[1].dims.back();
  const std::string all = spell(lead, h.name + "^");
  const std::string row = spell(lead);
  return conclude(x,
                  fmt::format("{}, {}, {}, {}, {} -> {}, {}, {}", all, all, h.name, row, row, all,
                              h.name, h.name),
                  {x[1].dims, {h}, {h}}, {x[1].dtype, x[1].dtype, x[1].dtype});
}

std::vector<TensorId> expand_layer_norm_grad(GraphBuilder& builder, const Op& op) {
  begin_expansion(builder, op);
  const TensorId dy = op.inputs[0];
  const TensorId x = op.inputs[1];
  const TensorId gamma = op.inputs[2];
  const TensorId mean = op.inputs[3];
  const TensorId rstd = op.inputs[4];
  const TensorId sums =
      builder.op1(op.path + ".sums", "norm_grad_sums", {dy, x, gamma, mean, rstd});
  const TensorId dx =
      builder.op1(op.path + ".apply", "norm_grad_apply", {dy, x, gamma, mean, rstd, sums},
                  {{"features", normalised_size(builder, x)}});
  const auto parameters = builder.op(op.path + ".params", "norm_grad_params", {dy, x, mean, rstd});
  return {dx, parameters[0], parameters.back()};
}

// (dy, x, gamma, rstd) -> (dx, dgamma)
Result<Inferred> infer_rms_norm_grad(const Operands& x) {
  TESSERA_TRY_VOID(check_norm_operands(x[1], {{"gamma", &x[2]}}));
  TESSERA_TRY_VOID(check_dy(x));
  TESSERA_TRY_VOID(check_statistics(x[1], {{"rstd", &x[3]}}));
  const Names lead = names_of(without_last(x[1].dims));
  const Dim& h = x[1].dims.back();
  const std::string all = spell(lead, h.name + "^");
  return conclude(
      x, fmt::format("{}, {}, {}, {} -> {}, {}", all, all, h.name, spell(lead), all, h.name),
      {x[1].dims, {h}}, {x[1].dtype, x[1].dtype});
}

std::vector<TensorId> expand_rms_norm_grad(GraphBuilder& builder, const Op& op) {
  begin_expansion(builder, op);
  const TensorId dy = op.inputs[0];
  const TensorId x = op.inputs[1];
  const TensorId gamma = op.inputs[2];
  const TensorId rstd = op.inputs[3];
  const TensorId sum = builder.op1(op.path + ".sum", "rms_grad_sum", {dy, x, gamma, rstd});
  const TensorId dx = builder.op1(op.path + ".apply", "rms_grad_apply", {dy, x, gamma, rstd, sum},
                                  {{"features", normalised_size(builder, x)}});
  return {dx, builder.op1(op.path + ".params", "rms_grad_params", {dy, x, rstd})};
}

// (dy, y; dim) -> dx
Result<Inferred> infer_softmax_grad(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY_VOID(expect_dims(x[0], "dy", x[1].dims));
  TESSERA_TRY(const std::string all, spell_with_frozen(x[1], x.text("dim")));
  return conclude(x, fmt::format("{}, {} -> {}", all, all, all), {x[1].dims}, {x[1].dtype});
}

std::vector<TensorId> expand_softmax_grad(GraphBuilder& builder, const Op& op) {
  begin_expansion(builder, op);
  const TensorId product = builder.op1(op.path + ".product", "mul", {op.inputs[0], op.inputs[1]});
  const TensorId dot =
      builder.op1(op.path + ".dot", "reduce_sum", {product}, {{"dims", op.text("dim")}});
  return {builder.op1(op.path + ".apply", "softmax_grad_apply", {op.inputs[0], op.inputs[1], dot})};
}

}  // namespace

std::vector<KindInfo> normalisation_grad_kinds() {
  return {
      {.name = "layer_norm_grad",
       .summary = "(dy, x, gamma, mean, rstd) -> (dx, dgamma, dbeta)",
       .min_inputs = 5,
       .max_inputs = 5,
       .output_names = {"dx", "dgamma", "dbeta"},
       .outputs = 3,
       .infer = infer_by(infer_layer_norm_grad),
       .flops = flops_per_point(14),
       .work = WorkClass::kNorm,
       .gradient = true,
       .position = position_free,
       .accumulates = true,
       .first_accumulating = 1,
       .expandable = last_dim,
       .expand = expand_layer_norm_grad},
      {.name = "rms_norm_grad",
       .summary = "(dy, x, gamma, rstd) -> (dx, dgamma)",
       .min_inputs = 4,
       .max_inputs = 4,
       .output_names = {"dx", "dgamma"},
       .outputs = 2,
       .infer = infer_by(infer_rms_norm_grad),
       .flops = flops_per_point(10),
       .work = WorkClass::kNorm,
       .gradient = true,
       .position = position_free,
       .accumulates = true,
       .first_accumulating = 1,
       .expandable = last_dim,
       .expand = expand_rms_norm_grad},
      {.name = "softmax_grad",
       .summary = "y * (dy - sum(dy * y)) over one dim",
       .min_inputs = 2,
       .max_inputs = 2,
       .attributes = {text_attribute("dim")},
       .infer = infer_by(infer_softmax_grad),
       .flops = flops_per_point(4),
       .work = WorkClass::kNorm,
       .gradient = true,
       .position = position_free,
       .in_place = true,
       .expandable = dim_attribute,
       .expand = expand_softmax_grad},
  };
}

}  // namespace tessera::kinds
