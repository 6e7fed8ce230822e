// Formulas of masks of scores.
#include "tessera/runtime/formulas/masks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "tessera/base/check.h"
#include "tessera/graph/order.h"
#include "tessera/runtime/formulas/call.h"
#include "tessera/runtime/kernels/family.h"

namespace tessera::kernels {
namespace {

// Returns x where the mask holds; elsewhere -infinity, or 0 in a gradient.
at::Tensor masked(const Call& c, const at::Tensor& mask, const at::Tensor& x) {
  const double value =
      c.op().integer("gradient") != 0 ? 0.0 : -std::numeric_limits<double>::infinity();
  return at::where(mask, x, at::full({}, value, x.options()));
}

Values causal_mask(const Call& c) {
  const at::Tensor x = c.in(0);
  const at::Tensor seen = visible_pairs(c.op(), c.interval("seq"), c.interval("kv"), /*late=*/0, x);
  if (!seen.defined()) return {x};
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);  // keys are the last dim
  shape[static_cast<size_t>(c.dim(0, "seq"))] = seen.size(0);
  shape.back() = seen.size(1);
  return {masked(c, seen.reshape(shape), x)};
}

Values segment_mask(const Call& c) {
  return {masked(c, c.aligned(1) == c.aligned(2), c.aligned(0))};
}

}  // namespace

at::Tensor visible_pairs(const Op& op, Interval queries, Interval keys, int64_t late,
                         const at::Tensor& like) {
  const bool causal = op.integer("causal") != 0;
  const int64_t window = op.integer("window");
  if (!causal && window == 0) return {};
  const auto order = parse_order(op.text("order"));
  TESSERA_CHECK(order.has_value(), "{}: order {}", op.path, op.text("order"));
  const int64_t size = op.annotation.dims[static_cast<size_t>(op.annotation.find("kv"))].size;
  const auto positions = [&](Interval interval, int64_t shift) {
    if (order->kind == Order::Kind::kNone) interval.begin += shift;
    std::vector<int64_t> list;
    for (const OpRun& run : runs_of(*order, size, interval)) {
      for (int64_t i = 0; i < run.size; ++i) list.push_back(run.first + i * run.stride);
    }
    return numbers(list, like);
  };
  const at::Tensor apart = positions(queries, late).unsqueeze(-1) - positions(keys, 0).unsqueeze(0);
  if (window == 0) return apart >= 0;
  const at::Tensor near = at::abs(apart) < window;
  return causal ? at::logical_and(near, apart >= 0) : near;
}

std::span<const Formula> mask_formulas() {
  static const std::vector<Formula> formulas = {
      {"causal_mask", causal_mask},
      {"segment_mask", segment_mask},
  };
  return formulas;
}

}  // namespace tessera::kernels
