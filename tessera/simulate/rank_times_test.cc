#include "tessera/simulate/rank_times.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

std::string error_of(std::string_view line) {
  const auto read = parse_rank_times(line, "ranks.jsonl:7");
  return read ? "" : read.error().message;
}

TEST(RankTimesTest, lines_are_read_as_they_were_written) {
  const WatchStart start{
      "gpt:layers=2", "axes = \"dp=2\"\nsecond line", 8, "bfloat16", "sgd", "mpi", 2};
  const auto read_start = parse_rank_times(to_text(start), "f:1");
  ASSERT_TRUE(read_start) << read_start.error().message;
  const auto& same = std::get<WatchStart>(*read_start);
  EXPECT_EQ(same.plan, start.plan);
  EXPECT_EQ(same.batch, 8);
  EXPECT_EQ(same.transport, "mpi");

  RankTimes times;
  times.step = 20;
  times.rank = 1;
  times.seconds = 0.25;
  times.work = {{"einsum", "einsum.float32.nt 1 2 3 4", 12, 0.125}};
  times.transfers = {{"all_reduce dp", {0, 1}, 4096, 3, 0.03125}};
  times.waits = {{"all_reduce dp", "h.0.w.grad", 0, 2, 0.09375}};
  const auto read = parse_rank_times(to_text(times), "f:2");
  ASSERT_TRUE(read) << read.error().message;
  const auto& found = std::get<RankTimes>(*read);
  EXPECT_EQ(to_text(found), to_text(times));
  EXPECT_EQ(found.transfers.front().ranks, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(found.waits.front().tensor, "h.0.w.grad");
}

TEST(RankTimesTest, damaged_lines_are_refused_in_one_line) {
  EXPECT_EQ(error_of("{\"step\": 1"), "ranks.jsonl:7: expected a JSON object, found another text");
  EXPECT_EQ(error_of("{\"step\": 1, \"rank\": 0}"),
            "ranks.jsonl:7: expected the key 'seconds', found none");
  EXPECT_EQ(error_of("{\"step\": 1, \"rank\": -1, \"seconds\": 1, \"work\": [], \"transfers\": [], "
                     "\"waits\": []}"),
            "ranks.jsonl:7: expected a rank to be an integer of at least 0, found -1");
  EXPECT_EQ(error_of("{\"step\": 1, \"rank\": 0, \"seconds\": -1, \"work\": [], \"transfers\": [], "
                     "\"waits\": []}"),
            "ranks.jsonl:7: expected seconds from 0 to 1e+12, found -1");
  EXPECT_EQ(
      error_of("{\"step\": 1, \"rank\": 0, \"seconds\": 1, \"work\": [[1, 2]], \"transfers\": "
               "[], \"waits\": []}"),
      "ranks.jsonl:7: expected work to be a list of lists of 4 values");
  EXPECT_EQ(error_of("{\"watch\": 3}"), "ranks.jsonl:7: expected watch to be an object");
}

}  // namespace
}  // namespace tessera
