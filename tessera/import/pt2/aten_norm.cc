// Rows (aten.h) of the ops of norms, softmax, reductions and losses.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tessera/base/text.h"
#include "tessera/import/pt2/aten.h"
#include "tessera/import/pt2/names.h"

namespace tessera::pt2 {
namespace {

// Returns the dims of the graph's tensor of x, without dims of size 1, in an order in which the
// dims `last` come last.
Vars with_last(Emitter& e, const Value& x, const Vars& last) {
  Vars order;
  for (const Var leaf : e.read(x).dims) {
    if (!holds(last, leaf) && e.dims().size(leaf) != 1) order.push_back(leaf);
  }
  order.insert(order.end(), last.begin(), last.end());
  return order;
}

// Makes the norm of operands[0] over its last dim, times operands[1] (gamma) and, for a layer norm,
// plus operands[2] (beta).
Result<Value> normed(const Call& call, const std::string& kind, std::vector<Value> operands,
                     double eps) {
  Lowering& lowering = call.lowering();
  const size_t last = operands[0].dims.size() - 1;
  for (size_t i = 1; i < operands.size(); ++i) {
    if (operands[i].dims.size() != 1) {
      return invalid_input(fmt::format("expected a norm over the last dim, found one over {}",
                                       operands[i].dims.size()));
    }
    operands[i] = lowering.whole(operands[i], 0);
  }
  operands[0] = lowering.whole(operands[0], last);
  for (size_t i = 1; i < operands.size(); ++i) {
    if (!lowering.align(operands[0], last, operands[i], 0)) {
      return invalid_input(fmt::format("expected weights of {}, found {}",
                                       lowering.size(operands[0], last),
                                       lowering.size(operands[i], 0)));
    }
  }
  lowering.hints().add(operands[0].dims[last], "hidden", Sure::kWidth);
  Value y = lowering.make(operands[0].dims, operands[0].dtype);
  lowering.step(call, kind, [kind, operands, eps, last, slot = y.slot](Emitter& e) {
    const Vars features = e.dims().leaves(operands[0].dims[last]);
    const Emitter::Slot x = e.exactly(operands[0], with_last(e, operands[0], features));
    std::vector<TensorId> inputs = {x.id};
    for (size_t i = 1; i < operands.size(); ++i)
      inputs.push_back(e.exactly(operands[i], features).id);
    const std::vector<TensorId> made = e.ops(kind, std::move(inputs), {{"eps", eps}});
    if (!made.empty()) e.define(slot, {made[0], x.dims});
  });
  return y;
}

// Returns the norm's weight or bias. If the module has none, returns a constant of `value` for each
// feature, which has no effect.
Result<Value> weight_or(const Call& call, std::string_view argument, int64_t size, double value,
                        DType dtype) {
  if (call.has(argument)) return call.value(argument);
  const auto count = constant_elements({size});
  if (!count)
    return invalid_input(fmt::format("expected a norm of at most {} numbers", kMaxConstant));
  return call.lowering().materialise(
      Constant{dtype, {size}, std::vector<double>(static_cast<size_t>(*count), value)},
      constant_name(fmt::format("{}.{}", call.node().name, argument)));
}

Status row_layer_norm(const Call& call) {
  TESSERA_TRY(Value x, call.value("input"));
  TESSERA_TRY(const std::vector<int64_t> shape, call.integers("normalized_shape"));
  if (shape.size() != 1 || x.dims.empty()) {
    return invalid_input(
        "an op without a counterpart: expected a layer norm over the last dim alone");
  }
  TESSERA_TRY(Value gamma, weight_or(call, "weight", shape[0], 1, x.dtype));
  TESSERA_TRY(Value beta, weight_or(call, "bias", shape[0], 0, x.dtype));
  TESSERA_TRY(const double eps, call.number("eps", 1e-5));
  TESSERA_TRY(Value y, normed(call, "layer_norm", {x, gamma, beta}, eps));
  call.set(std::move(y));
  return {};
}

Status row_rms_norm(const Call& call) {
  TESSERA_TRY(Value x, call.value("input"));
  TESSERA_TRY(const std::vector<int64_t> shape, call.integers("normalized_shape"));
  if (shape.size() != 1 || x.dims.empty()) {
    return invalid_input(
        "an op without a counterpart: expected an RMS norm over the last dim alone");
  }
  TESSERA_TRY(Value gamma, weight_or(call, "weight", shape[0], 1, x.dtype));
  // If eps is not given, PyTorch uses the distance from 1 to the next larger number of the dtype in
  // which it computes. For 16-bit operands this dtype is float32.
  const double smallest = x.dtype == DType::kFloat64 ? std::numeric_limits<double>::epsilon()
                                                     : std::numeric_limits<float>::epsilon();
  TESSERA_TRY(const double eps, call.number("eps", smallest));
  TESSERA_TRY(Value y, normed(call, "rms_norm", {x, gamma}, eps));
  call.set(std::move(y));
  return {};
}

Status row_batch_norm(const Call& call) {
  TESSERA_TRY(Value x, call.value("input"));
  TESSERA_TRY(const bool training, call.flag(call.has("training") ? "training" : "train", false));
  TESSERA_TRY(const double eps, call.number("eps", 1e-5));
  if (!training) {
    return invalid_input(
        "an op without a counterpart: expected a batch norm of the batch (export the module in "
        "training mode), found one of running statistics");
  }
  if (x.dims.size() < 2) return invalid_input("expected a batch norm of channels");
  Lowering& lowering = call.lowering();
  TESSERA_TRY(Value gamma, weight_or(call, "weight", lowering.size(x, 1), 1, x.dtype));
  TESSERA_TRY(Value beta, weight_or(call, "bias", lowering.size(x, 1), 0, x.dtype));
  for (Value* weight : {&gamma, &beta}) {
    if (weight->dims.size() != 1) return invalid_input("expected weights of one dim");
    *weight = lowering.whole(*weight, 0);
  }
  x = lowering.whole(x, 1);
  for (Value* weight : {&gamma, &beta}) {
    if (!lowering.align(x, 1, *weight, 0)) {
      return invalid_input(fmt::format("expected weights of {} channels, found {}",
                                       lowering.size(x, 1), lowering.size(*weight, 0)));
    }
  }
  Value y = lowering.make(x.dims, x.dtype);
  lowering.step(call, "batch_norm", [x, gamma, beta, eps, slot = y.slot](Emitter& e) {
    const Vars channels = e.dims().leaves(x.dims[1]);
    const Emitter::Slot in = e.read(x);
    Vars over;
    for (const Var leaf : in.dims) {
      if (!holds(channels, leaf)) over.push_back(leaf);
    }
    const std::vector<TensorId> made =
        e.ops("batch_norm", {in.id, e.exactly(gamma, channels).id, e.exactly(beta, channels).id},
              {{"dims", e.spell(over)}, {"eps", eps}});
    if (!made.empty()) e.define(slot, {made[0], in.dims});
  });
  call.set(std::move(y));
  return {};
}

// Lowers a group norm: (x - mean) / sqrt(variance + eps) * gamma + beta. Mean and variance are
// taken over the channels of a group and over the pixels.
Status row_group_norm(const Call& call) {
  TESSERA_TRY(Value x, call.value("input"));
  TESSERA_TRY(const int64_t groups, call.integer("num_groups"));
  TESSERA_TRY(const double eps, call.number("eps", 1e-5));
  if (x.dims.size() < 2) return invalid_input("expected a group norm of channels");
  const int64_t channels = call.lowering().size(x, 1);
  TESSERA_TRY(Value gamma, weight_or(call, "weight", channels, 1, x.dtype));
  TESSERA_TRY(Value beta, weight_or(call, "bias", channels, 0, x.dtype));
  if (gamma.dims.size() != 1 || beta.dims.size() != 1)
    return invalid_input("expected weights of one dim");
  if (groups < 1 || channels % groups != 0) {
    return invalid_input(fmt::format("expected groups of {} channels, found {}", channels, groups));
  }
  std::optional<std::pair<Vars, Vars>> parts = call.dims().cut(x.dims[1], groups);
  if (!parts) {  // another op needs the channels as one dim
    parts = {call.dims().list(groups), call.dims().list(channels / groups)};
    Vars both = parts->first;
    both.insert(both.end(), parts->second.begin(), parts->second.end());
    x = call.lowering().retarget(x, 1, both);
  }
  std::vector<size_t> over;
  double count = 1;
  Value grouped = x;
  grouped.dims[1] = parts->first;
  grouped.dims.insert(grouped.dims.begin() + 2, parts->second);
  for (size_t d = 2; d < grouped.dims.size(); ++d) {
    over.push_back(d);
    count *= static_cast<double>(call.lowering().size(grouped, d));
  }
  const Value mean = reduced(call, "mean", grouped, over, true, 1 / count);
  TESSERA_TRY(const Value centred, pointwise(call, "centre", "sub", {grouped, mean}));
  TESSERA_TRY(const Value squares,
              pointwise(call, "square", "power", {centred}, {{"exponent", 2.0}}));
  const Value variance =
      shifted(call, reduced(call, "variance", squares, over, true, 1 / count), eps);
  TESSERA_TRY(const Value factor,
              pointwise(call, "deviation", "power", {variance}, {{"exponent", -0.5}}));
  TESSERA_TRY(Value y, pointwise(call, "normalise", "mul", {centred, factor}));
  y.dims = x.dims;
  for (Value* weight : {&gamma, &beta})
    weight->dims.insert(weight->dims.end(), x.dims.size() - 2, Vars{});
  TESSERA_TRY(y, pointwise(call, "gain", "mul", {y, gamma}));
  TESSERA_TRY(y, pointwise(call, "shift", "add", {y, beta}));
  call.set(std::move(y));
  return {};
}

// Returns the square root of the sum of squares of x over dims, which remain with size 1.
Result<Value> norm_over(const Call& call, const Value& x, const std::vector<size_t>& over) {
  TESSERA_TRY(const Value squares, pointwise(call, "square", "power", {x}, {{"exponent", 2.0}}));
  return pointwise(call, "norm", "sqrt", {reduced(call, "squares", squares, over, true, 1)});
}

// Lowers the weight of a module under weight_norm: v times g, divided by the norm of v over all dims
// but `dim`.
Status row_weight_norm(const Call& call) {
  TESSERA_TRY(const Value v, call.value("v"));
  TESSERA_TRY(const Value g, call.value("g"));
  TESSERA_TRY(const size_t dim, call.dim("dim", v.dims.size(), 0));
  std::vector<size_t> over;
  for (size_t d = 0; d < v.dims.size(); ++d) {
    if (d != dim) over.push_back(d);
  }
  TESSERA_TRY(const Value norm, norm_over(call, v, over));
  TESSERA_TRY(const Value factor, pointwise(call, "factor", "div", {g, norm}));
  TESSERA_TRY(Value y, pointwise(call, "weight", "mul", {v, factor}));
  call.set(std::move(y));
  return {};
}

// Lowers the 2-norm of x over dims.
Status row_vector_norm(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(x, in_result_dtype(call, x));
  TESSERA_TRY(const double ord, call.number("ord", 2));
  TESSERA_TRY(const std::vector<size_t> over, call.dim_list("dim", x.dims.size()));
  TESSERA_TRY(const bool keep, call.flag("keepdim", false));
  if (ord != 2) {
    return invalid_input(
        fmt::format("an op without a counterpart: expected the norm of order 2, found {}", ord));
  }
  TESSERA_TRY(Value y, norm_over(call, x, over));
  std::vector<Vars> dims;
  for (size_t d = 0; d < y.dims.size(); ++d) {
    if (keep || std::find(over.begin(), over.end(), d) == over.end()) dims.push_back(y.dims[d]);
  }
  y.dims = std::move(dims);
  call.set(std::move(y));
  return {};
}

Status row_softmax(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(const size_t dim, call.dim("dim", x.dims.size()));
  TESSERA_TRY(x, in_result_dtype(call, x));
  x = call.lowering().whole(x, dim);
  // Four dims, of which the last is normalised, are taken as attention scores, normalised over the
  // keys.
  if (x.dims.size() > 3 && dim + 1 == x.dims.size()) {
    call.lowering().hints().add(x.dims[dim], "kv", Sure::kRole);
    call.lowering().hints().add(x.dims[dim - 1], "seq", Sure::kRole);
  }
  Value y = call.lowering().make(x.dims, x.dtype);
  call.lowering().step(call, "softmax", [x, dim, slot = y.slot](Emitter& e) {
    const Emitter::Slot in = e.exactly(x, e.dims().leaves(x.flat()));
    const Vars over = e.dims().leaves(x.dims[dim]);
    e.define(slot, {e.op("softmax", {in.id}, {{"dim", e.spell(over)}}), in.dims});
  });
  call.set(std::move(y));
  return {};
}

// Lowers a log-softmax without adding ops yet. Its usual reader, nll_loss, becomes a cross entropy
// that reads x. If another op reads the result, the ops for the logarithm of a softmax are added
// then.
Status row_log_softmax(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(const size_t dim, call.dim("dim", x.dims.size()));
  TESSERA_TRY(x, in_result_dtype(call, x));
  x = call.lowering().whole(x, dim);
  const auto make = [call, x, dim] {
    Lowering& lowering = call.lowering();
    Value y = lowering.make(x.dims, x.dtype);
    lowering.step(call, "log_softmax", [x, dim, slot = y.slot](Emitter& e) {
      const Emitter::Slot in = e.exactly(x, e.dims().leaves(x.flat()));
      const std::string over = e.spell(e.dims().leaves(x.dims[dim]));
      const TensorId shares = e.op("softmax", {in.id}, {{"dim", over}}, "softmax");
      e.define(slot, {e.op("log", {shares}), in.dims});
    });
    return y;
  };
  if (call.node().outputs.empty()) return invalid_input("expected an output, found none");
  call.lowering().set_late(call.node().outputs[0], {x, dim, make});
  return {};
}

// ---- reductions
// -----------------------------------------------------------------------------------------------
Status summed(const Call& call, bool mean) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(x, in_result_dtype(call, x));
  TESSERA_TRY(const std::vector<size_t> over, call.dim_list("dim", x.dims.size()));
  TESSERA_TRY(const bool keep, call.flag("keepdim", false));
  double count = 1;
  for (const size_t d : over) count *= static_cast<double>(call.lowering().size(x, d));
  call.set(reduced(call, mean ? "mean" : "sum", x, over, keep, mean ? 1 / count : 1));
  return {};
}
Status row_sum(const Call& call) { return summed(call, false); }
Status row_mean(const Call& call) { return summed(call, true); }

// Makes the largest (sign 1) or smallest (sign -1) element over dims. Computes the smallest as
// -max(-x), because there is only an op for the largest.
Status extreme(const Call& call, double sign) {
  TESSERA_TRY(Value x, call.value("self"));
  if (!is_floating(x.dtype)) {
    return invalid_input(
        fmt::format("expected a floating operand, found one of {}", dtype_name(x.dtype)));
  }
  TESSERA_TRY(const std::vector<size_t> over, call.dim_list("dim", x.dims.size()));
  TESSERA_TRY(const bool keep, call.flag("keepdim", false));
  if (sign < 0) x = scaled(call, x, sign);
  const Value y = largest(call, sign < 0 ? "amin" : "amax", x, over, keep);
  call.set(sign < 0 ? scaled(call, y, sign) : y);
  return {};
}
Status row_amax(const Call& call) { return extreme(call, 1); }
Status row_amin(const Call& call) { return extreme(call, -1); }

// ---- losses
// -----------------------------------------------------------------------------------------------
Result<Reduction> reduction_of(const Call& call) {
  TESSERA_TRY(const int64_t number, call.integer("reduction", 1));
  if (number < 0 || number > 2)
    return invalid_input(fmt::format("argument 'reduction': expected 0, 1 or 2, found {}", number));
  return static_cast<Reduction>(number);
}

// Returns the target that is left out of the loss: the op's ignore_index, or if it has none, the
// one of the import's options.
Result<std::optional<int64_t>> ignored_of(const Call& call) {
  if (!call.has("ignore_index")) return call.lowering().options().ignored;
  TESSERA_TRY(const int64_t ignored, call.integer("ignore_index"));
  return std::optional(ignored);
}

Status row_cross_entropy(const Call& call) {
  TESSERA_TRY(const Value logits, call.value("self"));
  TESSERA_TRY(const Value targets, call.value("target"));
  TESSERA_TRY(const Reduction reduction, reduction_of(call));
  TESSERA_TRY(const std::optional<int64_t> ignored, ignored_of(call));
  TESSERA_TRY(const double smoothing, call.number("label_smoothing", 0));
  if (call.has("weight") || smoothing != 0) {
    return invalid_input(
        "an op without a counterpart: expected a cross entropy without weights of classes and "
        "smoothing");
  }
  if (logits.dims.size() < 2 || targets.dims.size() + 1 != logits.dims.size()) {
    return invalid_input(
        "expected logits with one dim more than the targets, which are numbers of classes");
  }
  TESSERA_TRY(Value loss, cross_entropy(call, logits, targets, 1, reduction, ignored));
  call.set(std::move(loss));
  return {};
}

Status row_nll_loss(const Call& call) {
  const Lowering::Late* const late = call.lowering().late(call.tensor_name("self"));
  TESSERA_TRY(const Value targets, call.value("target"));
  TESSERA_TRY(const Reduction reduction, reduction_of(call));
  TESSERA_TRY(const std::optional<int64_t> ignored, ignored_of(call));
  if (late == nullptr || late->dim != 1 || call.has("weight") ||
      targets.dims.size() + 1 != late->of.dims.size()) {
    return invalid_input(
        "an op without a counterpart: expected a loss of log_softmax over dim 1 alone, without "
        "weights of classes");
  }
  TESSERA_TRY(Value loss, cross_entropy(call, late->of, targets, 1, reduction, ignored));
  call.set(std::move(loss));
  return {};
}

Status row_mse_loss(const Call& call) {
  TESSERA_TRY(Value y, call.value("self"));
  TESSERA_TRY(Value target, call.value("target"));
  TESSERA_TRY(const Reduction reduction, reduction_of(call));
  TESSERA_TRY(const Value difference, pointwise(call, "difference", "sub", {y, target}));
  TESSERA_TRY(Value square, pointwise(call, "square", "power", {difference}, {{"exponent", 2.0}}));
  if (reduction == Reduction::kNone) {
    call.set(std::move(square));
    return {};
  }
  std::vector<size_t> over;
  for (size_t d = 0; d < square.dims.size(); ++d) over.push_back(d);
  const double count = static_cast<double>(call.dims().size(square.flat()));
  call.set(reduced(call, "loss.mean", square, over, false,
                   reduction == Reduction::kMean ? 1 / count : 1));
  return {};
}

}  // namespace

