#include "tessera/cli/with_planning/job_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tessera/base/text.h"
#include "tessera/base/toml.h"
#include "tessera/cli/output.h"
#include "tessera/compile/compile.h"
#include "tessera/orchestrate/workloads/columns.h"

namespace tessera::cli {
namespace {

constexpr int kFew = 32;              // numbers of GPUs, all of which are tried
constexpr int64_t kDefaultBatch = 8;  // of a run file without `batch` (runtime/run_config.h)

std::set<int> sizes_to_try(const share::Submission& job) {
  const int least = job.least_gpus, most = job.most_gpus;
  std::set<int> out{least, job.gpus, most};
  if (most - least < kFew) {
    for (int size = least; size <= most; ++size) out.insert(size);
  }
  for (int64_t size = 1; size <= most; size *= 2) {
    if (size >= least) out.insert(static_cast<int>(size));
  }
  return out;
}

// Checks that the plan runs on so many GPUs.
Status check_size(Compiler& compiler, const CompileTexts& texts, int gpus) {
  TESSERA_TRY(const Compiled compiled, compiler.compile(texts));
  if (compiled.ranks() == gpus) return {};
  return invalid_input(fmt::format("plan {}: expected as many ranks as GPUs, {}, found {}",
                                   texts.plan, gpus, compiled.ranks()));
}

Result<toml::table> read_run_file(const share::Submission& job) {
  TESSERA_TRY(const std::string text, read_file(job.run_file));
  return parse_toml(text, job.run_file);
}

// Returns the job with the plan of its run file where it has none of its own.
share::Submission with_plan(const share::Submission& job, const toml::table& run) {
  share::Submission out = job;
  if (out.plan.empty()) out.plan = run["plan"].value_or(std::string("serial"));
  return out;
}

}  // namespace

Result<JobSizes> sizes_of_job(const share::Submission& job) {
  TESSERA_TRY(const toml::table run, read_run_file(job));
  if (run.contains("change")) {
    return invalid_input(job.run_file +
                         ": change: expected a run without changes of its plan, which the "
                         "controller changes, found one");
  }
  CompileTexts texts;
  texts.model = run["model"].value_or(std::string());
  texts.precision = run["precision"].value_or(std::string("float32"));
  texts.beside = job.run_file;
  const share::Submission own = with_plan(job, run);
  JobSizes out;
  if (own.plan == "auto") return out;
  Compiler compiler;
  TESSERA_TRY(texts.batch,
              compiler.batch_of(texts.model, run["batch"].value_or(int64_t{0}), kDefaultBatch));
  for (const int size : sizes_to_try(job)) {
    texts.plan = own.plan_on(size);
    const Status runs = check_size(compiler, texts, size);
    if (runs) {
      out.sizes.push_back(size);
    } else if (size == job.gpus) {
      return tl::unexpected<Error>(runs.error());
    } else {
      out.left_out.push_back(fmt::format("{}: {}", plural(size, "GPU"), runs.error().message));
    }
  }
  return out;
}

Result<std::map<int, double>> predicted_speeds(const share::Submission& job,
                                               const std::string& table) {
  TESSERA_TRY(const toml::table run, read_run_file(job));
  const share::Submission own = with_plan(job, run);
  TESSERA_TRY(const share::Columns file,
              share::Columns::read(table, {"placement", "iter_time", "plan"}));
  std::map<int, double> out;
  for (size_t row = 0; row < file.rows(); ++row) {
    TESSERA_TRY(const std::vector<int> placement, file.digits(row, "placement"));
    TESSERA_TRY(const double step_s, file.number(row, "iter_time", 1e-9));
    const int gpus = std::accumulate(placement.begin(), placement.end(), 0);
    if (trim(file.text(row, "plan")) != trim(own.plan_on(gpus))) continue;
    out[gpus] = std::max(out[gpus], 1 / step_s);
  }
  if (!out.empty()) return out;
  return invalid_input(fmt::format("{}: expected rows whose column plan is '{}', found none of {}",
                                   table, own.plan, file.rows()));
}

}  // namespace tessera::cli
