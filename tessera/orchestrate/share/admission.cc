#include "tessera/orchestrate/share/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

namespace tessera::share {
namespace {

Status check_job(const JobSpec& job, const Machines& machines, const std::string& where) {
  if (!std::isfinite(job.submit_s) || job.submit_s < 0) {
    return invalid_input(
        fmt::format("{}: job '{}': expected a submission time of at least 0, found {}", where,
                    job.name, job.submit_s));
  }
  int most = 0;
  for (size_t type = 0; type < machines.types.size(); ++type)
    most = std::max(most, machines.gpus(static_cast<int>(type)));
  if (job.gpus < 1 || std::max(job.gpus, job.guaranteed_gpus) > most) {
    return invalid_input(fmt::format(
        "{}: job '{}': expected at most {} GPUs, those of the cluster{}, found {}", where, job.name,
        most, machines.types.size() > 1 ? " of one type" : "", job.gpus));
  }
  return {};
}

}  // namespace

Status check_jobs(const std::vector<JobSpec>& jobs, const Machines& machines,
                  const std::string& where) {
  std::unordered_set<std::string> names;
  double last = 0;
  for (const JobSpec& job : jobs) {
    TESSERA_TRY_VOID(check_job(job, machines, where));
    if (job.submit_s < last) {
      return invalid_input(
          fmt::format("{}: job '{}': expected jobs in order of submission, found {} s after {} s",
                      where, job.name, job.submit_s, last));
    }
    last = job.submit_s;
    if (!names.insert(job.name).second) {
      return invalid_input(
          fmt::format("{}: expected a name for each job, found two jobs '{}'", where, job.name));
    }
  }
  if (jobs.empty()) return invalid_input(where + ": expected at least one job, found none");
  return {};
}

size_t Admission::submitted_by(double now_s) const {
  const auto end = std::partition_point(jobs_->begin(), jobs_->end(),
                                        [&](const JobSpec& job) { return job.submit_s <= now_s; });
  return static_cast<size_t>(end - jobs_->begin());
}

double Admission::next_s(size_t seen) const {
  return seen < jobs_->size() ? (*jobs_)[seen].submit_s : kNever;
}

}  // namespace tessera::share
