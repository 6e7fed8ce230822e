#include "tessera/network/order_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/base/text.h"

namespace tessera {
namespace {

constexpr std::array kAlgorithms = {OrderAlgorithm::kRing,
                                    OrderAlgorithm::kHalvingDoubling,
                                    OrderAlgorithm::kRecursiveDoubling,
                                    OrderAlgorithm::kDoubleTree,
                                    OrderAlgorithm::kBcube,
                                    OrderAlgorithm::kHierarchical};

int64_t power_below(int64_t ranks, int64_t base) {
  int64_t power = 1;
  while (power <= ranks / base) power *= base;
  return power;
}

PatternMessage message(int64_t from, int64_t to, double bytes) {
  return {static_cast<int32_t>(from), static_cast<int32_t>(to), bytes};
}

// Adds a phase in which the ranks from `power` on send to a rank below it, or get from there.
void fold(OrderPattern& out, int64_t power, bool in) {
  if (power == out.ranks) return;
  PatternPhase phase;
  for (int64_t r = power; r < out.ranks; ++r) {
    const int64_t below = r % power;
    phase.messages.push_back(in ? message(r, below, out.options.bytes)
                                : message(below, r, out.options.bytes));
  }
  out.phases.push_back(std::move(phase));
}

void add_ring(OrderPattern& out, double passes) {
  PatternPhase phase;
  phase.repeats = passes * static_cast<double>(out.ranks - 1);
  phase.sum = out.options.tour;
  if (phase.sum) phase.repeats = 1;
  const double part = out.options.bytes / static_cast<double>(out.ranks);
  for (int64_t r = 0; r < out.ranks; ++r) {
    phase.messages.push_back(message(r, (r + 1) % out.ranks, part));
  }
  out.phases.push_back(std::move(phase));
  out.any_first = true;
}

void add_doubling(OrderPattern& out, double passes) {
  const PatternOptions& options = out.options;
  const int64_t power = power_below(out.ranks, 2);
  const bool halves = options.algorithm == OrderAlgorithm::kHalvingDoubling;
  if (options.collective != CollectiveKind::kAllGather) fold(out, power, true);
  double part = options.bytes;
  for (int64_t near = 1, far = power / 2; near < power; near *= 2, far /= 2) {
    if (halves) part /= 2;
    PatternPhase phase;
    phase.repeats = halves ? passes : 1;  // the all-gather takes the opposite way back
    const int64_t distance = !halves || options.near_first ? near : far;
    for (int64_t r = 0; r < power; ++r) phase.messages.push_back(message(r, r ^ distance, part));
    out.phases.push_back(std::move(phase));
  }
  if (options.collective != CollectiveKind::kReduceScatter) fold(out, power, false);
  out.any_first = power == out.ranks;
}

void add_bcube(OrderPattern& out, double passes) {
  const PatternOptions& options = out.options;
  const int64_t power = power_below(out.ranks, options.base);
  if (options.collective != CollectiveKind::kAllGather) fold(out, power, true);
  double part = options.bytes;
  for (int64_t stride = 1; stride < power; stride *= options.base) {
    part /= static_cast<double>(options.base);
    PatternPhase phase;
    phase.repeats = passes;
    const int64_t span = stride * options.base;
    for (int64_t r = 0; r < power; ++r) {
      for (int64_t peer = r / span * span + r % stride; peer < (r / span + 1) * span;
           peer += stride) {
        if (peer != r) phase.messages.push_back(message(r, peer, part));
      }
    }
    out.phases.push_back(std::move(phase));
  }
  if (options.collective != CollectiveKind::kReduceScatter) fold(out, power, false);
  out.any_first = power == out.ranks;
}

void add_hierarchical(OrderPattern& out, double passes) {
  const int64_t size = out.options.group, groups = out.ranks / size;
  PatternPhase inside, between;
  inside.repeats = passes * static_cast<double>(size - 1);
  between.repeats = passes * static_cast<double>(groups - 1);
  for (int64_t r = 0; r < out.ranks; ++r) {
    const int64_t first = r / size * size;
    inside.messages.push_back(
        message(r, first + (r - first + 1) % size, out.options.bytes / static_cast<double>(size)));
    between.messages.push_back(
        message(r, (r + size) % out.ranks, out.options.bytes / static_cast<double>(out.ranks)));
  }
  if (size > 1) out.phases.push_back(std::move(inside));
  if (groups > 1) out.phases.push_back(std::move(between));
  out.any_first = true;  // groups, and the ranks of all groups alike, may be turned
}

void add_trees(OrderPattern& out) {
  PatternPhase up, down;
  for (int tree = 0; tree < 2; ++tree) {
    std::vector<int32_t>& parents = out.parents.emplace_back();
    for (int64_t r = 0; r < out.ranks; ++r) {
      const int64_t parent = tree_parent(r, out.ranks, tree);
      parents.push_back(static_cast<int32_t>(parent));
      if (parent < 0) continue;
      up.messages.push_back(message(r, parent, out.options.bytes / 2));
      down.messages.push_back(message(parent, r, out.options.bytes / 2));
    }
    for (int32_t r : parents) {
      int64_t edges = 1;
      for (; r >= 0 && parents[static_cast<size_t>(r)] >= 0; r = parents[static_cast<size_t>(r)])
        ++edges;
      out.depth = std::max(out.depth, r >= 0 ? edges : 0);
    }
  }
  out.phases = {std::move(up), std::move(down)};
}

Status check_options(int64_t ranks, const PatternOptions& options) {
  const bool whole = options.collective == CollectiveKind::kAllReduce;
  const bool half = options.collective == CollectiveKind::kReduceScatter ||
                    options.collective == CollectiveKind::kAllGather;
  const bool only_whole = options.algorithm == OrderAlgorithm::kRecursiveDoubling ||
                          options.algorithm == OrderAlgorithm::kDoubleTree;
  if (!whole && (!half || only_whole)) {
    return invalid_input(fmt::format(
        "{}: expected the collective all_reduce{}, found {}", algorithm_name(options.algorithm),
        only_whole ? "" : ", reduce_scatter or all_gather", collective_name(options.collective)));
  }
  if (options.algorithm == OrderAlgorithm::kBcube && options.base < 2) {
    return invalid_input(
        fmt::format("bcube: expected a base of at least 2, found {}", options.base));
  }
  if (options.algorithm == OrderAlgorithm::kHierarchical &&
      (options.group < 1 || ranks % options.group != 0)) {
    return invalid_input(
        fmt::format("hierarchical: expected a group size that divides the {} ranks, found {}",
                    ranks, options.group));
  }
  return {};
}

}  // namespace

std::string_view algorithm_name(OrderAlgorithm algorithm) {
  switch (algorithm) {
    case OrderAlgorithm::kRing: return "ring";
    case OrderAlgorithm::kHalvingDoubling: return "halving_doubling";
    case OrderAlgorithm::kRecursiveDoubling: return "recursive_doubling";
    case OrderAlgorithm::kDoubleTree: return "double_tree";
    case OrderAlgorithm::kBcube: return "bcube";
    case OrderAlgorithm::kHierarchical: return "hierarchical";
  }
  return "";
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> out;
  for (const OrderAlgorithm one : kAlgorithms) out.emplace_back(algorithm_name(one));
  return out;
}

Result<OrderAlgorithm> parse_algorithm(std::string_view name) {
  for (const OrderAlgorithm one : kAlgorithms) {
    if (algorithm_name(one) == name) return one;
  }
  return invalid_input(
      fmt::format("expected an algorithm ({}), found '{}'", join(algorithm_names(), ", "), name));
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

Result<OrderPattern> order_pattern(int64_t ranks, const PatternOptions& options) {
  TESSERA_TRY_VOID(check_options(ranks, options));
  OrderPattern out;
  out.options = options;
  out.ranks = ranks;
  if (ranks < 2) {
    out.any_first = true;
    return out;
  }
  const double passes = options.collective == CollectiveKind::kAllReduce ? 2 : 1;
  switch (options.algorithm) {
    case OrderAlgorithm::kRing: add_ring(out, passes); break;
    case OrderAlgorithm::kHalvingDoubling:
    case OrderAlgorithm::kRecursiveDoubling: add_doubling(out, passes); break;
    case OrderAlgorithm::kDoubleTree: add_trees(out); break;
    case OrderAlgorithm::kBcube: add_bcube(out, passes); break;
    case OrderAlgorithm::kHierarchical: add_hierarchical(out, passes); break;
  }
  return out;
}

}  // namespace tessera
