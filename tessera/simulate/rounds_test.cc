// Compares plays whose repeating rounds are counted with the same plays, played in full.
#include "tessera/simulate/rounds.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <string>

#include "tessera/plan/schedules/test_shapes.h"
#include "tessera/simulate/test_plays.h"

namespace tessera::engine::rounds_test {
namespace {

constexpr double kClose = 1e-9;  // of the step's time

// Draws plays of a schedule, with times, collectives, rules and hosts at random.
class Drawn {
 public:
  Drawn(const std::string& schedule, uint32_t seed, bool two_sizes = false)
      : random_(seed), schedule_(schedule), two_sizes_(two_sizes) {}

  Play play() {
    const int64_t places = 1 << between(0, 3);
    const int64_t micro_batches = places * (chance(4) ? 2 : 64 / places);
    const std::vector<PipelineShape> shapes =
        schedules::shapes_of(schedule_, places, micro_batches);
    if (shapes.empty()) return play();
    const PipelineShape shape = shapes[static_cast<size_t>(between(0, int(shapes.size()) - 1))];
    UnitCosts costs{.forward = time(),
                    .backward = 2 * time(),
                    .weight = time(),
                    .message = pick({0.0, 0.05, 0.6, 3.0}),
                    .scale = {}};
    const bool uneven = chance(2);
    for (int64_t s = 0; s < shape.stages(); ++s) costs.scale.push_back(uneven ? time() : 1);
    Play out = SchedulePlay(make_schedule(schedule_, shape).value(), shape, costs).play();
    out.rules.path = false;
    out.rules.compact = !chance(4);
    out.rules.nic_slowdown = pick({1.0, 1.03, 1.5});
    out.rules.inner_slowdown = pick({1.0, 1.25});
    out.rules.collective_slowdown = pick({1.0, 2.0});
    out.rules.messages_block = chance(4);
    host_ = pick({0.0, 0.0, 0.02, 0.2, 1.0});
    rendezvous_ = chance(3);
    messages_use_nics_ = chance(2);
    for (Player& player : out.players) fill(player);
    add_pools(out);
    if (two_sizes_) make_smaller(out, between(1, static_cast<int>(micro_batches) - 1));
    out.rounds = find_rounds(out);
    return out;
  }

 private:
  int between(int least, int most) { return std::uniform_int_distribution(least, most)(random_); }
  bool chance(int of) { return between(1, of) == 1; }
  double pick(std::vector<double> of) {
    return of[static_cast<size_t>(between(0, static_cast<int>(of.size()) - 1))];
  }
  double time() { return 0.1 * between(5, 12) + 0.013 * between(0, 9); }

  // Two accounts, messages and collectives. A block may get collectives of its own, something that
  // only its first or last run does, and a wait for what its run before issued.
  void fill(Player& player) {
    player.accounts = 2;
    ++player.streams;
    for (Block& block : player.blocks) {
      for (Item& item : block.items) {
        item.label = labels_++;
        item.host_s = host_ * pick({0.0, 0.5, 1.0});
        item.launch_s = host_ > 0 ? 0.02 : 0;
        if (item.kind == ItemKind::kCompute || item.kind == ItemKind::kWait) continue;
        const bool message = item.kind != ItemKind::kIssue;
        item.account = message ? 0 : 1;
        item.rendezvous = rendezvous_;
        (messages_use_nics_ ? item.use.nic : item.use.inner) = message ? 1 : 0.5;
        item.latency_s = message ? 0.05 : 0;
      }
      if (chance(2)) add_collective(player, block);
      if (chance(6)) add_once(block);
    }
    if (chance(4)) player.slower = 1.1;
  }

