#include "tessera/planners/published/open_path.h"

#include <algorithm>

#include "tessera/base/infinity.h"

namespace tessera::published {
namespace {

using Edges = std::vector<std::vector<double>>;

double joined(double cost, double edge, bool worst) {
  return worst ? std::max(cost, edge) : cost + edge;
}

OpenPath exact_path(const Edges& edges, bool worst) {
  const size_t count = edges.size();
  const size_t sets = size_t{1} << count;
  const double nothing = worst ? -kInfinity : 0;
  std::vector<double> cost(sets * count, kInfinity);
  std::vector<unsigned char> before(sets * count, 0);
  for (size_t v = 0; v < count; ++v) cost[(size_t{1} << v) * count + v] = nothing;
  for (size_t set = 1; set < sets; ++set) {
    for (size_t v = 0; v < count; ++v) {
      const double own = cost[set * count + v];
      if (own == kInfinity) continue;
      for (size_t w = 0; w < count; ++w) {
        if ((set >> w & 1) != 0) continue;
        const size_t at = (set | size_t{1} << w) * count + w;
        const double next = joined(own, edges[v][w], worst);
        if (next < cost[at]) {
          cost[at] = next;
          before[at] = static_cast<unsigned char>(v);
        }
      }
    }
  }
  size_t set = sets - 1;
  size_t v = 0;
  for (size_t w = 1; w < count; ++w) {
    if (cost[set * count + w] < cost[set * count + v]) v = w;
  }
  OpenPath path;
  path.cost = count == 1 ? 0 : cost[set * count + v];
  while (set != 0) {
    path.nodes.push_back(v);
    const size_t previous = before[set * count + v];
    set &= ~(size_t{1} << v);
    v = previous;
  }
  std::reverse(path.nodes.begin(), path.nodes.end());
  return path;
}

OpenPath greedy_path(const Edges& edges, bool worst) {
  OpenPath best;
  best.cost = kInfinity;
  for (size_t start = 0; start < edges.size(); ++start) {
    OpenPath path{worst ? -kInfinity : 0, {start}};
    std::vector<bool> seen(edges.size(), false);
    seen[start] = true;
    while (path.nodes.size() < edges.size()) {
      const auto& from = edges[path.nodes.back()];
      size_t next = edges.size();
      for (size_t w = 0; w < edges.size(); ++w) {
        if (!seen[w] && (next == edges.size() || from[w] < from[next])) next = w;
      }
      seen[next] = true;
      path.cost = joined(path.cost, from[next], worst);
      path.nodes.push_back(next);
    }
    if (path.cost < best.cost || best.nodes.empty()) best = std::move(path);
  }
  return best;
}

}  // namespace

OpenPath best_open_path(const Edges& edges, bool worst, size_t most_exact) {
  if (edges.empty()) return {};
  OpenPath path = edges.size() <= std::min(most_exact, kExactPathNodes) ? exact_path(edges, worst)
                                                                        : greedy_path(edges, worst);
  if (path.nodes.front() > path.nodes.back()) std::reverse(path.nodes.begin(), path.nodes.end());
  return path;
}

}  // namespace tessera::published
