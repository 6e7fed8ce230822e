#include "tessera/import/pt2/constant.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/import/pt2/names.h"

namespace tessera::pt2 {
namespace {

using Values = std::vector<double>;
using Shape = std::vector<int64_t>;

Constant count(Shape shape) {
  Constant out{DType::kFloat64, std::move(shape), {}};
  for (int64_t i = 0; i < constant_elements(out.shape).value_or(0); ++i)
    out.values.push_back(static_cast<double>(i));
  return out;
}

TEST(ConstantTest, BroadcastsAsPyTorchDoes) {
  const auto sum = merge(count({2, 1}), count({3}), [](double a, double b) { return 10 * a + b; });
  ASSERT_TRUE(sum);
  EXPECT_EQ(sum->shape, (Shape{2, 3}));
  EXPECT_EQ(sum->values, (Values{0, 1, 2, 10, 11, 12}));
  EXPECT_FALSE(merge(count({2}), count({3}), [](double a, double b) { return a + b; }));
  EXPECT_EQ(expand(count({2, 1}), {-1, 2})->values, (Values{0, 0, 1, 1}));
  EXPECT_FALSE(expand(count({2}), {3}));
}

TEST(ConstantTest, MovesElements) {
  EXPECT_EQ(permute(count({2, 3}), {1, 0})->values, (Values{0, 3, 1, 4, 2, 5}));
  EXPECT_FALSE(permute(count({2, 3}), {0, 0}));
  EXPECT_FALSE(permute(count({2, 3}), {0, 2}));
  EXPECT_EQ(slice(count({2, 4}), 1, -3, INT64_MAX, 2)->values, (Values{1, 3, 5, 7}));
  EXPECT_EQ(slice(count({3}), 0, 5, 9, 1)->shape, (Shape{0}));
  const Constant column = count({2, 1}), square = count({2, 2}), one = count({1, 1});
  EXPECT_EQ(concatenate({&column, &square}, 1)->values, (Values{0, 0, 1, 1, 2, 3}));
  EXPECT_FALSE(concatenate({&column, &one}, 1));
  EXPECT_EQ(slice(count({4}), 0, 1, INT64_MAX, INT64_MAX)->values, (Values{1}));
  EXPECT_EQ(matrix_product(count({2, 3}), count({3, 1}))->values, (Values{5, 14}));
}

TEST(ConstantTest, ChoosesAfterBroadcasting) {
  const Constant condition{DType::kBool, {2, 1}, {1, 0}}, minus{DType::kFloat64, {}, {-1}};
  const auto chosen = choose(condition, count({3}), minus);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->shape, (Shape{2, 3}));
  EXPECT_EQ(chosen->values, (Values{0, 1, 2, -1, -1, -1}));
  EXPECT_FALSE(choose(count({2}), count({3}), minus));
}

TEST(ConstantTest, TensorsWithoutElementsMayHaveAnyOtherSizes) {
  constexpr int64_t kLarge = int64_t{1} << 40;
  const Constant none{DType::kFloat32, {0, kLarge, kLarge}, {}};
  EXPECT_EQ(slice(none, 1, 5, INT64_MAX, 3)->elements(), 0);
  EXPECT_EQ(merge(none, none, [](double a, double) { return a; })->elements(), 0);
  EXPECT_FALSE(permute(none, {1, 2, 0}));
  const std::vector<const Constant*> many(3, &none);
  EXPECT_EQ(concatenate(many, 1)->shape, (Shape{0, 3 * kLarge, kLarge}));
}

TEST(ConstantTest, KnowsMasks) {
  const Constant ones{DType::kBool, {2, 3, 3}, Values(18, 1)};
  const auto lower = triangle(ones, 0, true), upper = triangle(ones, 1, false);
  EXPECT_TRUE(is_causal_mask(*lower, false));
  EXPECT_TRUE(is_causal_mask(*upper, true));
  EXPECT_FALSE(is_causal_mask(*lower, true));
  EXPECT_FALSE(is_causal_mask(*triangle(ones, 1, true), false));
  EXPECT_TRUE(counts_up(count({4})));
  EXPECT_TRUE(all_equal(ones, 1));
}

TEST(ConstantTest, NothingLargerThanTheLimitIsMade) {
  EXPECT_FALSE(constant_elements({kMaxConstant, 2}));
  EXPECT_FALSE(constant_elements({INT64_MAX, INT64_MAX, INT64_MAX}));
  EXPECT_EQ(constant_elements({0, INT64_MAX}), 0);
  EXPECT_FALSE(expand(count({1}), {kMaxConstant + 1}));
}

TEST(ConstantTest, RepetitionsAreLeftOut) {
  const Constant mask = *expand(count({2, 1, 3}), {2, 4, 3});
  const Constant once = without_repeats(mask);
  EXPECT_EQ(once.shape, (std::vector<int64_t>{2, 1, 3}));
  EXPECT_EQ(once.values, count({2, 1, 3}).values);
  EXPECT_EQ(without_repeats(mask, 2).shape, mask.shape);  // the last two are kept
  EXPECT_EQ(without_repeats(*expand(count({1}), {3, 2})).shape, (std::vector<int64_t>{1, 1}));
}

TEST(ConstantTest, RoundsToTheDtype) {
  Constant x{DType::kInt64, {2}, {1.75, -1.75}};
  round_values(x);
  EXPECT_EQ(x.values, (Values{1, -1}));
  Constant y{DType::kFloat32, {1}, {0.1}};
  round_values(y);
  EXPECT_EQ(y.values[0], static_cast<double>(0.1F));
}

}  // namespace
}  // namespace tessera::pt2
