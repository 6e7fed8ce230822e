// Reports the steps of a run: losses, rates and evaluations. Rank 0 reports; the other ranks take
// part. Private to tessera/runtime.
#pragma once

#include <chrono>
#include <limits>
#include <optional>
#include <vector>

#include "tessera/runtime/training/training_job.h"

namespace tessera {

class StepReports {
 public:
  explicit StepReports(const RankOfRun& rank) : r_(rank) {}

  // Finds the lowest rank that has the loss, which then sends it to rank 0. All ranks call it when
  // a period begins, and wait for each other.
  void find_loss();
  // Begins the time of the next step.
  void begin_time() { last_ = Clock::now(); }
  // Evaluates if the run file asks for it after this step, and reports the step.
  Status report(int64_t step);
  void add_to(TrainingSummary& summary) const;

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  // The results of an evaluation on rank 0: the mean loss over its batches, and the quality of its
  // predictions.
  struct Evaluated {
    std::optional<double> loss, accuracy;
    std::optional<ClickQuality> clicks;
  };

  double loss_at_rank_0() const;
  Evaluated evaluate(int64_t step) const;

  const RankOfRun& r_;
  int owner_ = 0;
  Clock::time_point last_;
  std::vector<double> rates_;
  double first_loss_ = kNone, last_loss_ = kNone;
  Evaluated evaluated_;  // last
};

}  // namespace tessera
