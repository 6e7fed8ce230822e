// What train and verify do after their options are read: with_runtime/ does it, no_runtime/ says
// that this build cannot.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::cli {

// Before anything else in main(): sets what must be in the environment when the process starts, by
// starting it once more.
void prepare_process(char** argv);

struct TrainOptions {
  std::string run_file;
  std::optional<std::string> plan;
  std::optional<int64_t> ranks, steps;
  std::optional<double> timeout_s;
  std::vector<std::string> assignments;  // of --set, in order
  bool json = false;
  std::string trace;                  // file for the trace of a step; empty: none
  std::optional<int64_t> trace_step;  // default: the third, or the last of fewer
};
Result<int> run_train(const TrainOptions& options);

struct VerifyOptions {
  std::string model, plan;
  int64_t batch = 8, steps = 2, seed = 1, ranks = 0;
  double tolerance = 1e-9, timeout_s = 60;
  std::string optimizer = "adamw";
  bool no_clip = false, json = false;
};
Result<int> run_verify(const VerifyOptions& options);

struct ProfileOptions {
  std::string device = "cpu", out;
  std::vector<int64_t> ranks{1, 2, 4};
  int64_t threads = 1;
  bool quick = false, no_mpi = false;
};
Result<int> run_profile(const ProfileOptions& options);

}  // namespace tessera::cli
