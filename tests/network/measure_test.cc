// The measurement between threads of this process: its protocol, not its rates.
#include "tessera/network/probe_measure.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>

#include "tessera/comm/communicator.h"

namespace tessera::network {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ProbeOptions short_probe() {
  ProbeOptions options;
  options.seconds = 2;
  options.bytes = 2e10;
  return options;
}

// Probes between threads, of which rank r says that it is on host names[r]. Returns the answer of rank
// 0.
Result<Probed> probe_threads(const std::vector<std::string>& names, const ProbeOptions& options,
                             int silent = -1) {
  std::optional<Result<Probed>> answer;
  std::mutex mutex;
  const comm::Options bound{.timeout = std::chrono::milliseconds(silent < 0 ? 20'000 : 300),
                            .rank_of_process = {}};
  const Status ran =
      comm::run_threads(static_cast<int>(names.size()), bound, [&](comm::Communicator& world) {
        if (world.rank() == silent) return;
        auto probed = probe_network(world, {names[static_cast<size_t>(world.rank())], ""}, options);
        const std::lock_guard lock(mutex);
        if (world.rank() == 0) answer = std::move(probed);
      });
  EXPECT_TRUE(ran || silent >= 0) << ran.error().message;
  return *std::move(answer);
}

TEST(MeasureTest, OneRankOfEachHostMeasures) {
  const auto probed = probe_threads({"a", "a", "b", "c", "b", "d"}, short_probe());
  ASSERT_TRUE(probed) << probed.error().message;
  EXPECT_THAT(probed->hosts, ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(probed->ranks, ElementsAre(2, 2, 1, 1));
  EXPECT_EQ(probed->measured.machines, 4);
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      EXPECT_EQ(probed->measured.latency(i, j) > 0, i != j);
      EXPECT_EQ(probed->measured.latency(i, j), probed->measured.latency(j, i));
    }
  }
  ASSERT_THAT(probed->measured.rounds, Not(IsEmpty()));
  for (const ProbeRound& round : probed->measured.rounds) {
    for (const ProbeFlow& flow : round) EXPECT_GT(flow.rate, 0);
  }
  EXPECT_THAT(probed->found.rack, SizeIs(4));
}

TEST(MeasureTest, BudgetsHold) {
  ProbeOptions options = short_probe();
  options.seconds = 1;
  options.bytes = 2e7;
  const auto probed = probe_threads({"a", "b", "c", "d"}, options);
  ASSERT_TRUE(probed) << probed.error().message;
  EXPECT_LT(probed->seconds, 5);
  EXPECT_LE(probed->bytes, options.bytes);
  EXPECT_FALSE(probed->sure);
}

TEST(MeasureTest, KnownRacksAreTaken) {
  ProbeOptions options = short_probe();
  options.known_racks = [](const std::vector<ProbeHost>& hosts) -> Result<std::vector<int64_t>> {
    EXPECT_THAT(hosts, SizeIs(4));
    return std::vector<int64_t>{0, 1, 0, 1};
  };
  const auto probed = probe_threads({"a", "b", "c", "d"}, options);
  ASSERT_TRUE(probed) << probed.error().message;
  EXPECT_THAT(probed->found.rack, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(probed->found.sure_of, Each(1));
  options.known_racks = [](const std::vector<ProbeHost>&) -> Result<std::vector<int64_t>> {
    return invalid_input("a wrong file");
  };
  const auto wrong = probe_threads({"a", "b"}, options);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message, "a wrong file");
}

TEST(MeasureTest, OneHostIsNoNetwork) {
  const auto probed = probe_threads({"a", "a"}, short_probe());
  ASSERT_FALSE(probed);
  EXPECT_EQ(probed.error().message,
            "probe: expected ranks on at least two hosts, found 2 on 'a' (mpirun -n N --host ...)");
}

TEST(MeasureTest, ARankThatDoesNotAnswerIsNamedAfterTheBound) {
  const auto probed = probe_threads({"a", "b", "c"}, short_probe(), 2);
  ASSERT_FALSE(probed);
  EXPECT_EQ(probed.error().code, ErrorCode::kFault);
  EXPECT_THAT(probed.error().message, HasSubstr("no answer from ranks {2} within 0.3 s"));
}

// A host that falls silent in the middle is named, not only its rank.
TEST(MeasureTest, AHostThatFallsSilentIsNamed) {
  std::optional<Result<Probed>> answer;
  const comm::Options bound{.timeout = std::chrono::milliseconds(500), .rank_of_process = {}};
  const Status ran = comm::run_threads(3, bound, [&](comm::Communicator& world) {
    ProbeOptions options = short_probe();
    if (world.rank() == 2) {
      // This rank says its name, and then no more.
      const std::vector<int> all = {0, 1, 2};
      struct {
        char name[256] = "gone", address[512] = "", kernel[64] = "";
      } record;
      comm::Redistribution what;
      what.kind = comm::CollectiveKind::kAllGather;
      what.dtype = DType::kUInt8;
      for (int64_t r = 0; r < 3; ++r) {
        what.hold.push_back(Box({{r * 832, 832}}));
        what.need.push_back(Box({{0, 3 * 832}}));
      }
      std::string got(3 * 832, '\0');
      world.wait(world.issue(world.group(all),
                             {{&what,
                               {reinterpret_cast<std::byte*>(&record), what.hold[2], {1}},
                               {reinterpret_cast<std::byte*>(got.data()), what.need[2], {1}}}},
                             {"probe", "names of hosts", ""}));
      return;
    }
    auto probed = probe_network(world, {fmt::format("host{}", world.rank()), ""}, options);
    if (world.rank() == 0) answer = std::move(probed);
  });
  ASSERT_TRUE(answer);
  ASSERT_FALSE(*answer);
  EXPECT_THAT(answer->error().message, HasSubstr("no answer from ranks {2} within 0.5 s"));
  EXPECT_THAT(answer->error().message, HasSubstr("(host gone)"));
}

}  // namespace
}  // namespace tessera::network
