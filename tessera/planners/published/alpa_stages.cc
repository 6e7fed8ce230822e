#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tessera/base/infinity.h"
#include "tessera/planners/published/alpa.h"
#include "tessera/planners/published/pareto.h"

namespace tessera::published {
namespace {

struct Next {
  size_t choice = 0;
  size_t point = 0;  // index in the front of the later stages
};
using Front = ParetoFront<Next>;

class Stages {
 public:
  explicit Stages(const StagesProblem& problem)
      : problem_(problem),
        layers_(problem.layers),
        devices_(static_cast<size_t>(problem.devices)),
        later_(static_cast<double>(problem.micro_batches - 1)),
        from_(problem.layers) {
    for (size_t c = 0; c < problem.choices.size(); ++c) {
      const StageChoice& choice = problem.choices[c];
      if (choice.seconds < kInfinity && choice.most_later >= 0) from_[choice.first].push_back(c);
    }
    bound_rest();
  }

  // Finds a plan. `whole`: keep whole fronts, which gives the best plan. Otherwise keeps the best
  // point of each front only, which gives a plan that is an upper bound.
  std::optional<StagesPlan> solve(bool whole, double known) {
    const size_t most_stages = std::min(layers_, devices_);
    // fronts[s][k][d]: layers from k on, in s stages, on exactly d devices.
    fronts_.assign(most_stages + 1,
                   std::vector<std::vector<Front>>(layers_ + 1, std::vector<Front>(devices_ + 1)));
    fronts_[0][layers_][0].add({0, 0, {}});
    for (size_t s = 1; s <= most_stages; ++s) {
      for (size_t k = 0; k < layers_; ++k) {
        for (const size_t c : from_[k]) {
          if (static_cast<int64_t>(s) - 1 <= problem_.choices[c].most_later) {
            place(s, k, c, whole, known * (1 + 1e-12));
          }
        }
      }
    }
    return best(most_stages);
  }

 private:
  static size_t own(const StageChoice& choice) {
    return static_cast<size_t>(choice.hosts * choice.devices);
  }

  // Computes for the first k layers on exactly d devices the least sum of the stages' seconds, and
  // the least seconds of the slowest stage.
  void bound_rest() {
    sum_.assign(layers_ + 1, std::vector<double>(devices_ + 1, kInfinity));
    slowest_ = sum_;
    sum_[0][0] = slowest_[0][0] = 0;
    for (size_t k = 0; k < layers_; ++k) {
      for (const size_t c : from_[k]) {
        const StageChoice& choice = problem_.choices[c];
        for (size_t d = own(choice); d <= devices_; ++d) {
          double& sum = sum_[choice.last + 1][d];
          double& slowest = slowest_[choice.last + 1][d];
          sum = std::min(sum, sum_[k][d - own(choice)] + choice.seconds);
          slowest = std::min(slowest, std::max(slowest_[k][d - own(choice)], choice.seconds));
        }
      }
    }
  }

  // Adds choice c, which begins with layer k, before the fronts of the s - 1 later stages.
  void place(size_t s, size_t k, size_t c, bool whole, double most) {
    const StageChoice& choice = problem_.choices[c];
    for (size_t d = own(choice); d <= devices_; ++d) {
      const auto& rest = fronts_[s - 1][choice.last + 1][d - own(choice)].points();
      Front& to = fronts_[s][k][d];
      for (size_t i = 0; i < rest.size(); ++i) {
        const Front::Point point{
            std::max(choice.seconds, rest[i].largest), choice.seconds + rest[i].sum, {c, i}};
        const double bound = point.sum + sum_[k][devices_ - d] +
                             later_ * std::max(point.largest, slowest_[k][devices_ - d]);
        if (!(bound <= most)) continue;
        if (!whole && !to.points().empty()) {
          if (total(point) >= total(to.points()[0])) continue;
          to = {};
        }
        to.add(point);
      }
    }
  }
  double total(const Front::Point& point) const { return point.sum + later_ * point.largest; }

  std::optional<StagesPlan> best(size_t most_stages) const {
    std::optional<StagesPlan> best;
    for (size_t s = 1; s <= most_stages; ++s) {
      if (problem_.stages > 0 && s != problem_.stages) continue;
      const auto& ends = fronts_[s][0][devices_].points();
      for (size_t i = 0; i < ends.size(); ++i) {
        if (best && total(ends[i]) >= best->seconds) continue;
        best = StagesPlan{total(ends[i]), ends[i].largest, {}};
        size_t k = 0;
        size_t d = devices_;
        size_t point = i;
        for (size_t left = s; left > 0; --left) {
          const Next next = fronts_[left][k][d].points()[point].back;
          best->choices.push_back(next.choice);
          k = problem_.choices[next.choice].last + 1;
          d -= own(problem_.choices[next.choice]);
          point = next.point;
        }
      }
    }
    return best;
  }

