// ElasticFlow: jobs with deadlines on its tables of throughput, a file MODEL.csv for each model, with a
// row for each global batch and a column for each number of GPUs. The artifact's own job lists are not
// public data of a fixed form; two forms are taken here:
//   a CSV with the columns name, submit_s, model, global_batch_size, iterations, gpus, deadline_s
//   elasticflow:jobs=100,hours=12    jobs that are drawn from the tables of --throughputs FOLDER
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "tessera/base/text.h"
#include "tessera/orchestrate/share/random.h"
#include "tessera/orchestrate/workloads/columns.h"
#include "tessera/orchestrate/workloads/rated_job.h"
#include "tessera/orchestrate/workloads/workload.h"

namespace tessera::share {
namespace {

// Steps a second by number of GPUs; between the measured numbers, those of the next lower one.
class ScalingSpeeds : public Speeds {
 public:
  explicit ScalingSpeeds(std::map<int, double> speeds) : speeds_(std::move(speeds)) {}
  double steps_per_s(const Shape& shape, BatchRule) const override {
    const auto above = speeds_.upper_bound(shape.total());
    return above == speeds_.begin() ? 0 : std::prev(above)->second;
  }
  int most_gpus(BatchRule) const override { return speeds_.rbegin()->first; }
  int least_gpus() const override { return speeds_.begin()->first; }

 private:
  std::map<int, double> speeds_;
};

struct ModelTable {
  std::string model;
  std::map<int64_t, std::map<int, double>> speeds;  // by global batch, then GPUs
};

Result<ModelTable> read_model_table(const std::string& path) {
  TESSERA_TRY(const std::string text, read_workload_text(path));
  TESSERA_TRY(CsvTable table, parse_csv(text, path));
  std::vector<std::pair<int, std::string>> sizes;
  for (const std::string& column : table.columns) {
    const auto gpus = parse_int(column);
    if (gpus && *gpus > 0 && *gpus <= 65536) sizes.emplace_back(static_cast<int>(*gpus), column);
  }
  TESSERA_TRY(const Columns file, Columns::of(std::move(table), path, {"global_batch_size"}));
  ModelTable out{std::filesystem::path(path).stem().string(), {}};
  for (size_t row = 0; row < file.rows(); ++row) {
    TESSERA_TRY(const int64_t batch, file.whole(row, "global_batch_size", 1));
    for (const auto& [gpus, column] : sizes) {
      const auto speed =
          parse_double(trim(file.text(row, column)));  // empty, nan or 0: not possible
      if (speed && std::isfinite(*speed) && *speed > 0) out.speeds[batch][gpus] = *speed;
    }
  }
  if (out.speeds.empty()) return invalid_input(path + ": expected throughputs, found none");
  return out;
}

Result<std::vector<ModelTable>> read_model_tables(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".csv") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  if (paths.empty()) {
    return invalid_input(fmt::format(
        "--throughputs: expected a folder of tables MODEL.csv, found none in '{}'", folder));
  }
  std::vector<ModelTable> out;
  for (const std::string& path : paths) {
    TESSERA_TRY(ModelTable table, read_model_table(path));
    out.push_back(std::move(table));
  }
  return out;
}

Result<Workload> draw_jobs(const std::string& text, const ReadOptions& options) {
  int64_t jobs = 100;
  double hours = 12;
  TESSERA_TRY(const Call call, parse_call(text));
  for (const auto& [key, value] : call.arguments) {
    const auto number = parse_double(value);
    const bool is_known = key == "jobs" || key == "hours";
    if (!is_known || !number || !(*number > 0 && *number <= 1e6)) {
      return invalid_input(fmt::format(
          "{}: expected jobs and hours as positive numbers, found '{}={}'", text, key, value));
    }
    (key == "jobs" ? static_cast<void>(jobs = static_cast<int64_t>(*number))
                   : static_cast<void>(hours = *number));
  }
  TESSERA_TRY(const auto tables, read_model_tables(options.traces));
  Random random(options.seed, 7);
  Workload out;
  double now = 0;
  for (int64_t i = 0; i < jobs; ++i) {
    const ModelTable& table = tables[random.below(tables.size())];
    auto row = table.speeds.begin();
    std::advance(row, static_cast<std::ptrdiff_t>(random.below(table.speeds.size())));
    JobSpec job;
    job.name = fmt::format("{}-{}", table.model, i);
    job.application = table.model;
    now += random.exponential(hours * 3600 / static_cast<double>(jobs));
    job.submit_s = std::floor(now);
    job.gpus = std::min(
        {1 << random.below(5), row->second.rbegin()->first, std::max(1, options.machines.gpus(0))});
    // Half an hour on the asked GPUs in the middle, from some minutes to some hours.
    const double seconds = std::exp(std::log(1800.0) + 0.8 * random.normal());
    const ScalingSpeeds speeds(row->second);
    const double speed = speeds.steps_per_s(Shape{{job.gpus}, 0}, BatchRule::kAsked);
    if (speed <= 0) continue;
    job.deadline_s = job.submit_s + seconds * (0.5 + random.uniform());
    job.model = rated_job(std::make_shared<ScalingSpeeds>(row->second),
                          std::max(1.0, std::round(seconds * speed)));
    out.jobs.push_back(std::move(job));
  }
  return out;
}

}  // namespace

Result<Workload> read_elasticflow(const std::string& path, const ReadOptions& options) {
  if (path.starts_with("elasticflow:")) return draw_jobs(path, options);
  TESSERA_TRY(const Columns file, Columns::read(path, {"name", "submit_s", "model",
                                                       "global_batch_size", "iterations", "gpus"}));
  const std::string folder = options.traces.empty()
                                 ? (std::filesystem::path(".") / path).parent_path().string()
                                 : options.traces;
  Workload out;
  std::map<std::string, ModelTable> known;
  for (size_t row = 0; row < file.rows(); ++row) {
    JobSpec job;
    job.name = file.text(row, "name");
    job.application = file.text(row, "model");
    TESSERA_TRY(job.submit_s, file.number(row, "submit_s", 0));
    TESSERA_TRY(const int64_t batch, file.whole(row, "global_batch_size", 1));
    TESSERA_TRY(const double steps, file.number(row, "iterations", 1));
    TESSERA_TRY(const int64_t gpus, file.whole(row, "gpus", 1));
    if (file.has("deadline_s") && !trim(file.text(row, "deadline_s")).empty()) {
      TESSERA_TRY(job.deadline_s, file.number(row, "deadline_s", 0));
    }
    if (!known.contains(job.application)) {
      TESSERA_TRY(known[job.application],
                  read_model_table(folder + "/" + job.application + ".csv"));
    }
    const auto& speeds = known[job.application].speeds;
    if (!speeds.contains(batch)) {
      return invalid_input(fmt::format("{}: expected a batch of the table of '{}', as {}, found {}",
                                       file.where(row, "global_batch_size"), job.application,
                                       speeds.begin()->first, batch));
    }
    job.gpus = static_cast<int>(std::min<int64_t>(gpus, 1'000'000));
    job.model = rated_job(std::make_shared<ScalingSpeeds>(speeds.at(batch)), steps);
    out.jobs.push_back(std::move(job));
  }
  return out;
}

}  // namespace tessera::share
