// Runs NeuroShard's search with any cost model (docs/strategies/planning-tables.md section 10): a
// beam search over column splits around a greedy placement that is repeated for a grid of limits on
// the columns of a device.
//
//   const Answer answer = neuroshard(problem, {});
#pragma once

#include <vector>

#include "tessera/search/tables/placement.h"

namespace tessera::tables {

struct NeuroshardOptions {
  int beam = 3;         // K: lists of splits kept
  int candidates = 10;  // N: tables by memory, and as many by computation, tried in each turn
  int depth = 10;       // L: splits at most
  int grid = 11;        // M: limits 1.0, 1.05, ... of the mean columns of a device
};

// Splits the tables of `steps`, one after the other: piece i keeps the first half of its columns, a
// new last piece gets the second. (64, 32) with {0, 0}: 16, 32, 32, 16.
std::vector<Piece> split_columns(const std::vector<Table>& tables,
                                 const std::vector<size_t>& steps);

Answer neuroshard(const Problem& problem, const NeuroshardOptions& options);

}  // namespace tessera::tables
