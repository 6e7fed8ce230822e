// Drops waits from programs and runs what is left on the device `test`: a program that lacks a wait
// must compute something else, or stop, with some of the device's delays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/program/program.h"

namespace tessera {

struct DroppedWaits {
  int64_t programs = 0;  // programs of ranks of which waits were dropped
  int64_t dropped = 0, seen = 0;
  std::vector<std::string> unseen;  // plan, rank, block and instruction of each
};

// Drops each wait in turn of the programs of `ranks` ranks of the model under the plan. A dropped
// wait is seen if with one of the seeds 1 to `seeds` the state after two steps differs in any bit
// from that of the whole program, or if the run stops. Errors: the whole program fails, or differs
// on the device from the processor.
Status drop_waits(const std::string& model, int64_t batch, const std::string& plan, int ranks,
                  int seeds, DroppedWaits& into);

}  // namespace tessera
