// Tests results in given memory, and what happens if they do not come to lie there.
#include "tessera/runtime/kernels/placed_result.h"

#include <ATen/ops/add.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "tessera/runtime/kernels.h"

namespace tessera::kernels {
namespace {

TEST(PlacedResult, AConvolutionWritesIntoGivenMemoryFromTheSecondCallOn) {
  configure_process();
  const at::Tensor w = at::randn({16, 8, 3, 3}), out = at::empty({2, 16, 7, 7});
  std::optional<size_t> turn;
  for (const int call : {0, 1, 2}) {
    const at::Tensor x = at::randn({2, 8, 9, 9});
    const auto convolve = [&] {
      return at::convolution(x, w, {}, {1, 1}, {0, 0}, {1, 1}, false, {0, 0}, 1);
    };
    const at::Tensor expected = convolve();
    EXPECT_NE(expected.data_ptr(), out.data_ptr());
    PlacedResult placed(out.data_ptr(), out.nbytes(), turn);
    const at::Tensor result = convolve();
    EXPECT_EQ(placed.holds(result.data_ptr()), call > 0);
    EXPECT_TRUE(result.equal(expected));
    EXPECT_EQ(out.equal(expected), call > 0);
  }
}

TEST(PlacedResult, OnlyTheAllocationOfThatSizeAndTurnIsPlaced) {
  configure_process();
  const at::Tensor out = at::empty({64}), x = at::randn({64});
  std::optional<size_t> turn = 1;
  PlacedResult placed(out.data_ptr(), out.nbytes(), turn);
  const at::Tensor first = at::add(x, x), other = at::empty({65}), second = at::add(x, x),
                   third = at::add(x, x);
  EXPECT_TRUE(placed.holds(second.data_ptr()));
  for (const at::Tensor& one : {first, other, third}) EXPECT_NE(one.data_ptr(), out.data_ptr());
  EXPECT_FALSE(placed.holds(third.data_ptr()));
  EXPECT_EQ(turn, 2U);
  EXPECT_FALSE(placed.holds(other.data_ptr()));
  EXPECT_EQ(turn, std::nullopt);
}

}  // namespace
}  // namespace tessera::kernels
