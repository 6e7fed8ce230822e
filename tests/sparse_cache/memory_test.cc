// Counts the memory of a cache's index by what it takes from `operator new`.
#include <gtest/gtest.h>

#include <vector>

#include "counted_memory.h"
#include "tessera/sparse/cache/cache_index.h"

namespace tessera::sparse {
namespace {

TEST(CacheMemory, IsEightBytesASlotAndFourBytesARowOfTheTable) {
  constexpr int64_t kRows = 1'000'000, kSlots = 100'000, kBatch = 500, kWindow = 4;
  // Bytes that do not grow with rows or slots, and bytes that grow with the rows of a batch
  // (scratch_bytes).
  constexpr int64_t kObject = 2'000, kScratch = 1024 * 16 + kBatch * (kWindow + 1) * 250;
  for (const std::string& policy : cache_policy_names()) {
    const int64_t before = held_bytes();
    auto index = CacheIndex::make({.rows = kRows, .slots = kSlots, .policy = policy});
    ASSERT_TRUE(index);
    EXPECT_LE(held_bytes() - before, 8 * kSlots + 4 * kRows + kObject) << policy;
    EXPECT_EQ(index->index_bytes(), 8 * kSlots + 4 * kRows);

    std::vector<std::vector<int64_t>> batches(1000);
    int64_t next = 1;
    for (auto& ids : batches) {
      ids.resize(kBatch);
      for (int64_t& id : ids) id = (next = next * 48271 % 2147483647) % kRows;
    }
    const int64_t with_batches = held_bytes() - before;
    int64_t most = 0;
    {
      CacheBatch batch;
      for (size_t i = 0; i + kWindow < batches.size(); ++i) {
        for (size_t k = i == 0 ? 0 : i + kWindow - 1; k < i + kWindow; ++k) {
          ASSERT_TRUE(index->announce(batches[k]));
        }
        ASSERT_TRUE(index->begin(batches[i], batch));
        most = std::max(most, index->scratch_bytes());
        index->finish(batch, true);
      }
    }
    EXPECT_GT(index->counts().row_misses, kSlots) << policy;  // so that rows were evicted
    const int64_t scratch = held_bytes() - before - with_batches;
    EXPECT_LE(scratch, kScratch) << policy;
    EXPECT_LE(most, kScratch) << policy;
  }
}

}  // namespace
}  // namespace tessera::sparse
