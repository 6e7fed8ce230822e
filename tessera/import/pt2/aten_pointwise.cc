// Rows (aten.h) of element-wise ops.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "tessera/graph/kinds.h"
#include "tessera/import/pt2/aten.h"

namespace tessera::pt2 {
namespace {

template <char const* kKind>
Status unary(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(Value y, pointwise(call, std::string(kKind), kKind, {std::move(x)}));
  call.set(std::move(y));
  return {};
}

constexpr char kRelu[] = "relu", kSilu[] = "silu", kExp[] = "exp", kLog[] = "log", kSqrt[] = "sqrt",
               kSigmoid[] = "sigmoid", kTanh[] = "tanh";

Status powered(const Call& call, const std::string& name, double exponent) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(Value y, pointwise(call, name, "power", {std::move(x)}, {{"exponent", exponent}}));
  call.set(std::move(y));
  return {};
}

Status row_pow(const Call& call) {
  const std::optional<double> exponent = call.scalar("exponent");
  if (!exponent) return invalid_input("expected an exponent that is a number, found a tensor");
  return powered(call, "pow", *exponent);
}
Status row_rsqrt(const Call& call) { return powered(call, "rsqrt", -0.5); }
Status row_reciprocal(const Call& call) { return powered(call, "reciprocal", -1); }
Status row_square(const Call& call) { return powered(call, "square", 2); }

Status row_gelu(const Call& call) {
  const bool approximate = call.text("approximate", "none") == "tanh";
  const std::string form = approximate ? "gelu" : "gelu_erf";
  if (find_kind(form) == nullptr) {
    return invalid_input(
        "an op without a counterpart: expected approximate='tanh' of GELU, found its erf form");
  }
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(Value y, pointwise(call, "gelu", form, {std::move(x)}));
  call.set(std::move(y));
  return {};
}

Status row_leaky_relu(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(const double slope, call.number("negative_slope", 0.01));
  TESSERA_TRY(Value y,
              pointwise(call, "leaky_relu", "leaky_relu", {std::move(x)}, {{"slope", slope}}));
  call.set(std::move(y));
  return {};
}

Status clamped(const Call& call, const char* least, const char* most) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(const double min, call.number(least, -kInfinity));
  TESSERA_TRY(const double max, call.number(most, kInfinity));
  TESSERA_TRY(Value y,
              pointwise(call, "clamp", "clamp", {std::move(x)}, {{"min", min}, {"max", max}}));
  call.set(std::move(y));
  return {};
}
Status row_clamp(const Call& call) { return clamped(call, "min", "max"); }
Status row_hardtanh(const Call& call) { return clamped(call, "min_val", "max_val"); }

Status row_softplus(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(const double beta, call.number("beta", 1));
  if (beta != 1) return invalid_input(fmt::format("expected beta 1, found {}", beta));
  TESSERA_TRY(Value y, pointwise(call, "softplus", "softplus", {std::move(x)}));
  call.set(std::move(y));
  return {};
}

// Lowers log(sigmoid(x)) as -softplus(-x).
Status row_log_sigmoid(const Call& call) {
  TESSERA_TRY(const Value x, call.value("self"));
  TESSERA_TRY(const Value y, pointwise(call, "softplus", "softplus", {scaled(call, x, -1)}));
  call.set(scaled(call, y, -1));
  return {};
}

Status row_neg(const Call& call) {
  TESSERA_TRY(const Value x, call.value("self"));
  call.set(scaled(call, x, -1));
  return {};
}

// Converts operands to the dtype of the node's result, as PyTorch does for operands of different
// dtypes.
Status promote(const Call& call, std::initializer_list<Value*> operands) {
  const TensorMeta* const meta = call.output_meta();
  if (meta == nullptr) return {};
  for (Value* const x : operands) {
    TESSERA_TRY(*x, converted(call, *x, meta->dtype));
  }
  return {};
}

