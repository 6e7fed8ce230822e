#include "tessera/base/statistics.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Statistics, MedianIsTheMiddleOrTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3, 1, 8}), 3);
  EXPECT_EQ(median({8, 1, 3, 4}), 3.5);
}

TEST(Statistics, MeanOfNothingIsZero) {
  EXPECT_EQ(mean({}), 0);
  EXPECT_EQ(mean({1, 2, 6}), 3);
}

}  // namespace
}  // namespace tessera
