#include "tessera/orchestrate/share/profile.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace tessera::share {
namespace {

constexpr double kSmall = 1e-8;
constexpr int kSteps = 160;  // of the descent in each start

// The parameters that are free, as numbers without bounds: logarithms of the positive ones.
class FitProblem {
 public:
  explicit FitProblem(const std::vector<ProfileRow>& rows) : rows_(rows) {
    std::set<int64_t> locals;
    double pass = 0;
    for (const ProfileRow& row : rows) {
      locals.insert(row.local);
      pass += (row.step_s - row.sync_s) / static_cast<double>(rows.size());
      is_inside_ |= row.nodes == 1 && row.gpus > 1;
      is_inside_wide_ |= row.nodes == 1 && row.gpus > 2;
      is_between_ |= row.nodes > 1;
      is_between_wide_ |= row.nodes > 1 && row.gpus > 2;
    }
    if (locals.size() == 1) held_compute_ = pass / 2;
  }

  using Point = std::array<double, 7>;
  static Point point(const StepFit& fit) {
    const auto log = [](double value) { return std::log(std::max(value, kSmall)); };
    return {log(fit.compute), log(fit.compute_slope), log(fit.between),     log(fit.between_slope),
            log(fit.inside),  log(fit.inside_slope),  std::log(fit.overlap)};
  }
  StepFit fit(const Point& at) const {
    const auto positive = [](double value) {
      return std::max(kSmall, std::exp(std::clamp(value, -30.0, 30.0)));
    };
    StepFit out{positive(at[0]),
                positive(at[1]),
                positive(at[2]),
                positive(at[3]),
                positive(at[4]),
                positive(at[5]),
                std::clamp(std::exp(at[6]), 1.0, 10.0)};
    if (held_compute_ > 0) out.compute = held_compute_;
    if (!is_inside_) out.inside = kSmall;
    if (!is_inside_wide_) out.inside_slope = kSmall;
    if (!is_between_) out.between = std::max(kSmall, 1.1 * out.inside);
    if (!is_between_wide_) out.between_slope = std::max(kSmall, 1.1 * out.inside_slope);
    return out;
  }
  double error(const Point& at) const {
    const StepFit tried = fit(at);
    double pass = 0, step = 0;
    for (const ProfileRow& row : rows_) {
      const double local = static_cast<double>(row.local);
      const double a = std::log(tried.pass_s(local) / std::max(row.step_s - row.sync_s, kSmall));
      const double b = std::log(tried.step_s(row.nodes, row.gpus, local) / row.step_s);
      pass += a * a;
      step += b * b;
    }
    const double count = static_cast<double>(rows_.size());
    const auto square = [](double value) { return value * value; };
    return std::sqrt(pass / count) + std::sqrt(step / count) + 1e-3 * square(tried.overlap - 1) +
           1e-2 * (square(tried.between_slope / tried.between) +
                   square(tried.inside_slope / tried.inside));
  }

 private:
  const std::vector<ProfileRow>& rows_;
  double held_compute_ = 0;
  bool is_inside_ = false, is_inside_wide_ = false, is_between_ = false, is_between_wide_ = false;
};

// Searches along the coordinates with steps that grow where they help and shrink where not.
FitProblem::Point descend(const FitProblem& problem, FitProblem::Point at) {
  double best = problem.error(at);
  FitProblem::Point step{0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.2};
  for (int i = 0; i < kSteps; ++i) {
    const size_t k = static_cast<size_t>(i) % at.size();
    bool is_better = false;
    for (const double sign : {1.0, -1.0}) {
      FitProblem::Point tried = at;
      tried[k] += sign * step[k];
      const double error = problem.error(tried);
      if (error >= best) continue;
      at = tried;
      best = error;
      is_better = true;
      break;
    }
    step[k] *= is_better ? 1.6 : 0.4;
  }
  return at;
}

}  // namespace

double StepFit::step_s(int nodes, int gpus, double local) const {
  const double wide = std::max(gpus - 2, 0);
  const double net = gpus == 1   ? kSmall
                     : nodes > 1 ? between + between_slope * wide
                                 : inside + inside_slope * wide;
  const double pass = pass_s(local);
  // The greater of the two outside of the root, so that powers stay in range.
  const double most = std::max(pass, net), least = std::min(pass, net);
  return most * std::pow(1 + std::pow(least / most, overlap), 1 / overlap);
}

StepFit fit_steps(const std::vector<ProfileRow>& rows, const StepFit& start) {
  const FitProblem problem(rows);
  const FitProblem::Point warm = descend(problem, FitProblem::point(start));
  const FitProblem::Point cold = descend(problem, FitProblem::point(StepFit()));
  return problem.fit(problem.error(warm) <= problem.error(cold) ? warm : cold);
}

void Profile::add(const ProfileRow& row) {
  most_gpus = std::max(most_gpus, row.gpus);
  const auto same = [&](const ProfileRow& other) {
    return other.nodes == row.nodes && other.gpus == row.gpus && other.local == row.local;
  };
  if (std::none_of(rows.begin(), rows.end(), same)) rows.push_back(row);
}

void Profile::refit() {
  if (fitted == rows.size()) return;
  fit = fit_steps(rows, fit);
  fitted = rows.size();
}

}  // namespace tessera::share
