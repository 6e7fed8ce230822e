#include "tessera/runtime/training/watching.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "tessera/base/text.h"
#include "tessera/compile/compile.h"
#include "tessera/program/instructions.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

template <class Parts>
double seconds_of(const Parts& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0,
                         [](double sum, const auto& part) { return sum + part.seconds; });
}

// Two ranks with the same program, of which rank 1 takes three times as long for everything. The play
// is known to the nanosecond: rank 0 is at each wait first, and waits until rank 1 is there too.
TEST(WatchingTest, what_a_rank_waits_for_is_taken_apart_from_its_own_work) {
  const auto compiled =
      compile({"gpt:layers=2,hidden=16,heads=2,seq=8,vocab=256", "data_parallel(2)", 4});
  ASSERT_TRUE(compiled) << compiled.error().message;
  const auto programs = lower_and_verify(*compiled->lowering);
  ASSERT_TRUE(programs) << programs.error().message;
  constexpr int64_t kFast = 100, kSlow = 300, kSent = 50, kBegin = 1'000'000;
  std::vector<std::vector<Executed>> recorded(2);
  std::array<int64_t, 2> now{kBegin, kBegin};
  int64_t waited = 0, sent = 0, own = 0;
  const Program& program = programs->front();
  for (const BlockRunStep& run : program.schedule) {
    const auto& block = program.block(run.block);
    for (size_t i = 0; i < block.size(); ++i) {
      const bool waits = std::holds_alternative<Wait>(block[i].body);
      const auto ready = std::max(now[0], now[1]);
      if (waits) waited += ready - now[0];
      sent += waits ? kSent : 0;
      own += waits ? 0 : 1;
      for (size_t rank = 0; rank < 2; ++rank) {
        const int64_t start = now[rank];
        now[rank] = waits ? ready + kSent : start + (rank == 0 ? kFast : kSlow);
        recorded[rank].push_back(
            {run.block, static_cast<int32_t>(i), run.micro_batch, start, now[rank]});
      }
    }
  }
  ASSERT_GT(sent, 0);
  const std::vector<RankTimes> times = rank_times(*compiled->lowering, *programs, recorded, 7, 2);
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[0].step, 7);
  EXPECT_EQ(times[1].rank, 3);  // of the second island of two ranks
  constexpr double kNano = 1e-9, kNear = 1e-12;
  EXPECT_NEAR(seconds_of(times[0].work), static_cast<double>(own * kFast) * kNano, kNear);
  EXPECT_NEAR(seconds_of(times[1].work), static_cast<double>(own * kSlow) * kNano, kNear);
  EXPECT_NEAR(seconds_of(times[0].waits), static_cast<double>(waited) * kNano, kNear);
  EXPECT_NEAR(seconds_of(times[1].waits), 0, kNear);
  for (const RankTimes& one : times) {
    EXPECT_NEAR(seconds_of(one.transfers), static_cast<double>(sent) * kNano, kNear);
    EXPECT_NEAR(seconds_of(one.work) + seconds_of(one.transfers) + seconds_of(one.waits),
                one.seconds, kNear);
    for (const RankTransfer& transfer : one.transfers) {
      EXPECT_EQ(transfer.ranks, (std::vector<int32_t>{2, 3}));
      EXPECT_GT(transfer.bytes, 0);
    }
  }
  std::set<std::string> tensors;
  for (const RankWait& wait : times[0].waits) {
    EXPECT_EQ(wait.rank, 3);
    EXPECT_EQ(wait.what, "all_reduce dp");
    tensors.insert(wait.tensor);
  }
  EXPECT_GT(tensors.size(), 1U);
  // Equal work has equal names on both ranks.
  ASSERT_EQ(times[0].work.size(), times[1].work.size());
  for (size_t i = 0; i < times[0].work.size(); ++i) {
    EXPECT_EQ(times[0].work[i].size, times[1].work[i].size);
    EXPECT_EQ(times[0].work[i].count, times[1].work[i].count);
  }
}

class WatchedRun : public ::testing::TestWithParam<const char*> {};

TEST_P(WatchedRun, writes_the_times_of_all_ranks_of_each_watched_step) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("tessera_watching_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "text") << std::string(4000, 'x');
  RunConfig config;
  config.model = "gpt:layers=2,hidden=16,heads=2,seq=8,vocab=256";
  config.data = {(folder / "text").string()};
  config.batch = 8;
  config.steps = 6;
  config.plan = GetParam();
  config.folder = (folder / "run").string();
  config.watch = 2;
  const auto summary = run_training(config, {});
  ASSERT_TRUE(summary) << summary.error().message;
  const auto text = read_file((folder / "run" / kRankTimesFile).string());
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(text) << text.error().message;
  std::vector<std::string> lines = split_text(*text, '\n');
  ASSERT_EQ(lines.back(), "");
  lines.pop_back();
  ASSERT_EQ(std::ssize(lines), 1 + 3 * summary->ranks);
  const auto start = parse_rank_times(lines.front(), "ranks.jsonl:1");
  ASSERT_TRUE(start) << start.error().message;
  EXPECT_EQ(std::get<WatchStart>(*start).ranks, summary->ranks);
  EXPECT_EQ(std::get<WatchStart>(*start).batch, 8);
  for (size_t i = 1; i < lines.size(); ++i) {
    const auto read = parse_rank_times(lines[i], "ranks.jsonl");
    ASSERT_TRUE(read) << read.error().message;
    const auto& times = std::get<RankTimes>(*read);
    const auto line = static_cast<int64_t>(i - 1);
    EXPECT_EQ(times.step, 2 * (1 + line / summary->ranks));
    EXPECT_EQ(times.rank, line % summary->ranks);
    EXPECT_GT(times.seconds, 0);
    EXPECT_NEAR(seconds_of(times.work) + seconds_of(times.transfers) + seconds_of(times.waits),
                times.seconds, 1e-9 + 1e-6 * times.seconds);
    for (const RankWait& wait : times.waits) EXPECT_NE(wait.rank, times.rank);
  }
}
INSTANTIATE_TEST_SUITE_P(Plans, WatchedRun,
                         ::testing::Values("serial", "data_parallel(2)", "one_f_one_b(2,4)",
                                           "fsdp(2,prefetch=1)",
                                           "megatron(tp=2,dp=2,sequence_shard=true)",
                                           "mesh = { site = 2, dp = 2 }\n"
                                           "outer = { axis = \"site\", every = 2 }\n"
                                           "split = [ { ops = \"*\", dim = \"batch\", over = "
                                           "\"dp\" } ]\n"));

}  // namespace
}  // namespace tessera
