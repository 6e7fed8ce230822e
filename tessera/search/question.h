// The question to a planner, and the settings that it excludes from the search.
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
#include "tessera/plan/part.h"
#include "tessera/search/mechanisms.h"
#include "tessera/simulate/simulate.h"

namespace tessera {

// The number of programs that a search may simulate: few for large models, many for small ones.
inline constexpr size_t kLeastPrograms = 12, kMostPrograms = 256;
// The space of a small model on at most so many devices is searched without the shortcuts that rest
// on formulas, with at most so many programs on two devices and fewer on more. A model is small if
// its ops, each counted on every device, are at most so many: a program then takes milliseconds.
inline constexpr int64_t kSmallDevices = 8, kSmallOps = 160;
inline constexpr size_t kMostOfSmall = 1024;

struct PlanQuestion {
  std::string model;  // a model's text
  int64_t batch = 0;
  DType compute = DType::kFloat32;
  const Cluster* cluster = nullptr;
  SimulateOptions options;
  OptimizerSpec optimizer = {};    // updates the parameters, and so decides what memory they need
  int64_t memory_limit_bytes = 0;  // of a device; 0: what the devices have
  // Settings that are not searched: "tp" -> "8". The keys are those of fix_keys().
  std::map<std::string, std::string> fixed;
  // Keys and entries of a plan text that every plan contains (parse_part with planned_axes()); the
  // degrees, micro-batches and schedule that it sets are not searched.
  std::optional<PlanPart> part;
  // The most programs of the whole model that are simulated; 0: between kLeastPrograms and
  // kMostPrograms, by the number of the model's ops. Where a small model has no more choices than
  // that, all of them are simulated, and the answer is the best of the space.
  size_t evaluations = 0;
  // Formulas err: a choice is not simulated if it is expected to be so many times slower than the
  // best program; for a choice that differs little from a simulated one the margin is narrower.
  double margin = 1.1;
  // Whether to set PlanAnswer::blocks, with_twice_memory and with_twice_rates, for which the search
  // is made three times.
  bool explain = false;
  // Mechanisms that are left out, to weigh what they earn (mechanisms.h).
  Mechanisms without = {};
  bool uses(Mechanism mechanism) const { return !without.contains(mechanism); }
  std::function<void(const std::string&)> progress;  // told what is being done; may be empty
  std::function<bool()> stop;                        // true: answer with the best so far
  // Counts candidates that are left out because they break an internal invariant; the questions
  // that are made of this one count together.
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
// Returns the values that a planner tries: its own, or the one that is fixed.
std::vector<std::string> texts_of(const PlanQuestion& question, const std::string& key,
                                  const std::vector<std::string>& own);
std::vector<int64_t> numbers_of(const PlanQuestion& question, const std::string& key,
                                const std::vector<int64_t>& own);

std::vector<int64_t> divisors_of(int64_t n);  // rising

}  // namespace tessera
