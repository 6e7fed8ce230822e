#include "tessera/search/published/opfence.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "tessera/base/check.h"
#include "tessera/search/infinity.h"
#include "tessera/search/published/open_path.h"
#include "tessera/search/published/pareto.h"

namespace tessera::published {
namespace {

double sum_of(const std::vector<double>& values, size_t first, size_t last) {
  double sum = 0;
  for (size_t i = first; i < last; ++i) sum += values[i];
  return sum;
}

bool fits(const FenceProblem& problem, size_t device, size_t first, size_t last) {
  return sum_of(problem.memory, first, last) <= problem.capacity[device] * (1 + 1e-12);
}

double compute_seconds(const FenceProblem& problem, size_t device, size_t first, size_t last) {
  return sum_of(problem.work, first, last) / problem.speed[device];
}

// Returns the seconds of the messages after `op` from device p to device q, if they have this share
// of the dense bytes.
double border_seconds(const FenceProblem& problem, size_t p, size_t q, size_t op, double share) {
  return problem.messages * (problem.latency_seconds[p][q] +
                             problem.bytes[op] * share / problem.bytes_per_second[p][q]);
}

double share_of(const FenceProblem& problem, double dense, double slowest) {
  if (problem.ratio <= 0 || slowest <= 0) return 1;
  return compressed_share(std::max(1.0, problem.phi * problem.ratio * dense / slowest),
                          problem.phi);
}

}  // namespace

double compressed_share(double k, double phi) { return k > phi ? phi / k : 1; }

std::vector<double> top_k_ratios(const std::vector<double>& times, double ratio, double phi) {
  const double slowest = times.empty() ? 0 : *std::max_element(times.begin(), times.end());
  std::vector<double> out;
  for (const double time : times) {
    out.push_back(slowest > 0 ? std::max(1.0, phi * ratio * time / slowest) : 1);
  }
  return out;
}

FencePlan fence_plan(const FenceProblem& problem, std::vector<size_t> devices,
                     std::vector<size_t> ends) {
  FencePlan plan;
  std::vector<double> dense;
  for (size_t i = 0; i + 1 < devices.size(); ++i) {
    dense.push_back(border_seconds(problem, devices[i], devices[i + 1], ends[i] - 1, 1));
  }
  plan.ratios = problem.ratio > 0 ? top_k_ratios(dense, problem.ratio, problem.phi)
                                  : std::vector<double>(dense.size(), 1);
  double largest = 0;
  size_t first = 0;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!fits(problem, devices[i], first, ends[i])) plan.seconds = kInfinity;
    const double compute = compute_seconds(problem, devices[i], first, ends[i]);
    double message = 0;
    if (i + 1 < devices.size()) {
      message = border_seconds(problem, devices[i], devices[i + 1], ends[i] - 1,
                               compressed_share(plan.ratios[i], problem.phi));
    }
    plan.seconds += compute + message;
    largest = std::max({largest, compute, message});
    first = ends[i];
  }
  plan.seconds += static_cast<double>(problem.micro_batches - 1) * largest;
  plan.devices = std::move(devices);
  plan.ends = std::move(ends);
  return plan;
}

double modularity(const Matrix& weights, const std::vector<size_t>& communities) {
  const size_t count = weights.size();
  std::vector<double> degree(count, 0);
  double twice = 0;
  for (size_t p = 0; p < count; ++p) {
    for (size_t q = 0; q < count; ++q) degree[p] += p == q ? 0 : weights[p][q];
    twice += degree[p];
  }
  double sum = 0;
  for (size_t p = 0; p < count; ++p) {
    for (size_t q = 0; q < count; ++q) {
      if (communities[p] != communities[q]) continue;
      sum += (p == q ? 0 : weights[p][q]) - degree[p] * degree[q] / twice;
    }
  }
  return twice > 0 ? sum / twice : 0;
}

std::vector<size_t> louvain(const Matrix& weights) {
  const size_t count = weights.size();
  std::vector<size_t> community(count);
  std::iota(community.begin(), community.end(), size_t{0});
  // Devices of one unit move together. At first each device is a unit, then each community found
  // so far.
  std::vector<size_t> unit = community;
  while (true) {
    bool any = false;
    for (bool moved = true; moved;) {
      moved = false;
      for (const size_t u : std::set<size_t>(unit.begin(), unit.end())) {
        std::vector<size_t> best = community;
        double gain = modularity(weights, community);
        for (const size_t to : std::set<size_t>(community.begin(), community.end())) {
          std::vector<size_t> tried = community;
          for (size_t p = 0; p < count; ++p) {
            if (unit[p] == u) tried[p] = to;
          }
          const double value = modularity(weights, tried);
          if (value > gain + 1e-12) {
            gain = value;
            best = tried;
            moved = true;
          }
        }
        community = best;
      }
      any = any || moved;
    }
    if (!any) break;
    unit = community;
  }
  std::vector<size_t> out(count);
  for (size_t p = 0; p < count; ++p) {
    out[p] = static_cast<size_t>(std::find(community.begin(), community.end(), community[p]) -
                                 community.begin());
  }
  return out;
}