// Makes a + alpha b (sign 1) or a - alpha b (sign -1).
Status sum_of(const Call& call, double sign) {
  TESSERA_TRY(const double alpha, call.number("alpha", 1));
  const double factor = sign * alpha;
  if (const auto b = call.scalar("other")) {
    TESSERA_TRY(Value a, call.value("self"));
    TESSERA_TRY(a, in_result_dtype(call, a));
    call.set(shifted(call, a, factor * *b));
    return {};
  }
  if (const auto a = call.scalar("self")) {
    TESSERA_TRY(Value b, call.value("other"));
    TESSERA_TRY(b, in_result_dtype(call, b));
    if (factor != 1) b = scaled(call, b, factor);
    call.set(shifted(call, b, *a));
    return {};
  }
  TESSERA_TRY(Value a, call.value("self"));
  TESSERA_TRY(Value b, call.value("other"));
  TESSERA_TRY_VOID(promote(call, {&a, &b}));
  if (std::abs(factor) != 1) b = scaled(call, b, alpha);
  TESSERA_TRY(Value y, pointwise(call, sign > 0 ? "add" : "sub", factor > 0 ? "add" : "sub",
                                 {std::move(a), std::move(b)}));
  call.set(std::move(y));
  return {};
}
Status row_add(const Call& call) { return sum_of(call, 1); }
Status row_sub(const Call& call) { return sum_of(call, -1); }

Status row_rsub(const Call& call) {
  const auto a = call.scalar("other");
  TESSERA_TRY(Value b, call.value("self"));
  TESSERA_TRY(b, in_result_dtype(call, b));
  TESSERA_TRY(const double alpha, call.number("alpha", 1));
  if (!a) return invalid_input("expected a number less a tensor, found two tensors");
  call.set(shifted(call, scaled(call, b, -alpha), *a));
  return {};
}

Status row_mul(const Call& call) {
  for (const auto& [factor, tensor] : {std::pair("other", "self"), std::pair("self", "other")}) {
    const auto by = call.scalar(factor);
    if (!by) continue;
    TESSERA_TRY(Value x, call.value(tensor));
    TESSERA_TRY(x, in_result_dtype(call, x));
    call.set(scaled(call, x, *by));
    return {};
  }
  TESSERA_TRY(Value a, call.value("self"));
  TESSERA_TRY(Value b, call.value("other"));
  TESSERA_TRY_VOID(promote(call, {&a, &b}));
  TESSERA_TRY(Value y, pointwise(call, "mul", "mul", {std::move(a), std::move(b)}));
  call.set(std::move(y));
  return {};
}

Status row_div(const Call& call) {
  if (call.has("rounding_mode")) return invalid_input("expected no rounding_mode, found one");
  if (const auto by = call.scalar("other")) {
    TESSERA_TRY(Value x, call.value("self"));
    TESSERA_TRY(x, in_result_dtype(call, x));
    call.set(scaled(call, x, 1 / *by));
    return {};
  }
  TESSERA_TRY(Value b, call.value("other"));
  if (const auto by = call.scalar("self")) {
    TESSERA_TRY(const Value inverse,
                pointwise(call, "reciprocal", "power", {b}, {{"exponent", -1.0}}));
    call.set(*by == 1 ? inverse : scaled(call, inverse, *by));
    return {};
  }
  TESSERA_TRY(Value a, call.value("self"));
  TESSERA_TRY_VOID(promote(call, {&a, &b}));
  TESSERA_TRY(Value y, pointwise(call, "div", "div", {std::move(a), std::move(b)}));
  call.set(std::move(y));
  return {};
}

// Returns whether the number masks a score, that is, whether it is so low that softmax makes it 0.
bool is_masking(double value) { return value <= -1e30; }

