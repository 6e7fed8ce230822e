// The optimum of OP-Fence's problem.
#include <cmath>
#include <set>
#include <utility>

#include "tessera/base/infinity.h"
#include "tessera/planners/published/fence_parts.h"
#include "tessera/planners/published/pareto.h"

namespace tessera::published {
namespace {

struct Back {
  size_t state = 0;  // the state before
  size_t point = 0;
};
using FenceFront = ParetoFront<Back>;

// Searches over how many devices of each class are used. A set is a number whose digit of each
// class, in a base of its own, says how many.
class ExactFence {
 public:
  explicit ExactFence(const FenceProblem& problem)
      : problem_(problem),
        ops_(problem.work.size()),
        devices_(problem.speed.size()),
        later_(static_cast<double>(problem.micro_batches - 1)),
        work_after_(ops_ + 1, 0) {
    members_ = fence::classes_of(problem);
    count_ = members_.size();
    for (const auto& members : members_) {
      strides_.push_back(sets_);
      sets_ *= members.size() + 1;
    }
  }

  double steps() const {
    constexpr double kMostStates = 6e6;
    double states = static_cast<double>(count_ * (ops_ + 1));
    for (const auto& members : members_) states *= static_cast<double>(members.size() + 1);
    if (states > kMostStates) return kInfinity;
    const double searches =
        problem_.ratio > 0 ? static_cast<double>(fence::slowest_values(problem_).size()) + 1 : 1;
    return searches * static_cast<double>(sets_) * static_cast<double>(count_ * count_) *
           static_cast<double>(ops_ * ops_) / 2;
  }

  std::optional<FencePlan> solve() {
    if (const auto known = op_fence(problem_)) most_ = known->seconds * (1 + 2 * kEqual);
    for (size_t op = ops_; op-- > 0;) work_after_[op] = work_after_[op + 1] + problem_.work[op];
    if (problem_.ratio <= 0) {
      search(kInfinity);
    } else {
      // Runs the search for each value that the slowest message may have. A plan whose slowest
      // message is faster than assumed looks slower than it is, so the least result is right.
      search(0);
      for (const double value : fence::slowest_values(problem_)) search(value);
    }
    while (best_ && rename_devices()) {
    }
    return best_;
  }

 private:
  size_t state(size_t set, size_t done, size_t last) const {
    return (set * (ops_ + 1) + done) * count_ + last;
  }
  size_t used(size_t set, size_t of_class) const {
    return set / strides_[of_class] % (members_[of_class].size() + 1);
  }
  // Returns two devices of these classes; of one class two different ones.
  std::pair<size_t, size_t> devices_of(size_t a, size_t b) const {
    return {members_[a].front(), a == b ? members_[b][1] : members_[b].front()};
  }

  void search(double slowest) {
    std::vector<FenceFront> fronts(sets_ * (ops_ + 1) * count_);
    for (size_t set = 1; set < sets_; ++set) {
      for (size_t last = 0; last < count_; ++last) {
        if (used(set, last) == 0) continue;
        const size_t rest = set - strides_[last];
        if (rest == 0) {
          for (size_t end = 1; end <= ops_; ++end) place(fronts, 0, end, set, last, 0, {});
          continue;
        }
        for (size_t p = 0; p < count_; ++p) {
          if (used(rest, p) == 0) continue;
          for (size_t start = 1; start < ops_; ++start)
            extend(fronts, rest, start, p, last, slowest);
        }
      }
    }
    for (size_t set = 1; set < sets_; ++set) {
      for (size_t last = 0; last < count_; ++last) take_best(fronts, state(set, ops_, last));
    }
  }

  void extend(std::vector<FenceFront>& fronts, size_t rest, size_t start, size_t p, size_t last,
              double slowest) const {
    const size_t from = state(rest, start, p);
    if (fronts[from].points().empty()) return;
    const auto [one, other] = devices_of(p, last);
    const double dense = fence::border_seconds(problem_, one, other, start - 1, 1);
    if (dense > slowest) return;
    const double message = fence::border_seconds(problem_, one, other, start - 1,
                                                 fence::share_of(problem_, dense, slowest));
    for (size_t end = start + 1; end <= ops_; ++end) {
      if (!place(fronts, start, end, rest + strides_[last], last, message, from)) return;
    }
  }

