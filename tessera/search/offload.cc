#include "tessera/search/offload.h"

#include <algorithm>
#include <limits>

#include "tessera/base/text.h"
#include "tessera/search/plan_search.h"
#include "tessera/search/ranking.h"
#include "tessera/search/spaces.h"
#include "tessera/search/with_part.h"

namespace tessera {
namespace {

// The least share of a device's peak memory that must be optimizer state; less would help little.
constexpr double kStateShare = .15;
// Memory binds if a step with twice the memory would take at most this share of the step time.
constexpr double kBinds = .95;
// Most programs that are simulated to decide whether a search is worth its time.
constexpr size_t kProbes = 4;

struct Level {
  std::string name, what, text;
  double states = 0;  // bytes that leave the device, as a multiple of the optimizer state's
};

const std::vector<Level>& levels() {
  static const std::vector<Level> all = {
      {"optimizer", "optimizer state", "store = [ { tensors = \"optimizer.*\", tier = \"host\" } ]",
       1},
      {"states", "optimizer state, gradients and parameters",
       "store = [\n"
       "  { tensors = \"optimizer.*\", tier = \"host\" },\n"
       "  { tensors = \"role:parameter\", tier = \"host\", keep = \"step\" },\n"
       "  { tensors = \"role:gradient\", tier = \"host\" },\n"
       "]",
       2},
      {"all", "optimizer state, gradients, parameters and activations",
       "store = [\n"
       "  { tensors = \"optimizer.*\", tier = \"host\" },\n"
       "  { tensors = \"role:parameter\", tier = \"host\", keep = \"block\" },\n"
       "  { tensors = \"role:gradient\", tier = \"host\" },\n"
       "  { tensors = \"role:activation\", tier = \"host\" },\n"
       "]",
       2}};
  return all;
}

Result<PlanQuestion> with_level(const PlanQuestion& question, const Level& level) {
  return with_more(question, level.text, level.what + " on the host");
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

// Returns whether more memory would shorten the step, and at least kStateShare of the memory at
// some device's peak is optimizer state.
bool may_be_faster(const PlanAnswer& answer) {
  const double step_s = *answer.simulated[*answer.best].step_s;
  if (!answer.with_twice_memory_s || *answer.with_twice_memory_s > kBinds * step_s) return false;
  const std::string state = "optimizer state";
  double most = 0;
  for (const RankResult& role : answer.simulation->roles) {
    double bytes = 0;
    for (const LiveBuffer& buffer : role.memory.at_peak)
      bytes += buffer.what == state ? static_cast<double>(buffer.bytes) : 0;
    most = std::max(most, bytes / role.memory.high);
  }
  return most >= kStateShare;
}

// Returns up to kProbes choices of a search's curve, the fastest first: those that do not fit, take
// less than best_s by formula, and would fit without the bytes that leave the device. No other
// choice can win, because offloading never makes a step shorter.
std::vector<PlanCandidate> worth_a_probe(const std::vector<PlanCandidate>& curve, double best_s,
                                         const Level& level) {
  std::vector<PlanCandidate> out;
  for (const PlanCandidate& one : curve) {
    const Estimate& estimate = one.estimate;
    const double left = estimate.memory_bytes - level.states * estimate.state_bytes;
    if (estimate.fits() || estimate.step_s >= best_s || left > estimate.capacity_bytes) continue;
    out.push_back(one);
    out.back().estimate.memory_bytes = left;
  }
  std::stable_sort(out.begin(), out.end(), [](const PlanCandidate& a, const PlanCandidate& b) {
    return a.estimate.step_s < b.estimate.step_s;
  });
  if (out.size() > kProbes) out.resize(kProbes);
  return out;
}

// Simulates the choices of worth_a_probe() with the level's tensors on the host, and returns
// whether one of them takes less than best_s. Only then is a whole search for the level worth
// its time.
bool promises_a_gain(const PlanQuestion& question, const std::vector<PlanCandidate>& curve,
                     double best_s, const Level& level) {
  std::vector<PlanCandidate> probes = worth_a_probe(curve, best_s, level);
  if (probes.empty()) return false;
  auto asked = with_level(question, level);
  if (!asked) return false;
  asked->evaluations = kProbes;
  asked->explain = false;
  const auto search = PlanSearch::begin(*asked);
  if (!search) return false;
  const auto probed = (*search)->answer(std::move(probes));
  return probed && std::any_of(probed->simulated.begin(), probed->simulated.end(),
                               [&](const PlanCandidate& probe) {
                                 return probe.step_s && *probe.step_s < best_s;
                               });
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
  for (const Level& level : levels()) {
    if (level.name == name) return level.what;
  }
  return "";
}

Result<PlanAnswer> find_offloaded(const PlanQuestion& question, const std::string& name) {
  const auto level = std::find_if(levels().begin(), levels().end(),
                                  [&](const Level& one) { return one.name == name; });
  TESSERA_TRY(const PlanQuestion asked, with_level(question, *level));
  TESSERA_TRY(PlanAnswer answer, find_in_space(asked, whole_space));
  answer.offloaded = name;
  return answer;
}

Result<PlanAnswer> find_with_offload(const PlanQuestion& question, PlanAnswer plain) {
  if (question.fixed.contains("offload") || plain.limit_bytes <= 0 ||
      !has_host(*question.cluster) || (question.part && speaks_of_tiers(*question.part)))
    return plain;
  const bool fits = plain.best.has_value();
  if (fits && !may_be_faster(plain)) return plain;
  PlanAnswer best = std::move(plain);
  const std::vector<PlanCandidate> curve = best.curve;
  for (const Level& level : levels()) {
    // The last level, which also offloads activations, is left out if some plan fits, because it
    // makes plans slower.
    if (best.best && &level == &levels().back()) break;
    if (question.stop && question.stop()) break;
    if (question.progress) question.progress("with " + level.what + " on the host");
    if (fits && !promises_a_gain(question, curve, *best.simulated[*best.best].step_s, level))
      continue;
    auto answer = find_offloaded(question, level.name);
    if (answer && is_better(*answer, best)) best = *std::move(answer);
  }
  return best;
}

}  // namespace tessera
