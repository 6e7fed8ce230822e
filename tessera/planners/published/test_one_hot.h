// Makes random integer programs for the tests of one_hot.h: up to seven nodes of up to four
// choices, some of them and some pairs forbidden.
#pragma once

#include <limits>

#include "tessera/base/test_random.h"
#include "tessera/planners/published/one_hot.h"

namespace tessera::published {

using test::Random;

inline OneHotProblem random_problem(Random& random, bool limits) {
  OneHotProblem out;
  const int count = 1 + random.up_to(6);
  for (int v = 0; v < count; ++v) {
    auto& node = out.nodes.emplace_back();
    for (int s = random.up_to(3); s >= 0; --s)
      node.push_back(random.up_to(20) == 0 ? std::numeric_limits<double>::infinity()
                                           : random.up_to(9));
  }
  for (int e = random.up_to(2 * count); e > 0; --e) {
    const auto u = static_cast<size_t>(random.up_to(count - 1));
    const auto v = static_cast<size_t>(random.up_to(count - 1));
    if (u == v) continue;
    OneHotEdge edge{u, v, {}};
    for (size_t a = 0; a < out.nodes[u].size(); ++a) {
      auto& row = edge.cost.emplace_back();
      for (size_t b = 0; b < out.nodes[v].size(); ++b) {
        row.push_back(random.up_to(9) == 0 ? std::numeric_limits<double>::infinity()
                                           : random.up_to(9));
      }
    }
    out.edges.push_back(std::move(edge));
  }
  for (int k = limits ? 1 + random.up_to(1) : 0; k > 0; --k) {
    OneHotLimit limit;
    for (size_t v = 0; v < out.nodes.size(); ++v) {
      if (random.up_to(3) == 0) continue;
      limit.nodes.push_back(v);
      auto& row = limit.amount.emplace_back();
      for (size_t s = 0; s < out.nodes[v].size(); ++s) row.push_back(random.up_to(5));
    }
    limit.most = random.up_to(2 * count);
    out.limits.push_back(std::move(limit));
  }
  return out;
}

}  // namespace tessera::published
