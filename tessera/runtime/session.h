// Sessions: from a run's configuration to trained parameters (run_training) and the proof that a
// plan computes what the serial run computes (verify_plan). The command line only parses, calls
// these and prints. No torch in this header.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/data/click_metrics.h"
#include "tessera/program/table_shares.h"
#include "tessera/runtime/plan_change.h"
#include "tessera/runtime/run_config.h"
#include "tessera/runtime/tolerance.h"
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
  std::optional<double> eval_loss;          // where the run file asks for one after this step
  int64_t memory_bytes = 0;                 // planned arena of a rank, on the device
  int64_t resident_bytes = 0;               // of this process, now
  std::optional<ClickQuality> eval_clicks;  // beside eval_loss, of a model that predicts clicks
  std::optional<double> eval_accuracy;      // if it predicts classes: the share that is right
};

struct CheckpointSummary {
  int64_t resumed_from = 0;   // step; 0: the run began
  int64_t saved = 0;          // checkpoints
  int64_t bytes_written = 0;  // of all ranks
  int64_t bytes_read = 0;     // of this process
  int64_t memory_bytes = 0;   // host memory for copies of what is saved, of the rank with the most
  double seconds = 0;         // time that this rank's steps waited for saving
};
// A checkpoint that has been written.
struct SaveReport {
  int64_t step = 0;
  std::string path;
  int64_t bytes = 0;    // of all ranks
  double waited_s = 0;  // time that steps waited for it
  double seconds = 0;   // from its step to its completion
};
// State that was read before the first step.
struct LoadReport {
  int64_t step = 0;  // of the checkpoint; 0: parameters alone
  std::string path;
  int64_t bytes = 0;  // bytes of it that the ranks of this process hold
  double seconds = 0;
};

// A cache of rows of a table, over all ranks that have one and the whole run, without evaluations.
struct TableCacheSummary {
  std::string table, policy;
  int64_t rows = 0, slots = 0,
          row_bytes = 0;  // of the rank with the longest rows; the others are sums over ranks
  int64_t lookups = 0, lookup_misses = 0;
  int64_t rows_in = 0, rows_out = 0, overflow_rows = 0;
  double hit_rate() const {  // of look-ups
    return lookups == 0 ? 1.0
                        : 1.0 - static_cast<double>(lookup_misses) / static_cast<double>(lookups);
  }
};

struct TrainingSummary {
  int64_t steps = 0;
  int64_t ranks = 1;
  std::string transport;  // "threads" or "mpi"
  double first_loss = 0, last_loss = 0;
  std::optional<double> eval_loss;  // the last
  std::optional<ClickQuality> eval_clicks;
  std::optional<double> eval_accuracy;
  double tokens_per_s = 0;  // median over steps (the first left out if there are more than 2)
  int64_t parameters = 0;
  int64_t peak_memory_bytes = 0;              // arena of the rank with the most
  int64_t process_peak_bytes = 0;             // resident set of this process
  std::map<std::string, int64_t> bytes_sent;  // by kind of collective, all ranks, whole run
  // Bytes of arrays of samples read from files, without evaluations: all ranks, and the rank with
  // the most.
  int64_t data_bytes_read = 0, data_bytes_read_of_a_rank = 0;
  // Bytes of samples kept in the ranks' memory (data_store.h): on the rank that keeps the most, and
  // sent between all ranks in the whole run.
  int64_t data_bytes_kept_of_a_rank = 0, data_bytes_moved = 0;
  CheckpointSummary checkpoints;
  std::vector<TableCacheSummary> row_caches;  // by table, in the model's order
};

// The facts known before the first step, for the head line of a terminal.
struct TrainingStart {
  std::string model, plan;
  int64_t parameters = 0, ranks = 1, tokens_per_step = 0, data_bytes = 0, data_files = 0,
          arena_bytes = 0;
  std::string transport;
  bool printer = true;                  // false on MPI ranks other than 0: stay silent
  std::vector<TableShare> tables = {};  // under the run's first plan, by table and rank
};

