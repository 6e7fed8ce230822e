// Oracles: the compiler's own conversions, and values that the formats define.
#include "tessera/base/convert.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

namespace tessera::convert_test {
namespace {

constexpr DType kAll[] = {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16,
                          DType::kInt64,   DType::kInt32,   DType::kUInt8,    DType::kBool};

std::vector<std::byte> array_of(DType dtype, const std::vector<double>& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(dtype_bytes(dtype)));
  convert(DType::kFloat64, reinterpret_cast<const std::byte*>(values.data()), dtype, bytes.data(),
          static_cast<int64_t>(values.size()));
  return bytes;
}

std::vector<double> values_of(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<double> values(bytes.size() / static_cast<size_t>(dtype_bytes(dtype)));
  convert(dtype, bytes.data(), DType::kFloat64, reinterpret_cast<std::byte*>(values.data()),
          static_cast<int64_t>(values.size()));
  return values;
}

TEST(Convert, SmallNumbersSurviveEveryPairOfTypes) {
  for (const DType from : kAll) {
    for (const DType to : kAll) {
      const std::vector<std::byte> in = array_of(from, {0, 1, 1, 0, 1});
      std::vector<std::byte> out(5 * static_cast<size_t>(dtype_bytes(to)));
      convert(from, in.data(), to, out.data(), 5);
      EXPECT_EQ(values_of(to, out), (std::vector<double>{0, 1, 1, 0, 1}))
          << dtype_name(from) << " to " << dtype_name(to);
    }
  }
}

TEST(Convert, NarrowTypesRoundToNearest) {
  EXPECT_EQ(values_of(DType::kBFloat16, array_of(DType::kBFloat16, {1.00390625, 1.01171875, -3})),
            (std::vector<double>{1.0, 1.015625, -3}));  // ties go to the even neighbour
  EXPECT_EQ(values_of(DType::kFloat16, array_of(DType::kFloat16, {65519, 1e6, 0.1})),
            (std::vector<double>{65504, std::numeric_limits<double>::infinity(), 0.0999755859375}));
  EXPECT_EQ(values_of(DType::kFloat32, array_of(DType::kFloat32, {0.1})),
            (std::vector<double>{static_cast<double>(0.1F)}));
  EXPECT_EQ(values_of(DType::kInt32, array_of(DType::kInt32, {2.9, -2.9})),
            (std::vector<double>{2, -2}));
}

// A pair of types that keeps values keeps the extreme values too.
TEST(Convert, PairsThatKeepValuesKeepTheExtremes) {
  const std::vector<double> extremes{
      0x1p-149,           0x1p-24, 0x1p-133, 65504,     0x1.FEp127, 0x1.FFFFFEp127, 2147483647.0,
      9007199254740993.0, 255,     1,        0x1p-1074, 1e308};
  for (const DType from : kAll) {
    const bool fits_all_integers = !is_floating(from);
    std::vector<double> given;
    for (const double value : extremes) {
      const bool integer =
          value == static_cast<double>(static_cast<int64_t>(std::min(value, 1e18)));
      const double largest = from == DType::kInt32   ? 2147483647.0
                             : from == DType::kUInt8 ? 255
                             : from == DType::kBool  ? 1
                                                     : 1e18;
      if (fits_all_integers && (!integer || value > largest)) continue;
      given.push_back(value);
    }
    const std::vector<std::byte> in = array_of(from, given);
    for (const DType to : kAll) {
      if (!keeps_values(from, to)) continue;
      std::vector<std::byte> there(given.size() * static_cast<size_t>(dtype_bytes(to))),
          back(in.size());
      convert(from, in.data(), to, there.data(), static_cast<int64_t>(given.size()));
      convert(to, there.data(), from, back.data(), static_cast<int64_t>(given.size()));
      EXPECT_EQ(back, in) << dtype_name(from) << " to " << dtype_name(to);
    }
  }
}

TEST(Convert, WhichPairsKeepValues) {
  EXPECT_TRUE(keeps_values(DType::kBFloat16, DType::kFloat32));
  EXPECT_TRUE(keeps_values(DType::kFloat16, DType::kFloat32));
  EXPECT_TRUE(keeps_values(DType::kFloat32, DType::kFloat64));
  EXPECT_TRUE(keeps_values(DType::kInt32, DType::kFloat64));
  EXPECT_FALSE(keeps_values(DType::kFloat16, DType::kBFloat16));
  EXPECT_FALSE(keeps_values(DType::kBFloat16, DType::kFloat16));
  EXPECT_FALSE(keeps_values(DType::kInt64, DType::kFloat64));
  EXPECT_FALSE(keeps_values(DType::kFloat32, DType::kInt64));
}

}  // namespace
}  // namespace tessera::convert_test
