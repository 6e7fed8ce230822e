// A recommender with a table of 20 GB in a file of holes, trained through a cache of 200 MB by the
// function behind `tessera train`. The file lies in memory if there is a folder for that: a disk
// that discards freed blocks at once takes minutes to delete a file of many holes.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tessera/plan/plan.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

TEST(BigTable, OfTwentyGigabytesIsTrainedInTheMemoryOfItsCache) {
  if (std::filesystem::is_directory("/dev/shm")) setenv("TMPDIR", "/dev/shm", 1);
  RunConfig config;
  config.model = "dlrm:dense=13,rows=20000000-1000,width=256,bottom=16-256,top=16-1";
  config.data.random = true;
  config.batch = 4096;
  config.steps = 60;
  config.optimizer.kind = "rowwise_adagrad";
  config.optimizer.lr = 0.01;
  const std::string plan = ::testing::TempDir() + "/big_table.toml";
  std::FILE* file = std::fopen(plan.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs(
      "mesh = { a = 1 }\nstore = [{ tensors = \"{,optimizer.*.}tables.0.weight\", tier = \"disk\", "
      "cache = { slots = 190000, policy = \"lookahead\" } }]\n",
      file);
  std::fclose(file);
  config.plan = plan;
  const auto summary = run_training(config, {});
  std::filesystem::remove(plan);
  ASSERT_TRUE(summary) << summary.error().message;
  ASSERT_EQ(summary->row_caches.size(), 1U);
  const TableCacheSummary& cache = summary->row_caches[0];
  EXPECT_EQ(cache.rows * cache.row_bytes, int64_t{20'000'000} * (256 * 4 + 4));
  EXPECT_EQ(cache.lookups, int64_t{61} * 4096);  // the batch after the last was looked up ahead
  EXPECT_GT(cache.rows_in, 200'000);
  EXPECT_GT(cache.rows_out, 10'000);  // the cache was full
  EXPECT_EQ(cache.overflow_rows, 0);
  std::printf("peak of the process %.0f MB, of the rank's device memory %.0f MB\n",
              static_cast<double>(summary->process_peak_bytes) / 1e6,
              static_cast<double>(summary->peak_memory_bytes) / 1e6);
  EXPECT_LT(summary->process_peak_bytes, int64_t{900} << 20);
}

}  // namespace
}  // namespace tessera
