// RUN.toml: what a training run is. Every key can be given by `--set key=value` too, which goes before the file.
//
//   model = "gpt:layers=4,hidden=128,heads=4,seq=128,vocab=256"
//   data = ["docs/**/*.md"]            # globs; in a file: relative to the file, by --set: to the working folder
//   batch = 16                         # sequences a step over all ranks
//   steps = 200
//   precision = "float32"              # float64, float32, bfloat16 (computes in bfloat16, keeps float32 weights)
//   plan = "megatron(tp=2, dp=2)"      # a recipe call or a file
//   seed = 1
//   [optimizer]
//   kind = "adamw"                     # or sgd
//   lr = 1e-3
//   min_lr = 1e-4                      # cosine from lr to min_lr after `warmup` steps
//   warmup = 20
//
// An unknown key, a value of the wrong type or out of range: one line with file and line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/base/result.h"
#include "tessera/graph/builder.h"

namespace tessera {

struct RunConfig {
  std::string file;                // as given; empty: made in memory
  std::string model;
  std::vector<std::string> data;   // globs
  int64_t batch = 8;
  int64_t steps = 100;
  OptimizerSpec optimizer;         // kind, betas, eps, weight_decay, momentum, clip
  double lr = 1e-3;
  std::optional<double> min_lr;    // default: lr / 10
  int64_t warmup = 0;
  DType precision = DType::kFloat32;
  std::string plan = "serial";     // a recipe call, or the path of a plan file
  int64_t seed = 1;
  std::optional<int64_t> ranks;    // checked against the plan
  double timeout_s = 60;           // of every wait of a rank for another
  int64_t log_every = 1;           // steps
};

struct Setting {
  std::string key, value;  // "optimizer.lr", "3e-4"
};
Result<Setting> parse_setting(std::string_view text);  // "key=value"

Result<RunConfig> parse_run_config(std::string_view toml, std::string_view file, const std::vector<Setting>& settings = {});
Result<RunConfig> load_run_config(const std::string& path, const std::vector<Setting>& settings = {});

// Linear warm-up to lr, then a cosine down to min_lr at the last step. Steps count from 1.
double learning_rate(const RunConfig& config, int64_t step);

}  // namespace tessera
