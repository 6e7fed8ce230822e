// Small planning questions, and their best answer, found by simulating every plan of a space that
// is enumerated here without the search's help.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/planners/all_planners.h"

namespace tessera::planner_test {

struct SimulatedPlan {
  std::string choice;
  double step_s = 0, bytes = 0;
  int64_t devices = 1;
};
struct Instance {
  std::string machine;
  Cluster cluster;
  PlanQuestion question;
  // Plans with all combinations of: numbers of devices, if not fixed; stages; replicas; lists of at
  // most two dims on the axis inside a stage; micro-batches; schedules; shards; recomputation of
  // all blocks; and borders between stages (if there are more than 64, stages are balanced).
  std::vector<SimulatedPlan> plans;
  // Where the memory limit lies: 0 is the need of the smallest plan, 1 that of the fastest. Nothing: there
  // is no limit.
  std::optional<double> limit_share;
  // The fastest plan within the limit; null: none fits.
  const SimulatedPlan* best() const;
  std::string str() const;
};
// A random model of at most six blocks on exactly, or at most, `devices` devices. Equal seeds give
// equal questions. Tiny ones have at most three blocks and two sequences.
enum class Size : uint8_t { kTiny, kSmall };
std::unique_ptr<Instance> random_instance(uint64_t seed, int64_t devices, Size size);
// Makes the question of random_instance without its plans, and so without a memory limit.
std::unique_ptr<Instance> random_question(uint64_t seed, int64_t devices, Size size);

// With so many programs, all choices of a small space are simulated.
inline constexpr size_t kEnough = 1000000;

// Compares the answers of searches with the usual number of programs.
struct Outcome {
  int64_t instances = 0, equal = 0;
  double worst = 1;  // the largest of: step of the answer / best step
  std::string worst_instance;
};
// Asks `auto` and brute force. The current test fails if an answer does not fit, if there is none
// where one exists, or if an answer with enough programs is slower than the best of all plans.
void compare(Instance& instance, Outcome& outcome);
// Compares as `compare` does, with enough programs only.
void expect_as_fast_as_brute_force(Instance& instance);
// Compares as `compare` does, with the usual number of programs.
void expect_usually_as_fast_as_brute_force(Instance& instance);

}  // namespace tessera::planner_test
