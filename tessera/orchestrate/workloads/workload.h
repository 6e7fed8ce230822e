// Workloads: jobs that are read from public formats, or generated. docs/reference/workloads.md
// describes each format and what a reader leaves out.
//
//   TESSERA_TRY(const Workload workload, read_workload("workload-1.csv", {}));
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/orchestrate/share/job.h"
#include "tessera/orchestrate/share/machines.h"

namespace tessera::share {

struct Workload {
  std::string format;                  // name of the reader
  std::vector<JobSpec> jobs;           // in order of submission
  std::vector<std::string> left_out;   // what of the file was not taken, and why; one line each
  double round_s = 60, switch_s = 30;  // what the format's own simulator takes
  double live_switch_s = -1;           // of a job that keeps running; negative: as switch_s
};

struct ReadOptions {
  std::string format = {};  // name of the reader; empty: found from the file's head
  std::string traces = {};  // folder or file of throughputs; empty: beside the workload
  // Folder or file of the same form, by which policies decide (JobSpec::believed) while the jobs
  // advance by `traces`; empty: policies know `traces`.
  std::string predicted = {};
  uint64_t seed = 1;       // of generators
  Machines machines = {};  // of which types throughputs are wanted
};

struct WorkloadFormat {
  std::string name, summary;
  // Returns whether a file, or a generator's text, is of this format. `head`: the first line.
  bool (*is_it)(const std::string& path, const std::string& head);
  Result<Workload> (*read)(const std::string& path, const ReadOptions& options);
  bool has_throughputs = false;  // whether ReadOptions::traces and `predicted` mean something
};
const std::vector<WorkloadFormat>& workload_formats();

// Reads a workload. Errors: a file that no reader knows, and those of the readers.
Result<Workload> read_workload(const std::string& path, const ReadOptions& options);

// Reads a file of the format that the name says, or draws jobs.
Result<Workload> read_pollux(const std::string& path, const ReadOptions& options);
Result<Workload> read_philly(const std::string& path, const ReadOptions& options);
Result<Workload> read_gavel(const std::string& path, const ReadOptions& options);
Result<Workload> read_elasticflow(const std::string& path, const ReadOptions& options);
Result<Workload> read_morphling(const std::string& path, const ReadOptions& options);
Result<Workload> read_sacct(const std::string& path, const ReadOptions& options);
Result<Workload> generate_ones(const std::string& path, const ReadOptions& options);

}  // namespace tessera::share
