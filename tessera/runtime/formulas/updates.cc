// Formulas of optimizer steps. A step whose flag `skip` is set keeps the old values; the flag is
// read where the step is computed, not on the host.
#include <ATen/ATen.h>

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

Values adamw(const Call& c) {
  const at::Tensor p = c.in(0), m = c.in(2), v = c.in(3);
  const at::Tensor lr = c.in(4).to(p.scalar_type()), t = c.in(5).to(p.scalar_type());
  const double b1 = c.number("beta1"), b2 = c.number("beta2");
  const at::Tensor g = c.in(1) * scalar_or(c, 6, 1, p);
  const at::Tensor m1 = b1 * m + (1 - b1) * g, v1 = b2 * v + (1 - b2) * g * g;
  const at::Tensor correction1 = 1 - at::pow(at::full_like(t, b1), t),
                   correction2 = 1 - at::pow(at::full_like(t, b2), t);
  const at::Tensor step = lr / correction1 * m1 / (at::sqrt(v1 / correction2) + c.number("eps"));
  return unless_skipped(c, 7, {p * (1 - lr * c.number("weight_decay")) - step, m1, v1}, {p, m, v});
}

Values sgd(const Call& c) {
  const at::Tensor p = c.in(0), momentum = c.in(2), lr = c.in(3).to(p.scalar_type());
  const double keep = c.number("momentum");
  const at::Tensor g = c.in(1) * scalar_or(c, 4, 1, p) + c.number("weight_decay") * p;
  const at::Tensor buffer = keep * momentum + g;
  const at::Tensor step = c.op().integer("nesterov") != 0 ? g + keep * buffer : buffer;
  return unless_skipped(c, 5, {p - lr * step, buffer}, {p, momentum});
}

Values adagrad(const Call& c) {
  const at::Tensor p = c.in(0), sum = c.in(2), lr = c.in(3).to(p.scalar_type());
  const at::Tensor g = c.in(1) * scalar_or(c, 4, 1, p) + c.number("weight_decay") * p;
  const at::Tensor grown = sum + g * g;
  return unless_skipped(c, 5, {p - lr * g / (at::sqrt(grown) + c.number("eps")), grown}, {p, sum});
}

}  // namespace

std::span<const Formula> update_formulas() {
  static const std::vector<Formula> formulas = {
      {"adamw", adamw},
      {"sgd", sgd},
      {"adagrad", adagrad},
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
