// Runs whose ranks are known to be slow or not, made by hand: the times of kernels have a noise of a
// few percent, which equal seeds repeat.
#include "tessera/report/slow_rank.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

namespace tessera {
namespace {

struct MadeRun {
  int32_t ranks = 4;
  int64_t steps = 13;  // watched; the first counts for nothing
  double noise = 0.03;
  std::vector<double> pace = {1, 1, 1, 1};  // by rank: time of a kernel in relation to the others
  std::vector<double> links = {1, 1};       // by pair of ranks 2 i and 2 i + 1
  std::vector<int64_t> layers = {4, 4, 4, 4};  // by rank: how much there is to do
  double first_step = 5;                       // how much slower everything is in the first step
};

class SlowRankTest : public ::testing::Test {
 protected:
  SlowRankTest()
      : path_((std::filesystem::temp_directory_path() /
               ("tessera_slow_rank_" + std::to_string(getpid())))
                  .string()) {}
  ~SlowRankTest() override { std::filesystem::remove(path_); }

  // Writes the run. In each step all ranks compute, then those that are done wait for the one that
  // computes longest, then pairs of ranks exchange.
  void write(const MadeRun& run, const std::string& end = "") {
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal(0, run.noise);
    std::ofstream file(path_);
    file << to_text(WatchStart{"gpt:layers=2", "serial", 8, "float32", "adamw", "threads", 4})
         << '\n';
    for (int64_t step = 1; step <= run.steps; ++step) {
      const double all = step == 1 ? run.first_step : 1;
      std::vector<RankTimes> times;
      double longest = 0;
      int32_t last = 0;
      for (int32_t rank = 0; rank < run.ranks; ++rank) {
        const auto r = static_cast<size_t>(rank);
        RankTimes& one = times.emplace_back();
        one.step = step;
        one.rank = rank;
        const auto kernel = [&](double seconds) {
          return seconds * all * run.pace[r] * (1 + normal(random));
        };
        const int64_t layers = run.layers[r];
        one.work = {
            {"einsum", "einsum.float32.nt 1 64 64 64", layers,
             kernel(2e-3) * static_cast<double>(layers)},
            {"gelu", "gelu.float32 4096", layers, kernel(5e-4) * static_cast<double>(layers)}};
        for (const RankWork& work : one.work) one.seconds += work.seconds;
        if (one.seconds > longest) last = rank;
        longest = std::max(longest, one.seconds);
      }
      for (RankTimes& one : times) {
        if (one.rank != last)
          one.waits = {{"all_reduce dp", "h.0.w.grad", last, 1, longest - one.seconds}};
        const int32_t pair = one.rank / 2;
        const double sent =
            1e-3 * all * run.links[static_cast<size_t>(pair)] * (1 + normal(random));
        one.transfers = {{"all_reduce tp", {2 * pair, 2 * pair + 1}, 4096, 2, sent}};
        one.seconds = longest + sent;
        file << to_text(one) << '\n';
      }
    }
    file << end;
  }
  WatchReport report(const std::vector<RankPrediction>& predictions = {}) {
    auto found = watch_report(path_, predictions);
    EXPECT_TRUE(found) << found.error().message;
    return found ? *found : WatchReport();
  }

