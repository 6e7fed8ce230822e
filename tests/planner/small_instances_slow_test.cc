// A thousand small questions. With all programs the answer is as fast as the best of all plans; with
// the usual number of programs it nearly always is. Each test is a shard of at most ten questions, so
// that a run that was interrupted goes on where it ended (--gtest_filter, or GTEST_SHARD_INDEX).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "brute_force.h"

namespace tessera::planner_test {
namespace {

constexpr uint64_t kOfShard = 10;       // questions
constexpr int64_t kEnoughToJudge = 30;  // questions of one kind

struct Kind {
  const char* name;
  uint64_t first_seed, instances;
  int64_t devices;
  Size size;
};
constexpr Kind kKinds[] = {{"TinyOnTwoDevices", 1000, 550, 2, Size::kTiny},
                           {"OnTwoDevices", 2000, 200, 2, Size::kSmall},
                           {"TinyOnFourDevices", 3000, 180, 4, Size::kTiny},
                           {"OnFourDevices", 4000, 30, 4, Size::kSmall},
                           {"TinyOnEightDevices", 5000, 40, 8, Size::kTiny}};

struct Shard {
  size_t kind = 0;
  uint64_t first_seed = 0, instances = 0;
};
std::vector<Shard> all_shards() {
  std::vector<Shard> out;
  for (size_t kind = 0; kind < std::size(kKinds); ++kind) {
    for (uint64_t i = 0; i < kKinds[kind].instances; i += kOfShard)
      out.push_back(
          {kind, kKinds[kind].first_seed + i, std::min(kOfShard, kKinds[kind].instances - i)});
  }
  return out;
}

class SmallInstances : public testing::TestWithParam<Shard> {
 protected:
  // Of all shards of each kind that ran in this process.
  static std::array<Outcome, std::size(kKinds)> outcomes;

  static void TearDownTestSuite() {
    for (size_t kind = 0; kind < std::size(kKinds); ++kind) {
      const Outcome& all = outcomes[kind];
      if (all.instances == 0) continue;
      fmt::print("{}: of {} instances {} as fast as brute force; the worst {:.4f} times: {}\n",
                 kKinds[kind].name, all.instances, all.equal, all.worst, all.worst_instance);
      if (all.instances >= kEnoughToJudge) {
        EXPECT_GE(10 * all.equal, 9 * all.instances);
      }
    }
  }
};
std::array<Outcome, std::size(kKinds)> SmallInstances::outcomes;

TEST_P(SmallInstances, AreAnsweredAsByBruteForce) {
  const Shard& shard = GetParam();
  const Kind& kind = kKinds[shard.kind];
  Outcome& outcome = outcomes[shard.kind];
  for (uint64_t seed = shard.first_seed; seed < shard.first_seed + shard.instances; ++seed)
    compare(*random_instance(seed, kind.devices, kind.size), outcome);
  EXPECT_LE(outcome.worst, 1.5) << outcome.worst_instance;
}

INSTANTIATE_TEST_SUITE_P(Thousand, SmallInstances, testing::ValuesIn(all_shards()),
                         [](const testing::TestParamInfo<Shard>& shard) {
                           return fmt::format("{}From{}", kKinds[shard.param.kind].name,
                                              shard.param.first_seed);
                         });

}  // namespace
}  // namespace tessera::planner_test
