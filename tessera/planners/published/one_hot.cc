#include "tessera/planners/published/one_hot.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tessera/base/check.h"
#include "tessera/base/infinity.h"
#include "tessera/planners/published/elimination.h"
#include "tessera/planners/published/one_hot_cbc.h"

namespace tessera::published {
namespace {

using Table = PairCosts;

// The problem, from which nodes are taken out. Each pair of neighbours has one table of costs,
// stored in both directions.
class Core {
 public:
  explicit Core(const OneHotProblem& problem)
      : nodes(problem.nodes), neighbours(problem.nodes.size()) {
    for (const OneHotEdge& edge : problem.edges) add(edge.from, edge.to, edge.cost);
  }

  void add(size_t u, size_t v, const Table& cost) {
    TESSERA_CHECK(u != v, "edge from node {} to itself", u);
    add_one(u, v, [&](size_t a, size_t b) { return cost[a][b]; });
    add_one(v, u, [&](size_t a, size_t b) { return cost[b][a]; });
  }

  void remove(size_t v) {
    for (const auto& [u, cost] : neighbours[v]) neighbours[u].erase(v);
    neighbours[v].clear();
  }

  std::vector<std::vector<double>> nodes;
  std::vector<std::map<size_t, Table>> neighbours;

 private:
  template <class Cost>
  void add_one(size_t u, size_t v, Cost cost) {
    Table& table = neighbours[u][v];
    if (table.empty()) table.assign(nodes[u].size(), std::vector<double>(nodes[v].size(), 0));
    for (size_t a = 0; a < nodes[u].size(); ++a) {
      for (size_t b = 0; b < nodes[v].size(); ++b) table[a][b] += cost(a, b);
    }
  }
};

// A node that was taken out, with the tables from which its choice follows once its neighbours
// have chosen.
struct Removed {
  size_t node;
  std::vector<double> cost;
  std::map<size_t, Table> neighbours;
};

std::vector<Removed> take_out(Core& core) {
  std::vector<Removed> removed;
  std::set<size_t> waiting;
  for (size_t v = 0; v < core.nodes.size(); ++v) waiting.insert(v);
  std::vector<bool> gone(core.nodes.size(), false);
  while (!waiting.empty()) {
    const size_t v = *waiting.begin();
    waiting.erase(waiting.begin());
    if (gone[v] || core.neighbours[v].size() > 2) continue;
    gone[v] = true;
    Removed item{v, core.nodes[v], core.neighbours[v]};
    core.remove(v);
    const auto least = [&](auto&& extra) {
      double best = kInfinity;
      for (size_t s = 0; s < item.cost.size(); ++s) best = std::min(best, item.cost[s] + extra(s));
      return best;
    };
    std::vector<size_t> near;
    for (const auto& [u, cost] : item.neighbours) near.push_back(u);
    if (near.size() == 1) {
      const Table& to = item.neighbours[near[0]];
      for (size_t a = 0; a < core.nodes[near[0]].size(); ++a) {
        core.nodes[near[0]][a] += least([&](size_t s) { return to[s][a]; });
      }
    } else if (near.size() == 2) {
      const Table& first = item.neighbours[near[0]];
      const Table& second = item.neighbours[near[1]];
      Table joint(core.nodes[near[0]].size(), std::vector<double>(core.nodes[near[1]].size()));
      for (size_t a = 0; a < joint.size(); ++a) {
        for (size_t b = 0; b < joint[a].size(); ++b) {
          joint[a][b] = least([&](size_t s) { return first[s][a] + second[s][b]; });
        }
      }
      core.add(near[0], near[1], joint);
    }
    waiting.insert(near.begin(), near.end());
    removed.push_back(std::move(item));
  }
  return removed;
}

class BranchAndBound {
 public:
  BranchAndBound(const OneHotProblem& problem, const Core& core, std::vector<size_t> order)
      : problem_(problem), core_(core), order_(std::move(order)) {
    place_.assign(core.nodes.size(), order_.size());
    for (size_t i = 0; i < order_.size(); ++i) place_[order_[i]] = i;
    share_out();
    prepare_limits();
    choices_.assign(core.nodes.size(), 0);
    answer_.cost = kInfinity;
  }

  OneHotAnswer solve() {
    used_.assign(problem_.limits.size(), 0);
    descend(0, 0);
    answer_.bound = answer_.proved ? answer_.cost : std::min(answer_.cost, open_);
    return std::move(answer_);
  }

