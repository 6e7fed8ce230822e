#include "tessera/orchestrate/workloads/application.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tessera/base/text.h"
#include "tessera/orchestrate/workloads/columns.h"

namespace tessera::share {
namespace {

constexpr int kListedNodes = 4;  // placements on more nodes are interpolated
constexpr double kMostNodes = 16;
constexpr double kAlmost = 1e-8;  // a quotient that is greater than a whole number by less is that
constexpr int kGrid = 50;

int64_t ceiling(double value) { return static_cast<int64_t>(std::ceil(value - kAlmost)); }

// Returns the GPUs of the nodes as one number in base 32, of the rotation that comes first.
uint64_t placement_key(const std::vector<int>& gpus) {
  const size_t n = gpus.size();
  const auto digit = [&](size_t start, size_t i) { return gpus[(start + i) % n]; };
  size_t best = 0;
  for (size_t start = 1; start < n; ++start) {
    for (size_t i = 0; i < n; ++i) {
      if (digit(start, i) == digit(best, i)) continue;
      if (digit(start, i) < digit(best, i)) best = start;
      break;
    }
  }
  uint64_t out = 0;
  for (size_t i = 0; i < n; ++i)
    out = out * 32 + static_cast<uint64_t>(std::min(digit(best, i), 31));
  return out;
}

uint64_t shape_key(const Shape& shape) {
  if (shape.nodes() <= kListedNodes) return placement_key(shape.gpus);
  return (uint64_t{1} << 40) | static_cast<uint64_t>(shape.nodes()) << 20 |
         static_cast<uint64_t>(shape.total());
}

}  // namespace

Result<std::shared_ptr<const Application>> Application::read(const std::string& folder,
                                                             const std::string& name,
                                                             int64_t most_local, int most_gpus) {
  auto out = std::make_shared<Application>();
  out->name_ = name;
  TESSERA_TRY_VOID(out->read_validation(folder));
  TESSERA_TRY_VOID(out->read_placements(folder));
  TESSERA_TRY_VOID(out->read_scalability(folder));
  out->scattered_.finish();
  if (most_local > 0) out->most_local_ = most_local;
  out->most_gpus_ =
      most_gpus > 0 ? most_gpus : static_cast<int>(out->most_batch() / out->least_local_);
  return std::shared_ptr<const Application>(std::move(out));
}

Status Application::read_placements(const std::string& folder) {
  TESSERA_TRY(Columns file, Columns::read(folder + "/placements.csv",
                                          {"placement", "local_bsz", "step_time", "sync_time"}));
  std::map<std::array<int64_t, 3>, std::vector<StepTime>> by_size;
  for (size_t row = 0; row < file.rows(); ++row) {
    TESSERA_TRY(const std::vector<int> gpus, file.digits(row, "placement"));
    TESSERA_TRY(const int64_t local, file.whole(row, "local_bsz", 1));
    StepTime time;
    TESSERA_TRY(time.step_s, file.number(row, "step_time", 0));
    TESSERA_TRY(time.sync_s, file.number(row, "sync_time", 0));
    const Shape shape{gpus, 0};
    placements_[placement_key(gpus)].push_back({local, time});
    by_size[{shape.nodes(), shape.total(), local}].push_back(time);
    least_local_ = least_local_ == 0 ? local : std::min(least_local_, local);
    most_local_ = std::max(most_local_, local);
  }
  for (auto& [key, rows] : placements_) {
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Measured& a, const Measured& b) { return a.local < b.local; });
  }
  for (const auto& [size, times] : by_size) {
    ScatteredTable::Value sum{0, 0};
    for (const StepTime& time : times) {
      sum[0] += time.step_s;
      sum[1] += time.sync_s;
    }
    const auto count = static_cast<double>(times.size());
    scattered_.add(
        {static_cast<double>(size[0]), static_cast<double>(size[1]), static_cast<double>(size[2])},
        {sum[0] / count, sum[1] / count});
  }
  return {};
}

