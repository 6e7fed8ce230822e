// RUN.toml: everything needed to repeat a run. Keys: docs/reference/run-config.md. Errors are one
// line with file:line and the nearest key.
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
#include "tessera/graph/builder.h"
#include "tessera/runtime/data.h"

namespace tessera {

struct OptimizerConfig {
  std::string kind = "adamw";  // a name of graph/optimizers.h
  double lr = 1e-3, min_lr = 1e-4;
  int64_t warmup = 10;  // steps of linear warm-up; then cosine to min_lr at the last step
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, momentum = 0.9, nesterov = 0,
         clip = 1.0;
  std::vector<OptimizerGroup> groups = {};  // parameters that are trained otherwise
};
OptimizerSpec specification(const OptimizerConfig& config);  // what the graph knows of it

struct RunConfig {
  std::string file;  // where it was read from
  std::string model;
  std::vector<std::string> data;
  int64_t batch = 0;  // 0: what a graph file fixes, and 8 of any other model
  int64_t steps = 100;
  std::string plan = "serial";
  std::string precision = "float32";
  int64_t seed = 1;
  int64_t ranks = 0;      // 0: as the plan says
  int64_t threads = 0;    // cores that one rank's kernels use; 0: its share of the machine's
  double timeout_s = 60;  // of every wait for other ranks
  int64_t memory_limit_bytes = 0;  // a rank's arena; 0: none
  OptimizerConfig optimizer;
  int data_line = 0;  // of the key `data` in the file; 0: not from the file
};

Result<RunConfig> parse_run_config(std::string_view toml, std::string_view file);
Result<RunConfig> load_run_config(const std::string& path);
// `--set optimizer.lr=3e-4`: value in TOML syntax, or a bare string.
Status set_run_key(RunConfig& config, std::string_view assignment);
// What must be there in the end, in the file or by `--set`: model and data.
Status check_run_config(const RunConfig& config);

// data = "random": inputs are random numbers, other ones each step, for every model.
bool has_random_data(const RunConfig& config);

// Opens the run's data for sequences of `seq` tokens; errors end in the place of the key,
// "(run.toml:3)". Bytes are tokens: the model's `vocab` must be at least 256.
Result<TextData> open_run_data(const RunConfig& config, int64_t seq, int64_t vocab);

// The learning rate of a step (1 is the first): lr * step / warmup, then cosine from lr to min_lr
// (or lr, if that is smaller) at `steps`.
double learning_rate(const OptimizerConfig& optimizer, int64_t step, int64_t steps);

}  // namespace tessera
