// Internal to kernels/: pools over the windows of a map and their gradients. A window is given by
// the interval of its elements inside the map along each dim. So padding needs no copy, and a piece
// of a map needs only its own elements. For a row of windows the rows of the map that these windows
// cover are first combined into one row, by vector instructions; then each window combines only its
// few columns of this row.
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
  std::array<int64_t, kDims> elements{};  // sizes of a map, by spatial dim
  // For each dim and each window along it: the window's first element, and the end of the window
  // (one after its last element). A window completely inside the padding has no elements; its sum
  // is 0 and its largest element is minus infinity.
  std::array<std::vector<std::pair<int64_t, int64_t>>, kDims> windows;

  // Computes the largest element of each window. A NaN is the largest element of its window.
  void largest(const at::Tensor& y, const at::Tensor& x) const;
  // Adds dy of each window to dx at the window's largest element; among equal elements to the first
  // one in memory, as in libtorch.
  void largest_gradient(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x) const;
  // Computes the sum of each window, multiplied by `factor`.
  void sums(const at::Tensor& y, const at::Tensor& x, double factor) const;
  // Adds dy of each window, multiplied by `factor`, to dx at each of the window's elements.
  void sums_gradient(const at::Tensor& dx, const at::Tensor& dy, double factor) const;
};

}  // namespace tessera::kernels
