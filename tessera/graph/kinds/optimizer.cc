// Update kinds: sgd, adamw, gradient clipping, and the kinds of a loss scale.
#include <fmt/format.h>

#include "tessera/graph/kinds/common.h"

namespace tessera::kinds {
namespace {

const OptimizerInfo sgd = {.states = {"momentum"}, .scalars = {Init::Kind::kLearningRate}};
const OptimizerInfo adagrad = {.states = {"sum"}, .scalars = {Init::Kind::kLearningRate}};
const OptimizerInfo lion = {.states = {"m"}, .scalars = {Init::Kind::kLearningRate}};
const OptimizerInfo adamw = {.states = {"m", "v"},
                             .scalars = {Init::Kind::kLearningRate, Init::Kind::kStep}};

// Infers an update. First come operands with the parameter's dims, each in a floating dtype of its
// own: parameter, gradient, states. Then come scalars, and optional scalars. The outputs are the
// new parameter or its direction, in the parameter's dtype, and the new states.
Result<Inferred> infer_update(const Operands& x, const Names& states, Names scalars) {
  Names tensors = {"p", "g"};
  tensors.insert(tensors.end(), states.begin(), states.end());
  scalars.insert(scalars.end(), {"coefficient", "skip"});
  const size_t outputs = 1 + states.size();
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
  std::vector<DType> dtypes{parameter.dtype};  // states keep their dtypes
  for (size_t i = 1; i < outputs; ++i) dtypes.push_back(x[i + 1].dtype);
  return conclude(x, annotation, std::vector<std::vector<Dim>>(outputs, parameter.dims),
                  std::move(dtypes));
}

Result<Inferred> infer_optimizer(const Operands& x, const OptimizerInfo& optimizer) {
  Names scalars;
  for (const Init::Kind scalar : optimizer.scalars)
    scalars.emplace_back(scalar == Init::Kind::kStep ? "step" : "lr");
  return infer_update(x, optimizer.states, std::move(scalars));
}

Result<Inferred> infer_sgd(const Operands& x) { return infer_optimizer(x, sgd); }
Result<Inferred> infer_adagrad(const Operands& x) { return infer_optimizer(x, adagrad); }
Result<Inferred> infer_lion(const Operands& x) { return infer_optimizer(x, lion); }
Result<Inferred> infer_adamw(const Operands& x) { return infer_optimizer(x, adamw); }
Result<Inferred> infer_adam_direction(const Operands& x) {
  return infer_update(x, {"m", "v"}, {"step"});
}
Result<Inferred> infer_momentum_direction(const Operands& x) {
  return infer_update(x, {"momentum"}, {});
}
Result<Inferred> infer_lars(const Operands& x) {
  return infer_update(x, {"momentum"}, {"lr", "ratio"});
}

// (p, u, rate, lr[, skip]): the direction u has the dims of p
Result<Inferred> infer_apply_update(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  TESSERA_TRY_VOID(expect_dims(x[1], "u", x[0].dims));
  const Names names{"p", "u", "rate", "lr", "skip"};
  std::string annotation = spell(x[0].dims) + ", " + spell(x[0].dims);
  for (size_t i = 2; i < x.count(); ++i) {
    TESSERA_TRY_VOID(expect_dims(x[i], names[i], {}));
    annotation += ", ()";
  }
  return conclude(x, annotation + " -> " + spell(x[0].dims), {x[0].dims}, {x[0].dtype});
}

// (v, x, step[, skip])
Result<Inferred> infer_decayed_mean(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  TESSERA_TRY_VOID(expect_dims(x[1], "x", x[0].dims));
  const std::string dims = spell(x[0].dims);
  std::string annotation = dims + ", " + dims;
  for (size_t i = 2; i < x.count(); ++i) {
    TESSERA_TRY_VOID(expect_dims(x[i], i == 2 ? "step" : "skip", {}));
    annotation += ", ()";
  }
  return conclude(x, annotation + " -> " + dims + ", " + dims, {x[0].dims, x[0].dims},
                  {x[0].dtype, x[0].dtype});
}

// Infers a scalar from scalars that all have its dtype.
Result<Inferred> infer_scalar(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  std::string annotation;
  for (size_t i = 0; i < x.count(); ++i) {
    TESSERA_TRY_VOID(expect_dims(x[i], fmt::format("input {}", i), {}));
    annotation += i == 0 ? "()" : ", ()";
  }
  return conclude(x, annotation + " -> ()", {{}}, {x[0].dtype});
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
       .attributes = {optimizer_attribute("momentum", 0.9),
                      optimizer_attribute("weight_decay", 0.0),
                      optimizer_attribute("nesterov", 0.0)},
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
       .attributes = {optimizer_attribute("beta1", 0.9), optimizer_attribute("beta2", 0.95),
                      optimizer_attribute("eps", 1e-8), optimizer_attribute("weight_decay", 0.0)},
       .infer = infer_by(infer_adamw),
       .flops = flops_per_point(14),
       .work = WorkClass::kOptimizer,
       .position = position_free,
       .optimizer = adamw},
      {.name = "adagrad",
       .summary = "steps over the root of the sum of all squared gradients so far",
       .min_inputs = 4,
       .max_inputs = 6,
       .output_names = {"p", "sum"},
       .outputs = 2,
       .attributes = {optimizer_attribute("eps", 1e-8), optimizer_attribute("weight_decay", 0.0)},
       .infer = infer_by(infer_adagrad),
       .flops = flops_per_point(7),
       .work = WorkClass::kOptimizer,
       .position = position_free,
       .optimizer = adagrad},
      {.name = "lion",
       .summary = "the sign of a mean of gradients, with decoupled weight decay",
       .min_inputs = 4,
       .max_inputs = 6,
       .output_names = {"p", "m"},
       .outputs = 2,
       .attributes = {optimizer_attribute("beta1", 0.9), optimizer_attribute("beta2", 0.99),
                      optimizer_attribute("weight_decay", 0.0), number_attribute("least", 1e-12)},
       .infer = infer_by(infer_lion),
       .flops = flops_per_point(9),
       .work = WorkClass::kOptimizer,
       .position = position_free,
       .optimizer = lion},
      {.name = "adam_direction",
       .summary = "the direction of Adam with weight decay, which is not applied yet",
       .min_inputs = 5,
       .max_inputs = 7,
       .output_names = {"u", "m", "v"},
       .outputs = 3,
       .attributes = {optimizer_attribute("beta1", 0.9), optimizer_attribute("beta2", 0.95),
                      optimizer_attribute("eps", 1e-8), optimizer_attribute("weight_decay", 0.0)},
       .infer = infer_by(infer_adam_direction),
       .flops = flops_per_point(14),
       .work = WorkClass::kOptimizer,
       .position = position_free},
      {.name = "momentum_direction",
       .summary = "a running mean of the gradient, and with nesterov a look ahead",
       .min_inputs = 3,
       .max_inputs = 5,
       .output_names = {"u", "momentum"},
       .outputs = 2,
       .attributes = {optimizer_attribute("momentum", 0.9), optimizer_attribute("nesterov", 0.0)},
       .infer = infer_by(infer_momentum_direction),
       .flops = flops_per_point(6),
       .work = WorkClass::kOptimizer,
       .position = position_free},
      {.name = "lars",
       .summary = "momentum of the decayed gradient times the layer's ratio and the learning rate",
       .min_inputs = 5,
       .max_inputs = 7,
       .output_names = {"p", "momentum"},
       .outputs = 2,
       .attributes = {optimizer_attribute("momentum", 0.9),
                      optimizer_attribute("weight_decay", 0.0)},
       .infer = infer_by(infer_lars),
       .flops = flops_per_point(7),
       .work = WorkClass::kOptimizer,
       .position = position_free},
      {.name = "apply_update",
       .summary = "(1 - lr * weight_decay) p - factor * rate * u",
       .min_inputs = 4,
       .max_inputs = 5,
       .attributes = {optimizer_attribute("weight_decay", 0.0), number_attribute("factor", 1.0)},
       .infer = infer_by(infer_apply_update),
       .flops = flops_per_point(3),
       .work = WorkClass::kOptimizer,
       .position = position_free},
      {.name = "decayed_mean",
       .summary = "v + (x - v) / step^decay, for ops that read it and as the state",
       .min_inputs = 3,
       .max_inputs = 4,
       .output_names = {"u", "v"},
       .outputs = 2,
       .attributes = {number_attribute("decay", 0.8)},
       .infer = infer_by(infer_decayed_mean),
       .flops = flops_per_point(3),
       .work = WorkClass::kOptimizer,
       .position = position_free},
      {.name = "trust_ratio",
       .summary = "how far a layer may go: the norm of its weights over that of its gradient",
       .min_inputs = 2,
       .max_inputs = 3,
       .attributes = {number_attribute("trust", 1.0), optimizer_attribute("weight_decay", 0.0)},
       .infer = infer_by(infer_scalar),
       .flops = flops_per_point(8),
       .work = WorkClass::kOptimizer,
       .position = position_free},
      {.name = "adafactor_rate",
       .summary = "Adafactor's step size: relative to the weights, and clipped",
       .min_inputs = 4,
       .max_inputs = 4,
       .attributes = {integer_attribute("elements"), number_attribute("least", 1e-3),
                      number_attribute("clip", 1.0)},
       .infer = infer_by(infer_scalar),
       .flops = flops_per_point(12),
       .work = WorkClass::kOptimizer,
       .position = position_free},
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
      // The function is linear in g. It is not marked as linear, so that g is summed over ranks
      // first, in its own dtype.
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
