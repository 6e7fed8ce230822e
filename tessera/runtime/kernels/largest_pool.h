// Internal to kernels/: the largest element of each window of a map, and the gradient that goes to
// it. Windows are given by the elements that they have inside the map, so that padding needs no
// copy. The largest of the rows of a window is found in vectors, then the largest of a few columns.
//
// A NaN in a window is its largest element. Of equal elements the first one in memory has the
// gradient, as in libtorch.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::kernels {

struct LargestPool {
  static constexpr size_t kDims = 3;
  std::array<int64_t, kDims> elements{};  // of a map, by spatial dim
  // Of each window along a dim: its first element, and the one behind its last. A window that lies
  // in the padding has none; its largest element is minus infinity, and its gradient is dropped.
  std::array<std::vector<std::pair<int64_t, int64_t>>, kDims> windows;

  // y [maps.., windows..] of x [maps.., elements..]; both contiguous, float32 or float64.
  void forward(const at::Tensor& y, const at::Tensor& x) const;
  // dx [maps.., elements..] of dy [maps.., windows..] and x.
  void backward(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x) const;
};

}  // namespace tessera::kernels