// Makes x with a causal mask: x[.., query, key] where key <= query, and minus infinity elsewhere.
Value causal(const Call& call, const Value& x) {
  Lowering& lowering = call.lowering();
  Value scores = lowering.whole(x, x.dims.size() - 1);
  scores = lowering.whole(scores, x.dims.size() - 2);
  lowering.hints().add(scores.dims[x.dims.size() - 2], "seq", Sure::kRole);
  lowering.hints().add(scores.dims.back(), "kv", Sure::kRole);
  Value y = lowering.make(scores.dims, scores.dtype);
  lowering.step(call, "mask", [scores, slot = y.slot](Emitter& e) {
    Vars order = e.read(scores).dims;
    const Vars keys = e.dims().leaves(scores.dims.back());
    std::erase_if(order, [&](Var leaf) { return holds(keys, leaf); });
    order.insert(order.end(), keys.begin(), keys.end());
    Emitter::Slot in = e.exactly(scores, order);
    // The kind finds its dims by their names, which may be those of another sequence here.
    const Vars queries = e.dims().leaves(scores.dims[scores.dims.size() - 2]);
    for (const auto& [leaves, name] : {std::pair(keys, "kv"), std::pair(queries, "seq")}) {
      if (leaves.size() == 1 && e.name(leaves[0]) != name) {
        in.id = e.op("rename", {in.id}, {{"from", e.name(leaves[0])}, {"to", std::string(name)}},
                     "rename");
      }
    }
    e.define(slot, {e.op("causal_mask", {in.id}), in.dims});
  });
  return y;
}

// Makes `value` where the condition holds (or, if `negate`, does not hold), and x elsewhere.
Result<Value> masked(const Call& call, const Value& x, std::string_view condition, double value,
                     bool negate) {
  const Constant* const known = call.constant(condition);
  if (known != nullptr && x.dims.size() >= 2 && is_masking(value) &&
      is_causal_mask(*known, !negate) &&
      call.lowering().size(x, x.dims.size() - 1) == known->shape.back() &&
      call.lowering().size(x, x.dims.size() - 2) == known->shape.back()) {
    const TensorMeta* const meta = call.output_meta();
    const Value y = causal(call, x);
    return meta != nullptr && meta->sizes.size() == y.dims.size()
               ? call.lowering().repeated(y, meta->sizes)
               : y;
  }
  TESSERA_TRY(Value c, call.value(condition));
  return pointwise(call, "where", "where", {std::move(c), x},
                   {{"otherwise", value}, {"negate", int64_t{negate ? 0 : 1}}});
}

Status row_masked_fill(const Call& call) {
  TESSERA_TRY(const Value x, call.value("self"));
  TESSERA_TRY(const double value, call.number("value"));
  TESSERA_TRY(Value y, masked(call, x, "mask", value, false));
  call.set(std::move(y));
  return {};
}

Status row_where(const Call& call) {
  if (const auto b = call.scalar("other")) {
    TESSERA_TRY(const Value a, call.value("self"));
    TESSERA_TRY(Value y, masked(call, a, "condition", *b, true));
    call.set(std::move(y));
    return {};
  }
  if (const auto a = call.scalar("self")) {
    TESSERA_TRY(const Value b, call.value("other"));
    TESSERA_TRY(Value y, masked(call, b, "condition", *a, false));
    call.set(std::move(y));
    return {};
  }
  TESSERA_TRY(Value c, call.value("condition"));
  TESSERA_TRY(Value a, call.value("self"));
  TESSERA_TRY(Value b, call.value("other"));
  TESSERA_TRY_VOID(promote(call, {&a, &b}));
  TESSERA_TRY(Value y,
              pointwise(call, "where", "where", {std::move(c), std::move(a), std::move(b)}));
  call.set(std::move(y));
  return {};
}

Status row_dropout(const Call& call) {
  TESSERA_TRY(Value x, call.value("input"));
  TESSERA_TRY(const double p, call.number("p"));
  TESSERA_TRY(const bool train, call.flag("train", true));
  if (!train || p == 0) {
    call.set(std::move(x));
    return {};
  }
  TESSERA_TRY(Value y, pointwise(call, "dropout", "dropout", {std::move(x)},
                                 {{"p", p}, {"key", call.node().name}}));
  call.set(std::move(y));
  return {};
}

Status row_detach(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  if (!is_floating(x.dtype)) {
    call.set(std::move(x));
    return {};
  }
  TESSERA_TRY(Value y, pointwise(call, "detach", "stop_gradient", {std::move(x)}));
  call.set(std::move(y));
  return {};
}

