// Workloads of the Pollux artifact: name,time,application,num_replicas,batch_size, with the traces of
// the applications in ../traces.
#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "tessera/orchestrate/workloads/columns.h"
#include "tessera/orchestrate/workloads/trained_job.h"
#include "tessera/orchestrate/workloads/workload.h"

namespace tessera::share {
namespace {

using Applications = std::map<std::string, std::shared_ptr<const Application>>;

Result<std::shared_ptr<const Application>> application_of(const std::string& name,
                                                          const std::string& traces,
                                                          Applications& known) {
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  TESSERA_TRY(const auto read, read_pollux_application(traces, name));
  known[name] = read;
  return read;
}

}  // namespace

Result<Workload> read_pollux(const std::string& path, const ReadOptions& options) {
  TESSERA_TRY(const Columns file,
              Columns::read(path, {"name", "time", "application", "num_replicas", "batch_size"}));
  const std::filesystem::path beside = std::filesystem::path(path).parent_path();
  const std::string traces = options.traces.empty()
                                 ? (beside / ".." / "traces").lexically_normal().string()
                                 : options.traces;
  Workload out;
  Applications known;
  for (size_t row = 0; row < file.rows(); ++row) {
    JobSpec job;
    job.name = file.text(row, "name");
    job.application = file.text(row, "application");
    TESSERA_TRY(job.submit_s, file.number(row, "time", 0));
    TESSERA_TRY(const int64_t gpus, file.whole(row, "num_replicas", 1));
    TESSERA_TRY(const int64_t batch, file.whole(row, "batch_size", 1));
    if (!std::filesystem::is_directory(std::filesystem::path(traces) / job.application)) {
      return invalid_input(
          fmt::format("{}: expected an application with a folder in {}, found '{}'",
                      file.where(row, "application"), traces, job.application));
    }
    TESSERA_TRY(const auto application, application_of(job.application, traces, known));
    if (batch < application->least_batch() || batch > application->most_batch()) {
      return invalid_input(fmt::format("{}: expected a batch from {} to {}, found {}",
                                       file.where(row, "batch_size"), application->least_batch(),
                                       application->most_batch(), batch));
    }
    job.gpus = static_cast<int>(std::min<int64_t>(gpus, 1'000'000));
    job.model = trained_job(application, batch, job.gpus);
    out.jobs.push_back(std::move(job));
  }
  return out;
}

}  // namespace tessera::share
