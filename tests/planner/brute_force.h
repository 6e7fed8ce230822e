// Small planning questions, and their best answer found by simulating every plan of a space that is
// written down here without the search's help.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/search/planner.h"

namespace tessera::planner_test {

// A random model of at most six blocks on at most `devices` devices. Equal seeds, equal questions.
struct SimulatedPlan {
  std::string choice;
  double step_s = 0, bytes = 0;
};
struct Instance {
  std::string machine;
  Cluster cluster;
  PlanQuestion question;
  // All of: stages, replicas, lists of at most two dims on the axis inside a stage, micro-batches,
  // schedules, shards, and recomputation of all blocks. All borders between two stages; more stages
  // are balanced.
  std::vector<SimulatedPlan> plans;
  // The fastest plan within the limit; null: none fits.
  const SimulatedPlan* best() const;
  std::string str() const;
};
std::unique_ptr<Instance> random_instance(uint64_t seed, int64_t devices);

// How answers compare.
struct Outcome {
  int64_t instances = 0, equal = 0, slower = 0, infeasible = 0;
  double worst = 1;  // step of the answer / the best step, of all instances
  std::string worst_instance;
};
// Asks `auto` and brute force. Failures of the current test: an answer that does not fit, no answer
// where there is one.
void compare(Instance& instance, Outcome& outcome);

}  // namespace tessera::planner_test
