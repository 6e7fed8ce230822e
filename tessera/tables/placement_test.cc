#include "tessera/tables/placement.h"

#include <gtest/gtest.h>

#include "tessera/tables/closed_form.h"
#include "tessera/tables/shard.h"
#include "tessera/tables/test_problems.h"

namespace tessera::tables {
namespace {

Problem two_tables(const CostModel& cost) {
  Problem problem;
  Random random(1);
  problem = random_problem(random, 2, 2, 100, cost);
  return problem;
}

std::string violation(const Problem& problem, const Placement& placement) {
  const Evaluation found = evaluate(problem, placement);
  return found.fits() ? "none" : found.violations.front();
}

TEST(Placements, WhatIsWrongIsNamed) {
  const ClosedForm cost;
  Problem problem = two_tables(cost);
  problem.tables[0].rows = 10;
  problem.tables[0].dim = 8;
  Placement placement = whole_tables(problem, {0, 1});
  EXPECT_EQ(violation(problem, placement), "none");
  EXPECT_EQ(violation(problem, {placement[0]}), "table 't1': its pieces do not cover the table");
  placement.push_back(placement[0]);
  EXPECT_EQ(violation(problem, placement), "table 't0': two pieces overlap");
  placement[2].piece.first_column = 4;
  EXPECT_EQ(violation(problem, placement), "table 't0': a piece lies outside of the table");
  placement = whole_tables(problem, {0, 1});
  placement[0].piece.kind = Sharding::kReplicated;
  EXPECT_EQ(violation(problem, placement), "table 't0': expected a whole replica on each device");
  placement.push_back(placement[0]);
  placement.back().device = 1;
  EXPECT_EQ(violation(problem, placement), "none");
  placement.back().device = 2;
  EXPECT_EQ(violation(problem, placement), "a piece on device 2 of 2 is of table 0 of 2");
  // The first four rows are on both devices, the others on one.
  placement[0].piece.rows = placement[2].piece.rows = 4;
  placement[2].device = 1;
  EXPECT_EQ(violation(problem, placement), "table 't0': its pieces do not cover the table");
  Piece rest = Piece::whole(0, problem.tables[0]);
  rest.kind = Sharding::kRows;
  rest.first_row = 4;
  rest.rows = 6;
  placement.push_back({rest, 1});
  EXPECT_EQ(violation(problem, placement), "none");
  placement[2].device = 0;
  EXPECT_EQ(violation(problem, placement), "table 't0': expected its first rows on each device");
  placement[2] = {placement[0].piece, 1};
  placement[2].piece.rows = 3;
  EXPECT_EQ(violation(problem, placement),
            "table 't0': expected the same first rows on each device, all columns of them");
  placement[2].piece.rows = 4;
  placement[3].piece.first_row = 3;
  placement[3].piece.rows = 7;
  EXPECT_EQ(violation(problem, placement), "table 't0': two pieces overlap");
  problem.memory_bytes = 319;
  EXPECT_EQ(violation(problem, {whole_tables(problem, {0, 0})[0]}).substr(0, 9), "table 't1");
  EXPECT_EQ(evaluate(problem, {whole_tables(problem, {0, 0})[0]}).violations.back(),
            "device 0 needs 320 bytes and has 319 bytes");
}

// Costs that a search updates step by step agree with a whole evaluation, and undo() restores them.
TEST(Placements, IncrementalCostsAgreeWithTheEvaluation) {
  const ClosedForm cost;
  Random random(2);
  for (int round = 0; round < 20; ++round) {
    const Problem problem = random_problem(random, 8, 3, 100, cost);
    Coder coder(problem);
    std::vector<std::vector<const CodedPiece*>> devices(3);
    for (size_t i = 0; i < 8; ++i) {
      devices[random.up_to(size_t{2})].push_back(coder(Piece::whole(i, problem.tables[i])));
    }
    Assignment state(problem, devices);
    for (int step = 0; step < 50; ++step) {
      const double before = state.cost();
      const int from = random.up_to(2), to = (from + 1 + random.up_to(1)) % 3;
      if (state.on(from).empty()) continue;
      const size_t at = random.up_to(state.on(from).size() - 1);
      const Assignment::Edit edit = {{{from, at}}, {{to, state.on(from)[at]}}};
      state.apply(edit);
      const double after = state.cost();
      const Evaluation all = evaluate(problem, state.placement());
      EXPECT_NEAR(after, all.ms, 1e-9 * all.ms);
      for (int device = 0; device < 3; ++device) {
        EXPECT_EQ(state.bytes(device), all.bytes[static_cast<size_t>(device)]);
      }
      if (random.up_to(1) == 0) {
        state.undo();
        EXPECT_EQ(state.cost(), before);
      }
    }
  }
}

TEST(Placements, RoomCountsWhatLeavesAndComes) {
  const ClosedForm cost;
  Problem problem = two_tables(cost);
  Coder coder(problem);
  const CodedPiece* a = coder(Piece::whole(0, problem.tables[0]));
  const CodedPiece* b = coder(Piece::whole(1, problem.tables[1]));
  problem.memory_bytes = std::max(a->bytes, b->bytes);
  const Assignment state(problem, {{a}, {b}});
  EXPECT_FALSE(state.has_room({{{0, 0}}, {{1, a}}}));
  EXPECT_TRUE(state.has_room({{{0, 0}, {1, 0}}, {{1, a}, {0, b}}}));
}

TEST(Placements, TextReadsBackEqual) {
  const ClosedForm cost;
  Random random(3);
  for (int round = 0; round < 10; ++round) {
    const Problem problem = random_problem(random, 10, 4, 1.3, cost);
    const auto answer = shard(problem, "auto", {.seed = 1, .budget = 2000, .progress = {}});
    ASSERT_TRUE(answer && answer->found);
    const auto read = read_placement(problem, placement_csv(problem, answer->placement), "p.csv");
    ASSERT_TRUE(read) << read.error().message;
    const Evaluation again = evaluate(problem, *read);
    EXPECT_TRUE(again.fits());
    // Shares are taken from rows, which blocks of an odd number divide unevenly.
    EXPECT_NEAR(again.ms, answer->evaluation.ms, 1e-2 * again.ms);
  }
}

TEST(Placements, WrongTextIsRefusedWithItsLine) {
  const ClosedForm cost;
  const Problem problem = two_tables(cost);
  const auto error = [&](const std::string& text) {
    const auto read = read_placement(problem, text, "p.csv");
    return read ? std::string("no error") : read.error().message;
  };
  const std::string head = "table,kind,device,first_row,rows,first_column,columns\n";
  EXPECT_EQ(error("table,kind,first_row,rows,first_column\n"),
            "p.csv:1: expected the columns table, kind, device, first_row, rows, first_column, "
            "columns, found no device, columns");
  EXPECT_EQ(error(head + "x,table,0,0,1,0,4\n"),
            "p.csv:2: table: expected the name of a table, found 'x'");
  EXPECT_EQ(error(head + "t0,whole,0,0,1,0,4\n"),
            "p.csv:2: kind: expected one of replicated, table, columns, rows, table_rows, "
            "table_columns, grid, found 'whole'");
  EXPECT_EQ(error(head + "t0,table,2,0,1,0,4\n"),
            "p.csv:2: device: expected a whole number from 0 to 1, found '2'");
}

TEST(Placements, UnknownPlannersAreNamed) {
  const ClosedForm cost;
  const auto answer = shard(two_tables(cost), "best", {});
  EXPECT_EQ(answer.error().message,
            "planner of tables: expected one of auto, neuroshard, torchrec, dim, size, lookup, "
            "size-lookup, random, found 'best'");
}

}  // namespace
}  // namespace tessera::tables
