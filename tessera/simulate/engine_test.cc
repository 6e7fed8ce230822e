// Checks the engine on plays made by hand: closed forms, streams, links, stretches, faults.
#include "tessera/simulate/engine.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tessera/plan/schedules/test_shapes.h"
#include "tessera/simulate/test_plays.h"

namespace tessera::engine::engine_test {
namespace {

constexpr double kExact = 1e-12;

Play of(std::vector<Player> players) {
  Play play;
  play.players = std::move(players);
  return play;
}
Outcome played(const Play& play) {
  auto out = run(play);
  EXPECT_TRUE(out.has_value()) << out.error().message;
  return out ? *out : Outcome{};
}
double end(const Play& play) { return played(play).end_s; }
std::string failure(const Play& play) {
  const auto out = run(play);
  return out ? "" : out.error().message;
}
double sum(const PlayerResult& result) {
  return std::accumulate(result.spent_s.begin(), result.spent_s.end(), 0.0);
}

// ---- closed forms

class Named : public testing::TestWithParam<std::string> {};

// For every schedule, number of places and of micro-batches, the times are those of schedule.h,
// place by place.
TEST_P(Named, ScheduleTakesWhatItsOrderSays) {
  const UnitCosts costs{.forward = 1, .backward = 2, .weight = 0.5, .message = 0, .scale = {}};
  for (int64_t n = 1; n <= 8; ++n) {
    for (int64_t m = 1; m <= 32; ++m) {
      for (const PipelineShape& shape : schedules::shapes_of(GetParam(), n, m)) {
        const Schedule schedule = make_schedule(GetParam(), shape).value();
        SCOPED_TRACE(testing::Message() << n << " places, " << m << " micro-batches");
        const Outcome out = played(SchedulePlay(schedule, shape, costs).play());
        ASSERT_NEAR(out.end_s, makespan(schedule, shape, costs), kExact * out.end_s);
        const auto times = place_times(schedule, shape, costs);
        for (size_t p = 0; p < times.size(); ++p) {
          ASSERT_NEAR(out.players[p].end_s, times[p].end, kExact * out.end_s);
          ASSERT_NEAR(out.players[p].busy_s[static_cast<size_t>(Lane::kCompute)], times[p].busy,
                      kExact * out.end_s);
          ASSERT_NEAR(sum(out.players[p]), out.end_s, kExact * out.end_s);
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Schedules, Named, testing::ValuesIn(schedule_names()));

TEST(Engine, StagesOfUnequalCost) {
  const auto vector = [](std::vector<double> forward, std::vector<double> backward, int64_t m) {
    const auto n = static_cast<int64_t>(forward.size());
    const PipelineShape shape = schedules::chunks(n, 1, m);
    Play play = SchedulePlay(make_schedule("1f1b", shape).value(), shape, {}).play();
    for (size_t p = 0; p < play.players.size(); ++p) {
      for (Block& block : play.players[p].blocks) {
        const bool is_forward = &block == &play.players[p].blocks[0];
        for (Item& item : block.items) {
          if (item.kind == ItemKind::kCompute) {
            item.work_s = (is_forward ? forward[p] : backward[p]) / 2;
          }
        }
      }
    }
    return end(play);
  };
  EXPECT_DOUBLE_EQ(vector({2, 1, 3}, {3, 4, 2}, 5), 35);
  EXPECT_DOUBLE_EQ(vector({1, 3, 2}, {2, 6, 4}, 6), 60);
}

TEST(Engine, AMessageTakesItsTimeOnTheWay) {
  for (const int64_t m : {1, 2, 5, 16}) {
    const UnitCosts costs{.forward = 1, .backward = 2, .weight = 1, .message = 0.25, .scale = {}};
    for (const char* name : {"gpipe", "1f1b", "eager_1f1b", "zb_h1"}) {
      const PipelineShape shape = schedules::chunks(4, 1, m);
      const Schedule schedule = make_schedule(name, shape).value();
      EXPECT_NEAR(end(SchedulePlay(schedule, shape, costs).play()),
                  makespan(schedule, shape, costs), 1e-9)
          << name << " " << m;
    }
  }
}

// ---- streams

TEST(Engine, TheDeviceWaitsForASlowHost) {
  Item kernel = compute(1);
  kernel.host_s = 2;
  kernel.launch_s = 0.5;
  const Outcome out = played(of({one_block(0, {kernel, kernel, kernel}, 0)}));
  EXPECT_DOUBLE_EQ(out.end_s, 3 * 2 + 0.5 + 1);
  EXPECT_DOUBLE_EQ(out.players[0].spent_s[static_cast<size_t>(Spent::kCompute)], 3);
  EXPECT_DOUBLE_EQ(out.players[0].spent_s[static_cast<size_t>(Spent::kHost)], 4.5);
}

TEST(Engine, ACollectiveStartsWhenAllHaveArrivedAndEndsForAll) {
  const Outcome out = played(of({one_block(0, {compute(1), issue(0, 2, 0, 2), wait(0)}, 1),
                                 one_block(1, {compute(4), issue(0, 2, 0, 2), wait(0)}, 1)}));
  EXPECT_DOUBLE_EQ(out.end_s, 6);
  EXPECT_DOUBLE_EQ(out.players[0].spent_s[static_cast<size_t>(Spent::kBubble)], 3);
  EXPECT_DOUBLE_EQ(out.players[0].spent_s[static_cast<size_t>(Spent::kCollective)], 2);
  EXPECT_DOUBLE_EQ(out.players[1].spent_s[static_cast<size_t>(Spent::kBubble)], 0);
  // The path: computing on the late one, then the collective.
  ASSERT_EQ(out.critical_path.size(), 2U);
  EXPECT_EQ(out.critical_path[0].player, 1);
  EXPECT_EQ(out.critical_path[1].what, Spent::kCollective);
}

TEST(Engine, StreamsAreFirstInFirstOut) {
  // Two collectives on one stream; on two streams without shared links they run side by side.
  const auto two = [](int32_t second) {
    return one_block(0, {issue(0, 3), issue(1, 2, -1, 1, second), wait(1), wait(0)}, 2, 2);
  };
  EXPECT_DOUBLE_EQ(end(of({two(0)})), 5);
  EXPECT_DOUBLE_EQ(end(of({two(1)})), 3);
}

TEST(Engine, SmallMessagesLeaveWithoutTheirReceiver) {
  const auto sender = [](bool rendezvous) {
    return one_block(0, {send(0, 0, 1, 0, rendezvous), wait(0)}, 1);
  };
  Item late = receive(0, 0);
  late.ahead = false;
  const Player receiver = one_block(1, {compute(5), late, wait(0)}, 1);
  EXPECT_DOUBLE_EQ(played(of({sender(false), receiver})).players[0].end_s, 1);
  EXPECT_DOUBLE_EQ(end(of({sender(false), receiver})), 5);
  EXPECT_DOUBLE_EQ(played(of({sender(true), receiver})).players[0].end_s, 6);
}

TEST(Engine, AMessageThatAwaitsItsReceiverIsPassedByOthers) {
  // Taken in the other order than sent. The first is ready once 4 s are computed.
  Item late = receive(1, 0);
  late.ahead = false;
  const Player sender =
      one_block(0, {send(0, 0, 2, 0, true), send(1, 1, 3, 0, true), wait(0), wait(1)}, 2);
  const Player receiver = one_block(1, {receive(0, 1), wait(0), compute(4), late, wait(1)}, 2);
  EXPECT_DOUBLE_EQ(played(of({sender, receiver})).players[0].end_s, 3 + 4 + 2);
}

// ---- links

TEST(Engine, FairRatesFillTheLinks) {
  // Two links of the example of docs/theory/cost-model.md section 4.4 as out and in: A on X, B on X
  // and Y, C on Y; X 10, Y 4.
  const auto rates = fair_rates({{1, 0, 0, 0}, {1, 1, 0, 0}, {0, 1, 0, 0}});
  EXPECT_DOUBLE_EQ(rates[0], 0.5);
  EXPECT_DOUBLE_EQ(rates[1], 0.5);
  EXPECT_DOUBLE_EQ(rates[2], 0.5);
  // One that needs a fifth of the link keeps it; the other takes the rest.
  const auto unequal = fair_rates({{0.2, 0, 0, 0}, {1, 0, 0, 0}});
  EXPECT_DOUBLE_EQ(unequal[0], 1);
  EXPECT_DOUBLE_EQ(unequal[1], 0.8);
  // Opposite directions do not meet.
  EXPECT_EQ(fair_rates({{0, 0, 1, 0}, {0, 0, 0, 1}}), (std::vector<double>{1, 1}));
}

TEST(Engine, TransfersShareALinkWhileBothRun) {
  Item first = issue(0, 4), second = issue(1, 1, -1, 1, 1);
  first.use.nic = second.use.nic = 1;
  // Both run at half speed for 2 s, then the first alone for what is left, 3 s.
  EXPECT_DOUBLE_EQ(end(of({one_block(0, {first, second, wait(0), wait(1)}, 2, 2)})), 5);
}

TEST(Engine, ComputeAndCommunicationSlowEachOther) {
  Item collective = issue(0, 2);
  collective.use.inner = 1;
  Play play = of({one_block(0, {collective, compute(1), wait(0)}, 1)});
  play.rules.inner_slowdown = 1.25;
  play.rules.collective_slowdown = 2;
  // Compute until 1.25; by then 0.625 of the collective is done, the rest runs at full speed.
  EXPECT_DOUBLE_EQ(end(play), 1.25 + (2 - 0.625));
}

// ---- stretches

Item kernel(double host, double work) {
  Item item = compute(work);
  item.host_s = host;
  item.launch_s = 0.125;
  return item;
}

TEST(Engine, StretchesArePlayedAsTheirItemsWouldBe) {
  for (const double host : {0.0, 0.25, 0.5, 1.0, 2.0}) {
    std::vector<Item> items;
    for (int i = 0; i < 40; ++i) {
      items.push_back(kernel(host, 0.25 + 0.125 * (i % 5)));
      if (i % 3 == 0) {
        items.push_back(issue(0, 0.375));
        items.back().host_s = host / 2;
        items.push_back(wait(0));
      }
    }
    // A message comes in the middle and slows what runs.
    Item big = send(0, 7, 6, 0, true);
    big.use.nic = 1;
    Item coming = receive(1, 7);
    coming.use.nic = 1;
    items.insert(items.begin(), coming);
    items.push_back(wait(1));
    Play play = of({one_block(0, items, 2), one_block(1, {compute(5.0625), big, wait(0)}, 1)});
    play.rules.nic_slowdown = 1.5;
    const Outcome compact = played(play);
    play.rules.compact = false;
    const Outcome detailed = played(play);
    EXPECT_LT(compact.played_events, detailed.played_events);
    EXPECT_NEAR(compact.end_s, detailed.end_s, kExact * detailed.end_s) << host;
    for (size_t p = 0; p < 2; ++p) {
      for (size_t s = 0; s < kSpent; ++s) {
        EXPECT_NEAR(compact.players[p].spent_s[s], detailed.players[p].spent_s[s], 1e-11)
            << host << " " << p << " " << s;
      }
      EXPECT_NEAR(sum(compact.players[p]), compact.end_s, 1e-11);
    }
  }
}

// ---- faults

TEST(Engine, OrdersThatNeverMeetAreShownAsACycle) {
  // Two collectives in different order on one stream.
  Play crossed = of({one_block(0, {issue(0, 1, 0, 2), issue(1, 1, 1, 2), wait(1), wait(0)}, 2),
                     one_block(1, {issue(0, 1, 1, 2), issue(1, 1, 0, 2), wait(0), wait(1)}, 2)});
  crossed.labels = {"x"};
  EXPECT_EQ(failure(crossed),
            "deadlock: rank 0 waits for x with rank 1, rank 1 waits for x with rank 0");
  // Both wait to receive before they send.
  Play embrace = of({one_block(0, {receive(0, 0), wait(0), send(1, 1, 1, 0)}, 2),
                     one_block(1, {receive(0, 1), wait(0), send(1, 0, 1, 0)}, 2)});
  embrace.labels = {"x"};
  EXPECT_EQ(failure(embrace),
            "deadlock: rank 0 waits for x with rank 1, rank 1 waits for x with rank 0");
  // Three in a ring.
  Play ring = of({one_block(0, {receive(0, 0), wait(0), send(1, 1, 1, 0)}, 2),
                  one_block(1, {receive(0, 1), wait(0), send(1, 2, 1, 0)}, 2),
                  one_block(2, {receive(0, 2), wait(0), send(1, 0, 1, 0)}, 2)});
  ring.labels = {"x"};
  EXPECT_EQ(failure(ring),
            "deadlock: rank 0 waits for x with rank 2, rank 2 waits for x with rank 1, rank 1 "
            "waits for x with rank 0");
  // A member that never comes.
  Play missing = of({one_block(0, {issue(0, 1, 0, 2), wait(0)}, 1), one_block(1, {compute(1)}, 0)});
  missing.labels = {"x"};
  EXPECT_EQ(failure(missing), "deadlock: rank 0 waits for x, which has no other side");
  // A wait for what nobody issues.
  EXPECT_EQ(failure(of({one_block(0, {wait(0)}, 1)})),
            "deadlock: rank 0 waits for what nobody issued");
}

TEST(Engine, JitterIsTheSameForTheSameSeed) {
  Play play = of({one_block(0, {compute(1), compute(1), compute(1)}, 0)});
  play.rules.jitter = 0.1;
  play.rules.seed = 7;
  const double once = end(play);
  EXPECT_EQ(end(play), once);
  EXPECT_NE(once, 3);
  EXPECT_NEAR(once, 3, 1);
  play.rules.seed = 8;
  EXPECT_NE(end(play), once);
}

// ---- cores that players take turns on

Player on_pool(int32_t rank, std::vector<Item> items, int32_t handles = 0) {
  Player player = one_block(rank, std::move(items), handles);
  player.pool = 0;
  return player;
}

TEST(Pool, more_ranks_than_cores_share_them) {
  Play play = of({on_pool(0, {compute(2)}), on_pool(1, {compute(1), compute(3)})});
  play.pools = {1};
  // Both at half speed until 4, when the first is done; of the second 2 are left.
  const Outcome out = played(play);
  EXPECT_NEAR(out.players[0].end_s, 4, kExact);
  EXPECT_NEAR(out.players[1].end_s, 6, kExact);
  play.pools = {2};
  EXPECT_NEAR(end(play), 4, kExact);
}

TEST(Pool, a_waiting_rank_leaves_its_core) {
  Play play = of({on_pool(0, {compute(1), issue(0, 1, 0, 2), wait(0)}, 1),
                  on_pool(1, {compute(5), issue(0, 1, 0, 2), wait(0)}, 1)});
  play.pools = {1};
  // Two units shared until 2, then the second alone: 4 more; then the transfer.
  EXPECT_NEAR(end(play), 7, kExact);
}

TEST(Pool, a_transfer_is_slowed_by_who_is_not_in_it) {
  const auto member = [](int32_t rank) {
    std::vector<Item> items{issue(0, 1, 0, 2), wait(0)};
    items[0].members = 2;
    return on_pool(rank, items, 1);
  };
  Play alone = of({member(0), member(1)});
  alone.pools = {1};  // its price has the crowding of its own members
  EXPECT_NEAR(end(alone), 1, kExact);
  Play beside = of({member(0), member(1), on_pool(2, {compute(1)})});
  beside.pools = {1};
  // Three at work on one core: the transfer at 2/3 of its speed, the kernel at 1/3; at 1.5 half of
  // the kernel is left, now alone.
  EXPECT_NEAR(end(beside), 2, kExact);
}

}  // namespace
}  // namespace tessera::engine::engine_test
