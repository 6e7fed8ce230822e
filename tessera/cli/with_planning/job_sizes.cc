#include "tessera/cli/with_planning/job_sizes.h"

#include <fmt/format.h>

#include <set>

#include "tessera/base/text.h"
#include "tessera/base/toml.h"
#include "tessera/cli/output.h"
#include "tessera/compile/compile.h"

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

}  // namespace

Result<JobSizes> sizes_of_job(const share::Submission& job) {
  TESSERA_TRY(const std::string text, read_file(job.run_file));
  TESSERA_TRY(const toml::table run, parse_toml(text, job.run_file));
  if (run.contains("change")) {
    return invalid_input(job.run_file +
                         ": change: expected a run without changes of its plan, which the "
                         "controller changes, found one");
  }
  CompileTexts texts;
  texts.model = run["model"].value_or(std::string());
  texts.precision = run["precision"].value_or(std::string("float32"));
  texts.beside = job.run_file;
  share::Submission own = job;
  if (own.plan.empty()) own.plan = run["plan"].value_or(std::string("serial"));
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

}  // namespace tessera::cli
