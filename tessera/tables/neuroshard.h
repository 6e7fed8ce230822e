// Runs NeuroShard's search with any cost model (docs/strategies/planning-tables.md section 10): a
// beam search over column splits. Each set of splits is priced by a greedy placement, which is
// repeated for a grid of limits on the columns of a device.
//
//   const Answer answer = neuroshard(problem, {});
#pragma once

#include <vector>

#include "tessera/tables/placement.h"

namespace tessera::tables {

struct NeuroshardOptions {
  int beam = 3;  // K: lists of splits that are kept in each turn
  // N: the largest pieces by memory, and as many by computation, that are split in each turn
  int candidates = 10;
  int depth = 10;  // L: most splits
  // M: number of limits, which are 1.0, 1.05, ... times the mean columns of a device
  int grid = 11;
};

// Splits the tables of `steps`, one after the other: piece i keeps the first half of its columns, a
// new last piece gets the second. Two tables of 64 and 32 columns with steps {0, 0} become pieces
// of 16, 32, 32 and 16 columns.
std::vector<Piece> split_columns(const std::vector<Table>& tables,
                                 const std::vector<size_t>& steps);

Answer neuroshard(const Problem& problem, const NeuroshardOptions& options);

}  // namespace tessera::tables
