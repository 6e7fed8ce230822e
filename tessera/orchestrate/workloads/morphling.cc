// Morphling's workloads: jobs that change their plan. The speed of a model is measured by plan and
// placement, in throughput/MODEL.csv beside the workload.
//
// With the batch rule kAsked a job runs the plan that its user asked for; where that was not measured
// on a placement, as fast as the mean of the model's plans on as many nodes and GPUs, linear between
// numbers of GPUs. On another number of GPUs than it asked for, and with kKnown, it runs the fastest
// measured plan that fits into its GPUs: some of them may stand idle.
//
// With predicted rows (ReadOptions::predicted) the plan is chosen by them, and runs as fast as its
// measured row says.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "tessera/orchestrate/workloads/columns.h"
#include "tessera/orchestrate/workloads/rated_job.h"
#include "tessera/orchestrate/workloads/workload.h"

namespace tessera::share {
namespace {

struct PlanRow {
  std::string plan;
  std::vector<int> gpus;  // by node, the most first
  double step_s = 0;
  StateBytes state;  // not known where the table has no columns of it
};

// Returns the mean of the values at a number of GPUs, linear between the numbers that there are.
double mean_at(const std::map<int, std::vector<double>>& values, int gpus) {
  const auto mean_of = [](const std::vector<double>& list) {
    double sum = 0;
    for (const double value : list) sum += value;
    return sum / static_cast<double>(list.size());
  };
  const auto above = values.lower_bound(gpus);
  if (above == values.end()) return mean_of(values.rbegin()->second);
  if (above->first == gpus || above == values.begin()) return mean_of(above->second);
  const auto below = std::prev(above);
  const double at = static_cast<double>(gpus - below->first) / (above->first - below->first);
  return mean_of(below->second) * (1 - at) + mean_of(above->second) * at;
}

class MeasuredPlans {
 public:
  static Result<std::shared_ptr<const MeasuredPlans>> read(const std::string& path) {
    TESSERA_TRY(const Columns file, Columns::read(path, {"exec_plan", "placement", "iter_time"}));
    auto out = std::make_shared<MeasuredPlans>();
    for (size_t row = 0; row < file.rows(); ++row) {
      PlanRow plan{file.text(row, "exec_plan"), {}, 0, {}};
      TESSERA_TRY(plan.gpus, file.digits(row, "placement"));
      TESSERA_TRY(plan.step_s, file.number(row, "iter_time", 1e-9));
      if (file.has("state_bytes") && file.has("gpu_state_bytes")) {
        TESSERA_TRY(plan.state.whole, file.number(row, "state_bytes", 0));
        TESSERA_TRY(plan.state.of_gpu, file.number(row, "gpu_state_bytes", 0));
      }
      std::sort(plan.gpus.rbegin(), plan.gpus.rend());
      const Shape shape{plan.gpus, 0};
      out->by_nodes_[shape.nodes()][shape.total()].push_back(plan.step_s);
      out->by_gpus_[shape.total()].push_back(plan.step_s);
      out->rows_.push_back(std::move(plan));
    }
    if (out->rows_.empty()) return invalid_input(path + ": expected at least one row, found none");
    return std::shared_ptr<const MeasuredPlans>(std::move(out));
  }

  int most_gpus() const { return by_gpus_.rbegin()->first; }
  int least_gpus() const { return by_gpus_.begin()->first; }

  // Returns the plan that is fastest of those that fit, and where it runs; null if none fits.
  const PlanRow* fastest_row(const Shape& shape) const {
    std::vector<int> gpus = shape.gpus;
    std::sort(gpus.rbegin(), gpus.rend());
    const PlanRow* out = nullptr;
    for (const PlanRow& row : rows_) {
      bool fits = row.gpus.size() <= gpus.size();
      for (size_t i = 0; i < row.gpus.size() && fits; ++i) fits = row.gpus[i] <= gpus[i];
      if (fits && (out == nullptr || row.step_s < out->step_s)) out = &row;
    }
    return out;
  }

  // Returns the row of a plan on a placement; null if there is none.
  const PlanRow* row_of(const std::string& plan, const Shape& shape) const {
    std::vector<int> gpus = shape.gpus;
    std::sort(gpus.rbegin(), gpus.rend());
    const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const PlanRow& row) {
      return row.plan == plan && row.gpus == gpus;
    });
    return found == rows_.end() ? nullptr : &*found;
  }

  // Returns the seconds of a step under a plan.
  double asked(const std::string& plan, const Shape& shape) const {
    if (const PlanRow* row = row_of(plan, shape)) return row->step_s;
    const auto nodes = by_nodes_.find(shape.nodes());
    const bool is_between = nodes != by_nodes_.end() &&
                            nodes->second.begin()->first <= shape.total() &&
                            shape.total() <= nodes->second.rbegin()->first;
    return mean_at(is_between ? nodes->second : by_gpus_, shape.total());
  }