  void add_collective(Player& player, Block& block) {
    Item item = issue(static_cast<int32_t>(player.handles.size()), time() / 2);
    player.handles.push_back({true});
    item.stream = player.streams - 1;
    item.account = 1;
    item.latency_s = pick({0.0, 0.1});
    (chance(4) ? item.use.nic : item.use.inner) = 1;
    const auto at = block.items.end() - std::min<int>(between(0, 3), int(block.items.size()));
    Item until = wait(item.handle);
    until.lag = chance(3) ? 1 : 0;
    until.blocks_host = chance(4);
    block.items.insert(at, item);
    block.items.insert(until.lag > 0 ? block.items.begin() : block.items.end(), until);
  }

  void add_once(Block& block) {
    Item item = compute(time());
    item.when = chance(2) ? When::kFirst : When::kLast;
    block.items.push_back(item);
  }

  // Lets some players take turns on the cores of a node.
  void add_pools(Play& play) {
    if (!chance(5)) return;
    play.pools = {1};
    for (Player& player : play.players) player.pool = player.rank < 2 ? 0 : -1;
  }

  // Gives the micro-batches after the first `larger` ones less time.
  void make_smaller(Play& play, int64_t larger) {
    for (Player& player : play.players) {
      const auto blocks = static_cast<int32_t>(player.blocks.size());
      for (int32_t b = 0; b < blocks; ++b) {
        Block block = player.blocks[static_cast<size_t>(b)];
        block.family = b;
        block.smaller = true;
        for (Item& item : block.items) item.work_s *= 0.75;
        player.blocks.push_back(std::move(block));
      }
      for (Run& run : player.schedule) {
        if (run.micro_batch >= larger) run.block += blocks;
      }
    }
  }

  std::mt19937 random_;
  std::string schedule_;
  bool two_sizes_;
  double host_ = 0;
  int32_t labels_ = 1;
  bool rendezvous_ = false, messages_use_nics_ = true;
};

void expect_equal(const Outcome& a, const Outcome& b) {
  const double close = kClose * b.end_s;
  EXPECT_NEAR(a.end_s, b.end_s, close);
  for (size_t p = 0; p < a.players.size(); ++p) {
    SCOPED_TRACE(testing::Message() << "player " << p);
    const PlayerResult &x = a.players[p], &y = b.players[p];
    EXPECT_NEAR(x.end_s, y.end_s, close);
    for (size_t s = 0; s < kSpent; ++s) EXPECT_NEAR(x.spent_s[s], y.spent_s[s], close) << s;
    for (size_t l = 0; l < kLanes; ++l) EXPECT_NEAR(x.busy_s[l], y.busy_s[l], close) << l;
    for (size_t i = 0; i < x.accounts.size(); ++i) {
      EXPECT_NEAR(x.accounts[i].busy_s, y.accounts[i].busy_s, close) << i;
      EXPECT_NEAR(x.accounts[i].exposed_s, y.accounts[i].exposed_s, close) << i;
    }
  }
}

// Returns a play whose times differ by up to this fraction of each.
Play roughened(Play play, double most, uint32_t seed = 0) {
  std::mt19937 random(seed);
  for (Player& player : play.players) {
    for (Block& block : player.blocks) {
      for (Item& item : block.items)
        item.work_s *= 1 + most / 2 * std::uniform_int_distribution(0, 2)(random);
    }
  }
  return play;
}

// Returns whether rounding errors grow from round to round, as they may where transfers share
// links: such plays have no times to compare.
bool grows(const Play& play, const Outcome& played) {
  return std::abs(run(roughened(play, 2e-15))->end_s - played.end_s) > 1e-12 * played.end_s;
}

// Returns the path with each part as often as it occurs, neighbours of one player and use joined.
std::vector<PathPart> unrolled(const std::vector<PathPart>& path) {
  std::vector<PathPart> out;
  const auto add = [&out](PathPart part, double shift) {
    part.start_s += shift;
    part.end_s += shift;
    if (!out.empty() && out.back().player == part.player && out.back().what == part.what) {
      out.back().end_s = part.end_s;
    } else {
      out.push_back(part);
    }
  };
  for (size_t i = 0; i < path.size();) {
    size_t end = i + 1;
    while (end < path.size() && path[i].times > 1 && path[end].times == path[i].times &&
           path[end].start_s < path[end - 1].end_s + path[i].period_s / 2) {
      ++end;
    }
    for (int64_t k = 0; k < path[i].times; ++k) {
      for (size_t part = i; part < end; ++part)
        add(path[part], static_cast<double>(k) * path[i].period_s);
    }
    i = end;
  }
  return out;
}

// Returns a text that says where two paths differ; an empty text if they do not.
std::string difference(const std::vector<PathPart>& a, const std::vector<PathPart>& b,
                       double close) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const PathPart &x = a[i], &y = b[i];
    if (x.player == y.player && x.what == y.what && x.label == y.label &&
        std::abs(x.start_s - y.start_s) <= close && std::abs(x.end_s - y.end_s) <= close) {
      continue;
    }
    const auto text = [](const PathPart& part) {
      return fmt::format("player {} {} '{}' {:.12f} to {:.12f}", part.player, spent_name(part.what),
                         part.label, part.start_s, part.end_s);
    };
    return fmt::format("part {} of {} and {}: {} and {}", i, a.size(), b.size(), text(x), text(y));
  }
  return a.size() == b.size() ? "" : fmt::format("{} and {} parts", a.size(), b.size());
}

