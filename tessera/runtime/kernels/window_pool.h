// Internal to kernels/: pools over the windows of a map and their gradients. Windows are given by the
// elements that they have inside the map, so that padding needs no copy, and a piece of a map needs
// no more than its elements. What several rows under a window have in common is computed in
// vectors; then a few columns are left.
//
// All tensors are contiguous and of one type, float32 or float64: maps x and dx [maps.., elements..],
// y and dy [maps.., windows..]. The result depends on the values only.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::kernels {

struct WindowPool {
  static constexpr size_t kDims = 3;
  std::array<int64_t, kDims> elements{};  // of a map, by spatial dim
  // Of each window along a dim: its first element, and the one behind its last. A window that lies
  // in the padding has none; its sum is 0, its largest element minus infinity.
  std::array<std::vector<std::pair<int64_t, int64_t>>, kDims> windows;

  // The largest element of each window. A NaN is the largest element of its window.
  void largest(const at::Tensor& y, const at::Tensor& x) const;
  // dy of a window goes to its largest element; of equal ones the first in memory, as in libtorch.
  void largest_gradient(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x) const;
  // The sum of each window, times the factor.
  void sums(const at::Tensor& y, const at::Tensor& x, double factor) const;
  // dy of a window, times the factor, goes to each of its elements.
  void sums_gradient(const at::Tensor& dx, const at::Tensor& dy, double factor) const;
};

}  // namespace tessera::kernels
