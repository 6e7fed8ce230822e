// The table of readers, and how a file's format is found.
#include <fmt/format.h>

#include "tessera/base/text.h"
#include "tessera/orchestrate/workloads/workload.h"

namespace tessera::share {
namespace {

// Returns whether the head of a CSV file begins with these columns.
bool has_head(const std::string& head, std::string_view columns) {
  return trim(head).starts_with(columns);
}

}  // namespace

const std::vector<WorkloadFormat>& workload_formats() {
  static const std::vector<WorkloadFormat> kFormats = {
      {"pollux", "jobs of six applications, with traces of their training",
       [](const std::string&, const std::string& head) {
         return has_head(head, "name,time,application");
       },
       read_pollux},
  };
  return kFormats;
}

Result<Workload> read_workload(const std::string& path, const ReadOptions& options) {
  std::string head;
  if (options.format.empty()) {
    if (path.find(':') == std::string::npos) {
      TESSERA_TRY(const std::string text, read_file(path));
      head = text.substr(0, text.find('\n'));
    }
  }
  std::vector<std::string> names;
  for (const WorkloadFormat& format : workload_formats()) {
    names.push_back(format.name);
    const bool is_it =
        options.format.empty() ? format.is_it(path, head) : options.format == format.name;
    if (!is_it) continue;
    TESSERA_TRY(Workload out, format.read(path, options));
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
