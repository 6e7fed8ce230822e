#include "tessera/search/offload.h"

#include <algorithm>

#include "tessera/base/infinity.h"

namespace tessera {
namespace {

struct Level {
  std::string name, what;
  double states = 0;  // bytes that leave the device, as a multiple of the optimizer state's
  std::string keep_parameters;  // how long the device keeps a copy; empty: they rest there
  bool activations = false;     // whether activations leave the device
};

const std::vector<Level>& levels() {
  static const std::vector<Level> all = {
      {"optimizer", "optimizer state", 1, ""},
      {"states", "optimizer state, gradients and parameters", 2, "step"},
      {"all", "optimizer state, gradients, parameters and activations", 2, "block", true}};
  return all;
}

const Level* find_level(const std::string& name) {
  const auto found = std::ranges::find(levels(), name, &Level::name);
  return found == levels().end() ? nullptr : &*found;
}

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
PlanCandidate at_level(PlanCandidate candidate, const Level& level) {
  Estimate& estimate = candidate.estimate;
  candidate.choice.offload = level.name;
  estimate.memory_bytes -=
      level.states * estimate.state_bytes + (level.activations ? estimate.activation_bytes : 0);
  return candidate;
}

}  // namespace

const std::vector<std::string>& offload_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out = {"none"};
    for (const Level& level : levels()) out.push_back(level.name);
    return out;
  }();
  return names;
}

std::string offload_text(const std::string& name) {
  const Level* level = find_level(name);
  return level != nullptr ? level->what : "";
}

void write_offload(recipes::PlanText& text, const std::string& name) {
  const Level* level = find_level(name);
  if (level == nullptr) return;
  text.rest_in("optimizer.*", "host", "1");
  if (level->keep_parameters.empty()) return;
  text.rest_in("role:parameter", "host", "1", level->keep_parameters);
  text.rest_in("role:gradient", "host", "1");
  if (level->activations) text.rest_in("role:activation", "host", "1");
}

void add_offloaded(const PlanQuestion& question, std::vector<PlanCandidate>& ranked) {
  if (const auto fixed = question.fixed.find("offload"); fixed != question.fixed.end()) {
    const Level* level = find_level(fixed->second);
    for (PlanCandidate& one : ranked) {
      if (level != nullptr) one = at_level(std::move(one), *level);
    }
    return;
  }
  if (!question.uses(Mechanism::kOffload) || !has_host(*question.cluster) ||
      (question.part && speaks_of_tiers(*question.part)))
    return;
  double best_s = kInfinity;
  for (const PlanCandidate& one : ranked) {
    if (one.estimate.fits()) best_s = std::min(best_s, one.estimate.step_s);
  }
  const size_t plain = ranked.size();
  for (size_t i = 0; i < plain; ++i) {
    if (ranked[i].estimate.fits() || ranked[i].estimate.step_s >= best_s) continue;
    for (const Level& level : levels()) {
      PlanCandidate one = at_level(ranked[i], level);
      // Copies of activations make plans slower by far.
      if (!one.estimate.fits() || (level.activations && best_s < kInfinity)) continue;
      ranked.push_back(std::move(one));
      break;
    }
  }
}

}  // namespace tessera
