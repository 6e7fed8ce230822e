// Computes the cost of a collective as a function of the order of its ranks
// (docs/theory/cloud-collectives.md sections 3 and 4): algorithms fix which ranks exchange
// messages, the network knows machines. An order O says which machine has which rank: machine O[k]
// gets rank k.
//
// An algorithm is a list of phases; in a phase messages run at the same time. Two models price a
// phase: pairwise costs (the slowest message), and racks with shared ways up (congestion).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

enum class OrderedAlgorithm : uint8_t {
  kRing,               // 2(N-1) rounds of S/N
  kHalvingDoubling,    // reduce-scatter by halves, all-gather by doubles
  kRecursiveDoubling,  // log2 N rounds of S
  kDoubleBinaryTree,   // two trees of S/2, reduce then broadcast
  kBcube               // log_B N phases in groups of B, forth and back
};
std::string_view ordered_name(OrderedAlgorithm algorithm);  // "ring", "halving_doubling", ...

struct OrderOptions {
  OrderedAlgorithm algorithm = OrderedAlgorithm::kRing;
  double bytes = 0;  // S, of the array
  // Halving-doubling: distance 1 carries S/2 and distance N/2 carries S/N; false: the opposite.
  bool near_first = true;
  // Ring under pairwise costs: the cost is the length of the cycle (the travelling salesman's tour
  // of S/N messages), not 2(N-1) times its longest edge.
  bool tour = false;
  int64_t base = 2;    // B of BCube, >= 2
  int64_t chunks = 1;  // pieces in which a tree's half passes, >= 1
};

struct RankMessage {
  int64_t from = 0, to = 0;  // ranks
  double bytes = 0;
  friend bool operator==(const RankMessage&, const RankMessage&) = default;
};
struct RankPhase {
  std::vector<RankMessage> messages;
  int64_t repeats = 1;
};
// Returns the phases of an all-reduce over `ranks` ranks. Where the algorithm wants a power of two,
// the ranks beyond it fold in: one phase before and one behind, S each. For the double binary tree:
// all edges of both trees as a phase up and one down (for congestion; order_cost adds the depth).
std::vector<RankPhase> rank_phases(int64_t ranks, const OrderOptions& options);

// Returns the rank's parent in tree 0 or 1 of the double binary tree; -1: the root. A rank is inner
// in at most one of the trees, except rank 0 if the number of ranks is odd.
int64_t tree_parent(int64_t rank, int64_t ranks, int tree);

// c_ij(m) = latency_ij + m * seconds_a_byte_ij, by machine, row-major.
struct PairCosts {
  int64_t machines = 0;
  std::vector<double> latency_s, seconds_a_byte;
  double at(int64_t from, int64_t to, double bytes) const {
    const auto i = static_cast<size_t>(from * machines + to);
    return latency_s[i] + bytes * seconds_a_byte[i];
  }
};
// Machines in racks, each rack with one way up and one down that its machines share. The cost of a
// phase is the largest of a machine's bytes (out, in) / host_rate and a rack's bytes (out, in) /
// its uplink, plus the latency.
struct Racks {
  std::vector<int64_t> rack;                  // by machine, from 0
  double host_rate = 0;                       // bytes/s of a machine, one direction
  std::vector<double> uplink_rate;            // by rack, bytes/s, one direction
  double latency_s = 0, cross_latency_s = 0;  // of a message; of a message that leaves its rack
};

// Returns seconds. `order` is a permutation of the machines.
double order_cost(const PairCosts& costs, const std::vector<int64_t>& order,
                  const OrderOptions& options);
double order_cost(const Racks& racks, const std::vector<int64_t>& order,
                  const OrderOptions& options);
// Returns the number of the ring's edges that leave a rack.
int64_t cross_rack_edges(const Racks& racks, const std::vector<int64_t>& order);

}  // namespace tessera