  std::string path_;
};

TEST_F(SlowRankTest, names_the_rank_that_computes_longer_than_its_peers) {
  MadeRun run;
  run.pace[2] = 1.5;
  write(run);
  const WatchReport found = report();
  EXPECT_EQ(found.steps, 12);
  EXPECT_EQ(found.first_step, 2);
  ASSERT_EQ(found.slow, std::vector<int32_t>{2});
  const RankReport& slow = found.ranks[2];
  EXPECT_NEAR(slow.work.ratio, 1.5, 0.05);
  EXPECT_EQ(slow.work.slower_steps, 12);
  // Twelve heads in a row, of any of four coins.
  EXPECT_NEAR(slow.work.certainty, 1 - 4 * std::pow(0.5, 12), 1e-9);
  // 4 layers of 2.5 ms, half as much again.
  EXPECT_NEAR(slow.work.lost_s, 5e-3, 5e-4);
  EXPECT_LT(slow.wait_s, 1e-9);
  EXPECT_EQ(slow.ops.front().what, "einsum");
  EXPECT_NEAR(slow.ops.front().seconds, 12e-3, 1e-3);
  EXPECT_NEAR(slow.ops.front().peers_s, 8e-3, 5e-4);
  // The others wait for it, and are not slow.
  for (const size_t other : {0, 1, 3}) {
    EXPECT_FALSE(found.ranks[other].work.is_slow);
    ASSERT_FALSE(found.ranks[other].waits.empty());
    EXPECT_EQ(found.ranks[other].waits.front().rank, 2);
    EXPECT_NEAR(found.ranks[other].wait_s, 5e-3, 5e-4);
  }
  const std::vector<std::string> said = watch_sentences(found);
  ASSERT_EQ(said.size(), 4U);
  EXPECT_TRUE(said[0].starts_with("Rank 2 is slow: for the same work it takes 1.")) << said[0];
  EXPECT_NE(said[0].find("slower in 12 of 12 steps, 99.9 % sure: einsum "), said[0].npos)
      << said[0];
  EXPECT_TRUE(said[1].starts_with("Rank 0 waits ")) << said[1];
  EXPECT_NE(said[1].find(" for rank 2: all_reduce dp of h.0.w.grad"), said[1].npos) << said[1];
}

TEST_F(SlowRankTest, names_no_rank_where_the_spread_is_noise) {
  for (const double noise : {0.0, 0.02, 0.2}) {
    MadeRun run;
    run.noise = noise;
    write(run);
    const WatchReport found = report();
    EXPECT_TRUE(found.slow.empty()) << noise;
    EXPECT_TRUE(found.links.empty()) << noise;
    EXPECT_TRUE(watch_sentences(found).front().starts_with("No rank is slow")) << noise;
  }
}

TEST_F(SlowRankTest, a_rank_with_more_to_do_is_not_slow) {
  MadeRun run;
  run.layers = {4, 8, 4, 4};
  write(run);
  const WatchReport found = report();
  EXPECT_TRUE(found.slow.empty());
  EXPECT_NEAR(found.ranks[1].work.ratio, 1, 0.05);
  EXPECT_EQ(found.ranks[0].waits.front().rank, 1);  // it is waited for all the same
}

// The first two ranks are one stage, the others another one, whose equal kernels take longer because
// of what runs beside them. Each rank is compared with its replica.
TEST_F(SlowRankTest, replicas_are_compared_with_each_other) {
  MadeRun run;
  run.layers = {4, 4, 5, 5};
  run.pace = {1, 1, 1.4, 1.4};
  write(run);
  EXPECT_TRUE(report().slow.empty());
  run.pace = {1, 1.4, 1.4, 1.4};
  write(run);
  EXPECT_EQ(report().slow, std::vector<int32_t>{1});
}

TEST_F(SlowRankTest, few_steps_are_no_proof) {
  MadeRun run;
  run.steps = 4;
  run.pace[1] = 1.5;
  write(run);
  const WatchReport found = report();
  EXPECT_TRUE(found.slow.empty());
  const std::string said = watch_sentences(found).front();
  EXPECT_TRUE(said.starts_with("No rank is slow for certain: rank 1 takes 1.5")) << said;
  EXPECT_TRUE(said.ends_with("watch more steps")) << said;
}

TEST_F(SlowRankTest, names_the_pair_whose_link_is_slow_unless_it_was_predicted) {
  MadeRun run;
  run.links[1] = 4;
  write(run);
  const WatchReport found = report();
  ASSERT_EQ(found.links.size(), 1U);
  EXPECT_EQ(found.links[0].ranks, (std::vector<int32_t>{2, 3}));
  EXPECT_NEAR(found.links[0].time.ratio, 4, 0.3);
  EXPECT_TRUE(found.slow.empty());
  // A cluster whose description has the slow link: nothing is wrong with it.
  std::vector<RankPrediction> predictions(4);
  for (size_t rank = 0; rank < 4; ++rank)
    predictions[rank].transfers["all_reduce tp"] = rank < 2 ? 1e-3 : 4e-3;
  EXPECT_TRUE(report(predictions).links.empty());
}

TEST_F(SlowRankTest, only_the_steps_of_the_last_start_count) {
  MadeRun run;
  run.pace[0] = 2;
  write(run);
  std::string before;
  {
    std::ifstream file(path_);
    before.assign(std::istreambuf_iterator<char>(file), {});
  }
  write(MadeRun());
  std::string after;
  {
    std::ifstream file(path_);
    after.assign(std::istreambuf_iterator<char>(file), {});
  }
  std::ofstream(path_) << before << after;
  EXPECT_TRUE(report().slow.empty());
  EXPECT_EQ(report().steps, 12);
}

TEST_F(SlowRankTest, the_torn_end_of_a_file_is_passed_over_and_a_torn_line_is_not) {
  write(MadeRun(), "{\"step\": 14, \"ra");
  EXPECT_EQ(report().steps, 12);
  write(MadeRun(), "{\"step\": 14, \"ra\n");
  const auto found = watch_report(path_, {});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message, path_ + ":54: expected a JSON object, found another text");
}

TEST_F(SlowRankTest, one_step_counts_for_nothing) {
  MadeRun run;
  run.steps = 1;
  write(run);
  EXPECT_EQ(report().steps, 0);
  EXPECT_EQ(draw(report(), ""),
            "No step counts yet, because the first one that is watched is left out.\n");
}

}  // namespace
}  // namespace tessera
