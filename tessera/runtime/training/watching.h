// Says what each rank did in a recorded step: its own work, bytes under way, and waiting for which
// other rank (simulate/rank_times.h). A run with `watch = N` writes this after every N-th step.
//
//   const int64_t begin_ns = begin_record(world, executor, mine);   // all ranks, before the step
//   executor.run_step(...);
//   const auto recorded = gather_records(world, mine, begin_ns);    // all ranks; for rank 0
//   for (const RankTimes& times : rank_times(lowering, programs, recorded, step, 0)) ...
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/program/lower.h"
#include "tessera/runtime/step/interpreter.h"
#include "tessera/simulate/rank_times.h"

namespace tessera {

// Lets all ranks begin the next step together, and records it into `mine`. Returns the time of this
// rank's clock at which it begins.
int64_t begin_record(comm::Communicator& world, RankExecutor& executor,
                     std::vector<Executed>& mine);
// Gives the records of all ranks to rank 0, on the clock of rank 0; the other ranks get an empty
// list. Machines whose clocks differ are set to the moment at which their first rank began the step,
// so times of different machines may be off by the latency of a barrier.
std::vector<std::vector<Executed>> gather_records(comm::Communicator& world,
                                                  const std::vector<Executed>& mine,
                                                  int64_t begin_ns);

// Returns the times of the ranks whose programs and records are given, in their order. `lowering` is
// that of the programs; `first_rank` is added to their numbers (that of the first rank of an
// island).
std::vector<RankTimes> rank_times(const Lowering& lowering, std::span<const Program> programs,
                                  std::span<const std::vector<Executed>> recorded, int64_t step,
                                  int32_t first_rank);

}  // namespace tessera