 private:
  // Moves costs from later to earlier nodes. Afterwards costs_[v] is the node's cost plus the costs
  // that later nodes passed on to it, and edges_[v] are the remaining costs of its edges to earlier
  // neighbours. The sum for complete choices is unchanged.
  void share_out() {
    costs_ = core_.nodes;
    edges_.resize(core_.nodes.size());
    for (size_t i = order_.size(); i-- > 0;) {
      const size_t v = order_[i];
      // The cost of v's own choice, and the edge's minimum, move to v's latest earlier neighbour.
      size_t parent = v;
      for (const auto& [u, cost] : core_.neighbours[v]) {
        if (place_[u] < i && (parent == v || place_[u] > place_[parent])) parent = u;
      }
      for (const auto& [u, cost] : core_.neighbours[v]) {
        if (place_[u] > i) continue;
        Table left(costs_[v].size(), std::vector<double>(costs_[u].size()));
        for (size_t a = 0; a < costs_[u].size(); ++a) {
          double least = kInfinity;
          for (size_t s = 0; s < costs_[v].size(); ++s) {
            left[s][a] = cost[s][a] + (u == parent ? costs_[v][s] : 0);
            least = std::min(least, left[s][a]);
          }
          costs_[u][a] += least;
          for (size_t s = 0; s < costs_[v].size(); ++s) {
            left[s][a] = least == kInfinity ? kInfinity : left[s][a] - least;
          }
        }
        edges_[v].emplace_back(u, std::move(left));
      }
      if (parent != v) costs_[v].assign(costs_[v].size(), 0);
    }
    // rest_[i]: the sum of the least costs of the nodes from position i on.
    rest_.assign(order_.size() + 1, 0);
    for (size_t i = order_.size(); i-- > 0;) {
      const auto& cost = costs_[order_[i]];
      rest_[i] = rest_[i + 1] + *std::min_element(cost.begin(), cost.end());
    }
  }

  // Prepares for each limit the amounts of each node, and the least sum of amounts of the nodes
  // from position i on.
  void prepare_limits() {
    for (const OneHotLimit& limit : problem_.limits) {
      Table amounts(core_.nodes.size());
      for (size_t i = 0; i < limit.nodes.size(); ++i) {
        auto& row = amounts[limit.nodes[i]];
        row.resize(core_.nodes[limit.nodes[i]].size(), 0);
        for (size_t s = 0; s < row.size(); ++s) row[s] += limit.amount[i][s];
      }
      std::vector<double> least(order_.size() + 1, 0);
      for (size_t i = order_.size(); i-- > 0;) {
        const auto& row = amounts[order_[i]];
        least[i] = least[i + 1] + (row.empty() ? 0 : *std::min_element(row.begin(), row.end()));
      }
      amounts_.push_back(std::move(amounts));
      least_.push_back(std::move(least));
    }
  }

  double amount(size_t limit, size_t v, size_t s) const {
    return amounts_[limit][v].empty() ? 0 : amounts_[limit][v][s];
  }

  bool within_limits(size_t i, size_t v, size_t s) const {
    for (size_t k = 0; k < problem_.limits.size(); ++k) {
      const double most = problem_.limits[k].most * (1 + 1e-12);
      if (used_[k] + amount(k, v, s) + least_[k][i + 1] > most) return false;
    }
    return true;
  }

  void descend(size_t i, double cost) {
    if (i == order_.size()) {
      if (cost < answer_.cost) {
        answer_.cost = cost;
        answer_.choices = choices_;
      }
      return;
    }
    const size_t v = order_[i];
    std::vector<std::pair<double, size_t>> options;
    for (size_t s = 0; s < costs_[v].size(); ++s) {
      double own = costs_[v][s];
      for (const auto& [u, table] : edges_[v]) own += table[s][choices_[u]];
      if (own < kInfinity && within_limits(i, v, s)) options.emplace_back(own, s);
    }
    std::sort(options.begin(), options.end());
    for (const auto& [own, s] : options) {
      if (!answer_.proved) {
        // The branches have ended. open_ becomes the least bound of the options that are left out;
        // later options have larger bounds.
        open_ = std::min(open_, cost + own + rest_[i + 1]);
        return;
      }
      // rest_ is a lower bound because the remaining edge costs of later nodes are at least 0. The
      // slack prevents that rounding counts as a gain.
      const double bound = cost + own + rest_[i + 1];
      const double slack = answer_.cost < kInfinity ? 1e-12 * std::abs(answer_.cost) : 0;
      if (bound >= answer_.cost - slack) return;
      if (++answer_.branches > problem_.most_branches) {
        answer_.proved = false;
        open_ = std::min(open_, bound);
        return;
      }
      choices_[v] = s;
      for (size_t k = 0; k < used_.size(); ++k) used_[k] += amount(k, v, s);
      descend(i + 1, cost + own);
      for (size_t k = 0; k < used_.size(); ++k) used_[k] -= amount(k, v, s);
    }
  }

