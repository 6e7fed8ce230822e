// RUN.toml: everything needed to repeat a run. docs/reference/run-config.md explains the keys.
// Errors are one line with file:line and the nearest key.
//
//   model = "gpt:layers=4,hidden=128,heads=4,seq=128,vocab=256"
//   data = ["docs/**/*.md", "tessera/**/*.cc"]
//   batch = 8                      # sequences a step over all ranks
//   steps = 200
//   plan = "megatron(tp=2,dp=2)"   # or a file
//   precision = "float32"          # float64; bfloat16, float16 (compute; float32 master weights)
//   seed = 1
//   [optimizer]
//   kind = "adamw"
//   lr = 1e-3
//
// Relative data globs and plan files are looked up in the working directory first, then in the
// folder of the run file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/data/data_config.h"
#include "tessera/graph/builder.h"
#include "tessera/runtime/plan_change.h"

namespace tessera {

struct OptimizerConfig {
  std::string kind = "adamw";  // a name of graph/optimizers.h
  double lr = 1e-3, min_lr = 1e-4;
  int64_t warmup = 10;  // steps of linear warm-up; then cosine to min_lr at the last step
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, momentum = 0.9, nesterov = 0,
         clip = 1.0;
  std::string rounding = "nearest";         // for 16-bit tables (builder.h)
  std::vector<OptimizerGroup> groups = {};  // parameters that are trained in another way
};
OptimizerSpec specification(const OptimizerConfig& config);  // what the graph needs of the config

// Evaluation: the loss on other data, every few steps.
struct EvalConfig {
  DataConfig data;      // not given: no evaluation
  int64_t every = 100;  // evaluates after steps divisible by this, and after the last
  int64_t batches = 1;  // batches of the run's batch size; equal each time
  int data_line = 0;
};

// One of the two places where a run leaves checkpoints.
struct CheckpointLevel {
  std::string dir;           // "": none are written
  int64_t every = 100;       // steps
  int64_t keep = 2;          // number of checkpoints to keep, the newest
  int64_t asynchronous = 1;  // 0: steps wait until a checkpoint is written
};
// The durable level, which has one more checkpoint after the last step, and a fast one, usually in
// a memory file system.
struct CheckpointConfig : CheckpointLevel {
  CheckpointLevel fast = {"", 10, 1, 0};
};

inline constexpr int64_t kDefaultBatch = 8;  // sequences a step, of a run file without the key

struct RunConfig {
  std::string file;  // where it was read from
  std::string model;
  DataConfig data;
  int64_t batch = 0;  // 0: the batch of a graph file; 8 for any other model
  int64_t steps = 100;
  std::string plan = "serial";
  std::vector<PlanChange> changes = {};  // of the plan, in the order of their steps
  std::string precision = "float32";
  int64_t seed = 1;
  int64_t ranks = 0;      // 0: as the plan says
  int64_t threads = 0;    // cores that one rank's kernels use; 0: its share of the machine's
  double timeout_s = 60;  // of every wait for other ranks
  int64_t memory_limit_bytes = 0;  // a rank's arena; 0: none
  std::string folder;              // where the run's record goes (metrics.h); "": nowhere
  OptimizerConfig optimizer;
  EvalConfig eval;
  CheckpointConfig checkpoint;
  std::string weights;  // a file or folder of initial parameters; "": initial values
  // A pattern as in optimizer.group: only parameters whose names it matches begin so; "": all.
  std::string weights_of;
  bool resume = false;  // from the newest checkpoint; not a key of the file
  int data_line = 0;    // of the key `data` in the file; 0: not from the file
};

Result<RunConfig> parse_run_config(std::string_view toml, std::string_view file);
Result<RunConfig> load_run_config(const std::string& path);
// Sets a key as `--set optimizer.lr=3e-4`: value in TOML syntax, or a bare string.
Status set_run_key(RunConfig& config, std::string_view assignment);
// Returns the run as a file: every key with its value.
std::string to_text(const RunConfig& config);
// Checks what must be present in the end, from the file or by `--set`: model and data.
Status check_run_config(const RunConfig& config);

// Returns the folder of the run file, where relative data and plan files may lie.
std::string folder_of_run(const RunConfig& config);
// Returns the place of a key, for errors about what it names: " (run.toml:3)"; `line` 0: " (--set
// data)".
std::string place_of_key(const RunConfig& config, std::string_view key, int line);

// Returns the learning rate of a step (1 is the first): lr * step / warmup, then cosine from lr to
// min_lr (or lr, if that is smaller) at `steps`.
double learning_rate(const OptimizerConfig& optimizer, int64_t step, int64_t steps);

}  // namespace tessera