class RoundsOf : public testing::TestWithParam<std::string> {};

struct Counts {
  int plays = 0, shorter = 0, shorter_paths = 0;
};
Counts compare(const std::string& schedule, uint32_t seeds, bool two_sizes) {
  Counts out;
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Play play = Drawn(schedule, seed, two_sizes).play();
    const auto counted = run(play);
    play.rounds.reset();
    const auto played = run(play);
    EXPECT_EQ(counted.has_value(), played.has_value());
    if (!counted || !played) continue;
    if (grows(play, *played)) continue;
    expect_equal(*counted, *played);
    if (testing::Test::HasFailure()) break;
    ++out.plays;
    if (counted->played_events < played->played_events) ++out.shorter;
  }
  return out;
}

TEST_P(RoundsOf, CountedAsPlayed) {
  const Counts found = compare(GetParam(), 400, /*two_sizes=*/false);
  EXPECT_GE(found.plays, 250);
  std::printf("%s: %d of %d plays are shorter\n", GetParam().c_str(), found.shorter, found.plays);
  if (GetParam() == "1f1b" || GetParam() == "interleaved") {
    EXPECT_GT(found.shorter, found.plays / 2);
  }
}

TEST_P(RoundsOf, TwoSizesOfMicroBatchesAreCountedAsPlayed) {
  const Counts found = compare(GetParam(), 200, /*two_sizes=*/true);
  EXPECT_GE(found.plays, 120);
  if (GetParam() == "1f1b" || GetParam() == "interleaved") {
    EXPECT_GT(found.shorter, found.plays / 2);
  }
}

// The critical path of counted rounds is that of all rounds, part by part. Plays in which rounding
// errors decide which of two players came last have several paths and are left out.
Counts compare_paths(const std::string& schedule, uint32_t seeds, bool two_sizes) {
  Counts out;
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Play play = Drawn(schedule, seed, two_sizes).play();
    play.rules.path = true;
    const auto counted = run(play);
    play.rounds.reset();
    const auto played = run(play);
    EXPECT_EQ(counted.has_value(), played.has_value());
    if (!counted || !played) continue;
    const double close = kClose * played->end_s;
    const std::vector<PathPart> path = unrolled(played->critical_path);
    const auto differs = [&](uint32_t by) {
      const Outcome rough = *run(roughened(play, 2e-13, by));
      return std::abs(rough.end_s - played->end_s) > 1e-12 * played->end_s ||
             !difference(unrolled(rough.critical_path), path, close).empty();
    };
    if (differs(0) || differs(1) || differs(2)) continue;
    expect_equal(*counted, *played);
    EXPECT_EQ(difference(unrolled(counted->critical_path), path, close), "");
    if (testing::Test::HasFailure()) break;
    ++out.plays;
    if (counted->played_events < played->played_events) ++out.shorter;
    if (counted->critical_path.size() < path.size()) ++out.shorter_paths;
  }
  std::printf("%s: %d of %d plays are shorter, %d of their paths\n", schedule.c_str(), out.shorter,
              out.plays, out.shorter_paths);
  return out;
}

