// The table of readers, and how a file's format is found.
#include <fmt/format.h>

#include <utility>

#include "tessera/base/text.h"
#include "tessera/orchestrate/workloads/columns.h"
#include "tessera/orchestrate/workloads/workload.h"

namespace tessera::share {
namespace {

// Returns whether the head of a CSV file begins with these columns.
bool has_head(const std::string& head, std::string_view columns) {
  return trim(head).starts_with(columns);
}

std::vector<std::string> with_throughputs() {
  std::vector<std::string> out;
  for (const WorkloadFormat& format : workload_formats()) {
    if (format.has_throughputs) out.push_back(format.name);
  }
  return out;
}

// Reads the workload again with the predicted throughputs, for what policies are shown.
Status read_believed(const WorkloadFormat& format, const std::string& path,
                     const ReadOptions& options, Workload& out) {
  ReadOptions believed = options;
  believed.traces = std::exchange(believed.predicted, "");
  TESSERA_TRY(const Workload shown, format.read(path, believed));
  for (size_t i = 0; i < out.jobs.size(); ++i) out.jobs[i].believed = shown.jobs[i].model;
  return {};
}

}  // namespace

const std::vector<WorkloadFormat>& workload_formats() {
  static const std::vector<WorkloadFormat> kFormats = {
      {"pollux", "jobs of six applications, with traces of their training",
       [](const std::string&, const std::string& head) {
         return has_head(head, "name,time,application");
       },
       read_pollux, true},
      {"morphling", "jobs that change their plan, with measured plans",
       [](const std::string&, const std::string& head) {
         return has_head(head, "name,submission_time,duration,application");
       },
       read_morphling, true},
      {"philly", "jobs of fixed size and duration",
       [](const std::string&, const std::string& head) {
         return has_head(head, "timestamp,duration,num_gpus");
       },
       read_philly},
      {"gavel", "jobs whose speed depends on the type of GPU",
       [](const std::string& path, const std::string& head) {
         return path.ends_with(".trace") && head.find('\t') != std::string::npos;
       },
       read_gavel, true},
      {"elasticflow", "jobs with deadlines on tables of throughput; elasticflow:jobs=100,hours=12",
       [](const std::string& path, const std::string& head) {
         return path.starts_with("elasticflow:") || has_head(head, "name,submit_s,model");
       },
       read_elasticflow, true},
      {"sacct", "the jobs of a Slurm cluster: sacct --parsable2",
       [](const std::string&, const std::string& head) { return has_head(head, "JobID|"); },
       read_sacct},
      {"ones", "jobs like those of ONES, generated: ones:jobs=50,interval=30",
       [](const std::string& path, const std::string&) {
         return path == "ones" || path.starts_with("ones:");
       },
       generate_ones},
  };
  return kFormats;
}

Result<Workload> read_workload(const std::string& path, const ReadOptions& options) {
  std::string head;
  if (options.format.empty()) {
    const bool is_generated =
        path == "ones" || path.starts_with("ones:") || path.starts_with("elasticflow:");
    if (!is_generated) {
      TESSERA_TRY(const std::string text, read_workload_text(path));
      head = text.substr(0, text.find('\n'));
    }
  }
  std::vector<std::string> names;
  for (const WorkloadFormat& format : workload_formats()) {
    names.push_back(format.name);
    const bool is_it =
        options.format.empty() ? format.is_it(path, head) : options.format == format.name;
    if (!is_it) continue;
    if (!options.predicted.empty() && !format.has_throughputs) {
      return invalid_input(
          fmt::format("--predicted: expected a workload with throughputs ({}), found one of {}",
                      join(with_throughputs(), ", "), format.name));
    }
    TESSERA_TRY(Workload out, format.read(path, options));
    if (!options.predicted.empty()) TESSERA_TRY_VOID(read_believed(format, path, options, out));
    out.format = format.name;
    return out;
  }
  return invalid_input(options.format.empty()
                           ? fmt::format("{}:1: expected a workload ({}), found '{}'", path,
                                         join(names, ", "), head.substr(0, 60))
                           : fmt::format("--format: expected one of {}, found '{}'",
                                         join(names, ", "), options.format));
}

}  // namespace tessera::share