  const StagesProblem& problem_;
  size_t layers_, devices_;
  double later_;
  std::vector<std::vector<size_t>> from_;  // choices by their first layer
  std::vector<std::vector<double>> sum_, slowest_;
  std::vector<std::vector<std::vector<Front>>> fronts_;
};

}  // namespace

std::optional<StagesPlan> best_stages(const StagesProblem& problem) {
  Stages stages(problem);
  const auto known = stages.solve(false, kInfinity);
  if (!known) return std::nullopt;
  return stages.solve(true, known->seconds);
}

int64_t most_later_stages(double available, double peak, double initial, double per_micro_batch) {
  const double left = available - peak - initial;
  if (left < per_micro_batch) return -1;
  constexpr double kMost = 1e9;
  if (per_micro_batch <= 0) return static_cast<int64_t>(kMost);
  return static_cast<int64_t>(std::min(kMost, std::floor(left / per_micro_batch))) - 1;
}

std::vector<std::pair<int64_t, int64_t>> submesh_shapes(int64_t hosts, int64_t devices) {
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (int64_t part = 1; part < devices; part *= 2) shapes.emplace_back(1, part);
  for (int64_t whole = 1; whole <= hosts; ++whole) shapes.emplace_back(whole, devices);
  return shapes;
}

Result<std::vector<Placement>> place_submeshes(
    const std::vector<std::pair<int64_t, int64_t>>& shapes, int64_t hosts, int64_t devices) {
  std::vector<size_t> order(shapes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return shapes[a].first * shapes[a].second > shapes[b].first * shapes[b].second;
  });
  std::vector<Placement> places(shapes.size());
  Placement next;
  for (const size_t i : order) {
    const auto [h, d] = shapes[i];
    const bool whole = d == devices;
    const bool fits = whole ? next.device == 0 && next.host + h <= hosts
                            : h == 1 && next.device + d <= devices && next.host < hosts;
    if (!fits) {
      return invalid_input(
          fmt::format("a sub-mesh of {} x {} devices finds no place from device {} of host {} on",
                      h, d, next.device, next.host));
    }
    places[i] = next;
    if (whole) {
      next.host += h;
      continue;
    }
    next.device += d;
    if (next.device == devices) next = {next.host + 1, 0};
  }
  return places;
}

double alpa_parameters(const AlpaModel& m) {
  const double h = m.hidden;
  const double width = m.experts > 0 ? 8 : 4;
  const double attention = h * (3 * h + 1) + h * (h + 1) + 4 * h;
  const double dense = h * (width * h + 1) + width * h * (h + 1);
  const double ends = m.vocabulary * (h + 1);
  if (m.experts <= 0) return m.layers * (attention + dense) + ends;
  return m.layers * attention + m.layers / 2 * (1 + m.experts) * dense + ends;
}

double alpa_flops(const AlpaModel& m) {
  const double h = m.hidden;
  const double tokens = m.batch * m.sequence;
  if (m.experts <= 0) {
    const double factor = m.recompute ? 96 : 72;
    return factor * tokens * m.layers * h * h * (1 + m.sequence / (6 * h)) +
           6 * tokens * h * m.vocabulary;
  }
  constexpr double kWidth = 8;
  const double attention = 8 * tokens * h * h + 4 * tokens * m.sequence * h;
  const double dense = attention + 4 * kWidth * tokens * h * h;
  const double mixture = attention + 8 * tokens * h * h * kWidth + 2 * tokens * h * m.experts +
                         4 * tokens * m.group + 8 * tokens * m.group * h;
  return (m.recompute ? 4 : 3) * m.layers / 2 * (dense + mixture) + 6 * tokens * h * m.vocabulary;
}

std::optional<ClusterPlan> cluster_ops(const ClusterProblem& problem) {
  const size_t count = problem.ops.size();
  double flops = 0;
  for (const ClusterOp& op : problem.ops) flops += op.flops;
  const double most_flops =
      (1 + problem.imbalance) * flops / static_cast<double>(problem.layers) * (1 + 1e-12);

  // received[k][r]: bytes made by ops before k and read by ops k .. r-1.
  std::vector<std::vector<double>> received(count + 1, std::vector<double>(count + 1, 0));
  for (size_t maker = 0; maker < count; ++maker) {
    for (const ClusterOp::Output& output : problem.ops[maker].outputs) {
      for (size_t k = maker + 1; k < count; ++k) {
        size_t first = count;  // the first reader from k on
        for (const size_t reader : output.readers) {
          if (reader >= k) first = std::min(first, reader);
        }
        for (size_t r = first + 1; r <= count; ++r) received[k][r] += output.bytes;
      }
    }
  }
  struct State {
    double largest = kInfinity, sum = kInfinity, squares = kInfinity;
    size_t before = 0;
    bool better(const State& other) const {
      if (largest != other.largest) return largest < other.largest;
      if (sum != other.sum) return sum < other.sum;
      return squares < other.squares;
    }
  };
  std::vector<std::vector<State>> best(problem.layers + 1, std::vector<State>(count + 1));
  best[0][0] = {0, 0, 0, 0};
  for (size_t q = 1; q <= problem.layers; ++q) {
    for (size_t r = 1; r <= count; ++r) {
      double own = 0;
      size_t heavy = 0;
      for (size_t k = r; k-- > 0;) {
        own += problem.ops[k].flops;
        heavy += problem.ops[k].heavy ? 1 : 0;
        if (own > most_flops) break;
        const State& rest = best[q - 1][k];
        if (heavy < problem.least_heavy || rest.largest == kInfinity) continue;
        const auto ops = static_cast<double>(r - k);
        const State state{std::max(rest.largest, received[k][r]), rest.sum + received[k][r],
                          rest.squares + ops * ops, k};
        if (state.better(best[q][r])) best[q][r] = state;
      }
    }
  }
  const State& last = best[problem.layers][count];
  if (last.largest == kInfinity) return std::nullopt;
  ClusterPlan plan{last.largest, last.sum, {}};
  size_t end = count;
  for (size_t q = problem.layers; q > 0; --q) {
    plan.ends.insert(plan.ends.begin(), end);
    end = best[q][end].before;
  }
  return plan;
}

}  // namespace tessera::published
