// For tests and benchmarks: random graphs in which the numbers of edges of the rows follow a power
// law, as in graphs of the web, of citations and of friends.
//
//   const CsrGraph graph = power_law_graph({.nodes = 1'000'000, .edges = 10'000'000, .seed = 7});
//
// The model is that of Chung and Lu. The node of rank r has the weight w_r = (r + r0)^(-1 /
// (exponent - 1)); rank 0 is the heaviest. r0 is chosen so that no node is expected to have more
// than `max_share` of the edges. Each edge draws its row and its column independently, with
// probabilities proportional to the weights. A draw that gives a self-loop or an edge that exists
// already is repeated, so the number of edges is exact. Because two heavy nodes get one edge where
// the law expects several, the heaviest rows of dense graphs have fewer edges than the law says.
// Node numbers are a random permutation of the ranks, as in real files, unless `by_rank` is set.
// Everything is a function of the options: Philox(seed, stream) at the number of the draw.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "tessera/base/philox.h"
#include "tessera/base/result.h"
#include "tessera/sparse/graphs/csr.h"

namespace tessera::sparse {

struct PowerLawOptions {
  int64_t nodes = 0;
  int64_t edges = 0;        // number of directed edges
  double exponent = 2.5;    // exponent of the distribution of degrees; above 2
  double max_share = 0.01;  // the largest share of the edges that a row is expected to have
  bool by_rank = false;
  uint64_t seed = 0;
};
namespace power_law {

// Draws an index with probability proportional to its weight in constant time (Walker's alias
// method, Vose's construction).
class Alias {
 public:
  explicit Alias(std::vector<double> weights) : share_(std::move(weights)), other_(share_.size()) {
    const double scale =
        static_cast<double>(share_.size()) / std::accumulate(share_.begin(), share_.end(), 0.0);
    std::vector<int32_t> low, high;
    for (size_t i = 0; i < share_.size(); ++i) {
      share_[i] *= scale;
      (share_[i] < 1 ? low : high).push_back(static_cast<int32_t>(i));
    }
    while (!low.empty() && !high.empty()) {
      const int32_t small = low.back();
      const int32_t large = high.back();
      low.pop_back();
      other_[static_cast<size_t>(small)] = large;
      share_[static_cast<size_t>(large)] -= 1 - share_[static_cast<size_t>(small)];
      if (share_[static_cast<size_t>(large)] < 1) {
        high.pop_back();
        low.push_back(large);
      }
    }
    for (const auto& rest : {low, high}) {
      for (const int32_t i : rest) share_[static_cast<size_t>(i)] = 1;
    }
  }
  int32_t draw(uint32_t place, uint32_t coin) const {
    const uint64_t index = (uint64_t{place} * share_.size()) >> 32;
    return coin * 0x1p-32 < share_[index] ? static_cast<int32_t>(index) : other_[index];
  }

 private:
  std::vector<double> share_;
  std::vector<int32_t> other_;
};

inline std::vector<double> weights(const PowerLawOptions& options) {
  const double power = -1 / (options.exponent - 1);
  std::vector<double> weight(static_cast<size_t>(options.nodes));
  // Finds by bisection the shift r0 that bounds the heaviest node's share, which falls as r0 grows.
  const auto fill = [&](double shift) {
    double sum = 0;
    for (size_t r = 0; r < weight.size(); ++r) {
      weight[r] = std::pow(static_cast<double>(r) + shift, power);
      sum += weight[r];
    }
    return weight.front() / sum;
  };
  double low = 1;
  double high = 1;
  if (fill(low) <= options.max_share) return weight;
  const double share = std::max(options.max_share, 1.01 / static_cast<double>(options.nodes));
  while (fill(high) > share) high *= 2;
  for (int i = 0; i < 20; ++i) {
    const double middle = (low + high) / 2;
    (fill(middle) > share ? low : high) = middle;
  }
  fill(high);
  return weight;
}

inline std::vector<int32_t> numbering(const PowerLawOptions& options) {
  std::vector<int32_t> number(static_cast<size_t>(options.nodes));
  std::iota(number.begin(), number.end(), 0);
  if (options.by_rank) return number;
  const Philox random{options.seed, 1};
  for (size_t i = number.size(); i > 1; --i) {
    std::swap(number[i - 1], number[(uint64_t{random.bits(i)} * i) >> 32]);
  }
  return number;
}

}  // namespace power_law

// Draws a graph. Its columns are sorted and it has no values. Errors: an exponent of 2 or below; a
// share outside (0, 1]; more edges than an eighth of all pairs, because drawing again would take
// too long.
inline Result<CsrGraph> power_law_graph(const PowerLawOptions& options) {
  if (options.nodes < 1 || options.nodes > std::numeric_limits<int32_t>::max() ||
      options.edges < 0 ||
      static_cast<double>(options.edges) >
          static_cast<double>(options.nodes) * static_cast<double>(options.nodes) / 8) {
    return invalid_input(
        fmt::format("expected 1 to 2147483647 nodes and at most nodes * nodes / 8 edges, found {} "
                    "nodes and {} edges",
                    options.nodes, options.edges));
  }
  if (!(options.exponent > 2) || !(options.max_share > 0 && options.max_share <= 1)) {
    return invalid_input(
        fmt::format("expected an exponent above 2 and a share in (0, 1], found {} and {}",
                    options.exponent, options.max_share));
  }
  const power_law::Alias alias(power_law::weights(options));
  const std::vector<int32_t> number = power_law::numbering(options);
  const Philox random{options.seed, 0};
  // An edge is one number, row * nodes + column, so that equal edges are neighbours after sorting.
  const uint64_t nodes = static_cast<uint64_t>(options.nodes);
  const size_t wanted = static_cast<size_t>(options.edges);
  std::vector<uint64_t> edges;
  edges.reserve(wanted + wanted / 8);
  for (uint64_t draw = 0; edges.size() < wanted;) {
    for (size_t missing = wanted - edges.size(); missing > 0; --missing, ++draw) {
      const auto words = random.block(draw);
      const uint64_t row =
          static_cast<uint64_t>(number[static_cast<size_t>(alias.draw(words[0], words[1]))]);
      const uint64_t column =
          static_cast<uint64_t>(number[static_cast<size_t>(alias.draw(words[2], words[3]))]);
      if (row != column) edges.push_back(row * nodes + column);
    }
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  }
  CsrGraph graph;
  graph.column_count = options.nodes;
  graph.offsets.assign(static_cast<size_t>(options.nodes) + 1, 0);
  graph.columns.reserve(edges.size());
  for (const uint64_t edge : edges) {
    ++graph.offsets[edge / nodes + 1];
    graph.columns.push_back(static_cast<int32_t>(edge % nodes));
  }
  std::partial_sum(graph.offsets.begin(), graph.offsets.end(), graph.offsets.begin());
  return graph;
}

}  // namespace tessera::sparse
