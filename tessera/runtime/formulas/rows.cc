// Formulas of norms, of softmax and of running sums, whole and in the pieces into which plans cut them.
#include <ATen/ATen.h>

#include <algorithm>

#include "tessera/runtime/formulas/call.h"
#include "tessera/runtime/kernels/family.h"

namespace tessera::kernels {
namespace {

// Returns input i with the op dims of input 0.
at::Tensor as_first(const Call& c, size_t i, size_t first = 0) {
  return c.along(i, op_dims(c.op().annotation.inputs[first]));
}
at::Tensor to_output(const Call& c, const at::Tensor& value, size_t output, size_t first = 0) {
  return c.summed(value, op_dims(c.op().annotation.inputs[first]), output);
}

Values layer_norm(const Call& c) {
  const at::Tensor x = c.in(0);
  const at::Tensor mean = x.mean(-1), centred = x - mean.unsqueeze(-1);
  const at::Tensor rstd = at::rsqrt(at::square(centred).mean(-1) + c.number("eps"));
  return {centred * rstd.unsqueeze(-1) * c.in(1) + c.in(2), mean, rstd};
}

Values rms_norm(const Call& c) {
  const at::Tensor x = c.in(0);
  const at::Tensor rstd = at::rsqrt(at::square(x).mean(-1) + c.number("eps"));
  return {x * rstd.unsqueeze(-1) * c.in(1), rstd};
}

Values layer_norm_grad(const Call& c) {
  const at::Tensor dy = c.in(0), x = c.in(1), mean = c.in(3).unsqueeze(-1),
                   rstd = c.in(4).unsqueeze(-1);
  const at::Tensor xhat = (x - mean) * rstd, g = dy * c.in(2);
  const at::Tensor dx = rstd * (g - g.mean(-1, true) - xhat * (g * xhat).mean(-1, true));
  return {dx, to_output(c, dy * xhat, 1), to_output(c, dy, 2)};
}

Values rms_norm_grad(const Call& c) {
  const at::Tensor dy = c.in(0), x = c.in(1), rstd = c.in(3).unsqueeze(-1);
  const at::Tensor xhat = x * rstd, g = dy * c.in(2);
  return {rstd * (g - xhat * (g * xhat).mean(-1, true)), to_output(c, dy * xhat, 1)};
}

Values norm_moments(const Call& c) {
  const at::Tensor x = c.in(0);
  const at::Tensor mean = x.mean(-1), m2 = at::square(x - mean.unsqueeze(-1)).sum(-1);
  return {at::stack({at::full_like(mean, static_cast<double>(x.size(-1))), mean, m2}, -1)};
}

Values norm_finish(const Call& c) {
  const at::Tensor stats = c.in(0);
  const at::Tensor variance = stats.select(-1, 2) / stats.select(-1, 0);
  return {stats.select(-1, 1), at::rsqrt(variance + c.number("eps"))};
}

Values cross_entropy(const Call& c) {
  const std::vector<int> order = op_dims(c.op().annotation.inputs[0]);
  const Interval vocab = c.box().dims[static_cast<size_t>(order.back())];
  const at::Tensor logits = c.in(0), target = c.in(1).to(at::kLong);
  const at::Tensor counts = target >= 0, place = target - vocab.begin;
  const at::Tensor here = at::logical_and(place >= 0, place < vocab.size);
  const at::Tensor safe = at::where(here, place, at::zeros_like(place));
  const at::Tensor picked = logits.gather(-1, safe.unsqueeze(-1)).squeeze(-1);
  const at::Tensor zero = at::zeros_like(picked);
  const double ignored = vocab.begin == 0 ? 0.0 : -std::numeric_limits<double>::infinity();
  return {at::where(counts, at::logsumexp(logits, {-1}), at::full_like(picked, ignored)),
          at::where(here, picked, zero)};
}

Values cross_entropy_grad(const Call& c) {
  const std::vector<int> order = op_dims(c.op().annotation.inputs[0]);
  const Interval vocab = c.box().dims[static_cast<size_t>(order.back())];
  const at::Tensor logits = c.in(0), target = c.in(1).to(at::kLong).unsqueeze(-1);
  const at::Tensor ids = at::arange(vocab.begin, vocab.begin + vocab.size, target.options());
  const at::Tensor lse = c.in(2).unsqueeze(-1), dlse = c.in(3).unsqueeze(-1),
                   dpicked = c.in(4).unsqueeze(-1);
  const at::Tensor made =
      dlse * at::exp(logits - lse) + at::where(ids == target, dpicked, at::zeros_like(dpicked));
  return {at::where(target >= 0, made, at::zeros_like(made))};
}

// Adds up neighbours at distances of 1, 2, 4, ..: libtorch's sum of floats is not the same twice on a
// GPU, where its deterministic mode refuses it.
Values running_sum(const Call& c) {
  const int64_t dim = c.dim(0, c.op().text("dim"));
  const bool reverse = c.op().integer("reverse") != 0;
  at::Tensor sum = c.in(0);
  const int64_t n = sum.size(dim);
  for (int64_t apart = 1; apart < n; apart *= 2) {
    const at::Tensor before = sum.narrow(dim, 0, n - apart),
                     behind = sum.narrow(dim, apart, n - apart);
    sum = reverse ? at::cat({before + behind, sum.narrow(dim, n - apart, apart)}, dim)
                  : at::cat({sum.narrow(dim, 0, apart), behind + before}, dim);
  }
  return {sum};
}

Values rotary(const Call& c) {
  const at::Tensor x = c.in(0);
  const std::vector<int> order = op_dims(c.op().annotation.inputs[0]);
  // The tables have the dims of the sequence and of pairs; the latter is no dim of x.
  const at::Tensor cos = c.in(1), table = c.in(2);
  const at::Tensor sin = c.op().integer("inverse") != 0 ? -table : table;
  const int sequence = op_dims(c.op().annotation.inputs[1])[0];
  const auto place = std::find(order.begin(), order.end(), sequence) - order.begin();
  std::vector<int64_t> shape(order.size(), 1);
  shape[static_cast<size_t>(place)] = cos.size(0);
  shape.back() = cos.size(1);
  const at::Tensor a_cos = cos.reshape(shape), a_sin = sin.reshape(shape);
  const int64_t pairs = cos.size(1), first = c.op().integer("first");
  const bool neighbours = c.op().integer("neighbours") != 0;
  at::Tensor made = x.clone();
  const at::Tensor part = x.narrow(-1, first, 2 * pairs), to = made.narrow(-1, first, 2 * pairs);
  const auto half = [&](const at::Tensor& of, int64_t which) {
    return neighbours ? of.slice(-1, which, 2 * pairs, 2) : of.narrow(-1, which * pairs, pairs);
  };
  const at::Tensor u = half(part, 0), v = half(part, 1);
  half(to, 0).copy_(u * a_cos - v * a_sin);
  half(to, 1).copy_(v * a_cos + u * a_sin);
  return {made};
}

}  // namespace

std::span<const Formula> row_formulas() {
  static const std::vector<Formula> formulas = {
      {"layer_norm", layer_norm},
      {"layer_norm_grad", layer_norm_grad},
      {"rms_norm", rms_norm},
      {"rms_norm_grad", rms_norm_grad},
      {"norm_moments", norm_moments},
      {"norm_finish", norm_finish},
      {"norm_apply",
       [](const Call& c) -> Values {
         return {(c.aligned(0) - c.aligned(1)) * c.aligned(2) * c.aligned(3) + c.aligned(4)};
       }},
      {"norm_grad_sums",
       [](const Call& c) -> Values {
         const at::Tensor g = as_first(c, 0) * as_first(c, 2);
         const at::Tensor xhat = (as_first(c, 1) - as_first(c, 3)) * as_first(c, 4);
         return {at::stack({g.sum(-1), (g * xhat).sum(-1)}, -1)};
       }},
      {"norm_grad_apply",
       [](const Call& c) -> Values {
         const double n = c.number("features");
         const at::Tensor sums = c.in(5), rstd = c.aligned(4);
         const at::Tensor xhat = (c.aligned(1) - c.aligned(3)) * rstd;
         return {rstd * (c.aligned(0) * c.aligned(2) - sums.select(-1, 0).unsqueeze(-1) / n -
                         xhat * sums.select(-1, 1).unsqueeze(-1) / n)};
       }},
      {"norm_grad_params",
       [](const Call& c) -> Values {
         const at::Tensor dy = as_first(c, 0);
         const at::Tensor xhat = (as_first(c, 1) - as_first(c, 2)) * as_first(c, 3);
         return {to_output(c, dy * xhat, 0), to_output(c, dy, 1)};
       }},
      {"rms_square", [](const Call& c) -> Values { return {at::square(c.in(0)).sum(-1)}; }},
      {"rms_finish",
       [](const Call& c) -> Values {
         return {at::rsqrt(c.in(0) / c.number("features") + c.number("eps"))};
       }},
      {"rms_apply",
       [](const Call& c) -> Values { return {c.aligned(0) * c.aligned(1) * c.aligned(2)}; }},
      {"rms_grad_sum",
       [](const Call& c) -> Values {
         return {(as_first(c, 0) * as_first(c, 1) * as_first(c, 2)).sum(-1)};
       }},
      {"rms_grad_apply",
       [](const Call& c) -> Values {
         const at::Tensor rstd = c.aligned(3);
         return {rstd * c.aligned(0) * c.aligned(2) -
                 c.aligned(1) * rstd * rstd * rstd * c.aligned(4) / c.number("features")};
       }},
      {"rms_grad_params",
       [](const Call& c) -> Values {
         return {to_output(c, as_first(c, 0) * as_first(c, 1) * as_first(c, 2), 0)};
       }},
      {"softmax",
       [](const Call& c) -> Values {
         return {at::softmax(c.in(0), c.dim(0, c.op().text("dim")))};
       }},
      {"softmax_grad",
       [](const Call& c) -> Values {
         const int64_t dim = c.dim(0, c.op().text("dim"));
         const at::Tensor dy = c.in(0), y = c.in(1);
         return {y * (dy - (dy * y).sum(dim, true))};
       }},
      {"logsumexp_reduce",
       [](const Call& c) -> Values {
         return {at::logsumexp(c.in(0), {c.dim(0, c.op().text("dim"))})};
       }},
      {"softmax_apply",
       [](const Call& c) -> Values { return {at::exp(c.aligned(0) - c.aligned(1))}; }},
      {"softmax_grad_apply",
       [](const Call& c) -> Values { return {c.aligned(1) * (c.aligned(0) - c.aligned(2))}; }},
      {"cross_entropy", cross_entropy},
      {"cross_entropy_grad", cross_entropy_grad},
      {"rotary", rotary},
      {"cumsum", running_sum},
  };
  return formulas;
}

}  // namespace tessera::kernels
