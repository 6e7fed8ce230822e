#include "tessera/planners/published/opfence.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "tessera/base/infinity.h"
#include "tessera/planners/published/fence_parts.h"
#include "tessera/planners/published/open_path.h"
#include "tessera/planners/published/pareto.h"

namespace tessera::published {

double compressed_share(double k, double phi) { return k > phi ? phi / k : 1; }

double compressed_share(const FenceProblem& problem, double k) {
  if (k <= dense_up_to(problem)) return 1;
  const double by_indices = compressed_share(k, problem.phi);
  if (problem.bitmap_share <= 0) return by_indices;
  return std::min(by_indices, problem.value_share / k + problem.bitmap_share);
}

double dense_up_to(const FenceProblem& problem) {
  if (problem.bitmap_share <= 0) return problem.phi;
  return std::min(problem.phi, problem.value_share / (1 - problem.bitmap_share));
}

std::vector<double> top_k_ratios(const std::vector<double>& times, double ratio, double phi) {
  const double slowest = times.empty() ? 0 : *std::max_element(times.begin(), times.end());
  std::vector<double> out;
  for (const double time : times) {
    out.push_back(slowest > 0 ? std::max(1.0, phi * ratio * time / slowest) : 1);
  }
  return out;
}

namespace {

// Sets the seconds of a plan by equation (1), for its ratios.
FencePlan repriced(const FenceProblem& problem, FencePlan plan) {
  plan.seconds = problem.stages == 0 || problem.stages == plan.devices.size() ? 0 : kInfinity;
  double largest = 0;
  size_t first = 0;
  for (size_t i = 0; i < plan.devices.size(); ++i) {
    const size_t device = plan.devices[i], end = plan.ends[i];
    if (!fence::fits(problem, device, first, end)) plan.seconds = kInfinity;
    const double compute = fence::compute_seconds(problem, device, first, end);
    double message = 0;
    if (i + 1 < plan.devices.size()) {
      message = fence::border_seconds(problem, device, plan.devices[i + 1], end - 1,
                                      compressed_share(problem, plan.ratios[i]));
    }
    plan.seconds += compute + message;
    largest = std::max({largest, compute, message});
    first = end;
  }
  plan.seconds += static_cast<double>(problem.micro_batches - 1) * largest;
  return plan;
}

}  // namespace

FencePlan fence_plan(const FenceProblem& problem, std::vector<size_t> devices,
                     std::vector<size_t> ends) {
  FencePlan plan;
  std::vector<double> dense;
  for (size_t i = 0; i + 1 < devices.size(); ++i) {
    dense.push_back(fence::border_seconds(problem, devices[i], devices[i + 1], ends[i] - 1, 1));
  }
  plan.ratios = problem.ratio > 0 ? top_k_ratios(dense, problem.ratio, problem.phi)
                                  : std::vector<double>(dense.size(), 1);
  plan.devices = std::move(devices);
  plan.ends = std::move(ends);
  return repriced(problem, std::move(plan));
}

FencePlan with_hidden_ratios(const FenceProblem& problem, const FencePlan& plan) {
  FencePlan out = plan;
  double slowest = 0;
  size_t first = 0;
  for (size_t i = 0; i < plan.devices.size(); ++i) {
    slowest =
        std::max(slowest, fence::compute_seconds(problem, plan.devices[i], first, plan.ends[i]));
    first = plan.ends[i];
  }
  for (size_t i = 0; i + 1 < plan.devices.size(); ++i) {
    const size_t p = plan.devices[i], q = plan.devices[i + 1], op = plan.ends[i] - 1;
    const double latency = problem.messages * problem.latency_seconds[p][q];
    const double dense = fence::border_seconds(problem, p, q, op, 1);
    if (dense <= slowest) {
      out.ratios[i] = 1;
    } else if (latency < slowest) {
      const double share = (slowest - latency) / (dense - latency);
      double needed = problem.phi / share;
      if (problem.bitmap_share > 0 && share > problem.bitmap_share)
        needed = std::min(needed, problem.value_share / (share - problem.bitmap_share));
      out.ratios[i] = std::min(out.ratios[i], needed);
    }
  }
  return repriced(problem, std::move(out));
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
        if (!fence::fits(problem, device, first + start, first + end)) continue;
        const double value =
            std::max(best[d - 1][start],
                     fence::compute_seconds(problem, device, first + start, first + end));
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
  const double work = fence::sum_of(problem.work, 0, ops);
  const double speed = fence::sum_of(problem.speed, 0, problem.speed.size());
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

std::optional<FencePlan> first_plan(const FenceProblem& problem,
                                    const std::vector<std::vector<size_t>>& communities) {
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
// (one may be unused), or in a device whose ops go to a neighbour. Only one of several unused devices
// of a class is tried, and no swap within a class.
std::vector<FencePlan> neighbours_of(const FenceProblem& problem,
                                     const std::vector<std::vector<size_t>>& classes,
                                     const FencePlan& plan) {
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
    for (const std::vector<size_t>& members : classes) {
      if (std::find(members.begin(), members.end(), plan.devices[i]) != members.end()) continue;
      bool has_unused = false;
      for (const size_t q : members) {
        std::vector<size_t> devices = plan.devices;
        const auto other = std::find(devices.begin(), devices.end(), q);
        if (other == devices.end() && std::exchange(has_unused, true)) continue;
        if (other != devices.end()) *other = devices[i];
        devices[i] = q;
        add(devices, plan.ends);
      }
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

namespace {

// How a point of the program over cuts was reached: the place in the order of the device before,
// the end of its ops, and the point of its front.
struct CutBack {
  size_t place = 0, end = 0, point = 0;
};
using CutFront = ParetoFront<CutBack>;

// Returns the fastest plan whose devices are some of `order`, in that order, if no message takes
// longer than `slowest` dense and all are compressed as if one took that long.
std::optional<FencePlan> best_cuts(const FenceProblem& problem, const std::vector<size_t>& order,
                                   double slowest) {
  const size_t ops = problem.work.size();
  const auto later = static_cast<double>(problem.micro_batches - 1);
  std::vector<std::vector<CutFront>> fronts(order.size(), std::vector<CutFront>(ops + 1));
  for (size_t i = 0; i < order.size(); ++i) {
    const auto place = [&](size_t start, const CutFront::Point& before, double message) {
      for (size_t end = start + 1; end <= ops; ++end) {
        if (!fence::fits(problem, order[i], start, end)) return;
        const double compute = fence::compute_seconds(problem, order[i], start, end);
        fronts[i][end].add({std::max({before.largest, compute, message}),
                            before.sum + compute + message, before.back});
      }
    };
    place(0, {0, 0, {i, 0, 0}}, 0);
    for (size_t j = 0; j < i; ++j) {
      for (size_t start = 1; start < ops; ++start) {
        const auto& points = fronts[j][start].points();
        if (points.empty()) continue;
        const double dense = fence::border_seconds(problem, order[j], order[i], start - 1, 1);
        if (dense > slowest) continue;
        const double message = fence::border_seconds(problem, order[j], order[i], start - 1,
                                                     fence::share_of(problem, dense, slowest));
        for (size_t k = 0; k < points.size(); ++k)
          place(start, {points[k].largest, points[k].sum, {j, start, k}}, message);
      }
    }
  }
  double least = kInfinity;
  size_t last = 0, point = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto& points = fronts[i][ops].points();
    for (size_t k = 0; k < points.size(); ++k) {
      const double seconds = points[k].sum + later * points[k].largest;
      if (seconds >= least) continue;
      least = seconds;
      last = i;
      point = k;
    }
  }
  if (least == kInfinity) return std::nullopt;
  std::vector<size_t> devices, ends;
  for (size_t i = last, end = ops;;) {
    devices.insert(devices.begin(), order[i]);
    ends.insert(ends.begin(), end);
    const CutBack back = fronts[i][end].points()[point].back;
    if (back.end == 0) break;
    i = back.place;
    end = back.end;
    point = back.point;
  }
  return fence_plan(problem, std::move(devices), std::move(ends));
}

double slowest_message(const FenceProblem& problem, const FencePlan& plan) {
  double out = 0;
  for (size_t i = 0; i + 1 < plan.devices.size(); ++i) {
    out = std::max(out, fence::border_seconds(problem, plan.devices[i], plan.devices[i + 1],
                                              plan.ends[i] - 1, 1));
  }
  return out;
}

// Returns limits for best_cuts(): values that the slowest message may have, at most so many, evenly
// spread over their ranks.
std::vector<double> limits_of(const FenceProblem& problem, size_t most) {
  if (problem.ratio <= 0) return {kInfinity};
  const std::set<double> all = fence::slowest_values(problem);
  const std::vector<double> values(all.begin(), all.end());
  std::vector<double> out{0};
  const size_t count = std::min(most, values.size());
  for (size_t i = 0; i < count; ++i) out.push_back(values[(i + 1) * values.size() / count - 1]);
  return out;
}

// Returns the plan's devices with each other device beside the one to which its link is the best.
std::vector<size_t> with_all_devices(const FenceProblem& problem, std::vector<size_t> order) {
  for (size_t p = 0; p < problem.speed.size(); ++p) {
    if (std::find(order.begin(), order.end(), p) != order.end()) continue;
    const auto nearest = std::max_element(order.begin(), order.end(), [&](size_t a, size_t b) {
      return problem.bytes_per_second[a][p] < problem.bytes_per_second[b][p];
    });
    order.insert(nearest + 1, p);
  }
  return order;
}

void take_better(std::optional<FencePlan>& best, std::optional<FencePlan> tried) {
  if (!tried || tried->seconds == kInfinity) return;
  if (!best || tried->seconds < best->seconds * (1 - 1e-12)) best = std::move(tried);
}

// Builds plans op by op and keeps, of all that end at an op, those that promise the least time: a
// beam search over the classes of devices. Messages are limited and compressed as in best_cuts().
class Beam {
 public:
  Beam(const FenceProblem& problem, const std::vector<std::vector<size_t>>& classes)
      : problem_(problem),
        classes_(classes),
        later_(static_cast<double>(problem.micro_batches - 1)) {}

  // Returns nothing if it finds no plan that takes less than `most` seconds.
  std::optional<FencePlan> best(double slowest, double most) {
    most_ = most;
    const size_t ops = problem_.work.size();
    layers_.assign(ops + 1, {});
    layers_[0].push_back({.used = std::vector<int>(classes_.size())});
    for (size_t done = 0; done < ops; ++done) {
      keep_best(layers_[done]);
      for (size_t i = 0; i < layers_[done].size(); ++i) {
        for (size_t c = 0; c < classes_.size(); ++c) extend(done, i, c, slowest);
      }
    }
    keep_best(layers_[ops]);
    if (layers_[ops].empty()) return std::nullopt;
    std::vector<size_t> devices, ends;
    std::vector<int> left = layers_[ops].front().used;
    for (size_t at = ops, i = 0; at > 0;) {
      const Part& part = layers_[at][i];
      devices.insert(devices.begin(), classes_[part.last][static_cast<size_t>(--left[part.last])]);
      ends.insert(ends.begin(), at);
      i = part.before;
      at = part.start;
    }
    return fence_plan(problem_, std::move(devices), std::move(ends));
  }

 private:
  static constexpr size_t kWidth = 150;
  struct Part {
    std::vector<int> used = {};              // devices, by class
    size_t last = 0, start = 0, before = 0;  // its class, the end of the part before, its number
    double largest = 0, sum = 0, promise = 0;
  };

  static void keep_best(std::vector<Part>& parts) {
    const auto is_better = [](const Part& a, const Part& b) {
      return std::tie(a.promise, a.last, a.used) < std::tie(b.promise, b.last, b.used);
    };
    std::sort(parts.begin(), parts.end(), is_better);
    if (parts.size() > kWidth) parts.resize(kWidth);
  }

  void extend(size_t done, size_t number, size_t c, double slowest) {
    const Part before = layers_[done][number];
    const auto used = static_cast<size_t>(before.used[c]);
    if (used == classes_[c].size()) return;
    const size_t device = classes_[c][used];
    double message = 0;
    if (done > 0) {
      // Any other device of the class of the last one has the same links.
      const size_t last = classes_[before.last].front() == device ? classes_[before.last].back()
                                                                  : classes_[before.last].front();
      const double dense = fence::border_seconds(problem_, last, device, done - 1, 1);
      if (dense > slowest) return;
      message = fence::border_seconds(problem_, last, device, done - 1,
                                      fence::share_of(problem_, dense, slowest));
    }
    Part next = before;
    ++next.used[c];
    next.last = c;
    next.start = done;
    next.before = number;
    double fastest = 0, together = 0;
    for (size_t k = 0; k < classes_.size(); ++k) {
      const double speed = problem_.speed[classes_[k].front()];
      const auto left = static_cast<double>(classes_[k].size()) - next.used[k];
      if (left > 0) fastest = std::max(fastest, speed);
      together += left * speed;
    }
    const size_t ops = problem_.work.size();
    size_t devices = 0;
    for (const int count : next.used) devices += static_cast<size_t>(count);
    for (size_t end = done + 1; end <= ops; ++end) {
      if (!fence::fits(problem_, device, done, end)) return;
      if (!fence::may_end(problem_, devices, end)) continue;
      const double compute = fence::compute_seconds(problem_, device, done, end);
      const double work = fence::sum_of(problem_.work, end, ops);
      if (work > 0 && together <= 0) continue;
      next.largest = std::max({before.largest, compute, message});
      next.sum = before.sum + compute + message;
      const double rest = work > 0 ? work / fastest : 0;
      next.promise =
          next.sum + rest + later_ * std::max(next.largest, work > 0 ? work / together : 0);
      if (next.promise >= most_) continue;
      layers_[end].push_back(next);
      if (layers_[end].size() >= 8 * kWidth) keep_best(layers_[end]);
    }
  }

  const FenceProblem& problem_;
  const std::vector<std::vector<size_t>>& classes_;
  double later_, most_ = kInfinity;
  std::vector<std::vector<Part>> layers_;  // by ops done
};

// Improves a plan by the best single move as long as one gains.
FencePlan improved(const FenceProblem& problem, const std::vector<std::vector<size_t>>& classes,
                   FencePlan plan) {
  while (true) {
    std::optional<FencePlan> better = plan;
    for (FencePlan& tried : neighbours_of(problem, classes, plan))
      take_better(better, std::move(tried));
    if (better->seconds == plan.seconds) return plan;
    plan = *std::move(better);
  }
}

// Returns the plans of all devices in this order with equal numbers of ops, and with equal work.
std::vector<FencePlan> equal_splits(const FenceProblem& problem, std::vector<size_t> order) {
  const size_t ops = problem.work.size();
  if (problem.stages > 0 && order.size() > problem.stages) order.resize(problem.stages);
  if (order.size() > ops) order.resize(ops);
  const size_t count = order.size();
  std::vector<size_t> by_number, by_work;
  const double work = fence::sum_of(problem.work, 0, ops);
  double done = 0;
  for (size_t op = 0; op < ops; ++op) {
    done += problem.work[op];
    if ((op + 1) * count >= ops * (by_number.size() + 1)) by_number.push_back(op + 1);
    const bool is_due = done >= work * static_cast<double>(by_work.size() + 1) /
                                    static_cast<double>(count) * (1 - 1e-12);
    const bool is_last = ops - op - 1 < count - by_work.size();
    if (by_work.size() < count && (is_due || is_last)) by_work.push_back(op + 1);
  }
  by_number.resize(count, ops);
  by_number.back() = by_work.back() = ops;
  return {without_idle(problem, order, by_number), without_idle(problem, order, by_work)};
}

}  // namespace

std::optional<FencePlan> op_fence(const FenceProblem& problem) {
  const std::vector<std::vector<size_t>> communities = ordered_communities(problem);
  const std::vector<std::vector<size_t>> classes = fence::classes_of(problem);
  std::optional<FencePlan> best = first_plan(problem, communities);
  if (best && best->seconds == kInfinity) best.reset();
  if (best) best = improved(problem, classes, *std::move(best));
  std::vector<size_t> by_id(problem.speed.size()), along;
  std::iota(by_id.begin(), by_id.end(), size_t{0});
  std::vector<FencePlan> starts = equal_splits(problem, by_id);
  for (const auto& community : communities) {
    along.insert(along.end(), community.begin(), community.end());
    take_better(best, best_cuts(problem, community, kInfinity));
  }
  for (FencePlan& plan : equal_splits(problem, along)) starts.push_back(std::move(plan));
  for (FencePlan& plan : starts) {
    if (plan.seconds < kInfinity) take_better(best, improved(problem, classes, std::move(plan)));
  }
  constexpr size_t kLimits = 12;
  Beam beam(problem, classes);
  for (const double limit : limits_of(problem, kLimits)) {
    // Plans a little slower than the best one may pass it when they are improved.
    if (auto found = beam.best(limit, best ? 1.2 * best->seconds : kInfinity))
      take_better(best, improved(problem, classes, *std::move(found)));
  }
  if (!best || best->seconds == kInfinity) return std::nullopt;
  const double limit = problem.ratio > 0 ? slowest_message(problem, *best) : kInfinity;
  const std::vector<size_t> order = with_all_devices(problem, best->devices);
  if (auto found = best_cuts(problem, order, limit))
    take_better(best, improved(problem, classes, *std::move(found)));
  return best;
}

}  // namespace tessera::published
