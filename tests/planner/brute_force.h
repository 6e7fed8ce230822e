// Small planning questions, and their best answer found by simulating every plan of a space that is
// written down here without the search's help.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/search/planner.h"

namespace tessera::planner_test {

struct SimulatedPlan {
  std::string choice;
  double step_s = 0, bytes = 0;
};
struct Instance {
  std::string machine;
  Cluster cluster;
  PlanQuestion question;
  // All of: numbers of devices, if this is not fixed, stages, replicas, lists of at most two dims on
  // the axis inside a stage, micro-batches, schedules, shards, recomputation of all blocks, and
  // borders between stages (if these are more than 64, stages are balanced).
  std::vector<SimulatedPlan> plans;
  // The fastest plan within the limit; null: none fits.
  const SimulatedPlan* best() const;
  std::string str() const;
};
// A random model of at most six blocks on exactly, or at most, so many devices. Equal seeds, equal
// questions. Tiny ones have at most three blocks and two sequences.
enum class Size : uint8_t { kTiny, kSmall };
std::unique_ptr<Instance> random_instance(uint64_t seed, int64_t devices, Size size);

// So many programs that all choices of a small space are simulated.
inline constexpr size_t kEnough = 1000000;

// How answers of searches with the usual number of programs compare.
struct Outcome {
  int64_t instances = 0, equal = 0;
  double worst = 1;  // step of the answer / the best step, of all instances
  std::string worst_instance;
};
// Asks `auto` and brute force. Failures of the current test: an answer that does not fit, no answer
// where there is one, and an answer with enough programs that is slower than the best of all plans.
void compare(Instance& instance, Outcome& outcome);
// The same with enough programs only.
void expect_as_fast_as_brute_force(Instance& instance);
// The same with the usual number of programs.
void expect_usually_as_fast_as_brute_force(Instance& instance);

}  // namespace tessera::planner_test
