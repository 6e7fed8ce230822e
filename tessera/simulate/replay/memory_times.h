#pragma once

#include <span>
#include <utility>
#include <vector>

#include "tessera/simulate/simulation.h"

namespace tessera {

// Times of a rank's runs and instructions. All may be left empty. Then every run of the schedule
// takes an equal share of the step, and every instruction an equal share of its run. Figures in
// bytes do not depend on these times, because the order of instructions does not.
struct MemoryTimes {
  double step_s = 0;
  std::vector<std::pair<double, double>> runs;  // start and end by position in the schedule
  std::span<const TraceEvent> events;           // of this rank; only the compute lane's are used
  bool details = true;   // false: only sizes are computed, without timeline and at_peak
  bool timeline = true;  // false: without a timeline, whose length grows with the schedule
};

}  // namespace tessera