  const OneHotProblem& problem_;
  const Core& core_;
  std::vector<size_t> order_, place_;
  Table costs_;
  std::vector<std::vector<std::pair<size_t, Table>>> edges_;
  std::vector<double> rest_;
  std::vector<Table> amounts_;
  std::vector<std::vector<double>> least_;
  std::vector<double> used_;
  std::vector<size_t> choices_;
  // The least bound of the options that were left out when the branches ended.
  double open_ = kInfinity;
  OneHotAnswer answer_;
};

// Returns the nodes that still have neighbours or are in a limit, in the order of branching: each
// has an earlier neighbour if possible.
std::vector<size_t> branching_order(const Core& core, const std::vector<bool>& gone) {
  std::vector<size_t> order;
  std::vector<size_t> links(core.nodes.size(), 0);
  std::vector<bool> placed = gone;
  while (true) {
    size_t best = core.nodes.size();
    for (size_t v = 0; v < core.nodes.size(); ++v) {
      if (placed[v]) continue;
      const auto rank = [&](size_t w) { return std::pair(links[w], core.neighbours[w].size()); };
      if (best == core.nodes.size() || rank(v) > rank(best)) best = v;
    }
    if (best == core.nodes.size()) return order;
    placed[best] = true;
    order.push_back(best);
    for (const auto& [u, cost] : core.neighbours[best]) ++links[u];
  }
}

}  // namespace

std::optional<OneHotAnswer> solve_one_hot(const OneHotProblem& problem) {
  Core core(problem);
  const std::vector<Removed> removed =
      problem.limits.empty() ? take_out(core) : std::vector<Removed>{};
  std::vector<bool> gone(core.nodes.size(), false);
  for (const Removed& item : removed) gone[item.node] = true;
  OneHotAnswer answer;
  const bool is_left = std::find(gone.begin(), gone.end(), false) != gone.end();
  auto choices = problem.limits.empty() && is_left
                     ? choose_by_elimination(core.nodes, core.neighbours, gone)
                     : std::nullopt;
  if (choices) {
    answer.choices = std::move(*choices);
  } else {
    answer = BranchAndBound(problem, core, branching_order(core, gone)).solve();
    if (answer.cost == kInfinity) {
      return answer.proved ? std::nullopt : std::optional(std::move(answer));
    }
  }
  if (answer.choices.empty()) answer.choices.assign(core.nodes.size(), 0);
  for (auto item = removed.rbegin(); item != removed.rend(); ++item) {
    double least = kInfinity;
    for (size_t s = 0; s < item->cost.size(); ++s) {
      double cost = item->cost[s];
      for (const auto& [u, table] : item->neighbours) cost += table[s][answer.choices[u]];
      if (cost >= least) continue;
      least = cost;
      answer.choices[item->node] = s;
    }
  }
  answer.cost = cost_of(problem, answer.choices);
  if (answer.cost == kInfinity) return std::nullopt;
  answer.bound = answer.proved ? answer.cost : std::min(answer.bound, answer.cost);
  return answer;
}

std::optional<OneHotAnswer> solve_one_hot_by_either(const OneHotProblem& problem) {
  std::optional<OneHotAnswer> own = solve_one_hot(problem);
  if (!own || own->proved || !cbc_available()) return own;
  auto other = solve_one_hot_by_cbc(problem);
  return other ? std::move(*other) : std::move(own);
}

double cost_of(const OneHotProblem& problem, const std::vector<size_t>& choices) {
  double cost = 0;
  for (size_t v = 0; v < problem.nodes.size(); ++v) cost += problem.nodes[v][choices[v]];
  for (const OneHotEdge& edge : problem.edges)
    cost += edge.cost[choices[edge.from]][choices[edge.to]];
  for (const OneHotLimit& limit : problem.limits) {
    double sum = 0;
    for (size_t i = 0; i < limit.nodes.size(); ++i) sum += limit.amount[i][choices[limit.nodes[i]]];
    if (sum > limit.most * (1 + 1e-12)) return kInfinity;
  }
  return cost;
}

}  // namespace tessera::published
