// Compares stretches with the same items played one by one, over plays drawn at random.
#include "tessera/simulate/stretch.h"

#include <gtest/gtest.h>

#include <random>

#include "tessera/simulate/test_plays.h"

namespace tessera::engine::stretch_test {
namespace {

constexpr double kClose = 1e-9;

class Drawn {
 public:
  explicit Drawn(uint32_t seed) : random_(seed) {}

  // Two or three players in a row, each with several runs of a block; each run sends a message to
  // the next player. Kernels, collectives that are waited for at once and beside kernels.
  Play play() {
    Play play;
    play.micro_batches = between(1, 4);
    play.rules.nic_slowdown = pick({1.0, 1.03, 1.5});
    play.rules.inner_slowdown = pick({1.0, 1.25});
    play.rules.collective_slowdown = pick({1.0, 2.0});
    play.rules.path = chance(4);
    play.rules.messages_block = chance(3);
    host_ = pick({0.0, 0.0, 0.05, 0.4, 1.0});
    const int players = between(2, 3);
    for (int p = 0; p < players; ++p)
      play.players.push_back(player(p, players, play.micro_batches));
    return play;
  }

 private:
  int between(int least, int most) { return std::uniform_int_distribution(least, most)(random_); }
  bool chance(int of) { return between(1, of) == 1; }
  double pick(std::vector<double> of) {
    return of[static_cast<size_t>(between(0, static_cast<int>(of.size()) - 1))];
  }
  double time() { return 0.1 * between(1, 12) + 0.013 * between(0, 9); }

  Item hosted(Item item) {
    item.host_s = host_ * pick({0.0, 0.5, 1.0});
    item.launch_s = host_ > 0 ? 0.02 : 0;
    return item;
  }

  Item collective(int32_t handle) {
    Item item = hosted(issue(handle, time()));
    item.latency_s = pick({0.0, 0.05, 0.7});
    if (chance(8)) item.work_s = 0;
    (chance(6) ? item.use.nic : item.use.inner) = pick({0.5, 1.0});
    item.account = 0;
    return item;
  }

  void add_kernels(std::vector<Item>& items, int most) {
    for (int i = between(0, most); i > 0; --i) {
      if (chance(7)) {
        Item host;
        host.kind = ItemKind::kHost;
        items.push_back(hosted(host));
      }
      items.push_back(hosted(compute(time())));
    }
  }

  // Handles: 0 and 1 collectives, 2 the receive, 3 the send. Streams: 0, 1 for collectives, 2
  // messages.
  Player player(int p, int players, int64_t micro_batches) {
    std::vector<Item> items;
    if (p > 0) {
      Item coming = receive(2, p - 1);
      coming.use.nic = coming_nic_ ? 1 : 0;
      coming.use.inner = coming_nic_ ? 0 : 1;
      items.push_back(hosted(coming));
      add_kernels(items, 3);
      items.push_back(hosted(wait(2)));
    }
    for (int i = between(1, 6); i > 0; --i) {
      add_kernels(items, 3);
      const int32_t handle = between(0, 1);
      items.push_back(collective(handle));
      items.back().stream = handle;
      if (!chance(3)) add_kernels(items, 4);
      items.push_back(hosted(wait(handle)));
    }
    add_kernels(items, 3);
    if (p + 1 < players) {
      Item going = hosted(send(3, p, 2 * time(), 2, chance(2)));
      going.latency_s = pick({0.0, 0.3});
      coming_nic_ = !chance(4);
      going.use.nic = coming_nic_ ? 1 : 0;
      going.use.inner = coming_nic_ ? 0 : 1;
      going.account = 1;
      items.push_back(going);
    }
    Player out;
    out.rank = p;
    out.blocks.push_back({{}, std::move(items)});
    for (int64_t m = 0; m < micro_batches; ++m) out.schedule.push_back({0, m});
    out.handles.assign(4, {true});
    out.streams = 3;
    out.accounts = 2;
    return out;
  }

  std::mt19937 random_;
  double host_ = 0;
  bool coming_nic_ = true;
};

void expect_equal(const Outcome& a, const Outcome& b) {
  EXPECT_NEAR(a.end_s, b.end_s, kClose);
  for (size_t p = 0; p < a.players.size(); ++p) {
    SCOPED_TRACE(testing::Message() << "player " << p);
    const PlayerResult &x = a.players[p], &y = b.players[p];
    EXPECT_NEAR(x.end_s, y.end_s, kClose);
    for (size_t s = 0; s < kSpent; ++s) EXPECT_NEAR(x.spent_s[s], y.spent_s[s], kClose) << s;
    for (size_t l = 0; l < kLanes; ++l) EXPECT_NEAR(x.busy_s[l], y.busy_s[l], kClose) << l;
    for (size_t i = 0; i < x.accounts.size(); ++i) {
      EXPECT_NEAR(x.accounts[i].busy_s, y.accounts[i].busy_s, kClose) << i;
      EXPECT_NEAR(x.accounts[i].exposed_s, y.accounts[i].exposed_s, kClose) << i;
    }
  }
}

TEST(Stretches, AreAsTheirItemsOneByOne) {
  int64_t compact_events = 0, all_events = 0;
  for (uint32_t seed = 1; seed <= 5000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Play play = Drawn(seed).play();
    const auto compact = run(play);
    ASSERT_TRUE(compact) << compact.error().message;
    play.rules.compact = false;
    const auto detailed = run(play);
    ASSERT_TRUE(detailed) << detailed.error().message;
    expect_equal(*compact, *detailed);
    if (testing::Test::HasFailure()) return;
    compact_events += compact->played_events;
    all_events += detailed->played_events;
  }
  EXPECT_LT(compact_events, all_events * 3 / 4);
}

// A kernel of 1 s beside a collective of 2 s that both slow: docs/theory/cost-model.md section 9.1.
TEST(Stretches, TimesOfABundle) {
  Block block;
  Item collective = issue(0, 2);
  collective.use.inner = 1;
  block.items = {collective, compute(1), wait(0), compute(3)};
  Play play;
  play.rules.inner_slowdown = 1.25;
  play.rules.collective_slowdown = 2;
  play.players.resize(1);
  play.players[0].blocks = {block};
  RunItemsTable table(play);
  const RunItems& run_items = table[table.index_of(0, 0, false, false)];
  ASSERT_EQ(run_items.bundles().size(), 1);
  EXPECT_DOUBLE_EQ(run_items.bundles()[0].total[0], 1.25 + (2 - 0.625));
  EXPECT_DOUBLE_EQ(run_items.of({Beside::kNothing, true})[0].device, 1.25 + 1.375 + 3);
  const InBundle half = play_bundle(run_items, run_items.bundles()[0], Beside::kNothing, 0.625);
  EXPECT_EQ(half.item, 1);
  EXPECT_DOUBLE_EQ(half.left, 0.5);
  EXPECT_DOUBLE_EQ(half.collective_left, 2 - 0.3125);
}

}  // namespace
}  // namespace tessera::engine::stretch_test
