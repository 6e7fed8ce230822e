#include "tessera/search/choices/offload.h"

#include <algorithm>

#include "tessera/search/choices/offload_levels.h"

namespace tessera {
namespace {

bool has_host(const Cluster& cluster) {
  return std::all_of(cluster.parts.begin(), cluster.parts.end(), [](const ClusterPart& part) {
    return !part.type.device.synchronous && part.type.host_bytes > 0 &&
           part.type.device.memory_bytes > 0;
  });
}

bool speaks_of_tiers(const PlanPart& part) {
  return std::any_of(part.plan.stores.begin(), part.plan.stores.end(),
                     [](const StoreEntry& entry) { return entry.tier || entry.cache; });
}

// Returns the choice with the level, and with the least time and memory that it may then need.
PlanCandidate at_level(PlanCandidate candidate, const OffloadLevel& level) {
  Estimate& estimate = candidate.estimate;
  candidate.choice.offload = level.name;
  estimate.memory_bytes -=
      level.states * estimate.state_bytes + (level.activations ? estimate.activation_bytes : 0);
  return candidate;
}

}  // namespace

void add_offloaded(const PlanQuestion& question, std::vector<PlanCandidate>& ranked) {
  if (const auto fixed = question.fixed.find("offload"); fixed != question.fixed.end()) {
    const OffloadLevel* level = find_offload_level(fixed->second);
    for (PlanCandidate& one : ranked) {
      if (level != nullptr) one = at_level(std::move(one), *level);
    }
    return;
  }
  if (!question.uses(Mechanism::kOffload) || !has_host(*question.cluster) ||
      (question.part && speaks_of_tiers(*question.part)))
    return;
  std::optional<Merit> best;  // of the choices that fit
  for (const PlanCandidate& one : ranked) {
    const Merit merit = expected_merit(question, one);
    if (!merit.lacks_memory && (!best || merit < *best)) best = merit;
  }
  const size_t plain = ranked.size();
  for (size_t i = 0; i < plain; ++i) {
    Merit before = expected_merit(question, ranked[i]);
    for (const OffloadLevel& level : offload_levels()) {
      PlanCandidate one = at_level(ranked[i], level);
      const Merit merit = expected_merit(question, one);
      // Copies of activations make plans slower by far.
      if (merit.lacks_memory || merit >= before || (best && merit >= *best) ||
          (level.activations && best))
        continue;
      before = merit;
      ranked.push_back(std::move(one));
    }
  }
}

}  // namespace tessera
