// Runs TorchRec's planner of tables on its own estimator (docs/theory/zionex-dlrm.md section 6):
//
//   enumerate: each table's options, a kind of sharding with a kernel, with the pieces that it makes
//   propose:   an option for each table; grid, greedy (options by the slowest piece, and by the sum),
//              uniform and dynamic programming
//   partition: pieces of a proposal to devices; greedy, then balanced in memory
//   rate:      the largest sum of piece times of a device; the best proposal wins
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/search/tables/placement.h"
#include "tessera/search/tables/torchrec.h"

namespace tessera::tables {

struct TorchRecOption {
  size_t table = 0;
  Sharding kind = Sharding::kTable;
  Kernel kernel = Kernel::kFused;
  std::vector<Piece> pieces;
  std::vector<double> piece_ms;
  std::vector<TorchRecBytes> piece_bytes;
  double most_ms = 0, sum_ms = 0;  // over pieces
  TorchRecBytes bytes;             // of all pieces
};
// Returns the options by table, in the order of Sharding and Kernel. Kinds that stay in a node are
// left out where there is only one node; columns are cut where a table has more of them than the
// least width of a piece.
std::vector<std::vector<TorchRecOption>> enumerate_options(const Problem& problem,
                                                           const TorchRecEstimator& estimator);

// The index of an option for each table.
using Proposal = std::vector<size_t>;
using Options = std::vector<std::vector<TorchRecOption>>;
inline constexpr int64_t kMostGridProposals = 10000;
// Proposes all combinations; none if there are more than kMostGridProposals.
std::vector<Proposal> propose_grid(const Options& options);
std::vector<Proposal> propose_greedy(const Options& options, bool by_sum);
std::vector<Proposal> propose_uniform(const Options& options);
// Proposes the least sum of times for each of `bins` a device limits on the memory of all devices.
std::vector<Proposal> propose_by_memory(const Options& options, int devices, int64_t memory_bytes,
                                        int64_t bins = 100);

struct Partition {
  bool found = false;
  Placement placement;
  double ms = 0;  // rating
  int64_t most_bytes = 0;
};
Partition partition_greedy(const Options& options, const Proposal& proposal, int devices,
                           int64_t devices_a_node, int64_t hbm_bytes, int64_t ddr_bytes);
// Partitions with the smallest memory limit, searched in at most 10 tries, that costs at most 2 %
// of the time.
Partition partition_balanced(const Options& options, const Proposal& proposal, int devices,
                             int64_t devices_a_node, int64_t hbm_bytes, int64_t ddr_bytes);

// Runs the planner with the constants of the problem's cost model if that is TorchRec's, else with
// the defaults and the fused kernel alone.
Answer torchrec_plan(const Problem& problem);

}  // namespace tessera::tables
