// Finds on how many GPUs a job of a live controller can run, before it is submitted: those numbers for
// which the plan compiles for the run's model to exactly as many ranks.
//
//   TESSERA_TRY(const JobSizes found, sizes_of_job({.run_file = "run.toml", .plan = "data_parallel({})",
//                                                   .gpus = 4, .least = 1, .most = 4}));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::cli {

struct JobToSize {
  std::string run_file;
  std::string plan;  // with {} for the number of GPUs; "": the run's
  int64_t gpus = 1, least = 1, most = 1;
};

struct JobSizes {
  std::vector<int64_t> sizes;  // in ascending order; none: not known, because the plan is `auto`
  std::vector<std::string> left_out;  // "3 GPUs: " and why the plan does not run there
};

// Tries all numbers from least to most, or, if they are many, powers of two and those three. Errors
// (invalid input): those of the run file; a run that changes its plan itself; a plan that does not run
// on `gpus`.
Result<JobSizes> sizes_of_job(const JobToSize& job);

}  // namespace tessera::cli
