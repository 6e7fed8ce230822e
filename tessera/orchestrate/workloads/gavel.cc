// Gavel's traces: a job a line, ten columns between tabs, without a head. Speeds by type of GPU are in
// simulation_throughputs.json; the types of the cluster must be there.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/orchestrate/workloads/rated_job.h"
#include "tessera/orchestrate/workloads/times.h"
#include "tessera/orchestrate/workloads/workload.h"

namespace tessera::share {
namespace {

constexpr size_t kColumns = 10;

// Steps a second on the GPUs that the job asked for, by type: packed, and spread over more nodes than
// needed.
struct TypeSpeed {
  double packed = 0, spread = 0;
};

class TypedSpeeds : public Speeds {
 public:
  TypedSpeeds(std::vector<TypeSpeed> speeds, std::vector<int> node_gpus, int gpus)
      : speeds_(std::move(speeds)), node_gpus_(std::move(node_gpus)), gpus_(gpus) {}
  double steps_per_s(const Shape& shape, BatchRule) const override {
    if (shape.total() != gpus_) return 0;
    const auto type = static_cast<size_t>(shape.type);
    const int least = (gpus_ + node_gpus_[type] - 1) / node_gpus_[type];
    return shape.nodes() > least ? speeds_[type].spread : speeds_[type].packed;
  }
  int least_gpus() const override { return gpus_; }
  int most_gpus(BatchRule) const override { return gpus_; }

 private:
  std::vector<TypeSpeed> speeds_;
  std::vector<int> node_gpus_;  // of the largest node of a type
  int gpus_;
};

Result<nlohmann::json> read_table(const std::string& path, const Machines& machines) {
  TESSERA_TRY(const std::string text, read_workload_text(path));
  const auto table = parse_json(text);
  if (!table || !table->is_object()) {
    return invalid_input(path + ": expected an object of types of GPUs, found another text");
  }
  for (const std::string& type : machines.types) {
    if (table->contains(type)) continue;
    std::vector<std::string> names;
    for (const auto& [name, rows] : table->items()) {
      if (!name.ends_with("_unconsolidated")) names.push_back(name);
    }
    return invalid_input(
        fmt::format("{}: expected the types of the cluster, as --cluster "
                    "{}:9x4, of {}, found '{}'",
                    path, names.empty() ? "v100" : names.back(), join(names, ", "), type));
  }
  return *table;
}

double speed_in(const nlohmann::json& table, const std::string& type, const std::string& job) {
  if (!table.contains(type) || !table[type].contains(job)) return 0;
  const nlohmann::json& alone = table[type][job].value("null", nlohmann::json());
  return alone.is_number() ? alone.get<double>() : 0;
}

}  // namespace

Result<Workload> read_gavel(const std::string& path, const ReadOptions& options) {
  const std::filesystem::path beside = std::filesystem::path(path).parent_path();
  const std::string table_path =
      options.traces.empty()
          ? (beside / ".." / "simulation_throughputs.json").lexically_normal().string()
          : options.traces;
  TESSERA_TRY(const nlohmann::json table, read_table(table_path, options.machines));
  TESSERA_TRY(const std::string text, read_workload_text(path));
  std::vector<int> node_gpus(options.machines.types.size());
  for (const Machines::Node& node : options.machines.nodes) {
    int& most = node_gpus[static_cast<size_t>(node.type)];
    most = std::max(most, node.gpus);
  }
  Workload out;
  out.round_s = 360;
  out.switch_s = 0;
  int number = 0;
  for (const std::string& line : split_text(text, '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    const std::vector<std::string> fields = split_text(line, '\t');
    const std::string where = fmt::format("{}:{}", path, number);
    if (fields.size() != kColumns) {
      return invalid_input(fmt::format("{}: expected {} columns between tabs, found {}", where,
                                       kColumns, fields.size()));
    }
    const auto steps = parse_double(fields[5]), weight = parse_double(fields[7]);
    const auto arrival = parse_double(trim(fields[9])), deadline = parse_double(fields[8]);
    const auto gpus = parse_int(fields[6]);
    const auto is_positive = [](const Result<double>& value) {
      return value && *value > 0 && *value <= kMostNumber;
    };
    const bool has_times =
        arrival && *arrival >= 0 && *arrival <= kMostNumber && deadline && *deadline <= kMostNumber;
    if (!is_positive(steps) || !is_positive(weight) || !gpus || *gpus < 1 || !has_times) {
      return invalid_input(fmt::format(
          "{}: expected positive steps, GPUs and weight, an arrival of at least 0, and no number "
          "above {:g}, found '{}', '{}', '{}', '{}', '{}'",
          where, kMostNumber, fields[5], fields[6], fields[7], fields[8], trim(fields[9])));
    }
    const std::string key = fmt::format("('{}', {})", fields[0], *gpus);
    std::vector<TypeSpeed> speeds;
    double fastest = 0;
    for (const std::string& type : options.machines.types) {
      speeds.push_back(
          {speed_in(table, type, key), speed_in(table, type + "_unconsolidated", key)});
      if (speeds.back().spread == 0) speeds.back().spread = speeds.back().packed;
      fastest = std::max(fastest, speeds.back().packed);
    }
    if (fastest == 0) {
      return invalid_input(fmt::format("{}: expected a job of {} that runs on {}, found \"{}\"",
                                       where, table_path, join(options.machines.types, " or "),
                                       key));
    }
    JobSpec job;
    job.name = fmt::format("gavel-{}", out.jobs.size());
    job.application = fields[0];
    job.submit_s = *arrival;
    job.gpus = static_cast<int>(std::min<int64_t>(*gpus, 1'000'000));
    job.weight = *weight;
    if (*deadline > 0) job.deadline_s = *arrival + *deadline;
    job.model =
        rated_job(std::make_shared<TypedSpeeds>(std::move(speeds), node_gpus, job.gpus), *steps);
    out.jobs.push_back(std::move(job));
  }
  out.left_out.push_back("pairs of jobs on the same GPUs: each GPU has one job here");
  return out;
}

}  // namespace tessera::share
