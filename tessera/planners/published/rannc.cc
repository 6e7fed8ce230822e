#include "tessera/planners/published/rannc.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "tessera/planners/published/pareto.h"

namespace tessera::published {

std::vector<std::vector<size_t>> atomic_components(const std::vector<RanncTask>& tasks) {
  std::vector<std::set<size_t>> of(tasks.size());  // by task: the components that contain it
  std::vector<std::vector<size_t>> out;
  for (size_t t = 0; t < tasks.size(); ++t) {
    if (!tasks[t].constant) {
      of[t] = {out.size()};
      out.emplace_back();
    }
  }
  for (size_t t = tasks.size(); t-- > 0;) {
    for (const size_t read : tasks[t].reads) {
      if (tasks[read].constant) of[read].insert(of[t].begin(), of[t].end());
    }
  }
  for (size_t t = 0; t < tasks.size(); ++t) {
    for (const size_t component : of[t]) out[component].push_back(t);
  }
  return out;
}

namespace {

// Groups of components as they merge.
class Coarsening {
 public:
  Coarsening(const RanncGraph& graph, const BlockOracle& oracle, const BlockOptions& options)
      : oracle_(oracle),
        options_(options),
        members_(graph.components),
        after_(graph.components),
        before_(graph.components) {
    for (size_t c = 0; c < graph.components; ++c) {
      members_[c] = {c};
      seconds_.push_back(oracle.seconds(members_[c]));
      alive_.insert(c);
    }
    for (const RanncEdge& edge : graph.edges) {
      after_[edge.from][edge.to] += edge.bytes;
      before_[edge.to].insert(edge.from);
    }
  }

  std::vector<std::vector<size_t>> solve() {
    constexpr size_t kLeast = 3;
    while (alive_.size() > std::max(options_.least, kLeast) && level()) {
    }
    std::vector<size_t> order = topological();
    while (order.size() > options_.most && compact(order)) {
    }
    std::vector<std::vector<size_t>> out;
    for (const size_t v : order) out.push_back(members_[v]);
    return out;
  }

 private:
  std::vector<size_t> joined(size_t v, size_t w) const {
    std::vector<size_t> out;
    std::merge(members_[v].begin(), members_[v].end(), members_[w].begin(), members_[w].end(),
               std::back_inserter(out));
    return out;
  }

  // Returns whether the edge from v to w is the only path between them. The merged group is
  // then convex.
  bool is_convex(size_t v, size_t w) const {
    std::vector<size_t> open;
    std::set<size_t> seen;
    for (const auto& [u, bytes] : after_[v]) {
      if (u != w && seen.insert(u).second) open.push_back(u);
    }
    while (!open.empty()) {
      const size_t u = open.back();
      open.pop_back();
      for (const auto& [x, bytes] : after_[u]) {
        if (x == w) return false;
        if (seen.insert(x).second) open.push_back(x);
      }
    }
    return true;
  }

  // Merges w into v.
  void merge(size_t v, size_t w, double seconds) {
    members_[v] = joined(v, w);
    seconds_[v] = seconds;
    after_[v].erase(w);
    for (const auto& [u, bytes] : after_[w]) {
      before_[u].erase(w);
      if (u == v) continue;
      after_[v][u] += bytes;
      before_[u].insert(v);
    }
    for (const size_t u : before_[w]) {
      const double bytes = after_[u][w];
      after_[u].erase(w);
      if (u == v) continue;
      after_[u][v] += bytes;
      before_[v].insert(u);
    }
    before_[v].erase(v);
    after_[v].erase(v);
    after_[w].clear();
    before_[w].clear();
    alive_.erase(w);
  }

  // Merges pairs of groups, each group at most once. Returns false if no pair was merged.
  bool level() {
    double sum = 0;
    double squares = 0;
    for (const size_t v : alive_) {
      sum += seconds_[v];
      squares += seconds_[v] * seconds_[v];
    }
    const auto count = static_cast<double>(alive_.size());
    const double mean = sum / count;
    const double most = mean + 2 * std::sqrt(std::max(0.0, squares / count - mean * mean));
    // With many groups the oracle is not asked for the time of each pair, because that would take
    // too long.
    constexpr size_t kMostAsked = 200;
    const bool ask = alive_.size() <= kMostAsked;
    std::vector<size_t> order(alive_.begin(), alive_.end());
    std::stable_sort(order.begin(), order.end(),
                     [this](size_t a, size_t b) { return seconds_[a] < seconds_[b]; });
    std::set<size_t> matched;
    bool any = false;
    for (const size_t v : order) {
      if (!matched.insert(v).second) continue;
      size_t best = members_.size();
      double most_gain = 0;
      double merged = 0;
      for (const auto& [w, bytes] : after_[v]) {
        if (matched.contains(w) || !is_convex(v, w)) continue;
        const std::vector<size_t> both = joined(v, w);
        if (!oracle_.fits(both)) continue;
        const double own = ask ? oracle_.seconds(both) : 0;
        if (ask ? own > most : seconds_[v] > most || seconds_[w] > most) continue;
        const double cut = bytes / options_.parts / options_.bytes_per_second;
        const double gain = seconds_[v] + seconds_[w] + cut - own;
        if (gain < most_gain) continue;
        most_gain = gain;
        best = w;
        merged = own;
      }
      if (best == members_.size()) continue;
      matched.insert(best);
      merge(v, best, ask ? merged : oracle_.seconds(joined(v, best)));
      any = true;
    }
    return any;
  }

