#include "tessera/cli/with_planning/job_sizes.h"

#include <fmt/format.h>

#include <set>

#include "tessera/base/text.h"
#include "tessera/base/toml.h"
#include "tessera/cli/output.h"
#include "tessera/compile/compile.h"

namespace tessera::cli {
namespace {

constexpr int64_t kFew = 32;          // numbers of GPUs, all of which are tried
constexpr int64_t kDefaultBatch = 8;  // of a run file without `batch` (runtime/run_config.h)

std::set<int64_t> sizes_to_try(const JobToSize& job) {
  std::set<int64_t> out{job.least, job.gpus, job.most};
  if (job.most - job.least < kFew) {
    for (int64_t size = job.least; size <= job.most; ++size) out.insert(size);
  }
  for (int64_t size = 1; size <= job.most; size *= 2) {
    if (size >= job.least) out.insert(size);
  }
  return out;
}

std::string plan_on(const std::string& plan, int64_t gpus) {
  std::string out = plan;
  for (size_t at = 0; (at = out.find("{}", at)) != std::string::npos;)
    out.replace(at, 2, std::to_string(gpus));
  return out;
}

// Checks that the plan runs on so many GPUs.
Status check_size(Compiler& compiler, const CompileTexts& texts, int64_t gpus) {
  TESSERA_TRY(const Compiled compiled, compiler.compile(texts));
  if (compiled.ranks() == gpus) return {};
  return invalid_input(fmt::format("plan {}: expected as many ranks as GPUs, {}, found {}",
                                   texts.plan, gpus, compiled.ranks()));
}

}  // namespace

Result<JobSizes> sizes_of_job(const JobToSize& job) {
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
  const std::string plan =
      job.plan.empty() ? run["plan"].value_or(std::string("serial")) : job.plan;
  JobSizes out;
  if (plan == "auto") return out;
  Compiler compiler;
  TESSERA_TRY(texts.batch,
              compiler.batch_of(texts.model, run["batch"].value_or(int64_t{0}), kDefaultBatch));
  for (const int64_t size : sizes_to_try(job)) {
    texts.plan = plan_on(plan, size);
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
