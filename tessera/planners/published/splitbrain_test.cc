#include "tessera/planners/published/splitbrain.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera::published {
namespace {

SplitNet vgg() {
  SplitNet net{14.7e6, 0, {4096, 4096, 4096, 10}};
  net.dense_parameters = dense_parameters_of(net.widths);
  return net;
}

SplitQuestion question(double batch) { return {vgg(), 8, batch, 3, 4, 0, 1e12, 0.1, 10e-6, 1e9}; }

TEST(SplitBrain, AGroupOfOneIsDataParallel) {
  const SplitTraffic traffic = split_traffic(vgg(), 8, 1, 32);
  EXPECT_EQ(traffic.border + traffic.shards, 0);
  EXPECT_EQ(traffic.dense_average, traffic.data_parallel_dense);
  EXPECT_TRUE(std::isinf(traffic.break_even_batch));
  EXPECT_EQ(memory_saving(vgg(), 1), 0);
}

// Dense layers are sharded for few samples on slow links, and replicated beyond the break-even
// batch.
TEST(SplitBrain, GroupsPayForFewSamples) {
  EXPECT_GT(best_group(question(32))->group, 1);
  const double far = 2 * split_traffic(vgg(), 8, 2, 1).break_even_batch;
  EXPECT_EQ(best_group(question(far))->group, 1);
}

TEST(SplitBrain, MemoryDecidesWhereItBinds) {
  SplitQuestion tight = question(5000);
  EXPECT_EQ(best_group(tight)->group, 1);
  tight.memory_bytes = 300e6;
  ASSERT_TRUE(best_group(tight).has_value());
  EXPECT_GT(best_group(tight)->group, 1);
  EXPECT_LE(best_group(tight)->memory_bytes, 300e6);
  tight.memory_bytes = 100e6;
  EXPECT_FALSE(best_group(tight).has_value());
}

TEST(SplitBrain, AllDivisorsOfTheWorkersAreTried) {
  EXPECT_EQ(split_choices(question(32)).size(), 4u);
}

}  // namespace
}  // namespace tessera::published