// A change of the plan between two steps.
struct ChangeReport {
  int64_t after = 0;  // step
  std::string plan;
  int64_t ranks = 1;                               // of the new plan
  int64_t bytes_predicted = 0, bytes_counted = 0;  // of state, that all ranks sent
  double seconds = 0;                              // time that the state moved
  double total_s = 0;                              // time that steps waited for the change
  std::vector<std::string> begun_anew;             // states that the plan before did not keep
};

struct TrainingCallbacks {
  std::function<void(const TrainingStart&)> start;
  std::function<void(const StepReport&)> step;      // called on one rank only
  std::function<void(const ChangeReport&)> change;  // likewise
  std::function<void(const SaveReport&)> saved;     // likewise
  std::function<void(const LoadReport&)> loaded;    // likewise
  std::function<void(const std::string&)> note;     // one line for the user, on rank 0
  Storage* storage = nullptr;  // where checkpoints are written; null: the file system
  // The step to record, counted from 1; 0: none. Other steps cost nothing.
  int64_t trace_step = 0;
  std::function<void(const Simulation&)> trace;  // after that step, on rank 0
};
Result<TrainingSummary> run_training(const RunConfig& config, const TrainingCallbacks& callbacks);

struct VerifyConfig {
  std::string model;
  std::string plan;                      // file or recipe call
  std::vector<PlanChange> changes = {};  // of the plan, between two steps
  int64_t batch = 8;
  int64_t steps = 2;
  int64_t seed = 1;
  int64_t ranks = 0;  // 0: as the plan says; else must agree
  // The dtype that both runs compute in: "float64", or one of the narrow dtypes of a run
  // ("float32", "bfloat16", "float16"); then the errors are measured against tolerance.h's limits.
  std::string precision = "float64";
  double tolerance = 1e-9;        // of a float64 run: of the loss, the gradients and the parameters
  double lossy_tolerance = 0.05;  // of the loss, where the plan compresses what ranks exchange
  double timeout_s = 60;
  OptimizerConfig optimizer;
  DataConfig data{};  // data of both runs; none: random inputs
};
// The tensors of a comparison that differ by more than the limit, but no more than roundings
// explain (tolerance.h). Errors are relative, as those that are compared with the limit.
struct WithinNoise {
  int64_t tensors = 0;  // of the loss and the gradients of each step, and of the parameters
  std::string worst;    // the tensor with the largest error
  double error = 0;
  double noise = 0;  // of that tensor, between serial runs whose sums are rounded in another way
};
struct VerifyReport {
  int64_t ranks = 1, steps = 0;
  double loss_error = 0, gradients_error = 0,
         parameters_error = 0;                  // largest relative errors
  Tolerances tolerances;                        // that they were compared with
  std::string worst_gradient, worst_parameter;  // tensor names
  WithinNoise within_noise;                     // what the errors above leave out
  // Tensors of the serial run, counted as above, with elements that are not finite (0 / 0). The
  // plan agrees if it has none there either.
  int64_t not_finite = 0;
  int64_t bytes_predicted = 0, bytes_counted = 0;  // sent by all ranks over all steps
  int64_t messages_predicted = 0, messages_counted = 0;
  std::map<std::string, int64_t> bytes_by_kind;
  int64_t peak_predicted = 0,
          peak_counted = 0;  // of the rank with the most; compared on every rank
  bool lossy = false;  // the plan compresses: only the loss of each step is compared, by a margin
  bool ok = false;
  std::string why;  // if not ok: one line
};
// Runs `config.plan` on threads and the serial plan, with equal data and dtype. Errors: only for
// wrong input or a fault.
Result<VerifyReport> verify_plan(const VerifyConfig& config);
// Verifies a model in hand (stored in float64, or in float32 for a narrow run) and a plan's text;
// config.model, plan, batch and ranks are ignored.
Result<VerifyReport> verify_model(const Model& model, const std::string& plan_text,
                                  const VerifyConfig& config);

}  // namespace tessera
