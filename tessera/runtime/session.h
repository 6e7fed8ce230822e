// Sessions: run_training() trains a model as a run's configuration says, and verify_plan() checks
// by running both that a plan computes the same as the serial plan. The command line only parses,
// calls these and prints. No torch in this header.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/data/click_metrics.h"
#include "tessera/program/rows/table_shares.h"
#include "tessera/runtime/arrays/tolerance.h"
#include "tessera/runtime/checkpoint/plan_change.h"
#include "tessera/runtime/run_config.h"
#include "tessera/simulate/simulation.h"

namespace tessera {

struct Model;
class Storage;

struct StepReport {
  int64_t step = 0;  // 1 is the first
  double loss = 0;   // mean cross entropy, nats a token
  double learning_rate = 0;
  double step_time_s = 0;
  double tokens_per_s = 0;
  std::optional<double> eval_loss;  // loss on other data, if the run file asks for an evaluation
                                    // after this step
  int64_t memory_bytes = 0;         // bytes of a rank's device arena, as planned
  int64_t resident_bytes = 0;       // resident set of this process now
  std::optional<ClickQuality> eval_clicks;  // like eval_loss, for a model that predicts clicks
  std::optional<double> eval_accuracy;      // like eval_loss, for a model that predicts classes
};

struct CheckpointSummary {
  int64_t resumed_from = 0;   // step of the checkpoint that the run continued from; 0: none
  int64_t saved = 0;          // number of checkpoints written
  int64_t bytes_written = 0;  // by all ranks
  int64_t bytes_read = 0;     // of this process
  int64_t memory_bytes = 0;  // host memory for copies of the saved state, on the rank with the most
  double seconds = 0;        // time that this rank's steps waited for saves
};
// A checkpoint that has been written.
struct SaveReport {
  int64_t step = 0;
  std::string path;
  int64_t bytes = 0;    // written by all ranks
  double waited_s = 0;  // time that steps waited for the save
  double seconds = 0;   // from the end of the step to the completion of the checkpoint
};
// Reports the state that was read before the first step.
struct LoadReport {
  int64_t step = 0;  // step of the checkpoint; 0: only parameters were read
  std::string path;
  int64_t bytes = 0;  // bytes of this state that the ranks of this process hold
  double seconds = 0;
};

// Counts of the cache of rows of a table over the whole run, without evaluations. The counts are
// sums over all ranks that have a cache of this table.
struct TableCacheSummary {
  std::string table, policy;
  int64_t rows = 0, slots = 0,
          row_bytes = 0;  // row_bytes: of the rank with the longest rows
  int64_t lookups = 0, lookup_misses = 0;
  int64_t rows_in = 0, rows_out = 0, overflow_rows = 0;
  double hit_rate() const {  // share of the look-ups that found their row in the cache
    return lookups == 0 ? 1.0
                        : 1.0 - static_cast<double>(lookup_misses) / static_cast<double>(lookups);
  }
};

struct TrainingSummary {
  int64_t steps = 0;
  int64_t stopped_after = 0;  // the last step of a run that was told to stop; 0: it ran to its end
  int64_t ranks = 1;
  std::string transport;  // "threads" or "mpi"
  double first_loss = 0, last_loss = 0;
  std::optional<double> eval_loss;  // of the last evaluation
  std::optional<ClickQuality> eval_clicks;
  std::optional<double> eval_accuracy;
  double tokens_per_s = 0;  // median over the steps, without the first step if there are more
                            // than 2
  int64_t parameters = 0;
  int64_t peak_memory_bytes = 0;              // device arena of the rank with the largest one
  int64_t process_peak_bytes = 0;             // resident set of this process
  std::map<std::string, int64_t> bytes_sent;  // by kind of collective, all ranks, whole run
  // Bytes of arrays of samples that were read from files, without evaluations: by all ranks, and by
  // the rank that read the most.
  int64_t data_bytes_read = 0, data_bytes_read_of_a_rank = 0;
  // Bytes of samples in the data store (data_store.h): kept by the rank that keeps the most, and
  // sent between all ranks in the whole run.
  int64_t data_bytes_kept_of_a_rank = 0, data_bytes_moved = 0;
  CheckpointSummary checkpoints;
  std::vector<TableCacheSummary> row_caches;  // by table, in the model's order
};

// The facts that are known before the first step, for the head line on a terminal.
struct TrainingStart {
  std::string model, plan;
  int64_t parameters = 0, ranks = 1, tokens_per_step = 0, data_bytes = 0, data_files = 0,
          arena_bytes = 0;
  std::string transport;
  bool printer = true;  // whether this process prints; false on MPI ranks other than 0
  std::vector<TableShare> tables = {};  // shares of tables under the run's first plan, by table
                                        // and rank
};

// A change of the plan between two steps.
struct ChangeReport {
  int64_t after = 0;  // step
  std::string plan;
  int64_t ranks = 1;                               // of the new plan
  int64_t bytes_predicted = 0, bytes_counted = 0;  // bytes of state that all ranks sent
  double seconds = 0;                              // time in which the state was moved
  double total_s = 0;                              // time that steps waited for the change
  std::vector<std::string> begun_anew;             // states that the plan before did not keep
};

// An answer to the question what should follow the present step of a run that is steered.
struct Steering {
  std::string plan;   // go on under this plan; empty: under the present one
  bool stop = false;  // write a checkpoint and end
};

struct TrainingCallbacks {
  std::function<void(const TrainingStart&)> start;
  std::function<void(const StepReport&)> step;      // called on one rank only
  std::function<void(const ChangeReport&)> change;  // called on one rank only
  std::function<void(const SaveReport&)> saved;     // called on one rank only
  std::function<void(const LoadReport&)> loaded;    // called on one rank only
  // Called on rank 0 before each step but the last; the answer takes effect after that step. A plan
  // that cannot follow is refused with a note, and the run goes on. A plan may need at most as many
  // ranks as RunConfig::ranks says. null: the run is not steered.
  std::function<Steering(int64_t step)> steer;
  std::function<void(const std::string&)> note;  // one line for the user, on rank 0
  Storage* storage = nullptr;  // where checkpoints are written; null: the file system
  // The step to record, counted from 1; 0: none. Recording does not slow down the other steps.
  int64_t trace_step = 0;
  std::function<void(const Simulation&)> trace;  // called after the recorded step, on rank 0
};
Result<TrainingSummary> run_training(const RunConfig& config, const TrainingCallbacks& callbacks);

struct VerifyConfig {
  std::string model;
  std::string plan;                      // file or recipe call
  std::vector<PlanChange> changes = {};  // changes of the plan between two steps
  int64_t batch = 8;
  int64_t steps = 2;
  int64_t seed = 1;
  int64_t ranks = 0;  // 0: as the plan says; another number must agree with the plan
  // The dtype in which both runs compute: "float64", or a narrow dtype ("float32", "bfloat16",
  // "float16"). In a narrow dtype the errors are compared with the limits of tolerance.h.
  std::string precision = "float64";
  double tolerance = 1e-9;  // limit of a float64 run for the loss, the gradients and the parameters
  double lossy_tolerance = 0.05;  // limit for the loss, if the plan compresses what ranks exchange
  double timeout_s = 60;
  OptimizerConfig optimizer;
  DataConfig data{};  // data of both runs; if not given, random inputs
  // A file or folder of the parameters with which both runs begin; "": initial values.
  std::string weights = {};
  // The device of the plan's run (device/open.h); the serial run is on the processor.
  std::string device = {};
};
// The tensors of a comparison that differ by more than the limit, but not by more than roundings
// explain (tolerance.h). `error` and `noise` are relative in the same way as the errors that are
// compared with the limit.
struct WithinNoise {
  int64_t tensors = 0;  // number of such tensors: the loss and gradients of each step, and
                        // the parameters
  std::string worst;    // the tensor with the largest error
  double error = 0;
  double noise = 0;  // largest difference of this tensor between serial runs with other roundings
};
struct VerifyReport {
  int64_t ranks = 1, steps = 0;
  double loss_error = 0, gradients_error = 0,
         parameters_error = 0;                  // largest relative errors
  Tolerances tolerances;                        // limits that these errors were compared with
  std::string worst_gradient, worst_parameter;  // tensor names
  WithinNoise within_noise;                     // tensors that the errors above do not include
  // Number of tensors of the serial run with elements that are not finite (0 / 0); tensors are
  // counted as in WithinNoise. The plan's run agrees if it has the same values there.
  int64_t not_finite = 0;
  int64_t bytes_predicted = 0, bytes_counted = 0;  // bytes sent by all ranks over all steps
  int64_t messages_predicted = 0, messages_counted = 0;
  std::map<std::string, int64_t> bytes_by_kind;
  int64_t peak_predicted = 0,
          peak_counted = 0;  // of the rank with the largest peak; checked on every rank
  bool lossy = false;        // whether the plan compresses; then only the loss is compared,
                             // by lossy_tolerance
  bool ok = false;
  std::string why;  // the reason in one line, if not ok
};
// Runs `config.plan`, with ranks as threads, and the serial plan, with equal data and dtype, and
// compares the results. A difference is no error but a report that is not ok. Errors: wrong input
// or a fault.
Result<VerifyReport> verify_plan(const VerifyConfig& config);
// Verifies `model` (stored in float64, or in float32 for a narrow run) under the plan with the text
// `plan_text`; ignores the model, plan, batch and ranks of the config.
Result<VerifyReport> verify_model(const Model& model, const std::string& plan_text,
                                  const VerifyConfig& config);

}  // namespace tessera
