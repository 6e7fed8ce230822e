// Formulas of optimizer steps and of the loss scale. A step whose flag `skip` is set keeps the old values; the flag is
// read where the step is computed, not on the host.
#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "tessera/runtime/formulas/call.h"

namespace tessera::kernels {
namespace {

// Returns a scalar input that may be missing.
at::Tensor scalar_or(const Call& c, size_t i, double otherwise, const at::Tensor& like) {
  return c.has(i) ? c.in(i).to(like.scalar_type()) : at::full({}, otherwise, like.options());
}

// Returns the new values, or the old ones if the flag, input i, is set.
Values unless_skipped(const Call& c, size_t i, Values made, const Values& old) {
  if (!c.has(i)) return made;
  const at::Tensor skip = c.in(i) != 0;
  for (size_t k = 0; k < made.size(); ++k) made[k] = at::where(skip, old[k], made[k]);
  return made;
}

// Returns the share of a mean that has decayed t times by beta which is known.
at::Tensor corrected(double beta, const at::Tensor& t) {
  return 1 - at::pow(at::full_like(t, beta), t);
}

// Makes the step of an accelerator in one pass over the memory, if all arrays lie for it. The rate
// is a float32 there, too coarse for float64.
std::optional<Values> fused_adamw(const Call& c) {
  const at::Tensor g = c.stored(1);
  if (g.is_cpu() || g.scalar_type() != at::kFloat || !g.is_contiguous()) return std::nullopt;
  Values to_update;
  for (size_t i = 0; i < 3; ++i) {
    const at::Tensor old = c.stored(i == 0 ? 0 : i + 1), to = c.output(i);
    if (!to.is_contiguous() || to.scalar_type() != g.scalar_type()) return std::nullopt;
    if (to.data_ptr() != old.data_ptr()) to.copy_(old);
    to_update.push_back(to);
  }
  const auto number = [&](size_t i) { return c.stored(i).to(at::kFloat); };
  const at::Tensor step = c.has(6) ? g * c.stored(6).to(g.scalar_type()) : g;
  const std::optional<at::Tensor> skip = c.has(7) ? std::optional(number(7)) : std::nullopt;
  at::_fused_adamw_({to_update[0]}, {step}, {to_update[1]}, {to_update[2]}, {}, {number(5)},
                    number(4), c.number("beta1"), c.number("beta2"), c.number("weight_decay"),
                    c.number("eps"),
                    /*amsgrad=*/false, /*maximize=*/false, {}, skip);
  return Values(3);  // they are written
}

Values adamw(const Call& c) {
  if (auto made = fused_adamw(c)) return std::move(*made);
  const at::Tensor p = c.in(0), m = c.in(2), v = c.in(3);
  const at::Tensor lr = c.in(4).to(p.scalar_type()), t = c.in(5).to(p.scalar_type());
  const double b1 = c.number("beta1"), b2 = c.number("beta2");
  const at::Tensor g = c.in(1) * scalar_or(c, 6, 1, p);
  const at::Tensor m1 = b1 * m + (1 - b1) * g, v1 = b2 * v + (1 - b2) * g * g;
  const at::Tensor step =
      lr / corrected(b1, t) * m1 / (at::sqrt(v1 / corrected(b2, t)) + c.number("eps"));
  return unless_skipped(c, 7, {p * (1 - lr * c.number("weight_decay")) - step, m1, v1}, {p, m, v});
}

Values sgd(const Call& c) {
  const at::Tensor p = c.in(0), momentum = c.in(2), lr = c.in(3).to(p.scalar_type());
  const double keep = c.number("momentum");
  const at::Tensor g = c.in(1) * scalar_or(c, 4, 1, p) + c.number("weight_decay") * p;
  const at::Tensor buffer = keep * momentum + g;
  const at::Tensor step = c.number("nesterov") != 0 ? g + keep * buffer : buffer;
  return unless_skipped(c, 5, {p - lr * step, buffer}, {p, momentum});
}

Values adagrad(const Call& c) {
  const at::Tensor p = c.in(0), sum = c.in(2), lr = c.in(3).to(p.scalar_type());
  const at::Tensor g = c.in(1) * scalar_or(c, 4, 1, p) + c.number("weight_decay") * p;
  const at::Tensor grown = sum + g * g;
  return unless_skipped(c, 5, {p - lr * g / (at::sqrt(grown) + c.number("eps")), grown}, {p, sum});
}

Values lion(const Call& c) {
  const at::Tensor p = c.in(0), m = c.in(2), lr = c.in(3).to(p.scalar_type());
  const double b1 = c.number("beta1"), b2 = c.number("beta2"), least = c.number("least");
  const at::Tensor g = c.in(1) * scalar_or(c, 4, 1, p);
  const at::Tensor mean = b1 * m + (1 - b1) * g;
  const at::Tensor sign = (mean > least).to(p.scalar_type()) - (mean < -least).to(p.scalar_type());
  return unless_skipped(
      c, 5, {p - lr * (sign + c.number("weight_decay") * p), b2 * m + (1 - b2) * g}, {p, m});
}

Values lars(const Call& c) {
  const at::Tensor p = c.in(0), momentum = c.in(2);
  const at::Tensor rate = (c.in(3) * c.in(4)).to(p.scalar_type());
  const at::Tensor g = c.in(1) * scalar_or(c, 5, 1, p) + c.number("weight_decay") * p;
  const at::Tensor buffer = c.number("momentum") * momentum + rate * g;
  return unless_skipped(c, 6, {p - buffer, buffer}, {p, momentum});
}

Values adam_direction(const Call& c) {
  const at::Tensor p = c.in(0), m = c.in(2), v = c.in(3), t = c.in(4).to(p.scalar_type());
  const double b1 = c.number("beta1"), b2 = c.number("beta2");
  const at::Tensor g = c.in(1) * scalar_or(c, 5, 1, p);
  const at::Tensor m1 = b1 * m + (1 - b1) * g, v1 = b2 * v + (1 - b2) * g * g;
  const at::Tensor u = m1 / corrected(b1, t) / (at::sqrt(v1 / corrected(b2, t)) + c.number("eps")) +
                       c.number("weight_decay") * p;
  return unless_skipped(c, 6, {u, m1, v1}, {p, m, v});
}

Values momentum_direction(const Call& c) {
  const at::Tensor momentum = c.in(2);
  const double keep = c.number("momentum");
  const at::Tensor g = c.in(1) * scalar_or(c, 3, 1, momentum);
  const at::Tensor mean = keep * momentum + (1 - keep) * g;
  const at::Tensor u = c.number("nesterov") != 0 ? keep * mean + (1 - keep) * g : mean;
  return unless_skipped(c, 4, {u, mean}, {c.in(0), momentum});
}

Values decayed_mean(const Call& c) {
  const at::Tensor v = c.in(0);
  const at::Tensor share = at::pow(c.in(2).to(v.scalar_type()), -c.number("decay"));
  const at::Tensor mean = v + share * (c.in(1) - v);
  return unless_skipped(c, 3, {mean, mean}, {v, v});
}

// Returns a scalar input in float64, in which sums of squares are compared.
at::Tensor wide(const Call& c, size_t i) { return c.in(i).to(at::kDouble); }

Values trust_ratio(const Call& c) {
  const at::Tensor w = at::sqrt(wide(c, 0));
  const at::Tensor g = at::sqrt(wide(c, 1)) * scalar_or(c, 2, 1, w);
  const at::Tensor ratio = c.number("trust") * w / (g + c.number("weight_decay") * w);
  return {at::where(at::logical_and(w > 0, g > 0), ratio, at::ones_like(ratio))};
}

Values adafactor_rate(const Call& c) {
  const auto elements = static_cast<double>(c.op().integer("elements"));
  const at::Tensor relative = at::minimum(wide(c, 2), at::rsqrt(wide(c, 3)));
  const at::Tensor scale = at::clamp_min(at::sqrt(wide(c, 0) / elements), c.number("least"));
  const at::Tensor over = at::clamp_min(at::sqrt(wide(c, 1) / elements) / c.number("clip"), 1.0);
  return {scale * relative / over};
}

Values unscale(const Call& c) {
  const at::Tensor g = c.in(0);
  // Multiplies in the dtype in which the result is, if that is the wider one.
  const at::ScalarType type =
      c.op().text("dtype") == dtype_name(DType::kFloat64) ? at::kDouble : at::kFloat;
  const at::Tensor one = at::ones({}, g.options().dtype(at::kDouble));
  return {g.to(type) * (c.number("factor") / (c.has(1) ? wide(c, 1) : one)).to(type)};
}

Values loss_scale(const Call& c) {
  const at::Tensor scale = wide(c, 0), clean = wide(c, 1), overflows = wide(c, 2),
                   skipped = wide(c, 3), zero = at::zeros_like(scale);
  const at::Tensor set = wide(c, 4) != 0;
  const auto hysteresis = static_cast<double>(c.op().integer("hysteresis"));
  const at::Tensor more = at::clamp_max(overflows + 1, hysteresis);
  const at::Tensor lower = at::where(
      more >= hysteresis, at::clamp_min(scale * c.number("backoff"), c.number("min")), scale);
  const at::Tensor grows = clean + 1 >= static_cast<double>(c.op().integer("interval"));
  const at::Tensor higher =
      at::where(grows, at::clamp_max(scale * c.number("growth"), c.number("max")), scale);
  return {at::where(set, lower, higher), at::where(at::logical_or(set, grows), zero, clean + 1),
          at::where(set, more, at::where(grows, zero, overflows)),
          at::where(set, skipped + 1, skipped)};
}

}  // namespace

std::span<const Formula> update_formulas() {
  static const std::vector<Formula> formulas = {
      {"adamw", adamw},
      {"sgd", sgd},
      {"adagrad", adagrad},
      {"lion", lion},
      {"lars", lars},
      {"adam_direction", adam_direction},
      {"momentum_direction", momentum_direction},
      {"decayed_mean", decayed_mean},
      {"trust_ratio", trust_ratio},
      {"adafactor_rate", adafactor_rate},
      {"unscale", unscale},
      {"loss_scale", loss_scale},
      {"clip_coefficient",
       [](const Call& c) -> Values {
         return {at::clamp_max(c.number("max_norm") / (at::sqrt(c.in(0)) + 1e-6), 1.0)};
       }},
      {"carry",
       [](const Call& c) -> Values {
         const double keep = c.number("keep");
         const at::Tensor before = c.in(0);
         return {keep * before +
                 (1 - keep) *
                     (c.number("factor") * c.in(1).to(before.scalar_type()) + c.number("offset"))};
       }},
      {"apply_update",
       [](const Call& c) -> Values {
         const at::Tensor p = c.in(0), lr = c.in(3).to(p.scalar_type());
         const at::Tensor made = (1 - lr * c.number("weight_decay")) * p -
                                 c.number("factor") * c.in(2).to(p.scalar_type()) * c.in(1);
         return unless_skipped(c, 4, {made}, {p});
       }},
  };
  return formulas;
}

}  // namespace tessera::kernels
