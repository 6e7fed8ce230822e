// Philly: timestamp,duration,num_gpus,gpu_time,cluster. Each job runs for its duration on exactly its
// GPUs. The rows are not in order of time.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/orchestrate/workloads/columns.h"
#include "tessera/orchestrate/workloads/rated_job.h"
#include "tessera/orchestrate/workloads/times.h"
#include "tessera/orchestrate/workloads/workload.h"

namespace tessera::share {

Result<Workload> read_philly(const std::string& path, const ReadOptions&) {
  TESSERA_TRY(const Columns file, Columns::read(path, {"timestamp", "duration", "num_gpus"}));
  Workload out;
  out.switch_s = 0;
  size_t without_time = 0, without_gpus = 0;
  for (size_t row = 0; row < file.rows(); ++row) {
    JobSpec job;
    job.name = fmt::format("philly-{}", row);
    TESSERA_TRY(job.submit_s, time_of(file, row, "timestamp"));
    TESSERA_TRY(const double duration, file.number(row, "duration", 0));
    TESSERA_TRY(const int64_t gpus, file.whole(row, "num_gpus", 0));
    without_time += duration == 0 ? 1 : 0;
    without_gpus += gpus == 0 ? 1 : 0;
    if (duration == 0 || gpus == 0) continue;
    job.gpus = static_cast<int>(std::min<int64_t>(gpus, 1'000'000));
    job.application = file.has("cluster") ? file.text(row, "cluster") : "";
    job.model = rigid_job(job.gpus, duration);
    out.jobs.push_back(std::move(job));
  }
  if (without_time > 0) out.left_out.push_back(fmt::format("{} jobs of 0 s", without_time));
  if (without_gpus > 0) out.left_out.push_back(fmt::format("{} jobs without GPUs", without_gpus));
  start_at_zero(out.jobs);
  return out;
}

}  // namespace tessera::share