  // Returns a topological order of the blocks. If several blocks may come next, the one with the
  // lowest component does.
  std::vector<size_t> topological() const {
    std::map<size_t, size_t> waiting;  // number of predecessors
    for (const size_t v : alive_) waiting[v] = before_[v].size();
    std::vector<size_t> order;
    while (!waiting.empty()) {
      const auto next = std::find_if(waiting.begin(), waiting.end(),
                                     [](const auto& item) { return item.second == 0; });
      const size_t v = next->first;
      waiting.erase(next);
      order.push_back(v);
      for (const auto& [w, bytes] : after_[v]) --waiting[w];
    }
    return order;
  }

  bool compact(std::vector<size_t>& order) {
    const auto smallest = std::min_element(order.begin(), order.end(), [this](size_t a, size_t b) {
      return seconds_[a] < seconds_[b];
    });
    const auto at = static_cast<size_t>(smallest - order.begin());
    size_t best = order.size();  // position of the earlier one of the two blocks to merge
    double least = std::numeric_limits<double>::infinity();
    for (const size_t first : {at - 1, at}) {
      if (first >= order.size() || first + 1 >= order.size()) continue;
      const double own = oracle_.seconds(joined(order[first], order[first + 1]));
      if (own < least) {
        least = own;
        best = first;
      }
    }
    if (best == order.size() || !oracle_.fits(joined(order[best], order[best + 1]))) return false;
    merge(order[best], order[best + 1], least);
    order.erase(order.begin() + static_cast<std::ptrdiff_t>(best + 1));
    return true;
  }

