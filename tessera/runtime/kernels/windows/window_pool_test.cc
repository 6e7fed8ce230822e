// Tests pools against libtorch's: values, ties, infinities and NaN of the largest elements; sums.
#include "tessera/runtime/kernels/windows/window_pool.h"

#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/avg_pool3d_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/max_pool3d_with_indices.h>
#include <ATen/ops/max_pool3d_with_indices_backward.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace tessera::kernels {
namespace {

struct Shape {
  std::array<int64_t, 3> size, kernel, stride, padding;
};

const std::vector<Shape> kShapes = {{{1, 9, 8}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}},
                                    {{4, 6, 7}, {2, 2, 2}, {2, 2, 2}, {0, 0, 0}},
                                    {{5, 5, 40}, {3, 2, 3}, {1, 3, 2}, {1, 0, 1}}};

WindowPool pool_of(const Shape& shape) {
  WindowPool pool;
  pool.elements = shape.size;
  for (size_t d = 0; d < 3; ++d) {
    const int64_t last = shape.size[d] + 2 * shape.padding[d] - shape.kernel[d];
    for (int64_t at = 0; at <= last; at += shape.stride[d]) {
      const int64_t first = at - shape.padding[d];
      pool.windows[d].emplace_back(std::max<int64_t>(first, 0),
                                   std::min(first + shape.kernel[d], shape.size[d]));
    }
  }
  return pool;
}

TEST(WindowPool, LargestElementsAreLibtorchs) {
  for (const Shape& shape : kShapes) {
    const WindowPool pool = pool_of(shape);
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      std::vector<int64_t> dims = {6, shape.size[0], shape.size[1], shape.size[2]};
      for (const bool ties : {false, true}) {
        at::Tensor x = ties ? at::randint(0, 2, dims, at::TensorOptions(type))
                            : at::randn(dims, at::TensorOptions(type));
        x[1].fill_(-std::numeric_limits<double>::infinity());
        x[2][0][1][2] = std::numeric_limits<double>::quiet_NaN();
        const auto [expected, indices] = at::max_pool3d_with_indices(
            x, shape.kernel, shape.stride, shape.padding, {1, 1, 1}, false);
        const at::Tensor y = at::empty_like(expected), dy = at::randn_like(expected);
        pool.largest(y, x);
        EXPECT_TRUE(y.equal(expected) || y.nan_to_num(-7).equal(expected.nan_to_num(-7)));
        EXPECT_GT(y.isnan().sum().item<int64_t>(), 0);
        const at::Tensor expected_dx = at::max_pool3d_with_indices_backward(
            dy, x, shape.kernel, shape.stride, shape.padding, {1, 1, 1}, false, indices);
        const at::Tensor dx = at::empty_like(x);
        pool.largest_gradient(dx, dy, x);
        EXPECT_TRUE(dx.allclose(expected_dx, 1e-6, 1e-6));
      }
    }
  }
}

TEST(WindowPool, SumsAreLibtorchs) {
  for (const Shape& shape : kShapes) {
    const WindowPool pool = pool_of(shape);
    const at::Tensor x = at::randn({6, shape.size[0], shape.size[1], shape.size[2]}, at::kDouble);
    const at::Tensor expected =
        at::avg_pool3d(x, shape.kernel, shape.stride, shape.padding, false, true, 7);
    const at::Tensor y = at::empty_like(expected), dy = at::randn_like(expected);
    pool.sums(y, x, 1.0 / 7);
    EXPECT_TRUE(y.allclose(expected, 1e-12, 1e-12));
    const at::Tensor dx = at::empty_like(x);
    pool.sums_gradient(dx, dy, 1.0 / 7);
    EXPECT_TRUE(dx.allclose(
        at::avg_pool3d_backward(dy, x, shape.kernel, shape.stride, shape.padding, false, true, 7),
        1e-12, 1e-12));
  }
}

TEST(WindowPool, AWindowInThePaddingHasNoElement) {
  WindowPool pool;
  pool.elements = {1, 1, 2};
  pool.windows = {{{{0, 1}}, {{0, 1}}, {{0, 2}, {2, 2}}}};
  const at::Tensor x = at::ones_like(at::randn({1, 1, 2})), y = at::randn({1, 1, 2});
  pool.largest(y, x);
  EXPECT_EQ(y[0][0][0].item<float>(), 1.0F);
  EXPECT_EQ(y[0][0][1].item<float>(), -std::numeric_limits<float>::infinity());
  const at::Tensor dx = at::randn({1, 1, 2});
  pool.largest_gradient(dx, y, x);
  EXPECT_EQ(dx[0][0][0].item<float>(), 1.0F);
  EXPECT_EQ(dx[0][0][1].item<float>(), 0.0F);
}

}  // namespace
}  // namespace tessera::kernels