// Lowers an op that returns its operand: converts the operand to the dtype that the program states
// for the result.
Status row_same(const Call& call) {
  TESSERA_TRY(const Value x, call.value(call.has("input") ? "input" : "self"));
  const TensorMeta* const meta = call.output_meta();
  if (meta == nullptr) return invalid_input("expected an output with a dtype, found none");
  TESSERA_TRY(Value y, converted(call, x, meta->dtype));
  call.set(std::move(y));
  return {};
}

// Lowers abs(x) as relu(x) + relu(-x), whose gradient at 0 is 0, as in PyTorch.
Status row_abs(const Call& call) {
  TESSERA_TRY(const Value x, call.value("self"));
  TESSERA_TRY(Value above, pointwise(call, "above", "relu", {x}));
  TESSERA_TRY(Value below, pointwise(call, "below", "relu", {scaled(call, x, -1)}));
  TESSERA_TRY(Value y, pointwise(call, "abs", "add", {std::move(above), std::move(below)}));
  call.set(std::move(y));
  return {};
}

// Lowers ops that only record checks of the exporter. Adds no ops.
Status row_nothing(const Call&) { return {}; }

}  // namespace

Result<std::vector<Vars>> common_dims(const Call& call, std::vector<Value>& operands) {
  Lowering& lowering = call.lowering();
  size_t rank = 0;
  for (const Value& x : operands) rank = std::max(rank, x.dims.size());
  std::vector<Vars> dims(rank);
  for (size_t from_end = 1; from_end <= rank; ++from_end) {
    Value* first = nullptr;
    for (Value& x : operands) {
      if (x.dims.size() < from_end) continue;
      const size_t d = x.dims.size() - from_end;
      if (lowering.size(x, d) == 1) continue;
      if (first == nullptr) {
        first = &x;
        dims[rank - from_end] = x.dims[d];
      } else if (!lowering.align(*first, first->dims.size() - from_end, x, d)) {
        return invalid_input(fmt::format(
            "dim {} from the end: expected operands whose dims can be the same, found sizes {} and "
            "{}",
            from_end, lowering.size(*first, first->dims.size() - from_end), lowering.size(x, d)));
      }
    }
  }
  return dims;
}

Operands common_operands(Emitter& emitter, const std::vector<Value>& operands, const Vars& flat) {
  std::vector<Vars> have;
  Vars all;
  size_t widest = 0;
  const auto real = [&](const Vars& dims) {
    Vars out;
    for (const Var leaf : dims) {
      if (emitter.dims().size(leaf) != 1) out.push_back(leaf);
    }
    return out;
  };
  for (const Value& x : operands) {
    have.push_back(real(emitter.read(x).dims));
    for (const Var leaf : have.back()) {
      if (!holds(all, leaf)) all.push_back(leaf);
    }
    if (have.back().size() > have[widest].size()) widest = have.size() - 1;
  }
  Operands out;
  if (have[widest].size() == all.size()) {
    out.dims = have[widest];
  } else {
    for (const Var leaf : emitter.dims().leaves(flat)) {
      if (holds(all, leaf)) out.dims.push_back(leaf);
    }
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    const Emitter::Slot slot = i == widest ? emitter.exactly(operands[i], out.dims)
                                           : emitter.ordered(operands[i], out.dims);
    out.ids.push_back(slot.id);
  }
  return out;
}

namespace {

// Returns whether the kind takes operands of these dtypes.
bool takes(const std::string& kind, const std::vector<Value>& operands, Attributes attributes) {
  GraphBuilder scalars("scalars");
  std::vector<TensorId> inputs;
  for (const Value& x : operands)
    inputs.push_back(scalars.input(std::to_string(inputs.size()), {}, graph_dtype(x.dtype)));
  return infer_op(scalars.graph(), kind, inputs, attributes).has_value();
}

}  // namespace