  // Returns the seconds of a step under the fastest plan that fits. If none does, although the GPUs
  // would be enough on other nodes: the mean of the plans on as many GPUs. With too few GPUs: 0.
  double fastest(const Shape& shape) const {
    std::vector<int> gpus = shape.gpus;
    std::sort(gpus.rbegin(), gpus.rend());
    const auto known = fastest_.find(gpus);
    if (known != fastest_.end()) return known->second;
    const PlanRow* row = fastest_row(shape);
    double out = row == nullptr ? 0 : row->step_s;
    if (out == 0 && shape.total() >= least_gpus()) out = mean_at(by_gpus_, shape.total());
    fastest_.emplace(std::move(gpus), out);
    return out;
  }

 private:
  std::vector<PlanRow> rows_;
  std::map<int, std::map<int, std::vector<double>>> by_nodes_;
  std::map<int, std::vector<double>> by_gpus_;
  mutable std::map<std::vector<int>, double> fastest_;
};

// The speeds of a job. `chosen` holds the rows by which a plan is chosen; they may be others than those
// by which it then runs.
class PlannedSpeeds : public Speeds {
 public:
  PlannedSpeeds(std::shared_ptr<const MeasuredPlans> plans,
                std::shared_ptr<const MeasuredPlans> chosen, std::string plan, int gpus)
      : plans_(std::move(plans)), chosen_(std::move(chosen)), plan_(std::move(plan)), gpus_(gpus) {}
  double steps_per_s(const Shape& shape, BatchRule rule) const override {
    if (rule == BatchRule::kAsked && shape.total() == gpus_) return 1 / plans_->asked(plan_, shape);
    if (chosen_ != plans_) {
      const PlanRow* row = chosen_->fastest_row(shape);
      if (row != nullptr) return 1 / plans_->asked(row->plan, {row->gpus, shape.type});
    }
    const double step = plans_->fastest(shape);
    return step > 0 ? 1 / step : 0;
  }
  StateBytes state_bytes(const Shape& shape, BatchRule rule) const override {
    const bool is_asked = rule == BatchRule::kAsked && shape.total() == gpus_;
    const PlanRow* row = is_asked ? plans_->row_of(plan_, shape) : chosen_->fastest_row(shape);
    return row == nullptr ? StateBytes() : row->state;
  }
  int most_gpus(BatchRule rule) const override {
    return std::max(rule == BatchRule::kAsked ? gpus_ : 0, plans_->most_gpus());
  }
  int least_gpus() const override { return plans_->least_gpus(); }

 private:
  std::shared_ptr<const MeasuredPlans> plans_, chosen_;
  std::string plan_;
  int gpus_;
};

// The rows of each application of a folder, read once.
class Tables {
 public:
  explicit Tables(std::string folder) : folder_(std::move(folder)) {}
  // Returns the rows of an application. `where`: the cell that names it.
  Result<std::shared_ptr<const MeasuredPlans>> of(const std::string& application,
                                                  const std::string& where) {
    auto& plans = known_[application];
    if (plans) return plans;
    const std::string table = folder_ + "/" + application + ".csv";
    if (!std::filesystem::exists(table)) {
      return invalid_input(fmt::format("{}: expected an application with a file in {}, found '{}'",
                                       where, folder_, application));
    }
    TESSERA_TRY(plans, MeasuredPlans::read(table));
    return plans;
  }

 private:
  std::string folder_;
  std::map<std::string, std::shared_ptr<const MeasuredPlans>> known_;
};

}  // namespace

Result<Workload> read_morphling(const std::string& path, const ReadOptions& options) {
  TESSERA_TRY(const Columns file, Columns::read(path, {"name", "submission_time", "application",
                                                       "num_gpus", "exec_plan", "steps"}));
  const std::string folder =
      options.traces.empty() ? (std::filesystem::path(path).parent_path() / "throughput").string()
                             : options.traces;
  Workload out;
  out.switch_s = 260;
  Tables tables(folder), predicted(options.predicted);
  for (size_t row = 0; row < file.rows(); ++row) {
    JobSpec job;
    job.name = file.text(row, "name");
    job.application = file.text(row, "application");
    TESSERA_TRY(job.submit_s, file.number(row, "submission_time", 0));
    TESSERA_TRY(const int64_t gpus, file.whole(row, "num_gpus", 1));
    TESSERA_TRY(const double steps, file.number(row, "steps", 1));
    const std::string where = file.where(row, "application");
    TESSERA_TRY(const auto plans, tables.of(job.application, where));
    auto chosen = plans;
    if (!options.predicted.empty()) {
      TESSERA_TRY(chosen, predicted.of(job.application, where));
    }
    job.gpus = static_cast<int>(std::min<int64_t>(gpus, 1'000'000));
    job.model = rated_job(
        std::make_shared<PlannedSpeeds>(plans, chosen, file.text(row, "exec_plan"), job.gpus),
        steps);
    out.jobs.push_back(std::move(job));
  }
  out.left_out.push_back("processors and bandwidth that jobs ask for: the measured rows hold none");
  return out;
}

}  // namespace tessera::share