TEST_P(RoundsOf, ThePathIsThatOfAllRounds) {
  const Counts found = compare_paths(GetParam(), 400, /*two_sizes=*/false);
  EXPECT_GE(found.plays, 120);
  if (GetParam() == "1f1b" || GetParam() == "interleaved") {
    EXPECT_GT(found.shorter, found.plays / 2);
    EXPECT_GT(found.shorter_paths, found.plays / 3);
  }
}

TEST_P(RoundsOf, ThePathOfTwoSizesIsThatOfAllRounds) {
  const Counts found = compare_paths(GetParam(), 200, /*two_sizes=*/true);
  EXPECT_GE(found.plays, 60);
}

// The rest of a schedule is the schedule of fewer micro-batches: each block runs once for each of
// them, and the rest takes as long as that schedule.
TEST_P(RoundsOf, WithoutRoundsItIsTheScheduleOfFewer) {
  const UnitCosts costs{.forward = 1, .backward = 2, .weight = 0.5, .message = 0.1, .scale = {}};
  const auto play_of = [&](const PipelineShape& shape) {
    return SchedulePlay(make_schedule(GetParam(), shape).value(), shape, costs).play();
  };
  for (const int64_t n : {1, 2, 4}) {
    for (const PipelineShape& shape : schedules::shapes_of(GetParam(), n, 48)) {
      Play whole = play_of(shape);
      const auto found = find_rounds(whole);
      if (found->empty()) continue;
      std::vector<Rounds> all = *found;
      const int64_t left_out = all[0].micro_batches / all[0].unit / 2 * all[0].unit;
      Timetable fewer(whole);
      fewer.leave_out(all[0], left_out);
      EXPECT_EQ(fewer.micro_batches(), 48 - left_out);
      std::vector<std::vector<engine::Run>> schedules;
      for (size_t p = 0; p < whole.players.size(); ++p) {
        const auto player = static_cast<int32_t>(p);
        std::vector<engine::Run>& schedule = schedules.emplace_back();
        for (size_t i = 0; i < fewer.size(player); ++i) schedule.push_back(fewer.run(player, i));
        for (size_t block = 0; block < whole.players[p].blocks.size(); ++block) {
          const auto is_block = [block](const engine::Run& one) {
            return one.block == static_cast<int32_t>(block);
          };
          const auto first = std::ranges::find_if(schedule, is_block);
          const auto last = std::find_if(schedule.rbegin(), schedule.rend(), is_block);
          EXPECT_EQ(fewer.first(player, block), first - schedule.begin());
          EXPECT_EQ(fewer.last(player, block), schedule.rend() - last - 1);
        }
      }
      for (const std::vector<engine::Run>& schedule : schedules) {
        std::map<int32_t, std::set<int64_t>> runs;
        for (const engine::Run& one : schedule) {
          EXPECT_TRUE(runs[one.block].insert(one.micro_batch).second);
        }
        for (const auto& [block, of] : runs) {
          EXPECT_EQ(static_cast<int64_t>(of.size()), fewer.micro_batches());
          EXPECT_EQ(*of.rbegin(), fewer.micro_batches() - 1);
        }
      }
      PipelineShape small = shape;
      small.micro_batches -= left_out;
      const double expected = run(play_of(small))->end_s;
      whole.micro_batches = fewer.micro_batches();
      for (size_t p = 0; p < whole.players.size(); ++p) whole.players[p].schedule = schedules[p];
      EXPECT_NEAR(run(whole)->end_s, expected, 1e-9 * expected) << n << " places";

      // After the shift the rounds are where they are found in the rest of the schedule.
      shift_rounds(all, 0, left_out);
      for (size_t p = 0; p < whole.players.size(); ++p) {
        for (const Repetition& one : all[0].repetitions[p]) {
          const std::vector<engine::Run>& runs = whole.players[p].schedule;
          for (size_t i = one.first; i + one.period < one.first + one.runs(); ++i) {
            EXPECT_EQ(runs[i + one.period].block, runs[i].block);
            EXPECT_EQ(runs[i + one.period].micro_batch, runs[i].micro_batch + one.unit);
          }
        }
      }
    }
  }
}

