// Slurm: sacct --parsable2 --allusers --format=JobID,JobName,Submit,Elapsed,State,AllocTRES[,ReqTRES].
// Each job runs for the time that it ran, on exactly its GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/base/text.h"
#include "tessera/orchestrate/workloads/columns.h"
#include "tessera/orchestrate/workloads/rated_job.h"
#include "tessera/orchestrate/workloads/times.h"
#include "tessera/orchestrate/workloads/workload.h"

namespace tessera::share {
namespace {

// Reads lines whose fields are separated by '|'. Names of jobs may not hold it, as sacct does not
// escape it.
Result<CsvTable> parse_bars(const std::string& text, const std::string& path) {
  CsvTable out;
  int number = 0;
  for (const std::string& line : split_text(text, '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    std::vector<std::string> fields = split_text(trim(line), '|');
    if (out.columns.empty()) {
      out.columns = std::move(fields);
      continue;
    }
    if (fields.size() != out.columns.size()) {
      return invalid_input(fmt::format("{}:{}: expected {} fields between '|', found {}", path,
                                       number, out.columns.size(), fields.size()));
    }
    out.rows.push_back(std::move(fields));
    out.lines.push_back(number);
  }
  return out;
}

// Returns the GPUs of "billing=8,cpu=8,gres/gpu=4,node=1"; 0 if there are none. "gres/gpu:a100=4"
// counts too, unless the sum is given beside it.
int64_t gpus_of(const std::string& resources) {
  int64_t all = 0, typed = 0;
  for (const std::string& item : split_text(resources, ',')) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos) continue;
    const auto count = parse_int(item.substr(equals + 1));
    if (!count) continue;
    if (item.starts_with("gres/gpu=")) all = *count;
    if (item.starts_with("gres/gpu:")) typed += *count;
  }
  return all > 0 ? all : typed;
}

}  // namespace

Result<Workload> read_sacct(const std::string& path, const ReadOptions&) {
  TESSERA_TRY(const std::string text, read_workload_text(path));
  TESSERA_TRY(CsvTable table, parse_bars(text, path));
  const bool has_raw = table.find("ElapsedRaw") >= 0;
  TESSERA_TRY(const Columns file,
              Columns::of(std::move(table), path,
                          {"JobID", "Submit", has_raw ? "ElapsedRaw" : "Elapsed", "AllocTRES"}));
  Workload out;
  out.switch_s = 0;
  std::map<std::string, size_t> left_out;
  for (size_t row = 0; row < file.rows(); ++row) {
    JobSpec job;
    job.name = file.text(row, "JobID");
    if (job.name.find('.') != std::string::npos) {
      ++left_out["steps of jobs, which their jobs hold"];
      continue;
    }
    TESSERA_TRY(job.submit_s, time_of(file, row, "Submit"));
    double seconds = 0;
    if (has_raw) {
      TESSERA_TRY(seconds, file.number(row, "ElapsedRaw", 0));
    } else {
      TESSERA_TRY(seconds, duration_of(file, row, "Elapsed"));
    }
    const int64_t gpus = gpus_of(file.text(row, "AllocTRES"));
    const std::string state = file.has("State") ? file.text(row, "State") : "";
    if (state == "RUNNING" || state == "PENDING") {
      ++left_out["jobs that had not ended"];
    } else if (seconds == 0) {
      ++left_out["jobs that never ran"];
    } else if (gpus <= 0) {
      ++left_out["jobs without GPUs"];
    } else {
      job.gpus = static_cast<int>(std::min<int64_t>(gpus, 1'000'000));
      job.application = file.has("JobName") ? file.text(row, "JobName") : "";
      job.model = rigid_job(job.gpus, seconds);
      out.jobs.push_back(std::move(job));
    }
  }
  for (const auto& [what, count] : left_out)
    out.left_out.push_back(fmt::format("{} {}", count, what));
  start_at_zero(out.jobs);
  return out;
}

}  // namespace tessera::share
