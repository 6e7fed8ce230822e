#include "tessera/tables/torchrec.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tessera/tables/test_problems.h"
#include "tessera/tables/torchrec_planner.h"

namespace tessera::tables {
namespace {

Table small() {
  Table table;
  table.name = "t";
  table.rows = 100;
  table.dim = 10;
  return table;
}

// docs/theory/zionex-dlrm.md section 6: R = 100, D = 10, P = 1, batch 512, W = 2, fused,
// table-wise.
TEST(TorchRec, WorkedExampleToTheDigit) {
  const TorchRecEstimator estimator;
  const TorchRecMs ms = estimator.perf(small(), Piece::whole(0, small()), 2);
  const double hbm = 897.0 * 1073741824 / 1000, inside = 600.0 * 1073741824 / 1000;
  EXPECT_EQ(ms.forward_compute, (8192 + 131072 + 40960) * 1.75 / hbm);
  EXPECT_EQ(ms.forward_exchange, 40960 / inside);
  EXPECT_EQ(ms.backward_compute, 2 * ms.forward_compute);
  EXPECT_EQ(ms.backward_exchange, ms.forward_exchange);
  EXPECT_EQ(ms.prefetch, 0);
  // The numbers are as the sheet prints them.
  EXPECT_NEAR(ms.forward_compute, 3.2746e-4, 0.5e-8);
  EXPECT_NEAR(ms.forward_exchange, 6.3578e-5, 0.5e-9);
}

// Checks the other lines of the sheet's formulas, with numbers put in by hand.
TEST(TorchRec, OtherKindsByHand) {
  TorchRecConstants c;
  c.batch = 8;
  c.devices_a_node = 2;
  c.hbm_bytes_per_ms = 1000;
  c.host_bytes_per_ms = 100;
  c.inside_bytes_per_ms = 500;
  c.between_bytes_per_ms = 50;
  const TorchRecEstimator estimator(c);
  Table table = small();
  table.dim = 64;
  table.pooling_factor = 3;
  table.misses = 5;
  Piece piece = Piece::whole(0, table);

  piece.kind = Sharding::kRows;  // over 4 devices of 2 nodes
  piece.rows = 25;
  piece.share = 0.25;
  TorchRecMs ms = estimator.perf(table, piece, 4);
  const double in = 24 * 8, look = 24 * 64 * 4, out = 8 * 4 * 64 * 4;
  EXPECT_DOUBLE_EQ(ms.forward_compute, (in + look + out) / 1000);
  EXPECT_DOUBLE_EQ(ms.forward_exchange, out / 50);
  EXPECT_DOUBLE_EQ(ms.backward_exchange, out / 50 + out * 2.455 / 1000);
  EXPECT_DOUBLE_EQ(ms.prefetch, 5 * 64 * 4 / 100.0 / 4);

  piece.kind = Sharding::kTableRows;  // over the 2 devices of a node
  piece.rows = 50;
  piece.share = 0.5;
  ms = estimator.perf(table, piece, 4);
  EXPECT_DOUBLE_EQ(ms.forward_compute, (2 * in + 2 * look + out) / 1000);
  EXPECT_DOUBLE_EQ(ms.forward_exchange, out / 500 + 8 * 2 * 64 * 4 / 50.0);
  EXPECT_DOUBLE_EQ(ms.backward_exchange, out / 500 + out * 2.455 / 1000 + 8 * 2 * 64 * 4 / 50.0);

  piece = Piece::whole(0, table);
  piece.kind = Sharding::kReplicated;
  piece.kernel = Kernel::kDense;
  piece.share = 0.25;
  ms = estimator.perf(table, piece, 4);
  EXPECT_DOUBLE_EQ(ms.forward_compute, (24 * 8 + 24 * 64 * 4 + 8 * 64 * 4) / 500.0);
  const double gradient = 100 * 64 * 4;  // two nodes: (2 n - 1) / n = 1.5
  EXPECT_DOUBLE_EQ(ms.backward_exchange, gradient * 1.5 / (50 * 2) + gradient * 9.22 / 500);
  // More than two nodes: doubled.
  EXPECT_DOUBLE_EQ(estimator.perf(table, piece, 6).backward_exchange,
                   2 * gradient * 1.5 / (50 * 2) + gradient * 9.22 / 500);

  piece = Piece::whole(0, table);
  piece.kernel = Kernel::kUvmCaching;  // 64 columns: the medium penalty
  ms = estimator.perf(table, piece, 4);
  EXPECT_DOUBLE_EQ(ms.forward_compute,
                   (24 * 4 * 8 + 24 * 4 * 64 * 4 + out) * 1.15 / ((0.2 * 1000 + 0.8 * 100) / 10));
  EXPECT_DOUBLE_EQ(ms.prefetch, 5 * 64 * 4 / 100.0);
}

TEST(TorchRec, StorageCountsStateIdsAndVectors) {
  TorchRecConstants c;
  c.batch = 8;
  Piece piece = Piece::whole(0, small());
  const auto hbm = [&](TorchRecPipeline pipeline, Optimizer optimizer) {
    c.pipeline = pipeline;
    return TorchRecEstimator(c).storage(small(), piece, 2, optimizer).hbm;
  };
  const int64_t in = 8 * 2 * 8, out = 8 * 2 * 10 * 4, tensor = 4000;
  EXPECT_EQ(hbm(TorchRecPipeline::kNone, Optimizer::kSgd), tensor + in + out);
  EXPECT_EQ(hbm(TorchRecPipeline::kSparseDist, Optimizer::kAdam), 3 * tensor + 2 * in);
  EXPECT_EQ(hbm(TorchRecPipeline::kPrefetch, Optimizer::kAdagrad), 2 * tensor + 3 * in);
  EXPECT_EQ(hbm(TorchRecPipeline::kNone, Optimizer::kRowWiseAdagrad), tensor + 400 + in + out);
  piece.kernel = Kernel::kUvmCaching;
  const TorchRecBytes cached =
      TorchRecEstimator(TorchRecConstants{.batch = 8}).storage(small(), piece, 2, Optimizer::kSgd);
  EXPECT_EQ(cached.hbm, tensor / 5 + 4 * 100 + 16 * 20 + in + out);
  EXPECT_EQ(cached.ddr, tensor);
}

TEST(TorchRec, MemoryIsKeptForDenseParametersAndIds) {
  TorchRecConstants c;
  c.batch = 10;
  EXPECT_EQ(TorchRecEstimator(c).budget({small()}, 1000000), 1000000);
  c.reserved_share = 0.1;
  c.dense_parameter_bytes = 1000;
  EXPECT_EQ(TorchRecEstimator(c).budget({small()}, 1000000), 900000 - 6000 - 80);
}

Problem four_tables(const CostModel& cost) {
  Problem problem;
  Random random(3);
  problem = random_problem(random, 4, 4, 4, cost);
  return problem;
}

TEST(TorchRec, EnumeratesKindsAndKernelsUnderConstraints) {
  TorchRecConstants c;
  c.devices_a_node = 2;
  c.least_columns = 64;
  const TorchRecEstimator estimator(c);
  Problem problem = four_tables(estimator);
  problem.tables[0].dim = 160;
  problem.tables[0].rows = 10;
  problem.tables[1].kinds = {"rows"};
  problem.tables[1].kernels = {"fused", "uvm"};
  const Options options = enumerate_options(problem, estimator);
  ASSERT_EQ(options[1].size(), 2U);
  EXPECT_EQ(options[1][1].kernel, Kernel::kUvm);
  // There is one replicated option with the dense kernel, and six other kinds with four kernels.
  EXPECT_EQ(options[0].size(), 1U + 6 * 4);
  for (const TorchRecOption& option : options[0]) {
    if (option.kind == Sharding::kColumns) {
      ASSERT_EQ(option.pieces.size(), 3U);  // 64, 64, 32
      EXPECT_EQ(option.pieces[2].columns, 32);
    }
    if (option.kind == Sharding::kRows) {
      ASSERT_EQ(option.pieces.size(), 4U);  // 3, 3, 3, 1
      EXPECT_EQ(option.pieces[3].rows, 1);
    }
    if (option.kind == Sharding::kGrid) {
      EXPECT_EQ(option.pieces.size(), 6U);
    }
  }
}

// On one node too, rows go over its devices, and columns in blocks whose rows go over them; the
// times of rows are those of row-wise sharding, since no other node is asked.
TEST(TorchRec, OneNodeHasItsKindsToo) {
  TorchRecConstants c;
  c.devices_a_node = 4;
  c.least_columns = 64;
  const TorchRecEstimator estimator(c);
  Problem problem = four_tables(estimator);
  problem.tables[0].dim = 128;
  problem.tables[0].rows = 1000;
  problem.tables[0].kernels = {"fused"};
  const Options options = enumerate_options(problem, estimator);
  const auto option_of = [&](Sharding kind) {
    const auto found = std::find_if(options[0].begin(), options[0].end(),
                                    [&](const TorchRecOption& one) { return one.kind == kind; });
    EXPECT_NE(found, options[0].end()) << sharding_name(kind);
    return found == options[0].end() ? TorchRecOption() : *found;
  };
  const TorchRecOption table_rows = option_of(Sharding::kTableRows);
  ASSERT_EQ(table_rows.pieces.size(), 4U);
  EXPECT_EQ(table_rows.pieces[3].first_row, 750);
  EXPECT_DOUBLE_EQ(table_rows.sum_ms, option_of(Sharding::kRows).sum_ms);
  const TorchRecOption grid = option_of(Sharding::kGrid);
  ASSERT_EQ(grid.pieces.size(), 8U);  // two blocks of columns over four devices each
  EXPECT_EQ(grid.pieces[7].first_column, 64);
  EXPECT_EQ(grid.pieces[7].first_row, 750);
  EXPECT_EQ(option_of(Sharding::kTableColumns).pieces.size(), 2U);
  // The planner places them: each device has a piece of every block.
  for (const char* kind : {"table_rows", "grid"}) {
    for (Table& table : problem.tables) {
      table.dim = 128;
      table.kinds = {kind};
      table.kernels = {"fused"};
    }
    problem.memory_bytes = int64_t{1} << 40;
    const Answer answer = torchrec_plan(problem);
    ASSERT_TRUE(answer.found) << kind << ": " << answer.reason;
    EXPECT_TRUE(answer.evaluation.fits()) << answer.evaluation.violations.front();
    for (int device = 0; device < 4; ++device) {
      EXPECT_EQ(std::count_if(answer.placement.begin(), answer.placement.end(),
                              [&](const PlacedPiece& placed) { return placed.device == device; }),
                std::string_view(kind) == "grid" ? 8 : 4);
    }
  }
}

TEST(TorchRec, GreedyProposalsMoveTheLargestTableToItsNextOption) {
  // There are two tables with two options each; bytes and times are chosen by hand.
  Options options(2);
  const auto add = [&](size_t table, double ms, double most, int64_t bytes) {
    TorchRecOption option;
    option.table = table;
    option.sum_ms = ms;
    option.most_ms = most;
    option.bytes.hbm = bytes;
    options[table].push_back(option);
  };
  add(0, 2, 2, 10);
  add(0, 3, 1, 40);
  add(1, 1, 1, 20);
  add(1, 5, 5, 1);
  EXPECT_EQ(propose_greedy(options, true), (std::vector<Proposal>{{0, 0}, {0, 1}, {1, 1}}));
  EXPECT_EQ(propose_greedy(options, false), (std::vector<Proposal>{{1, 0}, {0, 0}, {0, 1}}));
  EXPECT_EQ(propose_grid(options).size(), 4U);
  EXPECT_EQ(propose_uniform(options).size(), 0U);  // each table has its one kind twice
}

// Compares the dynamic program with all proposals: for each limit that is a whole number of bins,
// it has the least sum of times.
TEST(TorchRec, ProposalsByMemoryAreTheLeastSums) {
  Random random(11);
  for (int round = 0; round < 50; ++round) {
    Options options(4);
    for (size_t t = 0; t < 4; ++t) {
      for (int i = 0; i < 3; ++i) {
        TorchRecOption option;
        option.sum_ms = random.from(1, 9);
        option.bytes.hbm = 10 * random.up_to(30);
        options[t].push_back(option);
      }
    }
    // Bins of 10 bytes: 2 devices of 400 bytes, 40 bins each.
    const auto proposals = propose_by_memory(options, 2, 400, 40);
    const auto total = [&](const Proposal& proposal) {
      std::pair<double, int64_t> out{0, 0};
      for (size_t t = 0; t < 4; ++t) {
        out.first += options[t][proposal[t]].sum_ms;
        out.second += options[t][proposal[t]].bytes.hbm;
      }
      return out;
    };
    for (int64_t limit = 0; limit <= 800; limit += 10) {
      double least = 1e9, proposed = 1e9;
      for (const Proposal& proposal : propose_grid(options)) {
        const auto [ms, bytes] = total(proposal);
        if (bytes <= limit) least = std::min(least, ms);
      }
      for (const Proposal& proposal : proposals) {
        const auto [ms, bytes] = total(proposal);
        if (bytes <= limit) proposed = std::min(proposed, ms);
      }
      EXPECT_NEAR(proposed, least, 1e-9);
    }
  }
}

TEST(TorchRec, PartitionsUniformFirstThenLargestOnTheLeastLoaded) {
  const TorchRecEstimator estimator;
  Problem problem = four_tables(estimator);
  problem.devices = 2;
  problem.tables[0].kinds = {"rows"};
  for (size_t t = 1; t < 4; ++t) {
    problem.tables[t].kinds = {"table"};
    problem.tables[t].kernels = {"fused"};
    problem.tables[t].dim = 128;
    problem.tables[t].rows = static_cast<int64_t>(1000 * t);
    problem.tables[t].pooling_factor = 1;
  }
  const Options options = enumerate_options(problem, estimator);
  const Proposal proposal(4, 0);
  const Partition found =
      partition_greedy(options, proposal, 2, 2, int64_t{1} << 40, int64_t{1} << 40);
  ASSERT_TRUE(found.found);
  // Table 3 is the largest and goes to device 0, then table 2 to device 1, table 1 to device 0.
  for (const PlacedPiece& placed : found.placement) {
    if (placed.piece.table == 3) {
      EXPECT_EQ(placed.device, 0);
    }
    if (placed.piece.table == 2) {
      EXPECT_EQ(placed.device, 1);
    }
    if (placed.piece.table == 1) {
      EXPECT_EQ(placed.device, 0);
    }
  }
  EXPECT_FALSE(partition_greedy(options, proposal, 2, 2, 1000, 1000).found);
  const Partition balanced =
      partition_balanced(options, proposal, 2, 2, int64_t{1} << 40, int64_t{1} << 40);
  EXPECT_LE(balanced.most_bytes, found.most_bytes);
  EXPECT_LE(balanced.ms, found.ms * 1.02);
}

// Every answer covers all tables and fits, and its rating is the evaluation by the cost model.
TEST(TorchRec, AnswersAreValidOnSeveralNodes) {
  Random random(5);
  TorchRecConstants c;
  c.devices_a_node = 2;
  const TorchRecEstimator estimator(c);
  int found = 0;
  for (int round = 0; round < 20; ++round) {
    const Problem problem =
        random_problem(random, 3 + random.up_to(8), 4, random.from(0.6, 3), estimator);
    const Answer answer = torchrec_plan(problem);
    if (!answer.found) continue;
    ++found;
    EXPECT_TRUE(answer.evaluation.fits());
    EXPECT_GE(answer.evaluation.ms, answer.bound_ms * (1 - 1e-9));
  }
  EXPECT_GE(found, 15);
}

}  // namespace
}  // namespace tessera::tables
