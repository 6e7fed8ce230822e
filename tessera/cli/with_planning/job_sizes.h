// Finds on how many GPUs a job of a live controller can run, before it is submitted: those numbers for
// which the plan compiles for the run's model to exactly as many ranks.
//
// Also reads what is predicted of its speed there.
//
//   share::Submission job{.run_file = "run.toml", .plan = "data_parallel({})", .gpus = 4};
//   TESSERA_TRY(const JobSizes found, sizes_of_job(job));
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/orchestrate/live/training.h"

namespace tessera::cli {

struct JobSizes {
  std::vector<int> sizes;  // in ascending order; none: not known, because the plan is `auto`
  std::vector<std::string> left_out;  // "3 GPUs: " and why the plan does not run there
};

// Tries all numbers from least to most, or, if they are many, powers of two and those three. Errors
// (invalid input): those of the run file; a run that changes its plan itself; a plan that does not run
// on `gpus`.
Result<JobSizes> sizes_of_job(const share::Submission& job);

// Reads the steps a second of the job by number of GPUs from a table of `tessera cluster speeds`: of
// the rows whose column `plan` is the job's plan on as many GPUs, the fastest for each number.
// Errors (invalid input): those of the table; a table without a row of the job's plan.
Result<std::map<int, double>> predicted_speeds(const share::Submission& job,
                                               const std::string& table);

}  // namespace tessera::cli