namespace {

// Cuts the ops first .. last - 1 among these devices, in their order, so that the slowest device is
// as fast as possible. A device may get no ops. Returns the end by device; none if the ops do not
// fit the devices' memory.
std::vector<size_t> split_evenly(const FenceProblem& problem, const std::vector<size_t>& devices,
                                 size_t first, size_t last) {
  const size_t ops = last - first;
  std::vector<std::vector<double>> best(devices.size() + 1,
                                        std::vector<double>(ops + 1, kInfinity));
  std::vector<std::vector<size_t>> before(devices.size() + 1, std::vector<size_t>(ops + 1, 0));
  best[0][0] = 0;
  for (size_t d = 1; d <= devices.size(); ++d) {
    for (size_t end = 0; end <= ops; ++end) {
      for (size_t start = 0; start <= end; ++start) {
        const size_t device = devices[d - 1];
        if (!fits(problem, device, first + start, first + end)) continue;
        const double value = std::max(best[d - 1][start],
                                      compute_seconds(problem, device, first + start, first + end));
        if (value < best[d][end]) {
          best[d][end] = value;
          before[d][end] = start;
        }
      }
    }
  }
  if (best[devices.size()][ops] == kInfinity) return {};
  std::vector<size_t> ends;
  size_t end = ops;
  for (size_t d = devices.size(); d > 0; --d) {
    ends.insert(ends.begin(), first + end);
    end = before[d][end];
  }
  return ends;
}

// Returns the plan without devices that have no ops.
FencePlan without_idle(const FenceProblem& problem, const std::vector<size_t>& devices,
                       const std::vector<size_t>& ends) {
  std::vector<size_t> used;
  std::vector<size_t> used_ends;
  size_t first = 0;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (ends[i] > first) {
      used.push_back(devices[i]);
      used_ends.push_back(ends[i]);
    }
    first = ends[i];
  }
  return fence_plan(problem, std::move(used), std::move(used_ends));
}

Matrix negated(const Matrix& bandwidth, const std::vector<std::vector<size_t>>& groups) {
  Matrix out(groups.size(), std::vector<double>(groups.size(), 0));
  for (size_t a = 0; a < groups.size(); ++a) {
    for (size_t b = 0; b < groups.size(); ++b) {
      double best = 0;
      for (const size_t p : groups[a]) {
        for (const size_t q : groups[b]) {
          if (p != q) best = std::max(best, bandwidth[p][q]);
        }
      }
      out[a][b] = -best;
    }
  }
  return out;
}

// Returns the communities in the order of the best path over them, each with its devices in the
// order of the best path over these.
std::vector<std::vector<size_t>> ordered_communities(const FenceProblem& problem) {
  const std::vector<size_t> community = louvain(problem.bytes_per_second);
  std::vector<std::vector<size_t>> groups;
  for (size_t p = 0; p < community.size(); ++p) {
    if (community[p] == p) groups.emplace_back();
  }
  std::vector<size_t> number(community.size(), 0);
  size_t next = 0;
  for (size_t p = 0; p < community.size(); ++p) {
    if (community[p] == p) number[p] = next++;
    groups[number[community[p]]].push_back(p);
  }
  std::vector<std::vector<size_t>> out;
  constexpr size_t kExactCommunities = 12;
  for (const size_t g :
       best_open_path(negated(problem.bytes_per_second, groups), false, kExactCommunities).nodes) {
    std::vector<std::vector<size_t>> singles;
    for (const size_t p : groups[g]) singles.push_back({p});
    auto& devices = out.emplace_back();
    for (const size_t i : best_open_path(negated(problem.bytes_per_second, singles), true).nodes) {
      devices.push_back(groups[g][i]);
    }
  }
  return out;
}

