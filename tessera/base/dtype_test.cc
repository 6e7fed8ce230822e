#include "tessera/base/dtype.h"

#include <gtest/gtest.h>

namespace tessera::dtype_test {
namespace {

constexpr DType kAll[] = {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16,
                          DType::kInt64,   DType::kInt32,   DType::kUInt8,    DType::kBool};

TEST(DType, NamesParseBack) {
  for (DType dtype : kAll) EXPECT_EQ(parse_dtype(dtype_name(dtype)).value(), dtype);
}

TEST(DType, PeopleWriteOtherWords) {
  EXPECT_EQ(parse_dtype("bf16").value(), DType::kBFloat16);
  EXPECT_EQ(parse_dtype("fp16").value(), DType::kFloat16);
  EXPECT_EQ(parse_dtype("half").value(), DType::kFloat16);
  EXPECT_EQ(parse_dtype("fp32").value(), DType::kFloat32);
  EXPECT_EQ(parse_dtype("double").value(), DType::kFloat64);
}

TEST(DType, SizesAreThoseOfTheElements) {
  EXPECT_EQ(dtype_bytes(DType::kFloat64), 8);
  EXPECT_EQ(dtype_bytes(DType::kFloat32), 4);
  EXPECT_EQ(dtype_bytes(DType::kBFloat16), 2);
  EXPECT_EQ(dtype_bytes(DType::kFloat16), 2);
  EXPECT_EQ(dtype_bytes(DType::kInt64), 8);
  EXPECT_EQ(dtype_bytes(DType::kInt32), 4);
  EXPECT_EQ(dtype_bytes(DType::kUInt8), 1);
  EXPECT_EQ(dtype_bytes(DType::kBool), 1);
}

TEST(DType, FloatingAreTheFourFloats) {
  for (DType dtype : kAll) {
    const bool floats = std::string_view(dtype_name(dtype)).find("float") != std::string::npos;
    EXPECT_EQ(is_floating(dtype), floats) << dtype_name(dtype);
  }
}

TEST(DType, UnknownNameListsTheKnownOnes) {
  EXPECT_EQ(parse_dtype("int4").error().message,
            "expected a dtype (float64, float32, bfloat16, float16, int64, int32, uint8, bool), "
            "found 'int4'");
}

TEST(Combiner, NamesParseBack) {
  for (Combiner combiner :
       {Combiner::kSum, Combiner::kMax, Combiner::kLogSumExp, Combiner::kMoments}) {
    EXPECT_EQ(parse_combiner(combiner_name(combiner)).value(), combiner);
  }
  EXPECT_EQ(parse_combiner("min").error().message,
            "expected a combiner (sum, max, logsumexp, moments, weighted), found 'min'");
}

}  // namespace
}  // namespace tessera::dtype_test
