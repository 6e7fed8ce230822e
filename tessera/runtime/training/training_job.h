// The job that the ranks of a training run (session.h) share in a process. Private to
// tessera/runtime.
#pragma once

#include <functional>
#include <string>

#include "tessera/runtime/data/data_store.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/data/run_data.h"
#include "tessera/runtime/evaluation/metrics.h"
#include "tessera/runtime/session.h"
#include "tessera/runtime/training/periods.h"
#include "tessera/runtime/training/run_parts.h"

namespace tessera {

struct TrainingJob {
  const RunConfig& config;
  const TrainingCallbacks& callbacks;
  const Periods& periods;
  PeriodAdder* adder;  // null: the run is not steered
  const RunData& data;
  MetricsWriter* metrics;  // null: the run writes no record
  MetricsWriter* watch;    // null: the ranks are not watched, or not by this process
  TrainingStart start;
  const RunParts& parts;
  Storage& storage;
  DataErrors data_errors = {};
};

// A rank of the run. Its executor is that of the period whose steps it executes.
struct RankOfRun {
  TrainingJob& job;
  comm::Communicator& world;
  PeriodExecutor& executor;

  const Compiled& compiled() const { return executor.period().compiled; }
  // Returns the text of the current plan, for manifests and records.
  Result<std::string> plan_text() const;
  // Writes the report of an event between two steps to the run's record and passes it to the
  // caller's callback.
  template <typename Report>
  Status hand_over(const Report& report, const std::function<void(const Report&)>& callback) const {
    if (job.metrics != nullptr) TESSERA_TRY_VOID(job.metrics->event(event_text(report)));
    if (callback) callback(report);
    return {};
  }
};

// Loads an input of a step. The learning rate and the step's number come from the trainer; other
// inputs are those of batch `batch` of the source (in training the batch with the number of the
// step). If `store` is not null, samples come from the store instead of files.
void load_input(TrainingJob& job, const DataSource& source, int64_t step, int64_t batch,
                const Tensor& tensor, const Box& region, const kernels::Array& to,
                const DataStore* store = nullptr);

// Runs a rank from the first step, or from its newest checkpoint, to the last step. Errors are those
// of all ranks; a rank that fails alone throws.
Result<TrainingSummary> run_rank(TrainingJob& job, comm::Communicator& world);

}  // namespace tessera
