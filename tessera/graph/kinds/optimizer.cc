// Update kinds: sgd, adamw, and the two kinds of gradient clipping.
#include <fmt/format.h>

#include "tessera/graph/kinds/common.h"

namespace tessera::kinds {
namespace {

// `tensors` operands with the parameter's dims and dtype, then scalars.
Result<Inferred> infer_update(const Operands& x, const Names& tensors, const Names& scalars,
                              size_t outputs) {
  const Tensor& parameter = x[0];
  if (!is_floating(parameter.dtype)) {
    return invalid_input(
        fmt::format("expected a parameter of a floating dtype, found {}", describe(parameter)));
  }
  const std::string dims = spell(parameter.dims);
  std::string annotation = dims;
  for (size_t i = 1; i < x.count(); ++i) {
    const bool scalar = i >= tensors.size();
    const std::string& name = scalar ? scalars.at(i - tensors.size()) : tensors[i];
    TESSERA_TRY_VOID(expect_dims(x[i], name, scalar ? std::vector<Dim>{} : parameter.dims));
    TESSERA_TRY_VOID(
        expect_dtype(x[i], name, scalar ? statistics_dtype(parameter.dtype) : parameter.dtype));
    annotation += scalar ? ", ()" : ", " + dims;
  }
  annotation += " -> " + dims;
  for (size_t i = 1; i < outputs; ++i) annotation += ", " + dims;
  return conclude(x, annotation, std::vector<std::vector<Dim>>(outputs, parameter.dims),
                  std::vector<DType>(outputs, parameter.dtype));
}

Result<Inferred> infer_sgd(const Operands& x) {
  return infer_update(x, {"p", "g", "momentum"}, {"lr", "coefficient"}, 2);
}

Result<Inferred> infer_adamw(const Operands& x) {
  return infer_update(x, {"p", "g", "m", "v"}, {"lr", "step", "coefficient"}, 3);
}

Result<Inferred> infer_sum_squares(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  return conclude(x, fmt::format("{} -> ()", spell(x[0].dims)), {{}},
                  {statistics_dtype(x[0].dtype)});
}

Result<Inferred> infer_clip_coefficient(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  TESSERA_TRY_VOID(expect_dims(x[0], "a total", {}));
  if (!(x.number("max_norm") > 0)) {
    return invalid_input(
        fmt::format("expected a positive max_norm, found {}", x.number("max_norm")));
  }
  return conclude(x, "() -> ()", {{}}, {x[0].dtype});
}

}  // namespace

std::vector<KindInfo> optimizer_kinds() {
  return {
      {.name = "sgd",
       .summary = "stochastic gradient descent with momentum and weight decay",
       .min_inputs = 4,
       .max_inputs = 5,
       .output_names = {"p", "momentum"},
       .outputs = 2,
       .attributes = {number_attribute("momentum", 0.9), number_attribute("weight_decay", 0.0)},
       .infer = infer_by(infer_sgd),
       .flops = flops_per_point(6)},
      {.name = "adamw",
       .summary = "Adam with decoupled weight decay",
       .min_inputs = 6,
       .max_inputs = 7,
       .output_names = {"p", "m", "v"},
       .outputs = 3,
       .attributes = {number_attribute("beta1", 0.9), number_attribute("beta2", 0.95),
                      number_attribute("eps", 1e-8), number_attribute("weight_decay", 0.0)},
       .infer = infer_by(infer_adamw),
       .flops = flops_per_point(14)},
      {.name = "sum_squares",
       .summary = "sum of the squares of all elements",
       .infer = infer_by(infer_sum_squares),
       .flops = flops_per_point(2),
       .accumulates = true},
      {.name = "clip_coefficient",
       .summary = "min(1, max_norm / (sqrt(total) + 1e-6))",
       .attributes = {number_attribute("max_norm")},
       .infer = infer_by(infer_clip_coefficient),
       .flops = flops_per_point(4)},
  };
}

}  // namespace tessera::kinds
