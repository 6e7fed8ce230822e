// Element-wise kinds and their gradients. The op dims have the names of the tensor dims.
#include <fmt/format.h>

#include <limits>

#include "tessera/graph/kinds/common.h"
#include "tessera/graph/within.h"

namespace tessera::kinds {
namespace {

std::string repeat_operand(const std::string& operand, size_t count) {
  std::string out = operand;
  for (size_t i = 1; i < count; ++i) out += ", " + operand;
  return out;
}

// (a, b), floating or int64: one of them has all dims of the other, in the same order
Result<Inferred> infer_binary(const Operands& x) {
  TESSERA_TRY_VOID(expect_numbers(x));
  const std::vector<Dim>& a = x[0].dims;
  const std::vector<Dim>& b = x[1].dims;
  if (!is_subsequence(b, a) && !is_subsequence(a, b)) {
    return invalid_input(
        fmt::format("expected the dims of one input among those of the other in the same order, "
                    "found {} and {}",
                    describe(x[0]), describe(x[1])));
  }
  const std::vector<Dim>& output = is_subsequence(b, a) ? a : b;
  return conclude(x, fmt::format("{}, {} -> {}", spell(a), spell(b), spell(output)), {output},
                  {x[0].dtype});
}

Result<Inferred> infer_quotient(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  return infer_binary(x);
}

// Checks that all inputs have the same dims and dtype. The output has these dims and this
// dtype, too.
Result<Inferred> infer_uniform(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  for (size_t i = 1; i < x.count(); ++i) {
    TESSERA_TRY_VOID(expect_dims(x[i], fmt::format("input {}", i), x[0].dims));
  }
  const std::string dims = spell(x[0].dims);
  return conclude(x, fmt::format("{} -> {}", repeat_operand(dims, x.count()), dims), {x[0].dims},
                  {x[0].dtype});
}

Result<Inferred> infer_cast(const Operands& x) {
  TESSERA_TRY(const DType dtype, parse_dtype(x.text("dtype")));
  const bool number = is_floating(x[0].dtype) || x[0].dtype == DType::kInt64;
  if (!number || !is_floating(dtype)) {
    return invalid_input(
        fmt::format("expected a cast of a floating dtype or int64 to a floating "
                    "dtype, found {} to {}",
                    describe(x[0]), dtype_name(dtype)));
  }
  const std::string dims = spell(x[0].dims);
  return conclude(x, fmt::format("{} -> {}", dims, dims), {x[0].dims}, {dtype});
}

InputGradients differentiate_add(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                 const std::vector<bool>& wanted) {
  InputGradients out(2);
  if (wanted[0])
    out[0] = sum_to(builder, op.path + ".da", dy[0], builder.tensor(op.inputs[0]).dims);
  if (wanted[1])
    out[1] = sum_to(builder, op.path + ".db", dy[0], builder.tensor(op.inputs[1]).dims);
  return out;
}

InputGradients differentiate_shift(GraphBuilder&, const Op&, const OutputGradients& dy,
                                   const std::vector<bool>&) {
  return {dy[0]};
}

InputGradients differentiate_sub(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                 const std::vector<bool>& wanted) {
  InputGradients out(2);
  if (wanted[0])
    out[0] = sum_to(builder, op.path + ".da", dy[0], builder.tensor(op.inputs[0]).dims);
  if (!wanted[1]) return out;
  const TensorId sum =
      sum_to(builder, op.path + ".db.sum", dy[0], builder.tensor(op.inputs[1]).dims);
  out[1] = builder.op1(op.path + ".db", "scale", {sum}, {{"factor", -1.0}});
  return out;
}

InputGradients differentiate_mul(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                 const std::vector<bool>& wanted) {
  InputGradients out(2);
  const char* const suffixes[] = {".da", ".db"};
  for (size_t i = 0; i < 2; ++i) {
    if (!wanted[i]) continue;
    const std::vector<Dim> target = builder.tensor(op.inputs[i]).dims;
    const bool whole = target.size() == builder.tensor(dy[0]).dims.size();
    const std::string path = op.path + suffixes[i];
    const TensorId product =
        builder.op1(whole ? path : path + ".product", "mul", {dy[0], op.inputs[1 - i]});
    out[i] = sum_to(builder, path, product, target);
  }
  return out;
}

// Makes da = dy / b, db = -(dy y) / b.
InputGradients differentiate_div(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                 const std::vector<bool>& wanted) {
  InputGradients out(2);
  const TensorId b = op.inputs[1];
  if (wanted[0]) {
    const std::vector<Dim> target = builder.tensor(op.inputs[0]).dims;
    const bool whole = target.size() == builder.tensor(dy[0]).dims.size();
    const std::string path = op.path + ".da";
    const TensorId part = builder.op1(whole ? path : path + ".part", "div", {dy[0], b});
    out[0] = sum_to(builder, path, part, target);
  }
  if (!wanted[1]) return out;
  const TensorId product = builder.op1(op.path + ".db.product", "mul", {dy[0], op.outputs[0]});
  const TensorId sum = sum_to(builder, op.path + ".db.sum", product, builder.tensor(b).dims);
  const TensorId part = builder.op1(op.path + ".db.part", "div", {sum, b});
  out[1] = builder.op1(op.path + ".db", "scale", {part}, {{"factor", -1.0}});
  return out;
}

// (c, a[, b]): the input with the most dims has the dims of all others, in the same order
Result<Inferred> infer_where(const Operands& x) {
  const Tensor* widest = nullptr;
  for (size_t i = 0; i < x.count(); ++i) {
    if (widest == nullptr || x[i].dims.size() > widest->dims.size()) widest = &x[i];
  }
  std::string operands;
  for (size_t i = 0; i < x.count(); ++i) {
    if (!is_subsequence(x[i].dims, widest->dims)) {
      return invalid_input(
          fmt::format("expected the dims of each input among those of the largest in the same "
                      "order, found {} and {}",
                      describe(x[i]), describe(*widest)));
    }
    const bool number = is_floating(x[i].dtype) || x[i].dtype == DType::kInt64;
    if (i > 0 && (!number || x[i].dtype != x[1].dtype)) {
      return invalid_input(
          fmt::format("expected values of one dtype, floating or int64, found {} "
                      "and {}",
                      describe(x[1]), describe(x[i])));
    }
    operands += (i == 0 ? "" : ", ") + spell(x[i].dims);
  }
  return conclude(x, fmt::format("{} -> {}", operands, spell(widest->dims)), {widest->dims},
                  {x[1].dtype});
}

InputGradients differentiate_where(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                   const std::vector<bool>& wanted) {
  InputGradients out(op.inputs.size());
  const char* const suffixes[] = {"", ".da", ".db"};
  for (size_t i = 1; i < out.size(); ++i) {
    if (!wanted[i]) continue;
    const std::vector<Dim> target = builder.tensor(op.inputs[i]).dims;
    const bool whole = target.size() == builder.tensor(dy[0]).dims.size();
    const std::string path = op.path + suffixes[i];
    const bool negated = (op.integer("negate") != 0) != (i == 2);
    const TensorId part = builder.op1(whole ? path : path + ".part", "where", {op.inputs[0], dy[0]},
                                      {{"negate", int64_t{negated ? 1 : 0}}});
    out[i] = sum_to(builder, path, part, target);
  }
  return out;
}

InputGradients differentiate_add_n(GraphBuilder&, const Op& op, const OutputGradients& dy,
                                   const std::vector<bool>& wanted) {
  InputGradients out(op.inputs.size());
  for (size_t i = 0; i < out.size(); ++i) {
    if (wanted[i]) out[i] = dy[0];
  }
  return out;
}

InputGradients differentiate_scale(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                   const std::vector<bool>&) {
  return {builder.op1(op.path + ".dx", "scale", {dy[0]}, {{"factor", op.number("factor")}})};
}

InputGradients differentiate_cast(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                  const std::vector<bool>&) {
  const std::string dtype(dtype_name(builder.tensor(op.inputs[0]).dtype));
  return {builder.op1(op.path + ".dx", "cast", {dy[0]}, {{"dtype", dtype}})};
}

InputGradients differentiate_exp(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                 const std::vector<bool>&) {
  return {builder.op1(op.path + ".dx", "mul", {dy[0], op.outputs[0]})};
}

InputGradients differentiate_log(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                 const std::vector<bool>&) {
  return {builder.op1(op.path + ".dx", "div", {dy[0], op.inputs[0]})};
}

// dx = -dy sin(x)
InputGradients differentiate_cos(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                 const std::vector<bool>&) {
  const TensorId slope = builder.op1(op.path + ".dx.slope", "sin", {op.inputs[0]});
  const TensorId product = builder.op1(op.path + ".dx.product", "mul", {dy[0], slope});
  return {builder.op1(op.path + ".dx", "scale", {product}, {{"factor", -1.0}})};
}

// dx = dy cos(x)
InputGradients differentiate_sin(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                 const std::vector<bool>&) {
  const TensorId slope = builder.op1(op.path + ".dx.slope", "cos", {op.inputs[0]});
  return {builder.op1(op.path + ".dx", "mul", {dy[0], slope})};
}

// dx = dy / (2 y)
InputGradients differentiate_sqrt(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                  const std::vector<bool>&) {
  const TensorId half = builder.op1(op.path + ".dx.half", "scale", {dy[0]}, {{"factor", 0.5}});
  return {builder.op1(op.path + ".dx", "div", {half, op.outputs[0]})};
}

// dx = e dy x^(e - 1)
InputGradients differentiate_power(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                   const std::vector<bool>&) {
  const double exponent = op.number("exponent");
  const TensorId scaled =
      builder.op1(op.path + ".dx.scaled", "scale", {dy[0]}, {{"factor", exponent}});
  const TensorId slope =
      builder.op1(op.path + ".dx.slope", "power", {op.inputs[0]}, {{"exponent", exponent - 1}});
  return {builder.op1(op.path + ".dx", "mul", {scaled, slope})};
}

// Makes dx = <kind>_grad(dy, x) with the same attributes, for clamp and leaky_relu.
InputGradients differentiate_bent(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                  const std::vector<bool>&) {
  return {builder.op1(op.path + ".dx", op.kind + "_grad", {dy[0], op.inputs[0]}, op.attributes)};
}

Result<Inferred> infer_clamp(const Operands& x) {
  if (!(x.number("min") <= x.number("max"))) {
    return invalid_input(
        fmt::format("expected min <= max, found {:g} and {:g}", x.number("min"), x.number("max")));
  }
  return infer_uniform(x);
}

// dx = dy (1 - y) y = dy y - (dy y) y
InputGradients differentiate_sigmoid(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                     const std::vector<bool>&) {
  const TensorId y = op.outputs[0];
  const TensorId once = builder.op1(op.path + ".dx.once", "mul", {dy[0], y});
  const TensorId twice = builder.op1(op.path + ".dx.twice", "mul", {once, y});
  return {builder.op1(op.path + ".dx", "sub", {once, twice})};
}

// dx = dy (1 - y^2) = dy - (dy y) y
InputGradients differentiate_tanh(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                  const std::vector<bool>&) {
  const TensorId y = op.outputs[0];
  const TensorId once = builder.op1(op.path + ".dx.once", "mul", {dy[0], y});
  const TensorId twice = builder.op1(op.path + ".dx.twice", "mul", {once, y});
  return {builder.op1(op.path + ".dx", "sub", {dy[0], twice})};
}

// Makes dx = <kind>_grad(dy, x), for gelu, gelu_erf, silu, relu2.
InputGradients differentiate_activation(GraphBuilder& builder, const Op& op,
                                        const OutputGradients& dy, const std::vector<bool>&) {
  return {builder.op1(op.path + ".dx", op.kind + "_grad", {dy[0], op.inputs[0]})};
}

// dx = dy sigmoid(x)
InputGradients differentiate_softplus(GraphBuilder& builder, const Op& op,
                                      const OutputGradients& dy, const std::vector<bool>&) {
  const TensorId slope = builder.op1(op.path + ".dx.slope", "sigmoid", {op.inputs[0]});
  return {builder.op1(op.path + ".dx", "mul", {dy[0], slope})};
}

// Makes dx from y instead of x, so that x need not be kept. This is possible because y is positive
// exactly where x is.
InputGradients differentiate_relu(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                  const std::vector<bool>&) {
  return {builder.op1(op.path + ".dx", "relu_grad", {dy[0], op.outputs[0]})};
}

InputGradients differentiate_dropout(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                     const std::vector<bool>&) {
  return {builder.op1(op.path + ".dx", "dropout", {dy[0]}, op.attributes)};
}

Result<Inferred> infer_dropout(const Operands& x) {
  const double p = x.number("p");
  if (!(p >= 0 && p < 1)) return invalid_input(fmt::format("expected 0 <= p < 1, found {}", p));
  TESSERA_TRY_VOID(check_within(x.text("within"), x[0]));
  return infer_uniform(x);
}

int64_t add_n_flops(const Op& op) {
  return static_cast<int64_t>(op.inputs.size() - 1) * iteration_points(op);
}

KindInfo binary(std::string name, std::string summary, bool linear,
                decltype(&differentiate_add) rule) {
  return {.name = std::move(name),
          .summary = std::move(summary),
          .min_inputs = 2,
          .max_inputs = 2,
          .infer = infer_by(infer_binary),
          .differentiate = rule,
          .flops = flops_per_point(1),
          .work = WorkClass::kElementwise,
          .position = position_free,
          .linear = linear,
          .in_place = true};
}

KindInfo unary(std::string name, std::string summary, int64_t flops,
               decltype(&differentiate_add) rule) {
  KindInfo info{.name = std::move(name),
                .summary = std::move(summary),
                .infer = infer_by(infer_uniform),
                .flops = flops_per_point(flops),
                .work = WorkClass::kElementwise,
                .position = position_free,
                .in_place = true};
  if (rule != nullptr) info.differentiate = rule;
  return info;
}

KindInfo activation_grad(std::string name, std::string summary, int64_t flops) {
  return {.name = std::move(name),
          .summary = std::move(summary),
          .min_inputs = 2,
          .max_inputs = 2,
          .infer = infer_by(infer_uniform),
          .flops = flops_per_point(flops),
          .work = WorkClass::kElementwise,
          .gradient = true,
          .position = position_free,
          .in_place = true};
}

}  // namespace

std::vector<KindInfo> elementwise_kinds() {
  KindInfo scale = unary("scale", "factor * x", 1, differentiate_scale);
  scale.attributes = {number_attribute("factor")};
  scale.linear = true;
  scale.scales = true;
  KindInfo shift = unary("shift", "x + by", 1, differentiate_shift);
  shift.attributes = {number_attribute("by")};
  KindInfo dropout = unary("dropout", "x * keep / (1 - p), keep by a counter-based generator", 2,
                           differentiate_dropout);
  AttributeInfo key = text_attribute("key");
  key.identity = true;
  dropout.attributes = {
      number_attribute("p"), key,
      AttributeInfo{"within", AttributeInfo::Type::kText, Attribute(std::string())}};
  dropout.infer = infer_by(infer_dropout);
  dropout.position = [](const Op&, int) { return PositionRule::kWithin; };
  KindInfo stop = unary("stop_gradient", "x, as a constant", 0, nullptr);
  stop.work = WorkClass::kMove;
  stop.view = true;
  stop.linear = true;
  stop.stops_gradient = true;
  KindInfo power = unary("power", "x to the exponent", 16, differentiate_power);
  power.attributes = {number_attribute("exponent")};
  KindInfo clamp = unary("clamp", "x, at least min and at most max", 2, differentiate_bent);
  KindInfo clamp_grad = activation_grad("clamp_grad", "dy where min <= x <= max, else 0", 2);
  constexpr double kAny = std::numeric_limits<double>::infinity();
  clamp.attributes = {number_attribute("min", -kAny), number_attribute("max", kAny)};
  clamp_grad.attributes = clamp.attributes;
  clamp.infer = clamp_grad.infer = infer_by(infer_clamp);
  KindInfo leaky_relu = unary("leaky_relu", "x if x > 0, else slope * x", 2, differentiate_bent);
  KindInfo leaky_relu_grad = activation_grad("leaky_relu_grad", "dy if x > 0, else slope * dy", 2);
  leaky_relu.attributes = leaky_relu_grad.attributes = {number_attribute("slope", 0.01)};
  KindInfo add = binary("add", "a + b, broadcast by dim name", /*linear=*/true, differentiate_add);
  add.merges = Combiner::kSum;
  KindInfo divide =
      binary("div", "a / b, broadcast by dim name", /*linear=*/false, differentiate_div);
  divide.infer = infer_by(infer_quotient);
  KindInfo equal = binary("equal", "1 where a = b, else 0, broadcast by dim name", /*linear=*/false,
                          /*rule=*/nullptr);
  return {
      add,
      binary("sub", "a - b, broadcast by dim name", /*linear=*/true, differentiate_sub),
      binary("mul", "a * b, broadcast by dim name", /*linear=*/false, differentiate_mul),
      divide,
      equal,
      {.name = "where",
       .summary = "a where c is not 0 (negate: where it is 0), else b, or a number without b",
       .min_inputs = 2,
       .max_inputs = 3,
       .attributes = {number_attribute("otherwise", 0.0), integer_attribute("negate", 0)},
       .infer = infer_by(infer_where),
       .differentiate = differentiate_where,
       .flops = flops_per_point(1),
       .work = WorkClass::kElementwise,
       .position = position_free},
      {.name = "add_n",
       .summary = "sum of tensors with equal dims",
       .min_inputs = 1,
       .max_inputs = SIZE_MAX,
       .infer = infer_by(infer_uniform),
       .differentiate = differentiate_add_n,
       .flops = add_n_flops,
       .work = WorkClass::kElementwise,
       .position = position_free,
       .merges = Combiner::kSum,
       .linear = true,
       .in_place = true,
       .accumulates = true},
      {.name = "max_n",
       .summary = "largest of tensors with equal dims, element by element",
       .min_inputs = 1,
       .max_inputs = SIZE_MAX,
       .infer = infer_by(infer_uniform),
       .flops = add_n_flops,
       .work = WorkClass::kElementwise,
       .position = position_free,
       .merges = Combiner::kMax,
       .in_place = true},
      scale,
      shift,
      unary("gelu", "gelu, tanh form", 8, differentiate_activation),
      unary("gelu_erf", "gelu, x times the normal distribution's share below x", 8,
            differentiate_activation),
      unary("silu", "x * sigmoid(x)", 4, differentiate_activation),
      unary("relu", "max(x, 0)", 1, differentiate_relu),
      unary("relu2", "max(x, 0) squared", 2, differentiate_activation),
      leaky_relu,
      clamp,
      unary("exp", "e to the x", 1, differentiate_exp),
      unary("log", "natural logarithm", 8, differentiate_log),
      unary("sqrt", "square root", 4, differentiate_sqrt),
      unary("cos", "cosine", 8, differentiate_cos),
      unary("sin", "sine", 8, differentiate_sin),
      power,
      unary("sigmoid", "1 / (1 + e to the -x)", 4, differentiate_sigmoid),
      unary("tanh", "hyperbolic tangent", 8, differentiate_tanh),
      unary("softplus", "log(1 + e to the x)", 4, differentiate_softplus),
      stop,
      {.name = "cast",
       .summary = "the same values in another floating dtype",
       .attributes = {text_attribute("dtype")},
       .infer = infer_by(infer_cast),
       .differentiate = differentiate_cast,
       .flops = no_flops,
       .work = WorkClass::kElementwise,
       .position = position_free,
       .converts = true,
       .linear = true},
      dropout,
      activation_grad("gelu_grad", "(dy, x) -> dx of gelu", 16),
      activation_grad("gelu_erf_grad", "(dy, x) -> dx of gelu_erf", 16),
      activation_grad("silu_grad", "(dy, x) -> dx of silu", 8),
      activation_grad("relu2_grad", "(dy, x) -> dx of relu2", 3),
      activation_grad("relu_grad", "(dy, y) -> dx of relu", 1),
      leaky_relu_grad,
      clamp_grad,
  };
}

}  // namespace tessera::kinds
