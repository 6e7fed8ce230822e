// Update kinds: sgd, adamw, gradient clipping, and what a loss scale takes.
#include <fmt/format.h>

#include "tessera/graph/kinds/common.h"

namespace tessera::kinds {
namespace {

const OptimizerInfo sgd = {.states = {"momentum"}, .scalars = {Init::Kind::kLearningRate}};
const OptimizerInfo adamw = {.states = {"m", "v"},
                             .scalars = {Init::Kind::kLearningRate, Init::Kind::kStep}};

// Operands with the parameter's dims, each of a floating dtype of its own: parameter, gradient,
// states. Then scalars.
Result<Inferred> infer_update(const Operands& x, const OptimizerInfo& optimizer) {
  Names tensors = {"p", "g"}, scalars;
  tensors.insert(tensors.end(), optimizer.states.begin(), optimizer.states.end());
  for (const Init::Kind scalar : optimizer.scalars)
    scalars.emplace_back(scalar == Init::Kind::kStep ? "step" : "lr");
  scalars.insert(scalars.end(), {"coefficient", "skip"});
  const size_t outputs = 1 + optimizer.states.size();
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
    if (scalar) {
      TESSERA_TRY_VOID(expect_dtype(x[i], name, statistics_dtype(parameter.dtype)));
    } else if (!is_floating(x[i].dtype)) {
      return invalid_input(
          fmt::format("expected {} of a floating dtype, found {}", name, describe(x[i])));
    }
    annotation += scalar ? ", ()" : ", " + dims;
  }
  annotation += " -> " + dims;
  for (size_t i = 1; i < outputs; ++i) annotation += ", " + dims;
  std::vector<DType> dtypes{parameter.dtype};  // states keep theirs
  for (size_t i = 1; i < outputs; ++i) dtypes.push_back(x[i + 1].dtype);
  return conclude(x, annotation, std::vector<std::vector<Dim>>(outputs, parameter.dims),
                  std::move(dtypes));
}

Result<Inferred> infer_sgd(const Operands& x) { return infer_update(x, sgd); }
Result<Inferred> infer_adamw(const Operands& x) { return infer_update(x, adamw); }

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

Result<Inferred> infer_unscale(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  TESSERA_TRY(const DType dtype, parse_dtype(x.text("dtype")));
  if (!is_floating(dtype)) {
    return invalid_input(fmt::format("expected a floating dtype, found {}", dtype_name(dtype)));
  }
  const std::string dims = spell(x[0].dims);
  if (x.count() == 2) TESSERA_TRY_VOID(expect_dims(x[1], "scale", {}));
  return conclude(x, fmt::format("{}{} -> {}", dims, x.count() == 2 ? ", ()" : "", dims),
                  {x[0].dims}, {dtype});
}

Result<Inferred> infer_non_finite(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  return conclude(x, fmt::format("{} -> () {{max}}", spell(x[0].dims)), {{}},
                  {statistics_dtype(x[0].dtype)});
}

Result<Inferred> infer_loss_scale(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  const Names names{"scale", "clean", "overflows", "skipped", "flag"};
  for (size_t i = 0; i < x.count(); ++i) TESSERA_TRY_VOID(expect_dims(x[i], names[i], {}));
  if (!(x.number("growth") >= 1 && x.number("backoff") > 0 && x.number("backoff") <= 1 &&
        x.number("min") > 0 && x.number("min") <= x.number("max") && x.integer("interval") >= 1 &&
        x.integer("hysteresis") >= 1)) {
    return invalid_input(fmt::format(
        "expected growth >= 1, 0 < backoff <= 1, 0 < min <= max, interval >= 1, hysteresis >= 1, "
        "found {:g}, {:g}, {:g}, {:g}, {}, {}",
        x.number("growth"), x.number("backoff"), x.number("min"), x.number("max"),
        x.integer("interval"), x.integer("hysteresis")));
  }
  return conclude(x, "(), (), (), (), () -> (), (), (), ()", {{}, {}, {}, {}},
                  std::vector<DType>(4, x[0].dtype));
}

}  // namespace

std::vector<KindInfo> optimizer_kinds() {
  return {
      {.name = "sgd",
       .summary = "stochastic gradient descent with momentum and weight decay",
       .min_inputs = 4,
       .max_inputs = 6,
       .output_names = {"p", "momentum"},
       .outputs = 2,
       .attributes = {number_attribute("momentum", 0.9), number_attribute("weight_decay", 0.0)},
       .infer = infer_by(infer_sgd),
       .flops = flops_per_point(6),
       .work = WorkClass::kOptimizer,
       .position = position_free,
       .optimizer = sgd},
      {.name = "adamw",
       .summary = "Adam with decoupled weight decay",
       .min_inputs = 6,
       .max_inputs = 8,
       .output_names = {"p", "m", "v"},
       .outputs = 3,
       .attributes = {number_attribute("beta1", 0.9), number_attribute("beta2", 0.95),
                      number_attribute("eps", 1e-8), number_attribute("weight_decay", 0.0)},
       .infer = infer_by(infer_adamw),
       .flops = flops_per_point(14),
       .work = WorkClass::kOptimizer,
       .position = position_free,
       .optimizer = adamw},
      {.name = "sum_squares",
       .summary = "sum of the squares of all elements",
       .infer = infer_by(infer_sum_squares),
       .flops = flops_per_point(2),
       .work = WorkClass::kOptimizer,
       .position = position_free,
       .accumulates = true},
      {.name = "clip_coefficient",
       .summary = "min(1, max_norm / (sqrt(total) + 1e-6))",
       .attributes = {number_attribute("max_norm")},
       .infer = infer_by(infer_clip_coefficient),
       .flops = flops_per_point(4),
       .work = WorkClass::kOptimizer,
       .position = position_free},
      // Not linear, though it is so in g: g is summed over ranks in its own dtype first.
      {.name = "unscale",
       .summary = "factor * g / scale in another floating dtype",
       .min_inputs = 1,
       .max_inputs = 2,
       .attributes = {text_attribute("dtype"), number_attribute("factor", 1.0)},
       .infer = infer_by(infer_unscale),
       .flops = flops_per_point(1),
       .work = WorkClass::kOptimizer,
       .position = position_free,
       .in_place = true},
      {.name = "non_finite",
       .summary = "1 if an element is infinite or no number, else 0",
       .infer = infer_by(infer_non_finite),
       .flops = flops_per_point(1),
       .work = WorkClass::kOptimizer,
       .position = position_free},
      {.name = "loss_scale",
       .summary = "(scale, clean, overflows, skipped, flag) -> the loss scale's next state",
       .min_inputs = 5,
       .max_inputs = 5,
       .output_names = {"scale", "clean", "overflows", "skipped"},
       .outputs = 4,
       .attributes = {number_attribute("growth", 2.0), integer_attribute("interval", 1000),
                      number_attribute("backoff", 0.5), integer_attribute("hysteresis", 2),
                      number_attribute("min", 1.0), number_attribute("max", 4294967296.0)},
       .infer = infer_by(infer_loss_scale),
       .flops = flops_per_point(4),
       .work = WorkClass::kOptimizer,
       .position = position_free},
  };
}

}  // namespace tessera::kinds
