#include "tessera/planners/galvatron.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <tuple>

#include "tessera/base/infinity.h"
#include "tessera/planners/published/galvatron.h"
#include "tessera/planners/published/layer_chain.h"
#include "tessera/search/question/question.h"

namespace tessera {
namespace {

constexpr int64_t kGalvatronSequences =
    32;  // most sequences of a micro-batch on one replica, as a multiple of least_
constexpr size_t kMostPeaks = 6;  // most bounds on a stage's peak bytes that are tried
// Most candidates of one number of stages that are solved again under the memory limit.
constexpr size_t kMostTight = 6;
constexpr size_t kMostOfStages = 2;  // most candidates of one number of stages
// Candidates slower than this many times the best by formula are not solved.
constexpr double kHopelessStrategy = 2;
constexpr size_t kMostRebalanced = 6;
// Most axes of a stage, because programs with more take long to lower.
constexpr size_t kMostAxes = 4;
constexpr size_t kGalvatronAnswers = 8;    // most candidates whose programs are simulated
constexpr int64_t kMemorySteps = 1 << 14;  // number of units of memory in the dynamic program
// Share by which a stage's seconds may exceed the least under the memory limit.
constexpr double kTolerance = .01;

}  // namespace

// The costs of a pipeline of so many stages and micro-batches.
struct LayerSearch::Instance {
  int64_t stages = 1, micro_batches = 1, devices = 1;  // devices of a stage
  double micro_batch = 1;                              // sequences over all replicas
  std::vector<LayerStrategy> strategies;
  std::vector<const UnitPrices*> prices;    // by strategy
  std::vector<UnitLayout> layouts;          // by strategy
  std::vector<std::vector<UnitCost>> cost;  // by strategy and unit of the fold
  // By strategy; strategies with equal layouts have equal numbers.
  std::vector<size_t> layout_class;
  size_t classes = 0;
  // Seconds to change the layout between two units of the fold, by (earlier unit, later unit), then
  // by [class before * classes + class after].
  std::map<std::pair<int, int>, std::vector<double>> conversions;
  std::vector<std::vector<bool>> useful;  // by unit of the fold and strategy
  double overhead_bytes = 0;
  // Cache of solve_stage(): the strategies, by the stage's units of the fold and the micro-batches
  // in flight (-1: without a memory limit).
  std::map<std::pair<std::vector<int>, double>, std::optional<std::vector<size_t>>> solved;

