// Places tables by simple rules, the classical heuristics of balancing sums, and by the tests'
// oracle.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/search/tables/placement.h"

namespace tessera::tables {

// Puts each item on the device with the smallest sum so far, largest first (longest processing
// time). Returns the device of each item.
std::vector<int> longest_first(const std::vector<double>& values, int devices);
// Balances the sums by the largest differencing method: tuples of sums are joined, largest with
// smallest, always the two whose sums differ most. Returns the device of each item. {8, 7, 6, 5, 4}
// on 2: 16 and 14, where longest_first gives 17 and 13.
std::vector<int> karmarkar_karp(const std::vector<double>& values, int devices);

// The value by which greedy() sorts tables. It puts the largest first, each on the device with the
// smallest sum that has memory left (equal: the one with more memory left);
// docs/strategies/planning-tables.md section 11.
enum class GreedyKey : uint8_t {
  kDim,
  kSize,        // bytes
  kLookup,      // dim * pooling factor
  kSizeLookup,  // dim * pooling factor * log10(rows)
};
double greedy_key(const Table& table, GreedyKey key);
Answer greedy(const Problem& problem, GreedyKey key);

// Puts each table on a device drawn evenly from those with memory left.
Answer random_placement(const Problem& problem, uint64_t seed);

// Returns the best placement of whole tables, by trying all devices ^ tables of them; the caller
// keeps that number small. Its `found` is exact.
Answer brute_force(const Problem& problem);

// Packs whole pieces on devices so that all fit, by bytes alone: each on the fullest device that
// still has room, largest piece first, and if that fails by a search that goes back, up to `most`
// steps. Returns nothing if it found nothing; `exact` then says whether no packing exists.
std::vector<int> pack(const std::vector<int64_t>& bytes, int devices, int64_t memory_bytes,
                      int64_t most, bool& exact);

}  // namespace tessera::tables
