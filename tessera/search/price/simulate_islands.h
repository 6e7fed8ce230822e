// Simulates a plan with outer steps (plan/outer_steps.h): the step of the slowest island, and the
// outer steps of all fragments. The result describes an average step of the whole run.
#pragma once

#include <vector>

#include "tessera/compile/compile.h"
#include "tessera/simulate/simulate.h"

namespace tessera {

struct OuterTimes {
  double inner_step_s = 0;  // the step of the slowest island
  // By fragment: its outer step, and the gather that brings the new parameters into the island.
  std::vector<double> fragment_s;
  std::vector<int64_t> bytes;  // by fragment: what the busiest rank sends in these
  double a_step_s = 0;         // all outer steps, divided by the inner steps between them
};

// Returns the average step: the simulation of the slowest island, with the ranks and the tokens of
// all islands, with the outer steps as exposed collectives, and with the memory of their programs.
// For a plan without outer steps it is the simulation itself, and `times` stays empty.
Result<Simulation> simulate_islands(const Compiled& planned, const Cluster& cluster,
                                    const SimulateOptions& options, OuterTimes* times = nullptr);

}  // namespace tessera
