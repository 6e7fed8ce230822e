// Tests the kernels: conversions of 16-bit floats, flat ranges, strided copies, combiners' edge
// cases.
#include "tessera/comm/region.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/half.h"
#include "tessera/comm/testing.h"

namespace tessera::comm {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Returns the value of a 16-bit float by the definition of its format.
double value_of(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int mask = (1 << exponent_bits) - 1;
  const int bias = mask >> 1;
  const int exponent = (bits >> mantissa_bits) & mask;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == mask) return mantissa ? kNan : sign * kInfinity;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

template <class From, class To>
void check_format(int exponent_bits, int mantissa_bits, const From& from, const To& to) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    const double want = value_of(bits, exponent_bits, mantissa_bits);
    const double value = static_cast<double>(from(bits));
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(value)) << i;
      ASSERT_TRUE(std::isnan(from(to(from(bits))))) << i;
      continue;
    }
    ASSERT_EQ(value, want) << i;
    ASSERT_EQ(to(from(bits)), bits);
    // A number between two neighbours rounds down below their middle, up above it, to even on it.
    const double next = value_of(static_cast<uint16_t>(i + 1), exponent_bits, mantissa_bits);
    if (!std::isfinite(want) || !std::isfinite(next) || i == 0x7FFF) continue;
    const float middle = static_cast<float>((want + next) / 2);
    const uint16_t up = static_cast<uint16_t>(i + 1);
    ASSERT_EQ(to(middle), bits % 2 == 0 ? bits : up) << i;
    ASSERT_EQ(to(std::nextafter(middle, static_cast<float>(want))), bits) << i;
    ASSERT_EQ(to(std::nextafter(middle, static_cast<float>(next))), up) << i;
  }
}

TEST(Half, Float16ConvertsExactlyAndRoundsToNearestEven) {
  check_format(5, 10, half::from_float16, half::to_float16);
  EXPECT_EQ(half::to_float16(65519.0F), 0x7BFF);
  EXPECT_EQ(half::to_float16(65520.0F), 0x7C00);
  EXPECT_EQ(half::to_float16(-1e30F), 0xFC00);
}
TEST(Half, BFloat16ConvertsExactlyAndRoundsToNearestEven) {
  check_format(8, 7, half::from_bfloat16, half::to_bfloat16);
}

TEST(Region, BoxesOfAFlatRangeListItsElementsInOrder) {
  EXPECT_TRUE(rc::check([] {
    Box box;
    const size_t rank = *rc::gen::inRange<size_t>(0, 5);
    for (size_t i = 0; i < rank; ++i) {
      box.dims.push_back({*rc::gen::inRange<int64_t>(0, 3), *rc::gen::inRange<int64_t>(1, 5)});
    }
    const int64_t begin = *rc::gen::inRange<int64_t>(0, box.volume() + 1);
    const int64_t size = *rc::gen::inRange<int64_t>(0, box.volume() - begin + 1);
    std::vector<testing::Index> all, found;
    testing::for_each_index(box, [&](const testing::Index& at) { all.push_back(at); });
    for (const Box& part : boxes_of_flat_range(box, {begin, size})) {
      RC_ASSERT(!part.empty());
      testing::for_each_index(part, [&](const testing::Index& at) { found.push_back(at); });
    }
    const std::vector<testing::Index> want(all.begin() + begin, all.begin() + begin + size);
    RC_ASSERT(found == want);
  }));
}

TEST(Region, ContiguousMeansRowMajorWithoutGaps) {
  std::byte memory[8];
  const auto view = [&](std::vector<int64_t> shape, std::vector<int64_t> strides) {
    return ArrayView{memory, Box::whole(shape), std::move(strides)};
  };
  EXPECT_TRUE(is_contiguous(view({}, {})));
  EXPECT_TRUE(is_contiguous(view({2, 3}, {3, 1})));
  EXPECT_TRUE(is_contiguous(view({2, 1, 3}, {3, 77, 1})));
  EXPECT_FALSE(is_contiguous(view({2, 3}, {4, 1})));
  EXPECT_FALSE(is_contiguous(view({2, 3}, {1, 2})));
}

