// Trains a table of 20 GB in a file through a cache of 200 MB. The file lies in memory if there is
// a folder for that: a disk that discards freed blocks at once takes minutes to delete a file of
// many holes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "tessera/sparse/cache/replay.h"
#include "tessera/sparse/cache/test_row_cache.h"

namespace tessera::sparse {
namespace {

int64_t resident_bytes() {
  int64_t whole = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> whole >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(BigTable, OfTwentyGigabytesInAFileTakesTheMemoryOfItsCacheAndIndex) {
  constexpr int64_t kRows = 20'000'000, kRowBytes = 1024, kSlots = 200'000;
  namespace fs = std::filesystem;
  const fs::path shared = "/dev/shm";
  const std::string path = ((fs::is_directory(shared) ? shared : fs::temp_directory_path()) /
                            ("tessera_big_table_" + std::to_string(getpid())))
                               .string();
  const LookupTrace trace = make_trace({.rows = kRows, .batches = 120, .batch = 8192});
  const int64_t before = resident_bytes();
  {
    auto store = FileRows::open(path, {kRows, kRowBytes}, [](int64_t row, std::byte* out) {
      std::memset(out, 0, kRowBytes);
      std::memcpy(out, &row, sizeof row);
    });
    ASSERT_TRUE(store) << store.error().message;
    auto cache = RowCache::make(**store, {.rows = kRows, .slots = kSlots, .policy = "lookahead"});
    ASSERT_TRUE(cache) << cache.error().message;
    CacheBatch batch;
    int64_t changes = 0;
    for (int64_t i = 0; i < trace.batches(); ++i) {
      for (int64_t k = i == 0 ? 0 : i + 15; k < std::min(i + 16, trace.batches()); ++k) {
        ASSERT_TRUE((*cache)->announce(trace.batch(k)));
      }
      ASSERT_TRUE((*cache)->begin(trace.batch(i), batch));
      ASSERT_TRUE((*cache)->move(batch));
      for (const int32_t place : batch.used) {  // count the changes of the row
        int64_t count = 0;
        std::memcpy(&count, (*cache)->row(place) + 8, sizeof count);
        ++count;
        std::memcpy((*cache)->row(place) + 8, &count, sizeof count);
        ++changes;
      }
      ASSERT_TRUE((*cache)->finish(batch, true));
    }
    EXPECT_GT((*cache)->counts().rows_out, 10'000);  // the cache was full
    const int64_t taken = resident_bytes() - before;
    const int64_t expected = kSlots * kRowBytes + (*cache)->index().index_bytes();
    RecordProperty("resident_bytes", std::to_string(taken));
    std::printf("%.1f MB resident, of which rows and index %.1f MB; the file takes %.1f MB\n",
                static_cast<double>(taken) / 1e6, static_cast<double>(expected) / 1e6,
                static_cast<double>((*store)->disk_bytes()) / 1e6);
    EXPECT_LT(taken, expected + (64 << 20));

    ASSERT_TRUE((*cache)->flush());
    EXPECT_LT((*store)->disk_bytes(), (int64_t{5} << 30));
    std::byte row[kRowBytes];
    for (int64_t i = 0; i < kRows; ++i) {
      if (i % 1000 != 0 && i > 1000) continue;
      ASSERT_TRUE((*store)->read(i, row));
      int64_t number = 0;
      std::memcpy(&number, row, sizeof number);
      ASSERT_EQ(number, i);
    }
    for (const int64_t id : trace.batch(0)) {  // rows that were changed at least once and read back
      int64_t count = 0;
      ASSERT_TRUE((*store)->read(id, row));
      std::memcpy(&count, row + 8, sizeof count);
      ASSERT_GE(count, 1);
    }
    EXPECT_EQ(changes, (*cache)->counts().rows);
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tessera::sparse
