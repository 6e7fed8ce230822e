// Places tables by simple rules: classical heuristics for balancing sums, published greedy rules,
// and brute force, with which tests compare planners.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tables/placement.h"

namespace tessera::tables {

// Puts each item on the device with the smallest sum so far, largest first (longest processing
// time). Returns the device of each item.
std::vector<int> longest_first(const std::vector<double>& values, int devices);
// Balances the sums by the largest differencing method. It begins with a tuple of sums for each
// item, and always joins the two tuples with the largest differences between their sums, the
// largest sum of one with the smallest of the other. Returns the device of each item. For {8, 7, 6,
// 5, 4} on 2 devices the sums are 16 and 14, where longest_first gives 17 and 13.
std::vector<int> karmarkar_karp(const std::vector<double>& values, int devices);

// The value by which greedy() sorts tables. greedy() places the tables in the order of falling
// values, each on the device with the smallest sum of values that has memory left; among equal
// devices on the one with more memory left (docs/strategies/planning-tables.md section 11).
enum class GreedyKey : uint8_t {
  kDim,
  kSize,        // bytes
  kLookup,      // dim * pooling factor
  kSizeLookup,  // dim * pooling factor * log10(rows)
};
double greedy_key(const Table& table, GreedyKey key);
Answer greedy(const Problem& problem, GreedyKey key);

// Puts each table on a random device with enough memory left, each of which is equally likely.
Answer random_placement(const Problem& problem, uint64_t seed);

// Returns the best placement of whole tables by trying all of them. There are devices ^ tables
// placements, so this is for small problems. If `found` is false, no placement fits.
Answer brute_force(const Problem& problem);

// Packs pieces on devices so that all fit, by bytes alone, and returns the device of each piece.
// First puts the pieces, the largest first, each on the fullest device where it fits. If that
// fails, searches with backtracking for up to `most` steps. Returns an empty list if no packing was
// found; `exact` then says whether it is proved that none exists.
std::vector<int> pack(const std::vector<int64_t>& bytes, int devices, int64_t memory_bytes,
                      int64_t most, bool& exact);

}  // namespace tessera::tables
