#include "tessera/planners/published/elimination.h"

#include <algorithm>
#include <set>

#include "tessera/base/infinity.h"

namespace tessera::published {
namespace {

// The most numbers of one table. kMostWork is the largest sum over the nodes of (numbers of its
// table * choices of the node).
constexpr double kMostNumbers = 1 << 22, kMostWork = 1 << 28;

// A table over the choices of nodes; the choice of the last node changes fastest.
struct NodeTable {
  std::vector<size_t> nodes;
  std::vector<double> values;
};

struct TakenOut {
  size_t node = 0;
  std::vector<NodeTable> tables;  // the tables that contain the node
};

class Elimination {
 public:
  Elimination(const std::vector<std::vector<double>>& nodes,
              const std::vector<std::map<size_t, PairCosts>>& neighbours,
              const std::vector<bool>& taken)
      : nodes_(nodes), pairs_(neighbours), taken_(taken) {}

  std::optional<std::vector<size_t>> choose() {
    if (!find_order()) return std::nullopt;
    for (size_t v = 0; v < nodes_.size(); ++v) {
      if (taken_[v]) continue;
      tables_.push_back({{v}, nodes_[v]});
      for (const auto& [u, cost] : pairs_[v]) {
        if (u < v || taken_[u]) continue;
        NodeTable& table = tables_.emplace_back();
        table.nodes = {v, u};
        for (const auto& row : cost)
          table.values.insert(table.values.end(), row.begin(), row.end());
      }
    }
    for (const size_t v : order_) take_out(v);
    std::vector<size_t> choices(nodes_.size(), 0);
    for (auto item = removed_.rbegin(); item != removed_.rend(); ++item) {
      double least = kInfinity;
      size_t best = 0;
      for (size_t s = 0; s < nodes_[item->node].size(); ++s) {
        choices[item->node] = s;
        double cost = 0;
        for (const NodeTable& table : item->tables) cost += value_of(table, choices);
        if (cost >= least) continue;
        least = cost;
        best = s;
      }
      choices[item->node] = best;
    }
    return choices;
  }

 private:
  double choices_of(size_t node) const { return static_cast<double>(nodes_[node].size()); }

  // Sets the order in which nodes are taken out: always the node whose table is the smallest.
  // Returns false if a table, or the work, would be too large.
  bool find_order() {
    std::vector<std::set<size_t>> near(nodes_.size());
    std::set<size_t> left;
    for (size_t v = 0; v < nodes_.size(); ++v) {
      if (taken_[v]) continue;
      left.insert(v);
      for (const auto& [u, cost] : pairs_[v]) {
        if (!taken_[u]) near[v].insert(u);
      }
    }
    const auto numbers = [&](size_t v) {
      double out = 1;
      for (const size_t u : near[v]) out *= choices_of(u);
      return out;
    };
    double work = 0;
    while (!left.empty()) {
      size_t best = *left.begin();
      double least = kInfinity;
      for (const size_t v : left) {
        const double own = numbers(v);
        if (own < least) {
          least = own;
          best = v;
        }
      }
      work += least * choices_of(best);
      if (least > kMostNumbers || work > kMostWork) return false;
      for (const size_t u : near[best]) {
        for (const size_t w : near[best]) {
          if (w != u) near[u].insert(w);
        }
        near[u].erase(best);
      }
      left.erase(best);
      order_.push_back(best);
    }
    return true;
  }

  double value_of(const NodeTable& table, const std::vector<size_t>& choices) const {
    size_t at = 0;
    for (const size_t v : table.nodes) at = at * nodes_[v].size() + choices[v];
    return table.values[at];
  }

  // Replaces the tables that contain `v` by one table over the neighbours of `v`.
  void take_out(size_t v) {
    TakenOut& item = removed_.emplace_back();
    item.node = v;
    std::vector<NodeTable> kept;
    std::set<size_t> near;
    for (NodeTable& table : tables_) {
      const bool holds = std::find(table.nodes.begin(), table.nodes.end(), v) != table.nodes.end();
      if (holds) near.insert(table.nodes.begin(), table.nodes.end());
      (holds ? item.tables : kept).push_back(std::move(table));
    }
    near.erase(v);
    tables_ = std::move(kept);
    if (near.empty()) return;
    NodeTable out;
    out.nodes.assign(near.begin(), near.end());
    size_t count = 1;
    for (const size_t u : out.nodes) count *= nodes_[u].size();
    out.values.resize(count);
    std::vector<size_t> choices(nodes_.size(), 0);
    for (double& value : out.values) {
      value = kInfinity;
      for (choices[v] = 0; choices[v] < nodes_[v].size(); ++choices[v]) {
        double cost = 0;
        for (const NodeTable& table : item.tables) cost += value_of(table, choices);
        value = std::min(value, cost);
      }
      for (size_t i = out.nodes.size(); i-- > 0;) {
        if (++choices[out.nodes[i]] < nodes_[out.nodes[i]].size()) break;
        choices[out.nodes[i]] = 0;
      }
    }
    tables_.push_back(std::move(out));
  }

  const std::vector<std::vector<double>>& nodes_;
  const std::vector<std::map<size_t, PairCosts>>& pairs_;
  const std::vector<bool>& taken_;
  std::vector<size_t> order_;
  std::vector<NodeTable> tables_;
  std::vector<TakenOut> removed_;
};

}  // namespace

std::optional<std::vector<size_t>> choose_by_elimination(
    const std::vector<std::vector<double>>& nodes,
    const std::vector<std::map<size_t, PairCosts>>& neighbours, const std::vector<bool>& taken) {
  return Elimination(nodes, neighbours, taken).choose();
}

}  // namespace tessera::published
