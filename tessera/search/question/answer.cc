#include "tessera/search/question/answer.h"

#include <algorithm>
#include <utility>

namespace tessera {

PlanFacts expected(const PlanQuestion& question, const Choice& choice, const Estimate& estimate) {
  const RankDevices devices =
      choice.device_order.empty() ? RankDevices() : RankDevices(choice.device_order.list());
  return {estimate.step_s, estimate.memory_bytes,
          question.objective.used(*question.cluster, choice.ranks(), devices)};
}

PlanFacts facts_of(const PlanCandidate& simulated) {
  return {*simulated.step_s, simulated.need_bytes, simulated.used};
}

Merit expected_merit(const PlanQuestion& question, const PlanCandidate& candidate) {
  PlanFacts facts = expected(question, candidate.choice, candidate.estimate);
  facts.fits = candidate.estimate.fits();
  return question.objective.merit(facts);
}

Merit merit_of(const PlanQuestion& question, const PlanCandidate& simulated) {
  PlanFacts facts = facts_of(simulated);
  facts.fits = simulated.fits;
  return question.objective.merit(facts);
}

std::vector<const PlanCandidate*> in_order(const PlanQuestion& question,
                                           const std::vector<PlanCandidate>& ranked) {
  std::vector<std::pair<Merit, const PlanCandidate*>> sorted;
  for (const PlanCandidate& candidate : ranked)
    sorted.emplace_back(expected_merit(question, candidate), &candidate);
  std::ranges::stable_sort(sorted, {}, &std::pair<Merit, const PlanCandidate*>::first);
  std::vector<const PlanCandidate*> out;
  for (const auto& [merit, candidate] : sorted) out.push_back(candidate);
  return out;
}

std::vector<PlanCandidate> pareto_curve(const std::vector<PlanCandidate>& ranked) {
  std::vector<const PlanCandidate*> order;
  for (const PlanCandidate& candidate : ranked) order.push_back(&candidate);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    if (a->estimate.memory_bytes != b->estimate.memory_bytes) {
      return a->estimate.memory_bytes < b->estimate.memory_bytes;
    }
    return a->estimate.step_s < b->estimate.step_s;
  });
  std::vector<PlanCandidate> curve;
  for (const PlanCandidate* candidate : order) {
    if (curve.empty() || candidate->estimate.step_s < curve.back().estimate.step_s) {
      curve.push_back(*candidate);
    }
  }
  return curve;
}

bool is_better(const PlanQuestion& question, const PlanAnswer& a, const PlanAnswer& b) {
  const auto merit = [&](const PlanAnswer& answer) -> std::optional<Merit> {
    if (answer.best) return merit_of(question, answer.simulated[*answer.best]);
    std::optional<Merit> out;
    for (const PlanCandidate& one : answer.simulated) {
      if (!one.step_s) continue;
      const Merit own = merit_of(question, one);
      if (!out || own < *out) out = own;
    }
    return out;
  };
  const auto x = merit(a), y = merit(b);
  return x && (!y || *x < *y);
}

PlanAnswer better_of(const PlanQuestion& question, PlanAnswer a, PlanAnswer b) {
  if (is_better(question, b, a)) std::swap(a, b);
  a.simulated.insert(a.simulated.end(), b.simulated.begin(), b.simulated.end());
  a.estimated += b.estimated;
  a.folded_programs += b.folded_programs;
  return a;
}

}  // namespace tessera
