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
#include "tessera/runtime/checkpoint/plan_change.h"

namespace tessera {

struct OptimizerConfig {
  std::string kind = "adamw";  // name of an optimizer of graph/optimizers.h
  double lr = 1e-3, min_lr = 1e-4;
  int64_t warmup = 10;  // steps of linear warm-up; after them cosine decay to min_lr at the
                        // last step
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, momentum = 0.9, nesterov = 0,
         clip = 1.0;
  std::string rounding = "nearest";         // how 16-bit tables are rounded (graph/builder.h)
  std::vector<OptimizerGroup> groups = {};  // groups of parameters that have other settings
};
OptimizerSpec specification(const OptimizerConfig& config);  // returns what the graph needs of
                                                             // the config

// Settings of the evaluation, which computes the loss on other data every few steps.
struct EvalConfig {
  DataConfig data;      // if not given, the run has no evaluation
  int64_t every = 100;  // evaluates after steps divisible by this, and after the last step
  int64_t batches = 1;  // batches of an evaluation, of the run's batch size; the same data
                        // each time
  int data_line = 0;
};

// Settings of one level: one of the two places where a run writes checkpoints.
struct CheckpointLevel {
  std::string dir;           // "": none are written
  int64_t every = 100;       // a checkpoint after each so many steps
  int64_t keep = 2;          // how many of the newest checkpoints are kept
  int64_t asynchronous = 1;  // 0: steps wait until a checkpoint is written
};
// Settings of both levels. The inherited members are those of the durable level, which also writes
// a checkpoint after the last step. `fast` is the other level, usually in a memory file system.
struct CheckpointConfig : CheckpointLevel {
  CheckpointLevel fast = {"", 10, 1, 0};
};

inline constexpr int64_t kDefaultBatch = 8;  // batch of a run file without `batch`

struct RunConfig {
  std::string file;  // path of the run file
  std::string model;
  DataConfig data;
  int64_t batch = 0;  // 0: the batch of a graph file; 8 for any other model
  int64_t steps = 100;
  std::string plan = "serial";
  std::vector<PlanChange> changes = {};  // changes of the plan, in the order of their steps
  std::string precision = "float32";
  int64_t seed = 1;
  int64_t ranks = 0;      // 0: as the plan says
  int64_t threads = 0;    // cores that one rank's kernels use; 0: the machine's cores / ranks
  double timeout_s = 60;  // limit of every wait for other ranks
  std::string device;     // where ranks compute (device/open.h)
  int64_t memory_limit_bytes = 0;  // limit of a rank's device arena; 0: none
  std::string folder;              // where the run's record goes (metrics.h); "": nowhere
  int64_t watch = 0;  // records what ranks do in each step that this divides (watching.h); 0: none
  OptimizerConfig optimizer;
  EvalConfig eval;
  CheckpointConfig checkpoint;
  std::string weights;  // a file or folder of initial parameters; "": initial values
  // A pattern as in optimizer.group. Only parameters whose names match the pattern get their
  // initial values from `weights`; "": all parameters.
  std::string weights_of;
  bool resume = false;  // whether to continue from the newest checkpoint; not a key of the file
  int data_line = 0;    // line of the key `data` in the file; 0: the file does not give data
};

Result<RunConfig> parse_run_config(std::string_view toml, std::string_view file);
Result<RunConfig> load_run_config(const std::string& path);
// Sets a key from an assignment such as "optimizer.lr=3e-4" (the argument of `--set`). The value
// has TOML syntax or is a bare string.
Status set_run_key(RunConfig& config, std::string_view assignment);
// Returns the text of a run file that has every key with its value.
std::string to_text(const RunConfig& config);
// Checks that the model and the data are given, whether by the file or by `--set`.
Status check_run_config(const RunConfig& config);

// Returns the folder of the run file, where relative data and plan files may lie.
std::string folder_of_run(const RunConfig& config);
// Returns where the value of a key comes from, to be appended to errors about the value: "
// (run.toml:3)", or " (--set data)" if `line` is 0.
std::string place_of_key(const RunConfig& config, std::string_view key, int line);

// Returns the learning rate of a step (counted from 1). It is lr * step / warmup during the warm-up
// and then falls by a cosine from lr to min(min_lr, lr) at step `steps`.
double learning_rate(const OptimizerConfig& optimizer, int64_t step, int64_t steps);

}  // namespace tessera
