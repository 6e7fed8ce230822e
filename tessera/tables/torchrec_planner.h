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

#include "tessera/tables/placement.h"
#include "tessera/tables/torchrec.h"

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
// Returns the options of each table, in the order of Sharding and Kernel. Kinds within a node are
// left out if there is only one node. Columns are cut only if a table has more columns than the
// least width of a piece.
std::vector<std::vector<TorchRecOption>> enumerate_options(const Problem& problem,
                                                           const TorchRecEstimator& estimator);

// The index of an option for each table.
using Proposal = std::vector<size_t>;
using Options = std::vector<std::vector<TorchRecOption>>;
inline constexpr int64_t kMostGridProposals = 10000;
// Proposes all combinations of options; none if there are more than kMostGridProposals.
std::vector<Proposal> propose_grid(const Options& options);
std::vector<Proposal> propose_greedy(const Options& options, bool by_sum);
std::vector<Proposal> propose_uniform(const Options& options);
// Proposes by dynamic programming: for each of (bins * devices) limits on the memory of all devices
// together, the options with the least sum of times.
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
// Partitions with the smallest memory limit with which the time is at most 2 % longer. The limit is
// searched in at most 10 tries.
Partition partition_balanced(const Options& options, const Proposal& proposal, int devices,
                             int64_t devices_a_node, int64_t hbm_bytes, int64_t ddr_bytes);

// Runs the planner. If the problem's cost model is TorchRec's, takes its constants, else the
// default constants and the fused kernel only.
Answer torchrec_plan(const Problem& problem);

}  // namespace tessera::tables