  double weight() const {  // factor from a micro-batch's seconds to a step's
    const auto p = static_cast<double>(stages);
    return static_cast<double>(micro_batches) + (p - 1) / p;
  }
  double peak(size_t strategy, int unit) const {
    return prices[strategy]->transient_bytes +
           cost[strategy][static_cast<size_t>(unit)].gathered_bytes;
  }
  double held(size_t strategy, int unit, double in_flight) const {
    const UnitCost& one = cost[strategy][static_cast<size_t>(unit)];
    return one.resting_bytes + in_flight * one.activation_bytes;
  }
  double seconds(size_t strategy, int unit) const {
    const UnitCost& one = cost[strategy][static_cast<size_t>(unit)];
    return weight() * one.passes_s + one.once_s;
  }
};

LayerSearch::LayerSearch(PlanSearch& search, int64_t devices)
    : search_(search),
      devices_(devices),
      estimator_(*search.question().cluster, search.question().options.style, search.fold().units,
                 search.question().memory_limit_bytes),
      schedule_(texts_of(search.question(), "schedule", {"1f1b"}).front()) {
  while (2 * least_ <= search.question().batch && !search.pricer().price({{}, least_, "none"}))
    least_ *= 2;
}
LayerSearch::~LayerSearch() = default;

LayerSearch::Instance& LayerSearch::instance(int64_t stages, int64_t micro_batches) {
  auto& known = instances_[{stages, micro_batches}];
  if (known) return *known;
  known = std::make_unique<Instance>();
  Instance& at = *known;
  const PlanQuestion& question = search_.question();
  const Cluster& cluster = *question.cluster;
  const Fold& fold = search_.fold();
  at.stages = stages;
  at.micro_batches = micro_batches;
  at.devices = devices_ / stages;
  const int64_t micro_batch = question.batch / micro_batches;
  at.micro_batch = static_cast<double>(micro_batch);
  // More tensor-parallel ranks than twice a node's devices would use the network in every layer.
  const int64_t most = std::max(2 * cluster.type_of(0).devices, fixed_number(question, "tp"));
  for (const LayerStrategy& strategy :
       layer_strategies(at.devices, numbers_of(question, "zero", {0, 2, 3}),
                        texts_of(question, "recompute", {"none", "full"}))) {
    if (strategy.tensor > most || !allows(question, "tp", strategy.tensor) ||
        !allows(question, "dp", strategy.data))
      continue;
    if (strategy.data_inside && (strategy.list > 0 || !order_matters(cluster, strategy))) continue;
    const auto asked = question_for(cluster, strategy, micro_batch, kGalvatronSequences * least_);
    if (!asked) continue;
    const auto priced = search_.pricer().price(*asked);
    if (!priced) {
      refusal_ = priced.error().message;
      continue;
    }
    UnitLayout layout = layout_of(strategy);
    for (const ChoiceAxis& axis : asked->axes) layout.priced_ranks *= axis.size;
    std::vector<UnitCost> costs;
    for (const UnitPrice& price : (*priced)->units) {
      costs.push_back(
          estimator_.unit_cost(price, question.compute, strategy.sharded, layout, devices_));
    }
    const auto like =
        std::find_if(at.strategies.begin(), at.strategies.end(),
                     [&](const LayerStrategy& other) { return same_layout(other, strategy); });
    at.layout_class.push_back(
        like == at.strategies.end()
            ? at.classes++
            : at.layout_class[static_cast<size_t>(like - at.strategies.begin())]);
    at.overhead_bytes = std::max(at.overhead_bytes, (*priced)->overhead_bytes);
    at.strategies.push_back(strategy);
    at.prices.push_back(*priced);
    at.layouts.push_back(layout);
    at.cost.push_back(std::move(costs));
  }
  if (at.strategies.empty()) return at;

  // Prices changes of layout between neighbouring units. A unit of the fold that stands for several
  // layers is its own neighbour. The prices are used below to drop leaves.
  const Conversions between(fold, estimator_.collectives(), cluster, at.devices);
  std::vector<const LayerStrategy*> of_class(at.classes);
  for (size_t s = 0; s < at.strategies.size(); ++s)
    of_class[at.layout_class[s]] = &at.strategies[s];
  const auto add = [&](int from, int to) {
    auto& table = at.conversions[{from, to}];
    if (!table.empty()) return;
    const double bytes =
        at.prices.front()->units[static_cast<size_t>(from)].leaving_bytes * at.micro_batch;
    for (const LayerStrategy* a : of_class) {
      for (const LayerStrategy* b : of_class)
        table.push_back(a == b ? 0 : between.seconds(from, *a, to, *b, bytes));
    }
  };
  for (size_t u = 0; u < fold.units.size(); ++u) {
    const int unit = fold.units[u].stand_in;
    if (u > 0) add(fold.units[u - 1].stand_in, unit);
  }

  // Drops leaves that another leaf beats in time and memory even if the layout is changed to it and
  // back. Such a leaf is in no best chain.
  at.useful.assign(static_cast<size_t>(fold.folded_units),
                   std::vector<bool>(at.strategies.size(), true));
  for (int unit = 0; unit < fold.folded_units; ++unit) {
    // The most that a change of layout before or after this unit costs, by [class before * classes
    // + class after].
    std::vector<double> change(at.classes * at.classes);
    for (const auto& [ends, table] : at.conversions) {
      if (ends.first != unit && ends.second != unit) continue;
      for (size_t i = 0; i < table.size(); ++i) change[i] = std::max(change[i], table[i]);
    }
    const auto beats = [&](size_t a, size_t b) {
      const size_t x = at.layout_class[a], y = at.layout_class[b];
      const double moves = at.weight() * (change[x * at.classes + y] + change[y * at.classes + x]);
      const double gain = at.seconds(b, unit) - at.seconds(a, unit) - moves;
      const bool smaller = at.held(a, unit, 0) <= at.held(b, unit, 0) &&
                           at.held(a, unit, 1e6) <= at.held(b, unit, 1e6) &&
                           at.peak(a, unit) <= at.peak(b, unit);
      return smaller && (gain > 0 || (gain == 0 && a < b));
    };
    for (size_t s = 0; s < at.strategies.size(); ++s) {
      for (size_t other = 0; other < at.strategies.size(); ++other) {
        if (other != s && beats(other, s)) at.useful[static_cast<size_t>(unit)][s] = false;
      }
    }
  }
  return at;
}

const std::vector<LayerStrategy>& LayerSearch::strategies(int64_t stages, int64_t micro_batches) {
  return instance(stages, micro_batches).strategies;
}

std::vector<std::vector<size_t>> LayerSearch::divisions(int64_t stages, int64_t micro_batches) {
  const std::vector<FoldUnit>& units = search_.fold().units;
  const auto count = static_cast<size_t>(stages);
  if (stages == 1) return {{}};
  Instance& at = instance(stages, micro_batches);
  std::vector<size_t> layers;  // units that are in a run
  bool one_run = true;
  int run = -1;
  for (size_t u = 0; u < units.size(); ++u) {
    if (units[u].run < 0) continue;
    one_run = one_run && (run < 0 || run == units[u].run);
    run = units[u].run;
    layers.push_back(u);
  }
  std::vector<std::vector<size_t>> out;
  if (one_run && layers.size() >= count) {
    // If there is one run of layers, each stage gets equally many, and the last one also gets
    // the rest.
    std::vector<size_t> cuts = {0};
    for (size_t s = 1; s < count; ++s) cuts.push_back(layers[s * (layers.size() / count)]);
    out.push_back(std::move(cuts));
  } else {
    std::vector<double> least;
    for (const FoldUnit& unit : units) {
      double bytes = kInfinity;
      for (size_t s = 0; s < at.strategies.size(); ++s)
        bytes = std::min(bytes, at.held(s, unit.stand_in, 1));
      least.push_back(bytes);
    }
    std::vector<size_t> cuts;
    size_t first = 0;
    bool whole = true;
    const std::vector<double> extra(count, 0);
    for (const size_t size : published::divide_by_memory(least, extra)) {
      whole = whole && size > 0;
      cuts.push_back(first);
      first += size;
    }
    if (whole) out.push_back(std::move(cuts));
  }
  std::vector<double> times;
  for (const FoldUnit& unit : units) {
    double least = kInfinity;
    for (size_t s = 0; s < at.strategies.size(); ++s)
      least = std::min(least, at.seconds(s, unit.stand_in));
    times.push_back(least);
  }
  auto even = balance_stages(times, count);
  if (out.empty() || out.front() != even) out.push_back(std::move(even));
  return out;
}

PlanCandidate LayerSearch::evaluate(int64_t stages, int64_t micro_batches,
                                    const std::vector<size_t>& cuts,
                                    const std::vector<size_t>& leaves) {
  Instance& at = instance(stages, micro_batches);
  const std::vector<FoldUnit>& units = search_.fold().units;
  PlanCandidate out;
  out.choice.stages = stages;
  out.choice.micro_batches = micro_batches;
  out.choice.schedule = schedule_;
  out.choice.compute = search_.question().compute;
  out.choice.cuts = cuts;
  std::vector<const LayerStrategy*> chosen;
  std::vector<const UnitPrices*> prices;
  std::vector<UnitLayout> layouts;
  for (size_t u = 0; u < units.size(); ++u) {
    const size_t leaf = leaves[u];
    chosen.push_back(&at.strategies[leaf]);
    prices.push_back(at.prices[leaf]);
    layouts.push_back(at.layouts[leaf]);
    const bool is_first = std::find(cuts.begin(), cuts.end(), u) != cuts.end();
    if (u == 0 || is_first) continue;
    layouts.back().conversion_s = at.conversions.at(
        {units[u - 1].stand_in,
         units[u].stand_in})[at.layout_class[leaves[u - 1]] * at.classes + at.layout_class[leaf]];
  }
  write_leaves(out.choice, at.devices, chosen);
  out.estimate =
      estimator_.estimate_units(out.choice, prices, static_cast<int64_t>(at.micro_batch), layouts);
  return out;
}

std::optional<std::vector<size_t>> LayerSearch::solve_stage(Instance& at, size_t begin, size_t end,
                                                            size_t place, bool ignore_memory) {
  const std::vector<FoldUnit>& units = search_.fold().units;
  std::vector<int> folded;
  for (size_t u = begin; u < end; ++u) folded.push_back(units[u].stand_in);
  Choice shape;
  shape.stages = at.stages;
  shape.micro_batches = at.micro_batches;
  shape.schedule = schedule_;
  const ScheduleFacts* schedule = estimator_.schedule_of(shape);
  if (schedule == nullptr) return {};
  const double flies = schedule->held[place];
  const double limit = ignore_memory ? 0 : search_.limit_bytes();
  const auto [known, is_new] = at.solved.try_emplace({folded, limit > 0 ? flies : -1});
  if (!is_new) return known->second;

  const double capacity = limit > 0 ? limit - at.overhead_bytes : 0;
  // Returns the fastest leaf of each unit, among the leaves whose peak bytes for the unit are at
  // most `peak`; nothing if no leaves fit. `bounded`: whether the memory limit and `peak` apply.
  const auto solve = [&](double peak, bool bounded) -> std::optional<std::vector<size_t>> {
    const double room = capacity - peak;
    if (bounded && room <= 0) return {};
    const double unit_bytes = room / static_cast<double>(kMemorySteps);
    published::ChainProblem problem;
    problem.limit = bounded ? kMemorySteps : 1;
    problem.tolerance = bounded ? kTolerance : 0;
    // By unit: the numbers of the strategies that it may have.
    std::vector<std::vector<size_t>> numbers;
    for (const int unit : folded) {
      published::ChainLayer layer;
      std::vector<size_t> offered;
      for (size_t s = 0; s < at.strategies.size(); ++s) {
        if (!at.useful[static_cast<size_t>(unit)][s] && bounded) continue;
        if (bounded && at.peak(s, unit) > peak) continue;
        const double bytes = bounded ? at.held(s, unit, flies) / unit_bytes : 0;
        if (bytes > static_cast<double>(kMemorySteps)) continue;
        offered.push_back(s);
        layer.seconds.push_back(at.seconds(s, unit));
        layer.memory.push_back(static_cast<int64_t>(std::ceil(bytes)));
      }
      if (!bounded) {  // keeps the fastest strategy of each layout
        published::ChainLayer fastest;
        std::vector<size_t> of_class(at.classes, at.strategies.size());
        for (size_t i = 0; i < offered.size(); ++i) {
          size_t& best = of_class[at.layout_class[offered[i]]];
          if (best == at.strategies.size() || layer.seconds[i] < layer.seconds[best]) best = i;
        }
        std::vector<size_t> kept;
        for (const size_t i : of_class) {
          if (i == at.strategies.size()) continue;
          kept.push_back(offered[i]);
          fastest.seconds.push_back(layer.seconds[i]);
          fastest.memory.push_back(0);
        }
        layer = std::move(fastest);
        offered = std::move(kept);
      }
      if (offered.empty()) return {};
      problem.layers.push_back(std::move(layer));
      numbers.push_back(std::move(offered));
    }
    problem.change = [&](size_t l, size_t from, size_t to) {
      const auto& table = at.conversions.at({folded[l - 1], folded[l]});
      const size_t a = at.layout_class[numbers[l - 1][from]], b = at.layout_class[numbers[l][to]];
      return at.weight() * table[a * at.classes + b];
    };
    const auto chain = published::best_chain(problem);
    if (!chain) return {};
    std::vector<size_t> leaves;
    for (size_t l = 0; l < folded.size(); ++l) leaves.push_back(numbers[l][chain->strategies[l]]);
    return leaves;
  };
  const auto seconds_of = [&](const std::vector<size_t>& leaves) {
    double sum = 0;
    for (size_t l = 0; l < leaves.size(); ++l) {
      sum += at.seconds(leaves[l], folded[l]);
      if (l == 0) continue;
      const auto& table = at.conversions.at({folded[l - 1], folded[l]});
      sum += at.weight() *
             table[at.layout_class[leaves[l - 1]] * at.classes + at.layout_class[leaves[l]]];
    }
    return sum;
  };
  if (limit <= 0) return known->second = solve(0, false);

  // If the fastest leaves without a limit fit, they are the answer.
  const auto free = solve_stage(at, begin, end, place, true);
  double held = 0, peak = 0;
  for (size_t l = 0; l < folded.size(); ++l) {
    held += at.held((*free)[l], folded[l], flies);
    peak = std::max(peak, at.peak((*free)[l], folded[l]));
  }
  if (held + peak <= capacity) return at.solved[{folded, flies}] = free;

  // The peak of a stage is that of the unit with the largest peak. Tries bounds on this peak, from
  // the largest down; the dynamic program divides the rest of the memory among the units.
  std::vector<double> peaks;
  for (const int unit : folded) {
    for (size_t s = 0; s < at.strategies.size(); ++s) {
      if (at.useful[static_cast<size_t>(unit)][s]) peaks.push_back(at.peak(s, unit));
    }
  }
  std::sort(peaks.begin(), peaks.end(), std::greater<>());
  std::optional<std::vector<size_t>> best;
  double best_s = kInfinity, last = kInfinity;
  size_t tried = 0;
  for (const double bound : peaks) {
    if (bound >= capacity || bound > last - capacity / 256) continue;
    if (++tried > kMostPeaks) break;
    last = bound;
    const auto found = solve(bound, true);
    if (!found) continue;
    const double seconds = seconds_of(*found);
    if (seconds < best_s) {
      best = found;
      best_s = seconds;
    }
  }
  return at.solved[{folded, flies}] = best;
}

std::optional<PlanCandidate> LayerSearch::best_for(int64_t stages, int64_t micro_batches,
                                                   const std::vector<size_t>& cuts,
                                                   bool ignore_memory) {
  Instance& at = instance(stages, micro_batches);
  const size_t count = search_.fold().units.size();
  std::vector<size_t> leaves;
  for (size_t s = 0; s < static_cast<size_t>(stages); ++s) {
    const size_t begin = cuts.empty() ? 0 : cuts[s];
    const size_t end = s + 1 < cuts.size() ? cuts[s + 1] : count;
    const auto stage = solve_stage(at, begin, end, s, ignore_memory);
    if (!stage) return {};
    leaves.insert(leaves.end(), stage->begin(), stage->end());
  }
  return evaluate(stages, micro_batches, cuts, leaves);
}

std::optional<PlanCandidate> LayerSearch::best_uniform(int64_t stages, int64_t micro_batches,
                                                       const std::vector<size_t>& cuts,
                                                       int64_t sharded) {
  Instance& at = instance(stages, micro_batches);
  const double limit = search_.limit_bytes();
  std::optional<PlanCandidate> out;
  for (size_t s = 0; s < at.strategies.size(); ++s) {
    if (at.strategies[s].sharded != sharded) continue;
    PlanCandidate next =
        evaluate(stages, micro_batches, cuts, std::vector<size_t>(search_.fold().units.size(), s));
    if (limit > 0 && next.estimate.memory_bytes > limit) continue;
    if (!out || next.estimate.step_s < out->estimate.step_s) out = std::move(next);
  }
  return out;
}

PlanCandidate LayerSearch::smallest(Instance& at) {
  std::vector<size_t> leaves;
  for (const FoldUnit& unit : search_.fold().units) {
    size_t best = 0;
    const auto size = [&](size_t s) {
      return at.held(s, unit.stand_in, 1) + at.peak(s, unit.stand_in);
    };
    for (size_t s = 1; s < at.strategies.size(); ++s) {
      if (size(s) < size(best)) best = s;
    }
    leaves.push_back(best);
  }
  return evaluate(at.stages, at.micro_batches, divisions(at.stages, at.micro_batches).front(),
                  leaves);
}

std::optional<PlanCandidate> LayerSearch::rebalanced(Instance& at, const PlanCandidate& from) {
  if (at.stages == 1) return {};
  const std::vector<FoldUnit>& units = search_.fold().units;
  const auto load = [&](const std::vector<size_t>& cuts, size_t stage) -> std::optional<double> {
    const size_t end = stage + 1 < cuts.size() ? cuts[stage + 1] : units.size();
    const auto leaves = solve_stage(at, cuts[stage], end, stage, false);
    if (!leaves) return {};
    double sum = 0;
    for (size_t u = cuts[stage]; u < end; ++u)
      sum += at.seconds((*leaves)[u - cuts[stage]], units[u].stand_in);
    return sum;
  };
  std::vector<size_t> cuts = from.choice.cuts;
  bool moved = false;
  for (size_t round = 0; round < units.size(); ++round) {
    std::vector<double> loads;
    for (size_t s = 0; s < cuts.size(); ++s) loads.push_back(load(cuts, s).value_or(kInfinity));
    const auto slowest =
        static_cast<size_t>(std::max_element(loads.begin(), loads.end()) - loads.begin());
    bool gains = false;
    for (const bool to_left : {true, false}) {
      if (gains || (to_left ? slowest == 0 : slowest + 1 == cuts.size())) continue;
      std::vector<size_t> next = cuts;
      const size_t other = to_left ? slowest - 1 : slowest + 1;
      if (to_left) ++next[slowest];
      if (!to_left) --next[other];
      const size_t end = slowest + 1 < next.size() ? next[slowest + 1] : units.size();
      if (next[slowest] >= end) continue;
      const auto mine = load(next, slowest), theirs = load(next, other);
      if (!mine || !theirs || std::max(*mine, *theirs) >= loads[slowest]) continue;
      cuts = next;
      gains = moved = true;
    }
    if (!gains) break;
  }
  return moved ? best_for(at.stages, at.micro_batches, cuts) : std::nullopt;
}

std::optional<PlanCandidate> LayerSearch::best(int64_t stages, int64_t micro_batches) {
  Instance& at = instance(stages, micro_batches);
  if (at.strategies.empty()) return {};
  std::optional<PlanCandidate> out;
  for (const auto& cuts : divisions(stages, micro_batches)) {
    auto found = best_for(stages, micro_batches, cuts);
    if (found && (!out || found->estimate.step_s < out->estimate.step_s)) out = std::move(found);
  }
  if (!out) return smallest(at);
  if (auto better = rebalanced(at, *out); better && better->estimate.step_s < out->estimate.step_s)
    out = std::move(better);
  return out;
}

std::vector<PlanCandidate> LayerSearch::search_all() {
  const PlanQuestion& question = search_.question();
  const double limit = search_.limit_bytes();
  const auto fits = [&](const PlanCandidate& one) {
    return limit <= 0 || one.estimate.memory_bytes <= limit;
  };
  std::vector<PlanCandidate> free;  // candidates without a memory limit
  for (int64_t stages = 1; stages <= devices_; stages *= 2) {
    if (stages > static_cast<int64_t>(search_.fold().units.size())) break;
    if (!allows(question, "pp", stages)) continue;
    search_.say(fmt::format("leaves of the decision tree for {} stages", stages));
    for (const int64_t micro_batches : divisors_of(question.batch)) {
      if (!allows(question, "micro_batches", micro_batches)) continue;
      if (question.stop && question.stop() && !free.empty()) break;
      if (instance(stages, micro_batches).strategies.empty()) continue;
      for (const auto& cuts : divisions(stages, micro_batches))
        free.push_back(*best_for(stages, micro_batches, cuts, true));
    }
  }
  // Solves under the memory limit only candidates that could still be the best, the most promising
  // first. Keeps some of each number of stages, because the formula's error depends on that number.
  std::stable_sort(free.begin(), free.end(), [](const auto& a, const auto& b) {
    return a.estimate.step_s < b.estimate.step_s;
  });
  std::vector<PlanCandidate> out;
  double best_s = kInfinity;
  // Candidates kept and candidates solved, by number of stages.
  std::map<int64_t, size_t> found_of, tight_of;
  for (const PlanCandidate& one : free) {
    const int64_t stages = one.choice.stages;
    size_t& found = found_of[stages];
    const bool is_close = one.estimate.step_s < question.margin * best_s;
    if (found >= kMostOfStages || (!is_close && found > 0)) continue;
    if (one.estimate.step_s > kHopelessStrategy * best_s) break;
    if (question.stop && question.stop() && !out.empty()) break;
    std::optional<PlanCandidate> next = one;
    if (!fits(one)) {
      if (tight_of[stages]++ >= kMostTight) continue;
      search_.say(fmt::format("{} stages, {} micro-batches under the limit", stages,
                              one.choice.micro_batches));
      next = best_for(stages, one.choice.micro_batches, one.choice.cuts);
    }
    if (!next) continue;
    ++found;
    if (fits(*next)) best_s = std::min(best_s, next->estimate.step_s);
    out.push_back(std::move(*next));
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return a.estimate.step_s < b.estimate.step_s;
  });
  const size_t count = std::min(out.size(), kMostRebalanced);
  for (size_t i = 0; i < count; ++i) {
    Instance& at = instance(out[i].choice.stages, out[i].choice.micro_batches);
    if (auto better = rebalanced(at, out[i])) out.push_back(std::move(*better));
    // Also adds the best choice with one leaf for all layers, for each value of `sharded`, because
    // formulas err more for unequal leaves and for shards.
    for (const int64_t sharded : numbers_of(question, "zero", {0, 2, 3})) {
      auto same = best_uniform(at.stages, at.micro_batches, out[i].choice.cuts, sharded);
      const bool is_new =
          same && std::none_of(out.begin(), out.end(), [&](const PlanCandidate& known) {
            return known.choice == same->choice;
          });
      if (is_new) out.push_back(std::move(*same));
    }
  }
  if (out.empty()) {  // returns the candidates that need the least memory
    for (const PlanCandidate& one : free)
      out.push_back(smallest(instance(one.choice.stages, one.choice.micro_batches)));
    return out;
  }
  // Keeps the best candidate for each number of stages, each value of `sharded`, and with equal and
  // unequal layers, because the formula's error depends on these.
  std::set<std::tuple<int64_t, int64_t, bool>> handed;
  std::vector<PlanCandidate> few;
  for (const PlanCandidate* one : in_order(question, out)) {
    const Choice& choice = one->choice;
    const bool is_simple = choice.axes.size() <= kMostAxes;
    if (is_simple && few.size() < kGalvatronAnswers &&
        handed.insert({choice.stages, choice.sharded, choice.units.empty()}).second)
      few.push_back(*one);
  }
  if (few.empty()) few = {*in_order(question, out).front()};
  return few;
}

Result<PlanAnswer> find_by_galvatron(const PlanQuestion& question) {
  const int64_t all = question.cluster->devices();
  const int64_t fixed = fixed_number(question, "devices");
  const int64_t used =
      fixed > 0 ? fixed : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(all)));
  if (!std::has_single_bit(static_cast<uint64_t>(used)) || used > all) {
    return invalid_input(fmt::format(
        "planner galvatron: expected a power of two of at most {} devices, found {}", all, used));
  }
  const std::string schedule = texts_of(question, "schedule", {"1f1b"}).front();
  if (schedule != "1f1b" && schedule != "gpipe") {
    return invalid_input(fmt::format(
        "planner galvatron: expected the schedule 1f1b or gpipe, found '{}'", schedule));
  }
  if (!allows(question, "chunks", 1)) {
    return invalid_input("planner galvatron: expected one chunk, its pipelines have no more");
  }
  TESSERA_TRY(const auto search, PlanSearch::begin(question));
  LayerSearch layers(*search, used);
  return search->answer(layers.search_all(), layers.last_refusal());
}

}  // namespace tessera
