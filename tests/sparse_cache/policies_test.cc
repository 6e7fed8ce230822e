// Compares the policies on look-ups by Zipf's law.
#include <gtest/gtest.h>

#include <vector>

#include "tessera/sparse/cache/replay.h"

namespace tessera::sparse {
namespace {

// The goal: look-ahead saves at least half of the misses that Belady's rule saves over counts of
// the data set.
TEST(CachePolicies, LookaheadIsAtLeastMidwayBetweenDatasetCountsAndBelady) {
  for (const double exponent : {0.8, 1.05, 1.2}) {
    const LookupTrace trace =
        make_trace({.rows = 100'000, .batches = 80, .batch = 2048, .exponent = exponent});
    const std::vector<int64_t> counts = trace.counts(100'000);
    for (const int64_t slots : {2'000, 5'000, 10'000}) {
      const auto misses = [&](const char* policy) {
        const auto found = replay(
            trace, {.rows = 100'000, .slots = slots, .policy = policy, .counts = counts}, {});
        EXPECT_TRUE(found) << found.error().message;
        return found->row_misses;
      };
      const int64_t dataset = misses("dataset"), belady = misses("belady");
      EXPECT_LE(belady, dataset);
      EXPECT_LE(2 * misses("lookahead"), dataset + belady) << exponent << ", " << slots;
      EXPECT_LE(belady, misses("lfu"));
      EXPECT_LE(belady, misses("lru"));
    }
  }
}

}  // namespace
}  // namespace tessera::sparse