Play even_play(int64_t micro_batches) {
  const PipelineShape shape = schedules::chunks(4, 1, micro_batches);
  const UnitCosts costs{.forward = 1, .backward = 2, .weight = 0, .message = 0.1, .scale = {}};
  Play play = SchedulePlay(make_schedule("1f1b", shape).value(), shape, costs).play();
  play.rules.path = false;
  play.rounds = find_rounds(play);
  return play;
}

// The number of rounds does not change the number of events that are played.
TEST(Rounds, MoreOfThemAreNotMoreEvents) {
  for (const bool path : {false, true}) {
    Play short_one = even_play(64), long_one = even_play(1024);
    short_one.rules.path = long_one.rules.path = path;
    const Outcome few = *run(short_one), many = *run(long_one);
    EXPECT_EQ(few.played_events, many.played_events);
    EXPECT_EQ(few.critical_path.size(), many.critical_path.size());
  }
  const Outcome many = *run(even_play(1024));
  Play whole = even_play(1024);
  whole.rounds.reset();
  EXPECT_NEAR(many.end_s, run(whole)->end_s, 1e-9 * many.end_s);
}

TEST(Rounds, AllArePlayedWhereEachIsWanted) {
  const Play play = even_play(64);
  const Outcome counted = *run(play);
  Play whole = play;
  whole.rounds.reset();
  EXPECT_LT(counted.played_events, run(whole)->played_events / 2);
  const auto expect_all = [](Play asked) {
    const Outcome here = *run(asked);
    asked.rounds.reset();
    EXPECT_EQ(here.played_events, run(asked)->played_events);
  };
  for (const bool events : {false, true}) {
    Play asked = play;
    asked.rules.events = events;
    asked.rules.jitter = events ? 0 : 0.01;
    expect_all(asked);
  }
}

// Host and device each at a speed of its own: the host is ahead by more from round to round, and
// what comes behind the rounds finds it as far ahead as if all had been played.
TEST(Rounds, AHostThatGetsAheadIsAheadBehindThem) {
  Play play;
  play.micro_batches = 64;
  play.rules.path = false;
  Player player = one_block(0, {compute(1), compute(1)}, 0);
  for (Item& item : player.blocks[0].items) item.host_s = 0.1;
  Block last;
  last.items.assign(400, compute(0.5));
  for (Item& item : last.items) item.host_s = 1;
  player.blocks.push_back(last);
  player.schedule.clear();
  for (int64_t m = 0; m < 64; ++m) player.schedule.push_back({0, m});
  player.schedule.push_back({1, 0});
  play.players.push_back(player);
  play.rules.compact = false;
  play.rounds = find_rounds(play);
  const Outcome counted = *run(play);
  play.rounds.reset();
  const Outcome played = *run(play);
  EXPECT_LT(counted.played_events, played.played_events - 100);
  EXPECT_NEAR(counted.end_s, 64 * 0.2 + 400 + 0.5, 1e-9);  // the host is waited for in the end
  expect_equal(counted, played);
}

INSTANTIATE_TEST_SUITE_P(Schedules, RoundsOf, testing::ValuesIn(schedule_names()));

}  // namespace
}  // namespace tessera::engine::rounds_test