  const BlockOracle& oracle_;
  const BlockOptions& options_;
  std::vector<std::vector<size_t>> members_;
  std::vector<double> seconds_;
  std::vector<std::map<size_t, double>> after_;  // bytes by successor
  std::vector<std::set<size_t>> before_;
  std::set<size_t> alive_;
};

}  // namespace

std::vector<std::vector<size_t>> rannc_blocks(const RanncGraph& graph, const BlockOracle& oracle,
                                              const BlockOptions& options) {
  return Coarsening(graph, oracle, options).solve();
}

namespace {

struct Cut {
  size_t block = 0;
  int64_t device = 0;
  size_t point = 0;  // index in that state's front
};

RanncPlan plan_of(const RanncProblem& problem, std::vector<size_t> ends,
                  std::vector<int64_t> replicas) {
  RanncPlan plan;
  double forward = 0;
  double backward = 0;
  size_t first = 0;
  for (size_t s = 0; s < ends.size(); ++s) {
    plan.stages.push_back(*problem.stage(first, ends[s], replicas[s]));
    forward = std::max(forward, plan.stages[s].forward + plan.stages[s].comm);
    backward = std::max(backward, plan.stages[s].backward + plan.stages[s].comm);
    first = ends[s];
  }
  plan.value = forward + backward;
  plan.ends = std::move(ends);
  plan.replicas = std::move(replicas);
  return plan;
}

// Calls body(blocks before, devices before, blocks after, devices after, stage) for every possible
// stage: the blocks and devices before it, and up to its end.
template <class Body>
void each_stage(const RanncProblem& problem, Body body) {
  for (size_t first = 0; first < problem.blocks; ++first) {
    for (size_t last = first + 1; last <= problem.blocks; ++last) {
      for (int64_t r = 1; r <= std::min(problem.devices, problem.most_replicas); r *= 2) {
        const auto stage = problem.stage(first, last, r);
        if (!stage) continue;
        for (int64_t d = 0; d + r <= problem.devices; ++d) body(first, d, last, d + r, *stage);
      }
    }
  }
}

template <class State>
using StateTable = std::vector<std::vector<std::vector<State>>>;
template <class State>
StateTable<State> state_table(const RanncProblem& problem) {
  return StateTable<State>(
      problem.stages + 1,
      std::vector<std::vector<State>>(
          problem.blocks + 1, std::vector<State>(static_cast<size_t>(problem.devices) + 1)));
}

}  // namespace

std::optional<RanncPlan> published_stages(const RanncProblem& problem) {
  struct State {
    double value = std::numeric_limits<double>::infinity();
    double forward = 0, backward = 0;
    Cut before;
  };
  auto states = state_table<State>(problem);
  states[0][0][0].value = 0;
  for (size_t s = 1; s <= problem.stages; ++s) {
    each_stage(problem,
               [&](size_t first, int64_t d, size_t last, int64_t end, const RanncStage& stage) {
                 const State& from = states[s - 1][first][static_cast<size_t>(d)];
                 if (std::isinf(from.value)) return;
                 const double value = std::max(stage.forward + stage.comm, from.forward) +
                                      std::max(stage.backward + stage.comm, from.backward);
                 State& to = states[s][last][static_cast<size_t>(end)];
                 if (value >= to.value) return;
                 to = {value,
                       std::max(stage.forward, from.forward),
                       std::max(stage.backward, from.backward),
                       {first, d, 0}};
               });
  }
  size_t block = problem.blocks;
  int64_t device = problem.devices;
  if (std::isinf(states[problem.stages][block][static_cast<size_t>(device)].value)) {
    return std::nullopt;
  }
  std::vector<size_t> ends;
  std::vector<int64_t> replicas;
  for (size_t s = problem.stages; s > 0; --s) {
    const Cut& before = states[s][block][static_cast<size_t>(device)].before;
    ends.insert(ends.begin(), block);
    replicas.insert(replicas.begin(), device - before.device);
    block = before.block;
    device = before.device;
  }
  return plan_of(problem, std::move(ends), std::move(replicas));
}

std::optional<RanncPlan> exact_stages(const RanncProblem& problem) {
  // The fronts' two numbers are max forward and max backward, whose sum is minimised.
  auto fronts = state_table<ParetoFront<Cut>>(problem);
  fronts[0][0][0].add({0, 0, {}});
  for (size_t s = 1; s <= problem.stages; ++s) {
    each_stage(problem,
               [&](size_t first, int64_t d, size_t last, int64_t end, const RanncStage& stage) {
                 const auto& from = fronts[s - 1][first][static_cast<size_t>(d)].points();
                 for (size_t i = 0; i < from.size(); ++i) {
                   fronts[s][last][static_cast<size_t>(end)].add(
                       {std::max(stage.forward + stage.comm, from[i].largest),
                        std::max(stage.backward + stage.comm, from[i].sum),
                        {first, d, i}});
                 }
               });
  }
  size_t block = problem.blocks;
  int64_t device = problem.devices;
  const auto& last = fronts[problem.stages][block][static_cast<size_t>(device)].points();
  if (last.empty()) return std::nullopt;
  size_t point = 0;
  for (size_t i = 1; i < last.size(); ++i) {
    if (last[i].largest + last[i].sum < last[point].largest + last[point].sum) point = i;
  }
  std::vector<size_t> ends;
  std::vector<int64_t> replicas;
  for (size_t s = problem.stages; s > 0; --s) {
    const Cut before = fronts[s][block][static_cast<size_t>(device)].points()[point].back;
    ends.insert(ends.begin(), block);
    replicas.insert(replicas.begin(), device - before.device);
    block = before.block;
    device = before.device;
    point = before.point;
  }
  return plan_of(problem, std::move(ends), std::move(replicas));
}

double synchronous_seconds(const RanncPlan& plan, int64_t micro_batches) {
  const auto stages = static_cast<int64_t>(plan.stages.size());
  double seconds = 0;
  for (int64_t q = 0; q < micro_batches + stages - 1; ++q) {
    double forward = 0;
    double backward = 0;
    for (int64_t g = std::max<int64_t>(0, q - micro_batches + 1); g < std::min(q + 1, stages);
         ++g) {
      const RanncStage& stage = plan.stages[static_cast<size_t>(g)];
      forward = std::max(forward, stage.forward + stage.comm);
      backward = std::max(backward, stage.backward + stage.comm);
    }
    seconds += forward + backward;
  }
  return seconds;
}

std::vector<std::vector<int64_t>> split_batch(int64_t batch, int64_t micro_batches,
                                              int64_t replicas) {
  std::vector<std::vector<int64_t>> out;
  const auto slot = [](int64_t total, int64_t parts, int64_t i) {
    return total / parts + (i < total % parts ? 1 : 0);
  };
  for (int64_t index = 0; index < micro_batches; ++index) {
    const int64_t size = slot(batch, micro_batches, index);
    auto& ranks = out.emplace_back(static_cast<size_t>(replicas), 0);
    for (int64_t i = 0; i < replicas; ++i) {
      ranks[static_cast<size_t>((i + index * size) % replicas)] = slot(size, replicas, i);
    }
  }
  return out;
}

}  // namespace tessera::published
