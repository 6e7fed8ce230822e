// Formulas of kinds that compute element by element, and of those that only move elements.
#include <ATen/ATen.h>

#include <algorithm>
#include <numbers>

#include "tessera/runtime/formulas/call.h"
#include "tessera/runtime/kernels/family.h"

namespace tessera::kernels {
namespace {

constexpr double kGelu = 0.7978845608028654;  // sqrt(2 / pi)

at::Tensor truths(const at::Tensor& x, const at::Tensor& like) { return x.to(like.scalar_type()); }

// d gelu(x) / dx of the tanh form.
at::Tensor gelu_slope(const at::Tensor& x) {
  const at::Tensor t = at::tanh(kGelu * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kGelu * (1 + 3 * 0.044715 * x * x);
}

// d gelu(x) / dx of the form with the normal distribution.
at::Tensor gelu_erf_slope(const at::Tensor& x) {
  const at::Tensor density =
      at::exp(-0.5 * x * x) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  return 0.5 * (1 + at::erf(x / std::numbers::sqrt2)) + x * density;
}

at::Tensor silu_slope(const at::Tensor& x) {
  const at::Tensor s = at::sigmoid(x);
  return s * (1 + x * (1 - s));
}

at::Tensor soft_plus(const at::Tensor& x) {
  return at::clamp_min(x, 0) + at::log1p(at::exp(-at::abs(x)));
}

// Returns the sum of all inputs, or their largest elements.
Values of_all(const Call& c, at::Tensor (*join)(const at::Tensor&, const at::Tensor&)) {
  at::Tensor made = c.aligned(0);
  for (size_t i = 1; i < c.inputs(); ++i) made = join(made, c.aligned(i));
  return {made};
}

}  // namespace

std::span<const Formula> elementwise_formulas() {
  static const std::vector<Formula> formulas = {
      {"add", [](const Call& c) -> Values { return {c.aligned(0) + c.aligned(1)}; }},
      {"sub", [](const Call& c) -> Values { return {c.aligned(0) - c.aligned(1)}; }},
      {"mul", [](const Call& c) -> Values { return {c.aligned(0) * c.aligned(1)}; }},
      {"div", [](const Call& c) -> Values { return {c.aligned(0) / c.aligned(1)}; }},
      {"equal",
       [](const Call& c) -> Values {
         const at::Tensor a = c.aligned(0);
         return {truths(a == c.aligned(1), a)};
       }},
      {"add_n",
       [](const Call& c) -> Values {
         return of_all(c, [](const at::Tensor& a, const at::Tensor& b) { return a + b; });
       }},
      {"max_n",
       [](const Call& c) -> Values {
         return of_all(c,
                       [](const at::Tensor& a, const at::Tensor& b) { return at::maximum(a, b); });
       }},
      {"scale", [](const Call& c) -> Values { return {c.aligned(0) * c.number("factor")}; }},
      {"shift", [](const Call& c) -> Values { return {c.aligned(0) + c.number("by")}; }},
      {"gelu", [](const Call& c) -> Values { return {at::gelu(c.aligned(0), "tanh")}; }},
      {"gelu_erf", [](const Call& c) -> Values { return {at::gelu(c.aligned(0))}; }},
      {"silu", [](const Call& c) -> Values { return {at::silu(c.aligned(0))}; }},
      {"relu", [](const Call& c) -> Values { return {at::relu(c.aligned(0))}; }},
      {"relu2", [](const Call& c) -> Values { return {at::square(at::relu(c.aligned(0)))}; }},
      {"exp", [](const Call& c) -> Values { return {at::exp(c.aligned(0))}; }},
      {"log", [](const Call& c) -> Values { return {at::log(c.aligned(0))}; }},
      {"sqrt", [](const Call& c) -> Values { return {at::sqrt(c.aligned(0))}; }},
      {"sigmoid", [](const Call& c) -> Values { return {at::sigmoid(c.aligned(0))}; }},
      {"tanh", [](const Call& c) -> Values { return {at::tanh(c.aligned(0))}; }},
      {"softplus", [](const Call& c) -> Values { return {soft_plus(c.aligned(0))}; }},
      {"cos", [](const Call& c) -> Values { return {at::cos(c.aligned(0))}; }},
      {"sin", [](const Call& c) -> Values { return {at::sin(c.aligned(0))}; }},
      {"power",
       [](const Call& c) -> Values { return {at::pow(c.aligned(0), c.number("exponent"))}; }},
      {"clamp",
       [](const Call& c) -> Values {
         return {at::clamp(c.aligned(0), c.number("min"), c.number("max"))};
       }},
      {"leaky_relu",
       [](const Call& c) -> Values { return {at::leaky_relu(c.aligned(0), c.number("slope"))}; }},
      {"in_evaluation",
       [](const Call& c) -> Values { return {c.aligned(c.context().evaluating ? 1 : 0)}; }},
      {"stop_gradient", [](const Call& c) -> Values { return {c.aligned(0)}; }},
      {"cast", [](const Call& c) -> Values { return {c.aligned(0)}; }},
      {"where",
       [](const Call& c) -> Values {
         at::Tensor chosen = c.aligned(0) != 0;
         if (c.op().integer("negate") != 0) chosen = at::logical_not(chosen);
         const at::Tensor a = c.aligned(1);
         return {c.has(2) ? at::where(chosen, a, c.aligned(2))
                          : at::where(chosen, a, at::full({}, c.number("otherwise"), a.options()))};
       }},
      {"gelu_grad",
       [](const Call& c) -> Values { return {c.aligned(0) * gelu_slope(c.aligned(1))}; }},
      {"gelu_erf_grad",
       [](const Call& c) -> Values { return {c.aligned(0) * gelu_erf_slope(c.aligned(1))}; }},
      {"silu_grad",
       [](const Call& c) -> Values { return {c.aligned(0) * silu_slope(c.aligned(1))}; }},
      {"relu2_grad",
       [](const Call& c) -> Values { return {c.aligned(0) * 2 * at::relu(c.aligned(1))}; }},
      {"relu_grad",
       [](const Call& c) -> Values {
         const at::Tensor dy = c.aligned(0);
         return {at::where(c.aligned(1) > 0, dy, at::zeros_like(dy))};
       }},
      {"leaky_relu_grad",
       [](const Call& c) -> Values {
         const at::Tensor dy = c.aligned(0);
         return {at::where(c.aligned(1) > 0, dy, c.number("slope") * dy)};
       }},
      {"clamp_grad",
       [](const Call& c) -> Values {
         const at::Tensor dy = c.aligned(0), x = c.aligned(1);
         const at::Tensor inside = at::logical_and(x >= c.number("min"), x <= c.number("max"));
         return {at::where(inside, dy, at::zeros_like(dy))};
       }},
      {"fill",
       [](const Call& c) -> Values {
         return {at::full({}, c.number("value"), at::TensorOptions(at::kDouble))};
       }},
      {"broadcast_to", [](const Call& c) -> Values { return {c.aligned(0)}; }},
      {"transpose", [](const Call& c) -> Values { return {c.aligned(0)}; }},
      {"rename", [](const Call& c) -> Values { return {c.aligned(0)}; }},
      {"reduce_sum",
       [](const Call& c) -> Values {
         const std::vector<int> order = op_dims(c.op().annotation.inputs[0]);
         return {c.summed(c.along(0, order), order, 0) * c.number("factor")};
       }},
      {"reduce_max",
       [](const Call& c) -> Values {
         const std::vector<int> order = op_dims(c.op().annotation.inputs[0]),
                                kept = c.dims_of_output(0);
         std::vector<int64_t> gone;
         for (size_t d = 0; d < order.size(); ++d) {
           if (std::find(kept.begin(), kept.end(), order[d]) == kept.end())
             gone.push_back(static_cast<int64_t>(d));
         }
         return {gone.empty() ? c.in(0) : at::amax(c.in(0), gone)};
       }},
      {"non_finite",
       [](const Call& c) -> Values {
         const at::Tensor x = c.in(0);
         return {at::logical_not(at::isfinite(x)).any().to(x.scalar_type())};
       }},
      {"sum_squares", [](const Call& c) -> Values { return {at::square(c.in(0)).sum()}; }},
  };
  return formulas;
}

}  // namespace tessera::kernels