// Returns the fences, which are the cuts between communities: where the fewest bytes pass, near the
// shares of work that follow from the communities' speeds.
std::vector<size_t> fences(const FenceProblem& problem,
                           const std::vector<std::vector<size_t>>& communities) {
  constexpr double kWindow = 0.1;
  const size_t ops = problem.work.size();
  const double work = sum_of(problem.work, 0, ops);
  const double speed = sum_of(problem.speed, 0, problem.speed.size());
  std::vector<size_t> out;
  double target = 0;
  for (const auto& devices : communities) {
    for (const size_t p : devices) target += problem.speed[p] / speed * work;
    if (out.size() + 1 == communities.size()) break;
    size_t best = 0;
    double nearest = kInfinity;
    double done = 0;
    bool inside = false;
    for (size_t end = 1; end < ops; ++end) {
      done += problem.work[end - 1];
      const double distance = std::abs(done - target);
      const bool near = distance <= kWindow * work * (1 + 1e-12);
      const bool better = near != inside ? near
                          : near         ? problem.bytes[end - 1] < problem.bytes[best - 1]
                                         : distance < nearest;
      if (best == 0 || better) {
        best = end;
        nearest = distance;
        inside = near;
      }
    }
    out.push_back(std::max(best, out.empty() ? 0 : out.back()));
  }
  out.push_back(ops);
  return out;
}

std::optional<FencePlan> first_plan(const FenceProblem& problem) {
  const auto communities = ordered_communities(problem);
  const std::vector<size_t> cuts = fences(problem, communities);
  std::vector<size_t> devices;
  std::vector<size_t> ends;
  bool fit = true;
  size_t first = 0;
  for (size_t g = 0; g < communities.size(); ++g) {
    devices.insert(devices.end(), communities[g].begin(), communities[g].end());
    const auto own = split_evenly(problem, communities[g], first, cuts[g]);
    fit = fit && !own.empty();
    ends.insert(ends.end(), own.begin(), own.end());
    first = cuts[g];
  }
  // If a community cannot hold its share, cuts the chain over all devices without fences.
  if (!fit) ends = split_evenly(problem, devices, 0, problem.work.size());
  if (ends.empty()) return std::nullopt;
  return without_idle(problem, devices, ends);
}

// Returns all plans that differ from `plan` in one op moved over a border, in two swapped devices
// (one may be unused), or in a device whose ops go to a neighbour.
std::vector<FencePlan> neighbours_of(const FenceProblem& problem, const FencePlan& plan) {
  std::vector<FencePlan> out;
  const auto add = [&](const std::vector<size_t>& devices, const std::vector<size_t>& ends) {
    out.push_back(without_idle(problem, devices, ends));
  };
  for (size_t i = 0; i + 1 < plan.ends.size(); ++i) {
    for (const int step : {-1, 1}) {
      std::vector<size_t> ends = plan.ends;
      ends[i] += static_cast<size_t>(step);
      const size_t before = i == 0 ? 0 : ends[i - 1];
      if (ends[i] >= before && ends[i] <= ends[i + 1]) add(plan.devices, ends);
    }
  }
  for (size_t i = 0; i < plan.devices.size(); ++i) {
    for (size_t q = 0; q < problem.speed.size(); ++q) {
      std::vector<size_t> devices = plan.devices;
      const auto other = std::find(devices.begin(), devices.end(), q);
      if (other != devices.end()) *other = devices[i];
      if (devices[i] == q) continue;
      devices[i] = q;
      add(devices, plan.ends);
    }
    if (plan.devices.size() == 1) continue;
    for (const bool to_next : {false, true}) {
      if (to_next ? i + 1 == plan.devices.size() : i == 0) continue;
      std::vector<size_t> devices = plan.devices;
      std::vector<size_t> ends = plan.ends;
      devices.erase(devices.begin() + static_cast<std::ptrdiff_t>(i));
      ends.erase(ends.begin() + static_cast<std::ptrdiff_t>(to_next ? i : i - 1));
      add(devices, ends);
    }
  }
  return out;
}

}  // namespace

std::optional<FencePlan> op_fence(const FenceProblem& problem) {
  std::optional<FencePlan> plan = first_plan(problem);
  if (!plan) return std::nullopt;
  while (true) {
    std::optional<FencePlan> better;
    for (FencePlan& tried : neighbours_of(problem, *plan)) {
      const double known = better ? better->seconds : plan->seconds * (1 - 1e-12);
      if (tried.seconds < known) better = std::move(tried);
    }
    if (!better) return plan;
    plan = std::move(better);
  }
}