TEST(Region, CopiesAnyRegionBetweenAnyStrides) {
  EXPECT_TRUE(rc::check([] {
    const DType dtype =
        *rc::gen::element(DType::kFloat64, DType::kInt32, DType::kFloat16, DType::kBool);
    Box from_box, to_box;
    for (size_t i = *rc::gen::inRange<size_t>(1, 5); i > 0; --i) {
      from_box.dims.push_back({*rc::gen::inRange<int64_t>(0, 3), *rc::gen::inRange<int64_t>(1, 5)});
      to_box.dims.push_back({*rc::gen::inRange<int64_t>(0, 3), *rc::gen::inRange<int64_t>(1, 5)});
    }
    testing::Case test;
    test.name = "copy";
    test.what = {CollectiveKind::kExchange, {}, dtype, {from_box}, {to_box}};
    std::vector<std::byte> in, out;
    const ArrayView from = testing::Arrays::view(from_box, *rc::gen::arbitrary<bool>(), dtype, in);
    testing::Arrays arrays(test, 0);
    testing::for_each_index(from_box, [&](const testing::Index& at) {
      testing::encode(dtype, testing::input_value(test.what, 0, at),
                      testing::Arrays::at(from, dtype, at));
    });
    copy_region(dtype, from, arrays.out, intersect(from_box, to_box));
    RC_ASSERT(arrays.error(test) == "");
  }));
}

double combined(DType dtype, Combiner combiner, double to, double from) {
  std::array<std::byte, 8> a{}, b{};
  testing::encode(dtype, to, a.data());
  testing::encode(dtype, from, b.data());
  combine_run(dtype, combiner, b.data(), a.data(), 1);
  return testing::decode(dtype, a.data());
}

TEST(Combine, MaxKeepsNaNsFromBothSides) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    EXPECT_TRUE(std::isnan(combined(dtype, Combiner::kMax, kNan, 1)));
    EXPECT_TRUE(std::isnan(combined(dtype, Combiner::kMax, 1, kNan)));
    EXPECT_EQ(combined(dtype, Combiner::kMax, -kInfinity, -3), -3);
  }
}

TEST(Combine, LogSumExpIsStableAndHasIdentityMinusInfinity) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
    EXPECT_EQ(combined(dtype, Combiner::kLogSumExp, -kInfinity, -kInfinity), -kInfinity);
    EXPECT_EQ(combined(dtype, Combiner::kLogSumExp, -kInfinity, 2), 2);
    EXPECT_EQ(combined(dtype, Combiner::kLogSumExp, 2, -kInfinity), 2);
    EXPECT_EQ(combined(dtype, Combiner::kLogSumExp, kInfinity, 2), kInfinity);
    EXPECT_NEAR(combined(dtype, Combiner::kLogSumExp, 1000, 1000), 1000 + std::log(2.0), 1e-4);
    EXPECT_NEAR(combined(dtype, Combiner::kLogSumExp, 0, 1), std::log(1 + std::exp(1.0)), 1e-6);
    EXPECT_TRUE(std::isnan(combined(dtype, Combiner::kLogSumExp, kNan, 1)));
    EXPECT_TRUE(std::isnan(combined(dtype, Combiner::kLogSumExp, 1, kNan)));
  }
}

TEST(Combine, IntegerSumsWrapAndBoolSumsAreOr) {
  EXPECT_EQ(combined(DType::kUInt8, Combiner::kSum, 200, 100), 44);
  EXPECT_EQ(combined(DType::kInt32, Combiner::kSum, 2147483647, 1), -2147483648.0);
  EXPECT_EQ(combined(DType::kBool, Combiner::kSum, 1, 1), 1);
  EXPECT_EQ(combined(DType::kBool, Combiner::kSum, 0, 0), 0);
}

TEST(Combine, MomentsOfPartsAreTheMomentsOfTheWhole) {
  const std::vector<double> samples = {3.5, -1, 4, 1.25, -5, 9, 2, 6};
  const auto moments = [&](size_t begin, size_t end) {
    std::array<double, 3> m{static_cast<double>(end - begin), 0, 0};
    for (size_t i = begin; i < end; ++i) m[1] += samples[i] / m[0];
    for (size_t i = begin; i < end; ++i) m[2] += (samples[i] - m[1]) * (samples[i] - m[1]);
    return m;
  };
  std::array<double, 3> sum{};  // no samples
  for (const auto& [begin, end] : {std::pair{0, 3}, {3, 3}, {3, 4}, {4, 8}}) {
    const auto part = moments(static_cast<size_t>(begin), static_cast<size_t>(end));
    combine_run(DType::kFloat64, Combiner::kMoments,
                reinterpret_cast<const std::byte*>(part.data()),
                reinterpret_cast<std::byte*>(sum.data()), 3);
  }
  const auto want = moments(0, 8);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(sum[i], want[i], 1e-12);
}

}  // namespace
}  // namespace tessera::comm