Status Application::read_scalability(const std::string& folder) {
  TESSERA_TRY(Columns file,
              Columns::read(folder + "/scalability.csv",
                            {"num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"}));
  for (size_t row = 0; row < file.rows(); ++row) {
    ScatteredTable::Point point{};
    ScatteredTable::Value value{};
    TESSERA_TRY(point[0], file.number(row, "num_nodes", 1));
    TESSERA_TRY(point[1], file.number(row, "num_replicas", 1));
    TESSERA_TRY(point[2], file.number(row, "local_bsz", 1));
    TESSERA_TRY(value[0], file.number(row, "step_time", 0));
    TESSERA_TRY(value[1], file.number(row, "sync_time", 0));
    scattered_.add(point, value);
  }
  return {};
}

Status Application::read_validation(const std::string& folder) {
  std::map<int64_t, std::string> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string stem = entry.path().stem().string();
    if (!stem.starts_with("validation-")) continue;
    if (const auto batch = parse_int(stem.substr(11))) files[*batch] = entry.path().string();
  }
  if (files.empty()) {
    return invalid_input(
        fmt::format("{}: expected files validation-BATCH.csv, found none", folder));
  }
  for (const auto& [batch, path] : files) {
    TESSERA_TRY(Columns file,
                Columns::read(path, {"progress", "iteration", "metric", "grad_sqr", "grad_var"}));
    std::vector<Epoch> epochs(file.rows());
    for (size_t row = 0; row < file.rows(); ++row) {
      TESSERA_TRY(epochs[row].progress, file.number(row, "progress", 0));
      TESSERA_TRY(epochs[row].iteration, file.number(row, "iteration", 0));
      TESSERA_TRY(epochs[row].metric, file.number(row, "metric"));
      TESSERA_TRY(epochs[row].square, file.number(row, "grad_sqr", 0));
      TESSERA_TRY(epochs[row].variance, file.number(row, "grad_var", 0));
    }
    if (!rows_.empty() && rows_.front().size() != epochs.size()) {
      return invalid_input(fmt::format("{}: expected {} rows as in the other files, found {}", path,
                                       rows_.front().size(), epochs.size()));
    }
    batches_.push_back(batch);
    rows_.push_back(std::move(epochs));
  }
  for (size_t epoch = 0; epoch < rows_.front().size(); ++epoch) {
    double least = rows_.front()[epoch].progress;
    for (const auto& rows : rows_) least = std::min(least, rows[epoch].progress);
    progress_.push_back(least);
  }
  return {};
}

StepTime Application::measured(const std::vector<Measured>& rows, double local) const {
  if (local <= static_cast<double>(rows.front().local)) return rows.front().time;
  if (local >= static_cast<double>(rows.back().local)) return rows.back().time;
  size_t high = 1;
  while (static_cast<double>(rows[high].local) < local) ++high;
  const Measured &a = rows[high - 1], &b = rows[high];
  const double width = static_cast<double>(b.local - a.local);
  const double at = local - static_cast<double>(a.local);
  return {(b.time.step_s - a.time.step_s) / width * at + a.time.step_s,
          (b.time.sync_s - a.time.sync_s) / width * at + a.time.sync_s};
}

StepTime Application::step(const Shape& shape, int64_t local) const {
  const uint64_t key = shape_key(shape) << 20 ^ static_cast<uint64_t>(local);
  const auto known = known_steps_.find(key);
  if (known != known_steps_.end()) return known->second;
  StepTime out;
  const auto listed = shape.nodes() <= kListedNodes ? placements_.find(placement_key(shape.gpus))
                                                    : placements_.end();
  if (listed != placements_.end()) {
    out = measured(listed->second, static_cast<double>(local));
  } else {
    const auto value =
        scattered_.at({std::min(static_cast<double>(shape.nodes()), kMostNodes),
                       static_cast<double>(shape.total()), static_cast<double>(local)});
    out = {value[0], value[1]};
  }
  known_steps_.emplace(key, out);
  return out;
}

