// The question to a planner, and functions that read the settings that the question fixes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/broken_invariant.h"
#include "tessera/graph/builder.h"
#include "tessera/plan/layout/part.h"
#include "tessera/search/choices/mechanisms.h"
#include "tessera/search/constants.h"
#include "tessera/search/question/objective.h"
#include "tessera/simulate/simulate.h"

namespace tessera {

struct PlanCandidate;

struct PlanQuestion {
  std::string model;  // a model's text
  int64_t batch = 0;
  DType compute = DType::kFloat32;
  const Cluster* cluster = nullptr;
  SimulateOptions options;
  OptimizerSpec optimizer = {};    // the optimizer, whose state is a part of the memory
  int64_t memory_limit_bytes = 0;  // memory that a device may use; 0: all that it has
  Objective objective = {};        // which plans are better
  // Settings that the user fixes, so that they are not searched: "tp" -> "8". The keys are those
  // of fix_keys().
  std::map<std::string, std::string> fixed;
  // Keys and entries of a plan text that every plan of the search must contain (parse_part with
  // planned_axes()). Degrees, micro-batches and schedule that the part sets are not searched.
  std::optional<PlanPart> part;
  // Whether plans may contain codecs, which change what a step computes. Planners that use them say
  // so in their plans.
  bool allows_lossy = false;
  // The most programs of the whole model that are simulated; 0: a number between kLeastPrograms and
  // kMostPrograms (constants.h) that follows from the number of the model's ops. If a small model has no more choices than this number, all choices are
  // simulated, and the answer is the best of the space.
  size_t evaluations = 0;
  // A choice is not simulated if it is expected to take more than this many times the time of the
  // best program. The margin is needed because formulas err; it is narrower for choices that differ
  // little from simulated ones.
  double margin = kMargin;
  // Whether to set PlanAnswer::blocks, with_twice_memory and with_twice_rates. The search is then
  // made three times.
  bool explain = false;
  // Mechanisms of the search that are switched off, to measure their worth (mechanisms.h).
  Mechanisms without = {};
  bool uses(Mechanism mechanism) const { return !without.contains(mechanism); }
  // Called with a text on what is being done; may be empty.
  std::function<void(const std::string&)> progress;
  // Called with each plan that was simulated, fits, and is better than those before it, and with its
  // text; may be empty. Only searches by PlanSearch call it. The answer may be a later plan, or a
  // simpler one that is as fast.
  std::function<void(const PlanCandidate&, const std::string& plan)> found;
  // Returns true to end the search with the best answer so far; may be empty.
  std::function<bool()> stop;
  // Counts candidates that are left out because they break an internal invariant. Questions that
  // are made from this question share the counter.
  std::shared_ptr<BrokenInvariants> broken = std::make_shared<BrokenInvariants>();
};

// Returns the keys that may be fixed, with their meanings.
const std::vector<std::pair<std::string, std::string>>& fix_keys();

// Returns the number that `key` is fixed to; 0: it is not fixed.
int64_t fixed_number(const PlanQuestion& question, const std::string& key);
int64_t fixed_or(const PlanQuestion& question, const std::string& key, int64_t otherwise);
// Returns whether the key is not fixed, or fixed to this value.
bool allows(const PlanQuestion& question, const std::string& key, int64_t value);
bool allows(const PlanQuestion& question, const std::string& key, const std::string& value);
// Returns the values of a key that a planner tries: only the fixed one if the key is fixed,
// else `own`.
std::vector<std::string> texts_of(const PlanQuestion& question, const std::string& key,
                                  const std::vector<std::string>& own);
std::vector<int64_t> numbers_of(const PlanQuestion& question, const std::string& key,
                                const std::vector<int64_t>& own);

// Returns the bytes that a device may hold: the least of the devices' memories and of the
// question's limit; 0: no limit.
double memory_limit(const PlanQuestion& question);

std::vector<int64_t> divisors_of(int64_t n);  // in rising order

}  // namespace tessera
