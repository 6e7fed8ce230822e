// Formulas of pools, one dim of the windows after the other: element k of all windows along a dim is
// a view of the map with the stride of the windows.
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "tessera/runtime/formulas/call.h"
#include "tessera/runtime/kernels/maps.h"
#include "tessera/runtime/kernels/windows/windows.h"

namespace tessera::kernels {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// The windows of a pool in a piece. x and y say which operands are the map under the windows and the
// map of windows, or their gradients.
struct Pool {
  PoolNumbers n;
  std::vector<Interval> elements, positions;

  Pool(const Call& c, const OperandDims& x, const OperandDims& y)
      : n(pool_numbers(c.op())),
        elements(spatial_intervals(c.op(), c.box(), x, n.spatial)),
        positions(spatial_intervals(c.op(), c.box(), y, n.spatial)) {}

  int64_t size_of_span(size_t d) const { return n.frame.span(positions[d], d).size; }
  // Returns a map [maps, spatial..] that has exactly the elements from the first window to the last.
  at::Tensor spanned(const at::Tensor& map, double padding) const {
    return padded(with_one_lead(map, n.spatial), n.frame.to_cover(elements, positions, 1), padding);
  }
  // Returns the elements of the piece of such a map.
  at::Tensor cut(const at::Tensor& span) const {
    return padded(span, n.frame.to_cover(elements, positions, -1));
  }
  // Returns a view of element k of each window along spatial dim d.
  at::Tensor element(const at::Tensor& span, size_t d, int64_t k) const {
    const int64_t stride = n.frame.stride[d], last = (positions[d].size - 1) * stride;
    return span.slice(static_cast<int64_t>(d) + 1, k, k + last + 1, stride);
  }
  // Joins the elements of each window along spatial dim d.
  template <class Join>
  at::Tensor joined(const at::Tensor& span, size_t d, const Join& join) const {
    at::Tensor made = element(span, d, 0);
    for (int64_t k = 1; k < n.frame.kernel[d]; ++k) made = join(made, element(span, d, k));
    return made;
  }
};

at::Tensor larger(const at::Tensor& a, const at::Tensor& b) { return at::maximum(a, b); }

Values max_pool(const Call& c) {
  const Annotation& dims = c.op().annotation;
  const Pool pool(c, dims.inputs[0], dims.outputs[0]);
  at::Tensor made = pool.spanned(c.in(0), kNever);
  for (size_t d = pool.n.spatial; d-- > 0;) made = pool.joined(made, d, larger);
  return {c.regrouped(made)};
}

// Passes the gradient of the largest element of each window along dim d on to the first element that
// is as large.
at::Tensor to_largest(const Pool& pool, size_t d, const at::Tensor& gradient,
                      const at::Tensor& largest, const at::Tensor& from) {
  const at::Tensor nothing = at::zeros_like(gradient);
  at::Tensor made = at::zeros_like(from);
  at::Tensor found = at::zeros_like(gradient, at::TensorOptions(at::kBool));
  for (int64_t k = 0; k < pool.n.frame.kernel[d]; ++k) {
    const at::Tensor x = pool.element(from, d, k);
    const at::Tensor equal = at::logical_or(x == largest, at::isnan(x));
    const at::Tensor takes = at::logical_and(equal, at::logical_not(found));
    pool.element(made, d, k).add_(at::where(takes, gradient, nothing));
    found = at::logical_or(found, equal);
  }
  return made;
}

// Passes the gradient on to the first of equal elements of a window, which is the first one of the
// first row that has it.
Values max_pool_grad(const Call& c) {
  if (c.input(0).empty()) return {at::zeros({}, c.in(0).options())};  // no window reaches dx
  const Annotation& dims = c.op().annotation;
  const Pool pool(c, dims.inputs[1], dims.inputs[0]);
  std::vector<at::Tensor> largest = {pool.spanned(c.in(1), kNever)};  // by how many dims are joined
  for (size_t d = pool.n.spatial; d-- > 0;)
    largest.push_back(pool.joined(largest.back(), d, larger));
  at::Tensor gradient = with_one_lead(c.in(0), pool.n.spatial);
  for (size_t d = 0; d < pool.n.spatial; ++d) {
    const size_t joins = pool.n.spatial - d;
    gradient = to_largest(pool, d, gradient, largest[joins], largest[joins - 1]);
  }
  // x has all elements of the windows that contain elements of dx.
  Pool own = pool;
  own.elements = spatial_intervals(c.op(), c.box(), dims.outputs[0], pool.n.spatial);
  return {c.regrouped(own.cut(gradient))};
}

// Returns by what the sum of each window is divided: a number, or [positions..] if padding does not
// count.
at::Tensor divisor(const Call& c, const Pool& pool, const OperandDims& x, const at::Tensor& like) {
  if (c.op().integer("count_padding") != 0)
    return at::full({}, pool.n.frame.volume(), like.options());
  at::Tensor counts = at::ones({}, like.options());
  for (size_t d = 0; d < pool.n.spatial; ++d) {
    const int64_t extent = extent_of(c.op(), x, x.dims.size() - pool.n.spatial + d);
    const Interval at = pool.positions[d];
    const at::Tensor begin =
        at::arange(at.begin, at.end(), like.options()) * pool.n.frame.stride[d] -
        pool.n.frame.padding[d];
    const at::Tensor end = at::clamp_max(begin + pool.n.frame.kernel[d], extent);
    counts = counts.unsqueeze(-1) * (end - at::clamp_min(begin, 0));
  }
  return counts;
}

at::Tensor window_sums(const Call& c, const Pool& pool) {
  at::Tensor made = pool.spanned(c.in(0), 0);
  for (size_t d = pool.n.spatial; d-- > 0;) {
    made = pool.joined(made, d, [](const at::Tensor& a, const at::Tensor& b) { return a + b; });
  }
  return made;
}

Values sum_pool(const Call& c) {
  const Annotation& dims = c.op().annotation;
  return {c.regrouped(window_sums(c, Pool(c, dims.inputs[0], dims.outputs[0])))};
}

Values avg_pool(const Call& c) {
  const Annotation& dims = c.op().annotation;
  const Pool pool(c, dims.inputs[0], dims.outputs[0]);
  const at::Tensor sums = window_sums(c, pool);
  return {c.regrouped(sums / divisor(c, pool, dims.inputs[0], sums))};
}

Values avg_pool_grad(const Call& c) {
  if (c.input(0).empty()) return {at::zeros({}, c.in(0).options())};  // no window reaches dx
  const Annotation& dims = c.op().annotation;
  const Pool pool(c, dims.outputs[0], dims.inputs[0]);
  at::Tensor gradient = with_one_lead(c.in(0), pool.n.spatial);
  gradient = gradient / divisor(c, pool, dims.outputs[0], gradient);
  for (size_t d = 0; d < pool.n.spatial; ++d) {
    std::vector<int64_t> shape = gradient.sizes().vec();
    shape[d + 1] = pool.size_of_span(d);
    const at::Tensor made = at::zeros(shape, gradient.options());
    for (int64_t k = 0; k < pool.n.frame.kernel[d]; ++k) pool.element(made, d, k).add_(gradient);
    gradient = made;
  }
  return {c.regrouped(pool.cut(gradient))};
}

}  // namespace

std::span<const Formula> pool_formulas() {
  static const std::vector<Formula> formulas = {
      {"max_pool", max_pool}, {"max_pool_grad", max_pool_grad}, {"avg_pool", avg_pool},
      {"sum_pool", sum_pool}, {"avg_pool_grad", avg_pool_grad},
  };
  return formulas;
}

}  // namespace tessera::kernels