namespace {

struct Back {
  size_t state = 0;  // the state before
  size_t point = 0;
};
using FenceFront = ParetoFront<Back>;

class ExactFence {
 public:
  explicit ExactFence(const FenceProblem& problem)
      : problem_(problem),
        ops_(problem.work.size()),
        count_(problem.speed.size()),
        later_(static_cast<double>(problem.micro_batches - 1)),
        work_after_(ops_ + 1, 0) {
    TESSERA_CHECK(count_ <= kExactFenceDevices && ops_ <= kExactFenceOps, "{} devices, {} ops",
                  count_, ops_);
  }

  std::optional<FencePlan> solve() {
    if (const auto known = op_fence(problem_)) most_ = known->seconds * (1 + 2 * kEqual);
    for (size_t op = ops_; op-- > 0;) work_after_[op] = work_after_[op + 1] + problem_.work[op];
    if (problem_.ratio <= 0) {
      search(kInfinity);
    } else {
      std::set<double> slowest;
      for (size_t p = 0; p < count_; ++p) {
        for (size_t q = 0; q < count_; ++q) {
          for (size_t op = 0; p != q && op + 1 < ops_; ++op) {
            slowest.insert(border_seconds(problem_, p, q, op, 1));
          }
        }
      }
      // Runs the search for each value that the slowest message may have. A plan whose slowest
      // message is faster than assumed looks slower than it is, so the least result is right.
      search(0);
      for (const double value : slowest) search(value);
    }
    while (best_ && rename_devices()) {
    }
    return best_;
  }

 private:
  size_t state(size_t set, size_t done, size_t last) const {
    return (set * (ops_ + 1) + done) * count_ + last;
  }

  void search(double slowest) {
    const size_t sets = size_t{1} << count_;
    std::vector<FenceFront> fronts(sets * (ops_ + 1) * count_);
    for (size_t set = 1; set < sets; ++set) {
      for (size_t last = 0; last < count_; ++last) {
        if ((set >> last & 1) == 0) continue;
        const size_t rest = set & ~(size_t{1} << last);
        if (rest == 0) {
          for (size_t end = 1; end <= ops_; ++end) place(fronts, 0, end, set, last, 0, {});
          continue;
        }
        for (size_t start = 1; start < ops_; ++start) {
          for (size_t p = 0; p < count_; ++p) {
            if ((rest >> p & 1) != 0) extend(fronts, rest, start, p, last, slowest);
          }
        }
      }
    }
    for (size_t set = 1; set < sets; ++set) {
      for (size_t last = 0; last < count_; ++last) take_best(fronts, state(set, ops_, last));
    }
  }

  void extend(std::vector<FenceFront>& fronts, size_t rest, size_t start, size_t p, size_t last,
              double slowest) const {
    const size_t from = state(rest, start, p);
    if (fronts[from].points().empty()) return;
    const double dense = border_seconds(problem_, p, last, start - 1, 1);
    if (dense > slowest) return;
    const double message =
        border_seconds(problem_, p, last, start - 1, share_of(problem_, dense, slowest));
    for (size_t end = start + 1; end <= ops_; ++end) {
      if (!place(fronts, start, end, rest | size_t{1} << last, last, message, from)) return;
    }
  }

  // Places ops start .. end - 1 on device `last`; returns false if they do not fit.
  bool place(std::vector<FenceFront>& fronts, size_t start, size_t end, size_t set, size_t last,
             double message, size_t from) const {
    if (!fits(problem_, last, start, end)) return false;
    const double compute = compute_seconds(problem_, last, start, end);
    FenceFront& to = fronts[state(set, end, last)];
    // Bounds below the time of the remaining devices for the remaining ops: their sum, and
    // the slowest.
    double fastest = 0;
    double together = 0;
    for (size_t p = 0; p < count_; ++p) {
      if ((set >> p & 1) != 0) continue;
      fastest = std::max(fastest, problem_.speed[p]);
      together += problem_.speed[p];
    }
    if (end < ops_ && together <= 0) return true;
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
    for (size_t a = 0; a < count_; ++a) {
      for (size_t b = a + 1; b < count_; ++b) {
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
      for (size_t s = at, point = i;;) {
        devices.insert(devices.begin(), s % count_);
        ends.insert(ends.begin(), s / count_ % (ops_ + 1));
        if (const size_t set = s / count_ / (ops_ + 1); (set & (set - 1)) == 0) break;
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
  size_t ops_, count_;
  double later_;
  std::vector<double> work_after_;  // work of all ops from each op on
  static constexpr double kEqual = 1e-12;
  std::optional<FencePlan> best_;
  double most_ = kInfinity;  // seconds of a plan that may still be the answer
};

}  // namespace

std::optional<FencePlan> exact_fence(const FenceProblem& problem) {
  return ExactFence(problem).solve();
}

}  // namespace tessera::published
