// Which positions of an order exchange messages in a collective, by algorithm. An algorithm fixes
// this as a function of the rank number, whatever machines the ranks are on. An order O says which
// machine has which rank: machine O[k] has position (rank) k. A pattern is a list of phases; the
// messages of a phase run at the same time, and phases run one after the other.
//
//   TESSERA_TRY(const OrderPattern pattern, order_pattern(8, {.bytes = 8e6}));   // a ring
//
// docs/theory/cloud-collectives.md section 3 gives the phases. If an algorithm wants a power of
// two (or of the base of bcube) and there are other numbers of ranks, the ranks beyond the largest
// power fold in: each sends its array to a rank below before, and gets the result afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/redistribution.h"
#include "tessera/base/result.h"

namespace tessera {

enum class OrderAlgorithm : uint8_t {
  kRing,               // rounds in which each rank sends S/N to the next
  kHalvingDoubling,    // reduce-scatter by halves, all-gather by doubles
  kRecursiveDoubling,  // log2 N rounds of S
  kDoubleTree,         // two binary trees of S/2, reduce then broadcast
  kBcube,              // log_B N phases in groups of B, there and back
  kHierarchical,       // rings inside groups of neighbours, rings between equal ranks of the groups
};
std::string_view algorithm_name(OrderAlgorithm algorithm);  // "ring", "halving_doubling", ...
std::vector<std::string> algorithm_names();
Result<OrderAlgorithm> parse_algorithm(std::string_view name);

struct PatternOptions {
  OrderAlgorithm algorithm = OrderAlgorithm::kRing;
  // kAllReduce, or kReduceScatter or kAllGather, which are one half of it.
  CollectiveKind collective = CollectiveKind::kAllReduce;
  double bytes = 0;  // S, of the whole array
  // Halving-doubling: distance 1 carries S/2 and distance N/2 carries S/N; false: the opposite.
  bool near_first = true;
  // Ring whose cost is the length of the cycle (messages one after the other, as latency-bound
  // implementations behave), not the number of rounds times its longest hop.
  bool tour = false;
  int64_t base = 2;    // B of bcube, at least 2
  int64_t chunks = 1;  // pieces in which a tree's half passes, at least 1
  int64_t group = 0;   // ranks of a group of `hierarchical`; must divide N
};

struct PatternMessage {
  int32_t from = 0, to = 0;  // positions
  double bytes = 0;
  friend bool operator==(const PatternMessage&, const PatternMessage&) = default;
};
struct PatternPhase {
  std::vector<PatternMessage> messages;
  double repeats = 1;
  bool sum = false;  // the messages run one after the other (PatternOptions::tour)
};
struct OrderPattern {
  PatternOptions options;
  int64_t ranks = 0;
  std::vector<PatternPhase> phases;
  // Whether the cost of each order equals that of an order with any chosen machine at position 0:
  // a ring may be turned, and exchanges at distances 2^i are equal after an exclusive or.
  bool any_first = false;
  // The double tree: the parent of each position in each tree, -1 at the root, and the number of
  // edges of the longest path.
  std::vector<std::vector<int32_t>> parents;
  int64_t depth = 0;
};
// Returns the pattern. Errors: an algorithm that does not know the collective; a base below 2; a
// group size that does not divide the number of ranks.
Result<OrderPattern> order_pattern(int64_t ranks, const PatternOptions& options);

// Returns the rank's parent in tree 0 or 1 of the double binary tree; -1: the root. A rank is inner
// in at most one of the trees, except rank 0 if the number of ranks is odd.
int64_t tree_parent(int64_t rank, int64_t ranks, int tree);

}  // namespace tessera
