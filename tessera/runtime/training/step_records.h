// Records of steps, of which times of ranks (watching.h) and traces (trace.h) are made. Private to
// tessera/runtime.
#pragma once

#include <vector>

#include "tessera/runtime/training/training_job.h"

namespace tessera {

class StepRecords {
 public:
  explicit StepRecords(const RankOfRun& rank) : r_(rank) {}

  // Returns whether the step is recorded, because it is watched or traced.
  bool wants(int64_t step) const { return is_watched(step) || step == r_.job.callbacks.trace_step; }
  void begin();
  // Gathers the records of all ranks on rank 0, which writes the times of the ranks if the step is
  // watched and passes the trace to the caller if it is traced. `store`: as for load_input.
  Status hand_over(int64_t step, const DataStore* store);

 private:
  using OfRanks = std::vector<std::vector<Executed>>;

  bool is_watched(int64_t step) const {
    return r_.job.config.watch > 0 && step % r_.job.config.watch == 0;
  }
  Status write_times(int64_t step, const OfRanks& recorded);
  Status hand_over_trace(const OfRanks& recorded, const DataStore* store) const;

  const RankOfRun& r_;
  std::vector<Executed> recorded_;
  int64_t begin_ns_ = 0;
  const Period* watched_ = nullptr;  // the period whose steps were watched last
};

}  // namespace tessera
