#include "tessera/tables/neuroshard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tessera/tables/baselines.h"
#include "tessera/tables/closed_form.h"
#include "tessera/tables/test_problems.h"

namespace tessera::tables {
namespace {

// docs/strategies/planning-tables.md section 14, point 3.
TEST(Neuroshard, SplitsKeepIndicesAsTheSheetSays) {
  std::vector<Table> tables(2);
  tables[0].dim = 64;
  tables[1].dim = 32;
  const std::vector<Piece> pieces = split_columns(tables, {0, 0});
  std::vector<int64_t> columns, first;
  for (const Piece& piece : pieces) {
    columns.push_back(piece.columns);
    first.push_back(piece.first_column);
  }
  EXPECT_EQ(columns, (std::vector<int64_t>{16, 32, 32, 16}));
  EXPECT_EQ(first, (std::vector<int64_t>{0, 0, 32, 16}));
  EXPECT_EQ(pieces[2].share, 1);  // both halves look up all ids
}

// Runs the inner search, written out without caches and early exits.
double plain_greedy_grid(const Problem& problem, const std::vector<Piece>& pieces) {
  const auto compute = [&](const std::vector<Piece>& on) {
    if (on.empty()) return 0.0;
    std::vector<double> sum(problem.cost->width(), 0.0), code(sum.size());
    for (const Piece& piece : on) {
      std::fill(code.begin(), code.end(), 0.0);
      problem.cost->encode(problem.tables[piece.table], piece, problem.devices, code);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += code[i];
    }
    return problem.cost->compute_ms(sum);
  };
  std::vector<Piece> order = pieces;
  std::stable_sort(order.begin(), order.end(),
                   [&](const Piece& a, const Piece& b) { return compute({a}) > compute({b}); });
  int64_t columns = 0;
  for (const Piece& piece : order) columns += piece.columns;
  double best = std::numeric_limits<double>::infinity();
  for (int step = 0; step <= 10; ++step) {
    // The limits 1.0, 1.05, ... are computed in twentieths, so that they are exact.
    std::vector<std::vector<Piece>> devices(static_cast<size_t>(problem.devices));
    bool good = true;
    for (const Piece& piece : order) {
      size_t chosen = devices.size();
      for (size_t device = 0; device < devices.size(); ++device) {
        int64_t bytes = 0, dims = 0;
        for (const Piece& other : devices[device]) {
          bytes += resting_bytes(problem.tables[other.table], other, Optimizer::kSgd);
          dims += other.columns;
        }
        bytes += resting_bytes(problem.tables[piece.table], piece, Optimizer::kSgd);
        if (bytes > problem.memory_bytes) continue;
        if (20 * problem.devices * (dims + piece.columns) > (20 + step) * columns) continue;
        if (chosen == devices.size() || compute(devices[device]) < compute(devices[chosen])) {
          chosen = device;
        }
      }
      if (chosen == devices.size()) {
        good = false;
        break;
      }
      devices[chosen].push_back(piece);
    }
    if (!good) continue;
    Placement placement;
    for (size_t device = 0; device < devices.size(); ++device) {
      for (const Piece& piece : devices[device])
        placement.push_back({piece, static_cast<int>(device)});
    }
    best = std::min(best, evaluate(problem, placement).ms);
  }
  return best;
}

TEST(Neuroshard, TheInnerSearchIsTheSheets) {
  Random random(1);
  const ClosedForm cost;
  int found = 0;
  for (int round = 0; round < 40; ++round) {
    const Problem problem = random_problem(random, 8 + random.up_to(12), 2 + random.up_to(3),
                                           random.from(1.1, 2), cost);
    const std::vector<Piece> pieces = split_columns(problem.tables, {});
    const Answer answer = neuroshard(problem, {.depth = 0});
    const double plain = plain_greedy_grid(problem, pieces);
    ASSERT_EQ(answer.found, plain < 1e9);
    if (!answer.found) continue;
    ++found;
    EXPECT_NEAR(answer.evaluation.ms, plain, 1e-9 * plain);
  }
  EXPECT_GT(found, 20);
}

TEST(Neuroshard, TheBeamIsNeverWorseThanTheInnerSearchAndOnlyHalvesColumns) {
  Random random(2);
  const ClosedForm cost;
  int better = 0;
  for (int round = 0; round < 15; ++round) {
    const Problem problem = random_problem(random, 8, 4, 1.5, cost);
    const Answer inner = neuroshard(problem, {.depth = 0});
    const Answer outer = neuroshard(problem, {});
    if (inner.found) {
      ASSERT_TRUE(outer.found);
      EXPECT_LE(outer.evaluation.ms, inner.evaluation.ms * (1 + 1e-12));
    }
    if (!outer.found) continue;
    EXPECT_TRUE(outer.evaluation.fits());
    if (!inner.found || outer.evaluation.ms < inner.evaluation.ms * 0.999) ++better;
    for (const PlacedPiece& placed : outer.placement) {
      const Table& table = problem.tables[placed.piece.table];
      EXPECT_EQ(placed.piece.rows, table.rows);
      EXPECT_EQ(table.dim % placed.piece.columns, 0);
      EXPECT_EQ(placed.piece.columns % 4, 0);
    }
  }
  EXPECT_GT(better, 5);
}

// A wide beam over one split tries every split of one table.
TEST(Neuroshard, OneTurnOfTheBeamTriesEverySplit) {
  Random random(3);
  const ClosedForm cost;
  const Problem problem = random_problem(random, 6, 3, 2, cost);
  double best = plain_greedy_grid(problem, split_columns(problem.tables, {}));
  for (size_t i = 0; i < 6; ++i) {
    if (problem.tables[i].dim % 8 != 0) continue;
    best = std::min(best, plain_greedy_grid(problem, split_columns(problem.tables, {i})));
  }
  const Answer answer = neuroshard(problem, {.beam = 1, .candidates = 6, .depth = 1, .grid = 11});
  ASSERT_TRUE(answer.found);
  EXPECT_NEAR(answer.evaluation.ms, best, 1e-9 * best);
}

}  // namespace
}  // namespace tessera::tables