namespace {

// Makes a reduction of x over the dims `over`, which remain with size 1 if `keep`. The function
// `write` adds the op; it gets those of the reduced variables that the operand's tensor has, and as
// `left` the product of the sizes of the others, along which the operand is only repeated.
template <class Write>
Value without_dims(const Call& call, std::string name, const Value& x,
                   const std::vector<size_t>& over, bool keep, Write write) {
  Value y;
  Vars gone;
  std::vector<Vars> dims;
  for (size_t d = 0; d < x.dims.size(); ++d) {
    if (std::find(over.begin(), over.end(), d) == over.end()) {
      dims.push_back(x.dims[d]);
      continue;
    }
    gone.insert(gone.end(), x.dims[d].begin(), x.dims[d].end());
    if (keep) dims.emplace_back();
  }
  y = call.lowering().make(dims, x.dtype);
  call.lowering().step(call, std::move(name), [x, gone, write, slot = y.slot](Emitter& e) {
    const Emitter::Slot in = e.read(x);
    double left = 1;
    Vars real, rest = in.dims;
    for (const Var leaf : e.dims().leaves(gone)) {
      if (holds(in.dims, leaf)) {
        real.push_back(leaf);
        std::erase(rest, leaf);
      } else {
        left *= static_cast<double>(e.dims().size(leaf));
      }
    }
    e.define(slot, {write(e, in.id, e.spell(real), left), rest});
  });
  return y;
}

}  // namespace