Result<Value> pointwise(const Call& call, std::string name, std::string kind,
                        std::vector<Value> operands, Attributes attributes) {
  Lowering& lowering = call.lowering();
  const DType dtype = operands.back().dtype;
  if (!is_floating(dtype) && !takes(kind, operands, attributes)) {
    return invalid_input(fmt::format(
        "an op without a counterpart: expected a floating dtype, found {}", dtype_name(dtype)));
  }
  TESSERA_TRY(std::vector<Vars> dims, common_dims(call, operands));
  Value y = lowering.make(std::move(dims), dtype);
  lowering.step(call, std::move(name),
                [kind = std::move(kind), operands = std::move(operands),
                 attributes = std::move(attributes), flat = y.flat(), slot = y.slot](Emitter& e) {
                  Operands in = common_operands(e, operands, flat);
                  e.define(slot, {e.op(kind, std::move(in.ids), attributes), in.dims});
                });
  return y;
}

Result<Value> converted(const Call& call, const Value& x, DType dtype) {
  if (x.dtype == dtype) return x;
  if (!is_floating(dtype)) return as_integers(call, x, dtype);
  TESSERA_TRY(Value y,
              pointwise(call, "cast", "cast", {x}, {{"dtype", std::string(dtype_name(dtype))}}));
  y.dtype = dtype;
  return y;
}

Result<Value> in_result_dtype(const Call& call, const Value& x) {
  const TensorMeta* const meta = call.output_meta();
  if (meta == nullptr) return invalid_input("expected an output with a dtype, found none");
  return converted(call, x, meta->dtype);
}

Value scaled(const Call& call, const Value& x, double by) {
  if (by == 1) return x;
  if (!is_floating(x.dtype)) return integer_sum(call, "mul", x, by);
  Value y = call.lowering().make(x.dims, x.dtype);
  call.lowering().step(call, "scale", [x, by, slot = y.slot](Emitter& e) {
    const Emitter::Slot in = e.read(x);
    e.define(slot, {e.op("scale", {in.id}, {{"factor", by}}), in.dims});
  });
  return y;
}

Value shifted(const Call& call, const Value& x, double by) {
  if (by == 0) return x;
  if (!is_floating(x.dtype)) return integer_sum(call, "add", x, by);
  Value y = call.lowering().make(x.dims, x.dtype);
  call.lowering().step(call, "add", [x, by, slot = y.slot](Emitter& e) {
    const Emitter::Slot in = e.read(x);
    const TensorId number =
        e.op("fill", {}, {{"value", by}, {"dims", ""}, {"dtype", std::string(dtype_name(x.dtype))}},
             "number");
    e.define(slot, {e.op("add", {in.id, number}), in.dims});
  });
  return y;
}

Rows pointwise_rows() {
  return {{"relu", unary<kRelu>},
          {"relu_", unary<kRelu>},
          {"silu", unary<kSilu>},
          {"silu_", unary<kSilu>},
          {"exp", unary<kExp>},
          {"log", unary<kLog>},
          {"sqrt", unary<kSqrt>},
          {"sigmoid", unary<kSigmoid>},
          {"tanh", unary<kTanh>},
          {"pow", row_pow},
          {"rsqrt", row_rsqrt},
          {"reciprocal", row_reciprocal},
          {"square", row_square},
          {"gelu", row_gelu},
          {"leaky_relu", row_leaky_relu},
          {"leaky_relu_", row_leaky_relu},
          {"clamp", row_clamp},
          {"clamp_min", row_clamp},
          {"hardtanh", row_hardtanh},
          {"hardtanh_", row_hardtanh},
          {"softplus", row_softplus},
          {"log_sigmoid", row_log_sigmoid},
          {"neg", row_neg},
          {"abs", row_abs},
          {"add", row_add},
          {"add_", row_add},
          {"sub", row_sub},
          {"rsub", row_rsub},
          {"mul", row_mul},
          {"mul_", row_mul},
          {"div", row_div},
          {"div_", row_div},
          {"sub_", row_sub},
          {"masked_fill", row_masked_fill},
          {"masked_fill_", row_masked_fill},
          {"where", row_where},
          {"dropout", row_dropout},
          {"dropout_", row_dropout},
          {"detach", row_detach},
          {"detach_", row_detach},
          {"to", row_same},
          {"_to_copy", row_same},
          {"type_as", row_same},
          {"contiguous", row_same},
          {"clone", row_same},
          {"alias", row_same},
          {"lift_fresh_copy", row_same},
          {"_assert_tensor_metadata", row_nothing}};
}

}  // namespace tessera::pt2
