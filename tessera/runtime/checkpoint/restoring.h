// Gives a rank the state from which its run continues: that of the newest whole checkpoint, or given
// weights (checkpointing.h). Private to tessera/runtime.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "tessera/runtime/checkpoint/checkpointing.h"
#include "tessera/runtime/checkpoint/held_state.h"

namespace tessera {

struct Restoring {
  const CheckpointJob& job;
  const Program& program;
  comm::Communicator& world;
  HeldState& state;
  int64_t& bytes_read;  // is set to the bytes that this process has read

  void note(const std::string& text) const {
    if (world.rank() == 0 && job.note) job.note(text);
  }
  Status report_load(const LoadReport& report) const {
    return world.rank() == 0 ? job.loaded(report) : Status{};
  }
};

// Returns how many steps are done; 0: the state is that of the weights or the initial one.
Result<int64_t> restore_state(const Restoring& r, RankExecutor& executor);

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace tessera