  // Places ops start .. end - 1 on a device of the class `last`; returns false if they do not fit.
  bool place(std::vector<FenceFront>& fronts, size_t start, size_t end, size_t set, size_t last,
             double message, size_t from) const {
    const size_t device = members_[last].front();
    if (!fence::fits(problem_, device, start, end)) return false;
    const double compute = fence::compute_seconds(problem_, device, start, end);
    FenceFront& to = fronts[state(set, end, last)];
    // Bounds below the time of the remaining devices for the remaining ops: their sum, and
    // the slowest.
    double fastest = 0;
    double together = 0;
    size_t devices = 0;
    for (size_t c = 0; c < count_; ++c) {
      devices += used(set, c);
      const size_t left = members_[c].size() - used(set, c);
      if (left == 0) continue;
      const double speed = problem_.speed[members_[c].front()];
      fastest = std::max(fastest, speed);
      together += speed * static_cast<double>(left);
    }
    if ((end < ops_ && together <= 0) || !fence::may_end(problem_, devices, end)) return true;
    const double rest = end < ops_ ? work_after_[end] / fastest : 0;
    const double slowest = end < ops_ ? work_after_[end] / together : 0;
    const auto add = [&](double largest, double sum, size_t point) {
      const FenceFront::Point next{
          std::max({largest, compute, message}), sum + compute + message, {from, point}};
      if (next.sum + rest + later_ * std::max(next.largest, slowest) <= most_) to.add(next);
    };
    if (start == 0) {
      add(0, 0, 0);
    } else {
      const auto& points = fronts[from].points();
      for (size_t i = 0; i < points.size(); ++i) add(points[i].largest, points[i].sum, i);
    }
    return true;
  }

  // Exchanges two devices if the plan is as fast after that and its order of devices is lower.
  // Returns false if there are no such devices. This makes the answer unique, because fronts keep
  // whichever of several equal points came first.
  bool rename_devices() {
    for (size_t a = 0; a < devices_; ++a) {
      for (size_t b = a + 1; b < devices_; ++b) {
        std::vector<size_t> devices = best_->devices;
        for (size_t& device : devices) device = device == a ? b : device == b ? a : device;
        if (devices >= best_->devices) continue;
        FencePlan plan = fence_plan(problem_, std::move(devices), best_->ends);
        if (plan.seconds > best_->seconds * (1 + kEqual)) continue;
        best_ = std::move(plan);
        return true;
      }
    }
    return false;
  }

  void take_best(const std::vector<FenceFront>& fronts, size_t at) {
    const auto& points = fronts[at].points();
    for (size_t i = 0; i < points.size(); ++i) {
      if (points[i].sum + later_ * points[i].largest > most_) continue;
      std::vector<size_t> devices;
      std::vector<size_t> ends;
      std::vector<size_t> taken(count_);
      for (size_t s = at, point = i;;) {
        const size_t own = s % count_;
        devices.insert(devices.begin(), members_[own][taken[own]++]);
        ends.insert(ends.begin(), s / count_ % (ops_ + 1));
        if (s / count_ / (ops_ + 1) == strides_[own]) break;
        const Back& back = fronts[s].points()[point].back;
        s = back.state;
        point = back.point;
      }
      FencePlan plan = fence_plan(problem_, std::move(devices), std::move(ends));
      // Among plans that take equally long up to rounding, the plan with the lowest devices wins,
      // then with the lowest cuts.
      const bool equal = best_ && std::abs(plan.seconds / best_->seconds - 1) <= kEqual;
      const bool earlier =
          equal && std::pair(plan.devices, plan.ends) < std::pair(best_->devices, best_->ends);
      if (!best_ || earlier || (!equal && plan.seconds < best_->seconds)) {
        most_ = plan.seconds * (1 + 2 * kEqual);
        best_ = std::move(plan);
      }
    }
  }

  const FenceProblem& problem_;
  size_t ops_, devices_;
  std::vector<std::vector<size_t>> members_;  // devices of each class
  size_t count_ = 0;                          // classes
  std::vector<size_t> strides_;               // by class: the set of one device of it
  size_t sets_ = 1;
  double later_;
  std::vector<double> work_after_;  // work of all ops from each op on
  static constexpr double kEqual = 1e-12;
  std::optional<FencePlan> best_;
  double most_ = kInfinity;  // seconds of a plan that may still be the answer
};

}  // namespace

double exact_fence_steps(const FenceProblem& problem) { return ExactFence(problem).steps(); }

std::optional<FencePlan> exact_fence(const FenceProblem& problem) {
  return ExactFence(problem).solve();
}

}  // namespace tessera::published
