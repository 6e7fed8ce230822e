#include "rank_order.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tessera {
namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

int64_t power_of_two_below(int64_t ranks) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(ranks)));
}

// Exchanges between each rank below `ranks` and the rank at `distance` (a power of two), both ways.
RankPhase pairs(int64_t ranks, int64_t distance, double bytes) {
  RankPhase phase;
  for (int64_t r = 0; r < ranks; ++r) phase.messages.push_back({r, r ^ distance, bytes});
  return phase;
}

RankPhase fold(int64_t ranks, int64_t power, double bytes, bool in) {
  RankPhase phase;
  for (int64_t r = power; r < ranks; ++r) {
    phase.messages.push_back(in ? RankMessage{r, r - power, bytes}
                                : RankMessage{r - power, r, bytes});
  }
  return phase;
}

std::vector<RankPhase> ring(int64_t ranks, double bytes) {
  RankPhase phase;
  phase.repeats = 2 * (ranks - 1);
  for (int64_t r = 0; r < ranks; ++r) {
    phase.messages.push_back({r, (r + 1) % ranks, bytes / static_cast<double>(ranks)});
  }
  return {phase};
}

std::vector<RankPhase> doubling(int64_t ranks, const OrderOptions& options) {
  const int64_t power = power_of_two_below(ranks);
  const bool halves = options.algorithm == OrderedAlgorithm::kHalvingDoubling;
  std::vector<RankPhase> out;
  if (power < ranks) out.push_back(fold(ranks, power, options.bytes, true));
  double part = options.bytes;
  for (int64_t near = 1, far = power / 2; near < power; near *= 2, far /= 2) {
    if (halves) part /= 2;
    out.push_back(pairs(power, !halves || options.near_first ? near : far, part));
    if (halves) out.back().repeats = 2;  // the all-gather takes the opposite way back
  }
  if (power < ranks) out.push_back(fold(ranks, power, options.bytes, false));
  return out;
}

std::vector<RankPhase> bcube(int64_t ranks, const OrderOptions& options) {
  std::vector<RankPhase> out;
  double part = options.bytes;
  for (int64_t stride = 1; stride < ranks; stride *= options.base) {
    part /= static_cast<double>(options.base);
    RankPhase phase;
    phase.repeats = 2;
    const int64_t span = stride * options.base;
    for (int64_t r = 0; r < ranks; ++r) {
      for (int64_t peer = r / span * span + r % stride;
           peer < std::min(ranks, (r / span + 1) * span); peer += stride) {
        if (peer != r) phase.messages.push_back({r, peer, part});
      }
    }
    out.push_back(std::move(phase));
  }
  return out;
}

std::vector<RankPhase> trees(int64_t ranks, double bytes) {
  RankPhase up, down;
  for (int tree = 0; tree < 2; ++tree) {
    for (int64_t r = 0; r < ranks; ++r) {
      const int64_t parent = tree_parent(r, ranks, tree);
      if (parent < 0) continue;
      up.messages.push_back({r, parent, bytes / 2});
      down.messages.push_back({parent, r, bytes / 2});
    }
  }
  return {up, down};
}

// Returns the largest sum of cost(parent, child) over all paths from root to leaf.
template <class Cost>
double longest_path(int64_t ranks, int tree, const Cost& cost) {
  double most = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    double sum = 0;
    for (int64_t child = r; tree_parent(child, ranks, tree) >= 0;) {
      const int64_t parent = tree_parent(child, ranks, tree);
      sum += cost(parent, child);
      child = parent;
    }
    most = std::max(most, sum);
  }
  return most;
}

double pair_tree_cost(const PairCosts& costs, const std::vector<int64_t>& order,
                      const OrderOptions& options) {
  const auto ranks = static_cast<int64_t>(order.size());
  const double chunk = options.bytes / 2 / static_cast<double>(options.chunks);
  double most = 0;
  for (int tree = 0; tree < 2; ++tree) {
    double slowest = 0;
    const auto edge = [&](int64_t parent, int64_t child) {
      const int64_t a = order[at(parent)], b = order[at(child)];
      // The reduction goes up, the broadcast down; both are priced equally.
      const double cost = std::max(costs.at(a, b, chunk), costs.at(b, a, chunk));
      slowest = std::max(slowest, cost);
      return cost;
    };
    const double path = longest_path(ranks, tree, edge);
    most = std::max(most, path + static_cast<double>(options.chunks - 1) * slowest);
  }
  return 2 * most;
}