double Application::between(double Epoch::*what, int64_t epoch, double batch) const {
  const auto row = static_cast<size_t>(epoch);
  size_t high = 0;
  while (high + 1 < batches_.size() && static_cast<double>(batches_[high]) < batch) ++high;
  const double b = rows_[high][row].*what;
  if (high == 0 || static_cast<double>(batches_[high]) <= batch) return b;
  const double a = rows_[high - 1][row].*what;
  const double width = static_cast<double>(batches_[high] - batches_[high - 1]);
  return (b - a) / width * (batch - static_cast<double>(batches_[high - 1])) + a;
}

GradientNoise Application::noise(int64_t epoch, double batch) const {
  return {between(&Epoch::square, epoch, batch), between(&Epoch::variance, epoch, batch)};
}

double Application::steps(int64_t epoch, double batch) const {
  return between(&Epoch::iteration, epoch, batch);
}

double Application::metric(int64_t epoch) const {
  return rows_.front()[static_cast<size_t>(epoch)].metric;
}

Tuning Application::split(double batch, int gpus, bool is_whole) const {
  double local = batch / gpus;
  if (is_whole) local = static_cast<double>(ceiling(local));
  Tuning out;
  out.extra_passes = ceiling(local / static_cast<double>(most_local_)) - 1;
  if (gpus == 1 && batch > static_cast<double>(least_batch()))
    out.extra_passes = std::max<int64_t>(out.extra_passes, 1);
  out.local = ceiling(local / static_cast<double>(out.extra_passes + 1));
  out.local = std::min(out.local, most_batch() / (gpus * (out.extra_passes + 1)));
  return out;
}

double Application::gain(const GradientNoise& noise, double batch) const {
  return statistical_gain(noise, batch / static_cast<double>(least_batch()));
}

double Application::rate(const Shape& shape, const Tuning& tuning, int64_t epoch) const {
  const double batch = batch_of(tuning, shape.total());
  return gain(noise(epoch, batch), batch) / step(shape, tuning.local).with(tuning.extra_passes);
}

std::vector<Tuning> Application::grid(int gpus) const {
  const double low = static_cast<double>(std::max(least_batch(), least_local_ * gpus));
  const double high = static_cast<double>(most_batch());
  std::vector<Tuning> out;
  for (int i = 0; i < kGrid && low <= high; ++i) {
    const Tuning tuning = split(low * std::pow(high / low, i / (kGrid - 1.0)), gpus, false);
    const bool is_allowed = tuning.local >= least_local_ && tuning.local <= most_local_;
    const bool is_enough = batch_of(tuning, gpus) >= static_cast<double>(least_batch());
    if (is_allowed && is_enough && (out.empty() || out.back() != tuning)) out.push_back(tuning);
  }
  return out;
}

Application::Best Application::best(const Shape& shape, int64_t epoch) const {
  const uint64_t key = shape_key(shape) << 10 ^ static_cast<uint64_t>(epoch);
  const auto known = known_best_.find(key);
  if (known != known_best_.end()) return known->second;
  Best out;
  for (const Tuning& tuning : grid(shape.total())) {
    const double own = rate(shape, tuning, epoch);
    if (own > out.rate) out = {tuning, own};
  }
  known_best_.emplace(key, out);
  return out;
}

Application::Best Application::best_fitted(const Shape& shape, const Profile& profile) const {
  Best out{split(static_cast<double>(std::max(least_batch(), least_local_ * shape.total())),
                 shape.total(), true),
           0};
  const GradientNoise noise{profile.gradient_square, profile.gradient_variance};
  for (const Tuning& tuning : grid(shape.total())) {
    const double batch = batch_of(tuning, shape.total());
    const double local = static_cast<double>(tuning.local);
    const double step = profile.fit.step_s(shape.nodes(), shape.total(), local) +
                        static_cast<double>(tuning.extra_passes) * profile.fit.pass_s(local);
    const double own = gain(noise, batch) / step;
    if (own > out.rate) out = {tuning, own};
  }
  return out;
}

Result<std::shared_ptr<const Application>> read_pollux_application(const std::string& traces,
                                                                   const std::string& name) {
  const bool is_yolo = name == "yolov3", is_ncf = name == "ncf";
  return Application::read(traces + "/" + name, name, is_yolo ? 8 : 0, is_ncf ? 1 : 0);
}

}  // namespace tessera::share