Value reduced(const Call& call, std::string name, const Value& x, const std::vector<size_t>& over,
              bool keep, double factor) {
  return without_dims(
      call, std::move(name), x, over, keep,
      [factor](Emitter& e, TensorId in, const std::string& dims, double left) {
        return e.op("reduce_sum", {in}, {{"dims", dims}, {"factor", factor * left}});
      });
}

Value largest(const Call& call, std::string name, const Value& x, const std::vector<size_t>& over,
              bool keep) {
  return without_dims(call, std::move(name), x, over, keep,
                      [](Emitter& e, TensorId in, const std::string& dims, double) {
                        return e.op("reduce_max", {in}, {{"dims", dims}});
                      });
}

Result<Value> cross_entropy(const Call& call, Value logits, Value targets, size_t class_dim,
                            Reduction reduction, std::optional<int64_t> ignored) {
  Lowering& lowering = call.lowering();
  if (targets.dtype != DType::kInt64) return invalid_input("expected targets of int64");
  std::vector<Vars> rows;
  for (size_t d = 0; d < targets.dims.size(); ++d) {
    const size_t at = d < class_dim ? d : d + 1;
    if (!lowering.align(logits, at, targets, d)) {
      return invalid_input(fmt::format("expected a target for each of {} rows, found {}",
                                       lowering.size(logits, at), lowering.size(targets, d)));
    }
    rows.push_back(targets.dims[d]);
  }
  logits = lowering.whole(logits, class_dim);
  lowering.hints().add(logits.dims[class_dim], "vocab", Sure::kInner);
  Value each = lowering.make(rows, logits.dtype);
  lowering.step(call, "loss.cross_entropy",
                [logits, targets, class_dim, slot = each.slot](Emitter& e) {
                  const Vars classes = e.dims().leaves(logits.dims[class_dim]);
                  const Vars order = with_last(e, logits, classes);
                  const Vars row_dims(order.begin(),
                                      order.end() - static_cast<std::ptrdiff_t>(classes.size()));
                  const Emitter::Slot x = e.exactly(logits, order);
                  const Emitter::Slot y = e.exactly(targets, row_dims);
                  const std::vector<TensorId> parts = e.ops("cross_entropy", {x.id, y.id});
                  if (parts.size() < 2) return;
                  e.begin("loss.token");
                  e.define(slot, {e.op("sub", {parts[0], parts[1]}), row_dims});
                });
  std::vector<size_t> over;
  for (size_t d = 0; d < each.dims.size(); ++d) over.push_back(d);
  if (ignored) {
    // The op `cross_entropy` leaves out negative targets itself. A target >= 0 is left out by a
    // product with 0, and a mean must divide by the number of targets that are not left out.
    const Value kept = kept_ids(call, "loss.counted", targets, lowering.size(logits, class_dim),
                                *ignored, each.dtype);
    if (*ignored >= 0) {
      TESSERA_TRY(each, pointwise(call, "loss.kept", "mul", {each, kept}));
    }
    if (reduction == Reduction::kMean) {
      const Value sum = reduced(call, "loss.sum", each, over, false, 1);
      const Value count = reduced(call, "loss.count", kept, over, false, 1);
      return pointwise(call, "loss.mean", "div", {sum, count});
    }
  }
  if (reduction == Reduction::kNone) return each;
  const double count = static_cast<double>(call.dims().size(each.flat()));
  return reduced(call, "loss.mean", each, over, false,
                 reduction == Reduction::kMean ? 1 / count : 1);
}

Rows norm_rows() {
  return {{"layer_norm", row_layer_norm},
          {"rms_norm", row_rms_norm},
          {"batch_norm", row_batch_norm},
          {"group_norm", row_group_norm},
          {"_weight_norm", row_weight_norm},
          {"linalg_vector_norm", row_vector_norm},
          {"log_softmax", row_log_softmax},
          {"softmax", row_softmax},
          {"_softmax", row_softmax},
          {"amax", row_amax},
          {"amin", row_amin},
          {"sum", row_sum},
          {"mean", row_mean}};
}

Rows loss_rows() {
  return {{"cross_entropy_loss", row_cross_entropy},
          {"nll_loss", row_nll_loss},
          {"nll_loss_nd", row_nll_loss},
          {"mse_loss", row_mse_loss}};
}

}  // namespace tessera::pt2
