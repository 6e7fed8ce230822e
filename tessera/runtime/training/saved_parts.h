// The checkpoints that concern a rank: those of each part of the run's state (run_parts.h), in the
// current period. Private to tessera/runtime.
#pragma once

#include <list>
#include <memory>
#include <optional>

#include "tessera/runtime/checkpoint/checkpointing.h"
#include "tessera/runtime/training/training_job.h"

namespace tessera {

class SavedParts {
 public:
  explicit SavedParts(const RankOfRun& rank) : r_(rank) {}

  // Makes the checkpoints of all parts of the run that concern this rank.
  Status begin_period();
  bool begun() const { return !parts_.empty(); }
  // Restores the state of all parts. Returns how many steps are done.
  Result<int64_t> restore();
  Status after_step(int64_t step, bool is_last);
  // Waits for the checkpoints that are being written, and counts them.
  Status end_period();
  const CheckpointSummary& counts() const { return counts_; }  // of the periods that have ended

 private:
  struct Saved {
    std::optional<CheckpointJob> job;
    RankExecutor* executor = nullptr;
    std::unique_ptr<Checkpointing> checkpoints;
  };

  const RankOfRun& r_;
  std::list<Saved> parts_;  // a list, because a Checkpointing keeps a reference to its job
  CheckpointSummary counts_;
};

}  // namespace tessera