double phase_cost(const Racks& racks, const std::vector<int64_t>& order, const RankPhase& phase) {
  std::vector<double> host_out(order.size()), host_in(order.size());
  std::vector<double> out(racks.uplink_rate.size()), in(racks.uplink_rate.size());
  bool crosses = false;
  for (const RankMessage& message : phase.messages) {
    const size_t from = at(order[at(message.from)]), to = at(order[at(message.to)]);
    host_out[from] += message.bytes;
    host_in[to] += message.bytes;
    if (racks.rack[from] == racks.rack[to]) continue;
    crosses = true;
    out[at(racks.rack[from])] += message.bytes;
    in[at(racks.rack[to])] += message.bytes;
  }
  double seconds = 0;
  for (size_t m = 0; m < order.size(); ++m) {
    seconds = std::max(seconds, std::max(host_out[m], host_in[m]) / racks.host_rate);
  }
  for (size_t g = 0; g < out.size(); ++g) {
    seconds = std::max(seconds, std::max(out[g], in[g]) / racks.uplink_rate[g]);
  }
  return seconds + (crosses ? std::max(racks.cross_latency_s, racks.latency_s) : racks.latency_s);
}

}  // namespace

std::string_view ordered_name(OrderedAlgorithm algorithm) {
  switch (algorithm) {
    case OrderedAlgorithm::kRing: return "ring";
    case OrderedAlgorithm::kHalvingDoubling: return "halving_doubling";
    case OrderedAlgorithm::kRecursiveDoubling: return "recursive_doubling";
    case OrderedAlgorithm::kDoubleBinaryTree: return "double_binary_tree";
    case OrderedAlgorithm::kBcube: return "bcube";
  }
  return "";
}

int64_t tree_parent(int64_t rank, int64_t ranks, int tree) {
  if (tree == 1) {  // mirrored, or, with an odd number of ranks, turned by one
    const bool even = ranks % 2 == 0;
    const int64_t image = even ? ranks - 1 - rank : (rank + ranks - 1) % ranks;
    const int64_t parent = tree_parent(image, ranks, 0);
    if (parent < 0) return -1;
    return even ? ranks - 1 - parent : (parent + 1) % ranks;
  }
  if (rank == 0) return -1;
  const int64_t bit = rank & -rank;  // height in the tree
  const int64_t parent = (rank ^ bit) | (bit << 1);
  return parent < ranks ? parent : rank ^ bit;
}

std::vector<RankPhase> rank_phases(int64_t ranks, const OrderOptions& options) {
  if (ranks < 2) return {};
  switch (options.algorithm) {
    case OrderedAlgorithm::kRing: return ring(ranks, options.bytes);
    case OrderedAlgorithm::kHalvingDoubling:
    case OrderedAlgorithm::kRecursiveDoubling: return doubling(ranks, options);
    case OrderedAlgorithm::kDoubleBinaryTree: return trees(ranks, options.bytes);
    case OrderedAlgorithm::kBcube: return bcube(ranks, options);
  }
  return {};
}

double order_cost(const PairCosts& costs, const std::vector<int64_t>& order,
                  const OrderOptions& options) {
  if (options.algorithm == OrderedAlgorithm::kDoubleBinaryTree) {
    return pair_tree_cost(costs, order, options);
  }
  const bool tour = options.tour && options.algorithm == OrderedAlgorithm::kRing;
  double seconds = 0;
  for (const RankPhase& phase : rank_phases(static_cast<int64_t>(order.size()), options)) {
    double slowest = 0, sum = 0;
    for (const RankMessage& message : phase.messages) {
      const double cost = costs.at(order[at(message.from)], order[at(message.to)], message.bytes);
      slowest = std::max(slowest, cost);
      sum += cost;
    }
    seconds += tour ? sum : static_cast<double>(phase.repeats) * slowest;
  }
  return seconds;
}

double order_cost(const Racks& racks, const std::vector<int64_t>& order,
                  const OrderOptions& options) {
  const auto ranks = static_cast<int64_t>(order.size());
  double seconds = 0;
  for (const RankPhase& phase : rank_phases(ranks, options)) {
    seconds += static_cast<double>(phase.repeats) * phase_cost(racks, order, phase);
  }
  if (options.algorithm != OrderedAlgorithm::kDoubleBinaryTree || ranks < 2) return seconds;
  // The phases count one hop's latency each and all bytes at once; the first chunk's way through
  // the other levels is still missing.
  const double chunk = options.bytes / 2 / static_cast<double>(options.chunks);
  double depth = 0;
  for (int tree = 0; tree < 2; ++tree) {
    depth = std::max(depth, longest_path(ranks, tree, [](int64_t, int64_t) { return 1.; }));
  }
  return seconds + 2 * (depth - 1) * (chunk / racks.host_rate + racks.latency_s);
}

int64_t cross_rack_edges(const Racks& racks, const std::vector<int64_t>& order) {
  int64_t edges = 0;
  for (size_t k = 0; k < order.size(); ++k) {
    edges += racks.rack[at(order[k])] != racks.rack[at(order[(k + 1) % order.size()])];
  }
  return edges;
}

}  // namespace tessera
