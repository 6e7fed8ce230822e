// Internal to kernels/: pools over the windows of a map and their gradients. Each window is given
// by its elements inside the map, so that padding needs no copy, and a piece of a map needs only
// its own elements. Results that windows share because several rows lie under them are computed in
// vectors; then a few columns are left.
//
// All tensors are contiguous and of one type, float32 or float64: maps x and dx [maps..,
// elements..], y and dy [maps.., windows..]. The result depends on the values only.
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
  // For each window along a dim: its first element, and the one behind its last. A window that lies
  // in the padding has none; its sum is 0, its largest element minus infinity.
  std::array<std::vector<std::pair<int64_t, int64_t>>, kDims> windows;

  // Computes the largest element of each window. A NaN is the largest element of its window.
  void largest(const at::Tensor& y, const at::Tensor& x) const;
  // Passes dy of a window to its largest element; among equal ones to the first in memory, as in
  // libtorch.
  void largest_gradient(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x) const;
  // Computes the sum of each window, times the factor.
  void sums(const at::Tensor& y, const at::Tensor& x, double factor) const;
  // Passes dy of a window, times the factor, to each of its elements.
  void sums_gradient(const at::Tensor& dx, const at::Tensor& dy, double factor) const;
};

}  // namespace tessera::kernels
