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
  int64_t programs = 0;           // programs of ranks of which waits were dropped
  int64_t dropped = 0, seen = 0;  // waits for messages that were sent are counted apart:
  // that the buffer may be written again often follows from what the rank received since, so that
  // no device can show that such a wait is missing.
  int64_t of_sends = 0, of_sends_seen = 0;
  std::vector<std::string> unseen;  // plan, rank, block and instruction of each
};

// Drops waits in turn of the program of rank 0 of the model under the plan: each one, or if there
// are more than `most`, as many at equal distances. A dropped
// wait is seen if with one of the seeds 1 to `seeds` the state after two steps differs in any bit
// from that of the whole program, or if the run stops. Errors: the whole program fails, or differs
// on the device from the processor.
Status drop_waits(const std::string& model, int64_t batch, const std::string& plan, int64_t most,
                  int seeds, DroppedWaits& into);

}  // namespace tessera
