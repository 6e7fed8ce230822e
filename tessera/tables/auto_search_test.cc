#include "tessera/tables/auto_search.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>

#include "tessera/tables/baselines.h"
#include "tessera/tables/closed_form.h"
#include "tessera/tables/neuroshard.h"
#include "tessera/tables/test_problems.h"
#include "tessera/tables/torchrec.h"

namespace tessera::tables {
namespace {

constexpr Splits kWhole = {.columns = false, .rows = false, .replicas = false};

// The search by itself finds the best placement of whole tables without trying all of them.
TEST(AutoSearch, FindsTheOptimumOfBruteForceByItself) {
  Random random(1);
  const ClosedForm closed;
  const TorchRecEstimator torchrec;
  int optimal = 0, all = 0;
  for (int round = 0; round < 40; ++round) {
    const CostModel& cost = round % 2 == 0 ? static_cast<const CostModel&>(closed) : torchrec;
    Problem problem = random_problem(random, 4 + random.up_to(4), 2 + random.up_to(2),
                                     random.from(1.05, 3), cost);
    problem.splits = kWhole;
    const Answer best = brute_force(problem);
    const Answer found = auto_search(problem, {.budget = 20000, .enumerate = 0, .progress = {}});
    ASSERT_EQ(found.found, best.found) << found.reason;
    if (!best.found) continue;
    EXPECT_GE(found.evaluation.ms, best.evaluation.ms * (1 - 1e-9));
    EXPECT_LE(found.evaluation.ms, best.evaluation.ms * 1.02);
    ++all;
    if (found.evaluation.ms <= best.evaluation.ms * (1 + 1e-9)) ++optimal;
  }
  EXPECT_GE(optimal, all * 95 / 100) << "of " << all;
}

// With splits an answer costs at most what whole tables cost; on questions this small always.
TEST(AutoSearch, IsNeverWorseThanBruteForceOnSmallQuestions) {
  Random random(2);
  const ClosedForm cost;
  for (int round = 0; round < 10; ++round) {
    const Problem problem = random_problem(random, 8, 4, random.from(1.02, 2), cost);
    const Answer best = brute_force(problem);
    const Answer found = auto_search(problem, {.budget = 1000, .progress = {}});
    ASSERT_TRUE(found.found) << found.reason;
    if (best.found) {
      EXPECT_LE(found.evaluation.ms, best.evaluation.ms * (1 + 1e-9));
    }
    EXPECT_TRUE(found.evaluation.fits());
  }
}

// Memory is so tight that rules fail: the search places whatever brute force can place, without
// splits too.
TEST(AutoSearch, FindsAPlacementWhereverBruteForceDoes) {
  Random random(3);
  const ClosedForm cost;
  int tight = 0, none = 0;
  for (int round = 0; round < 150; ++round) {
    Problem problem = random_problem(random, 4 + random.up_to(4), 2 + random.up_to(2),
                                     random.from(1.0, 1.25), cost);
    problem.splits = kWhole;
    const Answer best = brute_force(problem);
    const Answer found = auto_search(problem, {.budget = 100, .enumerate = 0, .progress = {}});
    EXPECT_EQ(found.found, best.found);
    if (found.found) {
      EXPECT_TRUE(found.evaluation.fits());
    }
    const bool rule = greedy(problem, GreedyKey::kLookup).found;
    if (best.found && !rule) ++tight;
    if (!best.found) {
      ++none;
      EXPECT_NE(found.reason.find("need"), std::string::npos);
    }
  }
  EXPECT_GT(tight, 10);
  EXPECT_GT(none, 10);
}

// With splits, memory that is almost full suffices, and nothing is found in less than is needed.
TEST(AutoSearch, CutsTablesUntilTheyFit) {
  Random random(4);
  const ClosedForm cost;
  for (int round = 0; round < 10; ++round) {
    Problem problem = random_problem(random, 5, 4, 1.01, cost);
    const Answer found = auto_search(problem, {.budget = 500, .progress = {}});
    ASSERT_TRUE(found.found) << found.reason;
    EXPECT_TRUE(found.evaluation.fits());
    problem.memory_bytes = static_cast<int64_t>(static_cast<double>(problem.memory_bytes) * 0.98);
    EXPECT_FALSE(auto_search(problem, {.budget = 500, .progress = {}}).found);
  }
}

TEST(AutoSearch, IsNeverInfeasibleOrWorseWhereNeuroshardAnswers) {
  Random random(5);
  const ClosedForm cost;
  double ratio = 0;
  int count = 0;
  for (int round = 0; round < 12; ++round) {
    Problem problem =
        random_problem(random, 10 + random.up_to(15), 4, random.from(1.02, 1.5), cost);
    problem.splits.rows = problem.splits.replicas = false;  // the space of NeuroShard
    const Answer theirs = neuroshard(problem, {});
    const Answer ours = auto_search(problem, {.budget = 20000, .progress = {}});
    if (!theirs.found) continue;
    ASSERT_TRUE(ours.found) << ours.reason;
    EXPECT_LE(ours.evaluation.ms, theirs.evaluation.ms * (1 + 1e-9));
    ratio += ours.evaluation.ms / theirs.evaluation.ms;
    ++count;
  }
  ASSERT_GT(count, 6);
  EXPECT_LT(ratio / count, 1);
}

TEST(AutoSearch, KeepsToTheAllowedSplitsAndIsTheSameEachTime) {
  Random random(6);
  const ClosedForm cost;
  for (int round = 0; round < 8; ++round) {
    Problem problem = random_problem(random, 12, 4, 3, cost);
    problem.splits.columns = (round & 1) != 0;
    problem.splits.rows = (round & 2) != 0;
    problem.splits.replicas = (round & 4) != 0;
    const AutoOptions options = {.budget = 5000, .seed = 3, .progress = {}};
    const Answer answer = auto_search(problem, options);
    ASSERT_TRUE(answer.found) << answer.reason;
    EXPECT_EQ(answer.placement, auto_search(problem, options).placement);
    for (const auto& [piece, device] : answer.placement) {
      const Table& table = problem.tables[piece.table];
      EXPECT_TRUE(problem.splits.columns || piece.columns == table.dim);
      EXPECT_TRUE(problem.splits.rows || piece.rows == table.rows);
      EXPECT_TRUE(problem.splits.replicas || piece.kind != Sharding::kReplicated);
    }
  }
}

// Where one set of kinds of splits contains another, its answer is at least as fast: the search
// with all kinds starts from the answers with fewer.
TEST(AutoSearch, MoreKindsOfSplitsAreNeverSlower) {
  Random random(21);
  const ClosedForm pcie;
  const ClosedForm nvlink({.link_bytes_per_ms = 2e8});
  const TorchRecEstimator torchrec;
  int faster = 0;
  for (int round = 0; round < 9; ++round) {
    const CostModel& cost = round % 3 == 0   ? static_cast<const CostModel&>(pcie)
                            : round % 3 == 1 ? static_cast<const CostModel&>(nvlink)
                                             : torchrec;
    Problem problem = random_problem(random, 8 + random.up_to(8), 2 + 2 * random.up_to(1),
                                     random.from(1.05, 2), cost);
    std::array<Answer, 8> answers;
    for (size_t kinds = 0; kinds < answers.size(); ++kinds) {
      problem.splits.columns = (kinds & 1) != 0;
      problem.splits.rows = (kinds & 2) != 0;
      problem.splits.replicas = (kinds & 4) != 0;
      answers[kinds] = auto_search(problem, {.budget = 1500, .enumerate = 0, .progress = {}});
      for (size_t part = 0; part < kinds; ++part) {
        if ((part & ~kinds) != 0 || !answers[part].found) continue;
        ASSERT_TRUE(answers[kinds].found) << round << " " << part << " " << kinds;
        EXPECT_LE(answers[kinds].evaluation.ms, answers[part].evaluation.ms * (1 + 1e-9))
            << round << ": " << part << " of " << kinds;
      }
    }
    if (!answers[1].found || answers[7].evaluation.ms < answers[1].evaluation.ms * 0.999) ++faster;
  }
  EXPECT_GT(faster, 3);
}

// One table costs more than all others: only cutting its rows helps.
TEST(AutoSearch, SpreadsAHotTableByRows) {
  const ClosedForm cost;
  Problem problem;
  Random random(7);
  problem = random_problem(random, 12, 4, 3, cost);
  for (Table& table : problem.tables) {
    table.dim = 4;
    table.pooling_factor = 2;
  }
  problem.tables[5].pooling_factor = 400;
  problem.tables[5].rows = 4000000;
  problem.splits = kWhole;
  const Answer whole = auto_search(problem, {.budget = 4000, .progress = {}});
  problem.splits = Splits();
  const Answer cut = auto_search(problem, {.budget = 4000, .progress = {}});
  ASSERT_TRUE(whole.found && cut.found);
  EXPECT_LT(cut.evaluation.ms, whole.evaluation.ms * 0.6);
}

// Makes a problem whose tables are looked up by Zipf's law and have too few columns to be cut in
// them.
Problem hot_problem(Random& random, int count, int devices, const CostModel& cost) {
  Problem problem = random_problem(random, count, devices, random.from(1.1, 3), cost);
  for (Table& table : problem.tables) {
    table.zipf = random.from(0.8, 1.3);
    table.dim = 4;
    table.pooling_factor = random.from(1, 80);
  }
  return problem;
}

// Returns the best cost of all placements of whole tables, with 0 or a quarter, a 16th, ... of the
// rows on every device.
double best_with_hot_rows(const Problem& problem) {
  constexpr int kQuarterings = 9;
  Placement placement;
  double best = std::numeric_limits<double>::infinity();
  const std::function<void(size_t)> place = [&](size_t at) {
    if (at == problem.tables.size()) {
      const Evaluation found = evaluate(problem, with_known_shares(problem, placement));
      if (found.fits()) best = std::min(best, found.ms);
      return;
    }
    const size_t before = placement.size();
    for (int device = 0; device < problem.devices; ++device) {
      int64_t hot = 0;
      for (int times = 0; times <= kQuarterings; ++times) {
        hot = times == 0 ? 0 : std::max<int64_t>(1, problem.tables[at].rows >> (2 * times));
        Piece piece = Piece::whole(at, problem.tables[at]);
        Piece rest = piece;
        rest.first_row = hot;
        rest.rows -= hot;
        rest.kind = hot > 0 ? Sharding::kRows : Sharding::kTable;
        piece.rows = hot;
        piece.kind = Sharding::kReplicated;
        placement.push_back({rest, device});
        for (int to = 0; hot > 0 && to < problem.devices; ++to) placement.push_back({piece, to});
        place(at + 1);
        placement.resize(before);
      }
    }
  };
  place(0);
  return best;
}

TEST(AutoSearch, HotRowsAgainstBruteForce) {
  const ClosedForm closed({.link_bytes_per_ms = 2e8});
  const TorchRecEstimator torchrec;
  Random random(8);
  double gain = 0;
  constexpr int kRounds = 8;
  for (int round = 0; round < kRounds; ++round) {
    const CostModel& cost = round % 2 == 0 ? static_cast<const CostModel&>(closed) : torchrec;
    const int devices = 2 + round % 3;
    Problem problem = hot_problem(random, devices == 2 ? 3 : 2, devices, cost);
    problem.splits = kWhole;
    const Answer answer = auto_search(problem, {.budget = 20000, .progress = {}});
    ASSERT_TRUE(answer.found) << answer.reason;
    EXPECT_LE(answer.evaluation.ms, best_with_hot_rows(problem) * 1.001) << round;
    EXPECT_LE(answer.bound_ms, answer.evaluation.ms * (1 + 1e-9)) << round;
    problem.splits.hot = false;
    const Answer without = auto_search(problem, {.budget = 20000, .progress = {}});
    EXPECT_LE(answer.evaluation.ms, without.evaluation.ms * (1 + 1e-9)) << round;
    gain += 1 - answer.evaluation.ms / without.evaluation.ms;
  }
  EXPECT_GT(gain / kRounds, 0.1);
}

// This holds with all other splits, too; tables of unknown frequencies are placed as before.
TEST(AutoSearch, HotRowsNeverMakeAnAnswerWorse) {
  const ClosedForm cost;
  Random random(10);
  int better = 0;
  for (int round = 0; round < 4; ++round) {
    Problem problem = hot_problem(random, 10, 4, cost);
    const AutoOptions options = {.budget = 4000, .progress = {}};
    const Answer with = auto_search(problem, options);
    problem.splits.hot = false;
    const Answer without = auto_search(problem, options);
    ASSERT_TRUE(with.found && without.found);
    EXPECT_LE(with.evaluation.ms, without.evaluation.ms * (1 + 1e-9));
    EXPECT_TRUE(with.evaluation.fits());
    better += with.evaluation.ms < without.evaluation.ms * 0.999 ? 1 : 0;
    for (Table& table : problem.tables) table.zipf = 0;
    const Answer unknown = auto_search(problem, options);
    problem.splits.hot = true;
    EXPECT_EQ(auto_search(problem, options).placement, unknown.placement);
  }
  EXPECT_GE(better, 2);
}

TEST(AutoSearch, OneDeviceTakesAll) {
  const ClosedForm cost;
  Random random(9);
  const Problem problem = random_problem(random, 20, 1, 1.1, cost);
  const Answer answer = auto_search(problem, {.progress = {}});
  ASSERT_TRUE(answer.found);
  EXPECT_NEAR(answer.evaluation.ms, answer.bound_ms, 1e-9 * answer.bound_ms);
}

}  // namespace
}  // namespace tessera::tables
