// Gives single units a level of recomputation of their own where choices do not fit (partition.h).
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tessera/search/constants.h"
#include "tessera/search/question/question.h"
#include "tessera/search/rank/partition.h"
#include "tessera/search/rank/ranking.h"

namespace tessera {

void Ranking::recompute_units(const Space& space, std::vector<PlanCandidate>& out) {
  if (!question_.uses(Mechanism::kPartition)) return;
  // Needs one kind of nodes, because partition() takes one time for a unit, whatever its stage.
  if (limit_ <= 0 || !space.own_units || estimator_.kinds().count() > 1) return;
  // Groups of choices that differ in recomputation alone, each in the order of the levels.
  std::map<std::string, std::vector<size_t>> groups;
  for (size_t i = 0; i < out.size(); ++i) {
    Choice plain = out[i].choice;
    if (plain.chunks > 1) continue;
    plain.recompute = space.recompute.front();
    groups[plain.str()].push_back(i);
  }
  std::vector<const std::vector<size_t>*> order;
  for (const auto& [name, group] : groups) {
    if (!out[group.front()].estimate.fits()) order.push_back(&group);
  }
  const auto merit = [&](const std::vector<size_t>* group) {
    return at_no_memory(out[group->front()]);
  };
  std::ranges::stable_sort(order, {}, merit);
  size_t refined = 0;
  for (const auto* group : order) {
    if (refined == kMostPrograms / 4 || !is_best(merit(group))) break;
    if (question_.stop && question_.stop()) return;
    ++refined;
    std::vector<Choice> levels;
    for (const size_t i : *group) levels.push_back(out[i].choice);
    auto candidate = with_own_recomputation(levels);
    if (!candidate) continue;
    note_best(*candidate);
    out.push_back(std::move(*candidate));
  }
}

// Returns the choice with a level of recomputation for each unit, or nothing if no such choice
// fits. `levels`: the choice with each level of recomputation, the least first.
std::optional<PlanCandidate> Ranking::with_own_recomputation(const std::vector<Choice>& levels) {
  const Choice& plain = levels.front();
  const int64_t replicas = plain.axes.front().size;
  UnitQuestion asked = unit_question(plain, question_.batch);
  std::vector<const UnitPrices*> prices;
  PartitionProblem problem;
  double gathered = 0;
  for (const Choice& level : levels) {
    asked.recompute = level.recompute;
    asked.on = &estimator_.kinds().cluster(0);
    const auto found = pricer_.price(asked);
    if (!found) return {};
    prices.push_back(*found);
    PartitionLevel priced;
    priced.alive_bytes = (*found)->transient_bytes;
    for (const FoldUnit& unit : fold_.units) {
      const UnitPrice& price = (*found)->units[static_cast<size_t>(unit.stand_in)];
      priced.time_s.push_back(price.forward_s + price.backward_s);
      priced.activation_bytes.push_back(price.activation_bytes);
      if (problem.levels.empty()) {
        problem.resting_bytes.push_back(resting_bytes(price, plain, plain.sharded, replicas));
        gathered = std::max(gathered, 2 * price.parameter_bytes);
      }
    }
    problem.levels.push_back(std::move(priced));
  }
  problem.capacity_bytes = limit_ - overhead_beside(*prices.front(), limit_) -
                           estimator_.connections_bytes(plain) -
                           (plain.sharded >= 3 ? gathered : 0);
  if (problem.capacity_bytes <= 0) return {};
  const ScheduleFacts* schedule = estimator_.schedule_of(plain);
  if (schedule == nullptr) return {};
  problem.in_flight = schedule->held;
  problem.micro_batches = static_cast<double>(plain.micro_batches);
  problem.bubble = plain.stages > 1 ? schedule->bubble / static_cast<double>(plain.stages - 1) : 0;
  const auto found = partition(problem);
  if (!found) return {};

  PlanCandidate out;
  out.choice = plain;
  out.choice.cuts = plain.stages > 1 ? found->cuts : std::vector<size_t>{};
  std::vector<const UnitPrices*> by_unit;
  for (const size_t level : found->level) by_unit.push_back(prices[level]);
  const bool same = std::all_of(found->level.begin(), found->level.end(),
                                [&](size_t level) { return level == found->level.front(); });
  if (same) {
    out.choice.recompute = levels[found->level.front()].recompute;
  } else {
    for (const size_t level : found->level) {
      UnitChoice own;
      if (level > 0) own.recompute = levels[level].recompute;
      out.choice.units.push_back(own);
    }
  }
  out.estimate = estimator_.estimate_units(out.choice, by_unit, asked.sequences * replicas);
  return out;
}

}  // namespace tessera
