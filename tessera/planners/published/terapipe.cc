#include "tessera/planners/published/terapipe.h"

#include <algorithm>
#include <limits>

#include "tessera/base/check.h"
#include "tessera/planners/published/pareto.h"

namespace tessera::published {
namespace {

struct Previous {
  size_t before = 0;  // position, or number of samples, before this slice or part
  size_t point = 0;   // index in the front of that position
  // Index in the front of the added part's slices; used only when the batch is cut.
  size_t last = 0;
};
using Front = ParetoFront<Previous>;

class Slicer {
 public:
  explicit Slicer(const SliceProblem& problem)
      : problem_(problem),
        later_(static_cast<double>(problem.stages - 1) / static_cast<double>(problem.repeats)) {}

  SlicePlan solve() {
    const auto batch = static_cast<size_t>(problem_.batch);
    whole_.resize(batch + 1);
    for (size_t samples = 1; samples <= batch; ++samples) slice_sequence(samples);
    std::vector<Front> placed(batch + 1);
    placed[0].add({0, 0, {}});
    for (size_t j = 1; j <= batch; ++j) {
      for (size_t samples = 1; samples <= j; ++samples) {
        const auto& before = placed[j - samples].points();
        const auto& own = whole_[samples].back().points();
        for (size_t i = 0; i < before.size(); ++i) {
          for (size_t k = 0; k < own.size(); ++k) {
            placed[j].add({std::max(before[i].largest, own[k].largest),
                           before[i].sum + own[k].sum,
                           {j - samples, i, k}});
          }
        }
      }
    }
    const auto& ends = placed[batch].points();
    size_t best = 0;
    for (size_t i = 1; i < ends.size(); ++i) {
      if (total(ends[i]) < total(ends[best])) best = i;
    }
    TESSERA_CHECK(!ends.empty(), "no slices of {} positions", problem_.positions);
    SlicePlan plan{total(ends[best]) * static_cast<double>(problem_.repeats),
                   ends[best].largest,
                   ends[best].sum,
                   {}};
    for (size_t j = batch; j > 0;) {
      const Previous& back = placed[j].points()[best].back;
      plan.parts.push_back(part(j - back.before, back.last));
      j = back.before;
      best = back.point;
    }
    std::reverse(plan.parts.begin(), plan.parts.end());
    return plan;
  }

 private:
  double total(const Front::Point& point) const { return point.sum + later_ * point.largest; }

  // Makes the fronts of all prefixes of the sequence. If the batch is not cut, drops points whose
  // slices together with the fastest rest of the sequence take longer than a known slicing. If the
  // batch is cut, such points must stay, because slices of other samples may be the slowest.
  void slice_sequence(size_t samples) {
    const auto n = static_cast<size_t>(problem_.positions);
    std::vector<std::vector<double>> seconds(n,
                                             std::vector<double>(n + 1, 0));  // by context, slice
    for (size_t j = 0; j < n; ++j) {
      for (size_t k = 1; j + k <= n; ++k) {
        seconds[j][k] = problem_.seconds(static_cast<int64_t>(samples), static_cast<int64_t>(k),
                                         static_cast<int64_t>(j));
      }
    }
    std::vector<double> rest(n + 1, 0);
    for (size_t j = n; j-- > 0;) {
      rest[j] = std::numeric_limits<double>::infinity();
      for (size_t k = 1; j + k <= n; ++k) rest[j] = std::min(rest[j], seconds[j][k] + rest[j + k]);
    }
    double known = std::numeric_limits<double>::infinity();
    for (size_t k = 1; problem_.batch == 1 && k <= n; ++k) {
      double sum = 0;
      double slowest = 0;
      for (size_t j = 0; j < n; j += k) {
        const double own = seconds[j][std::min(k, n - j)];
        sum += own;
        slowest = std::max(slowest, own);
      }
      known = std::min(known, sum + later_ * slowest);
    }
    known *= 1 + 1e-12;
    auto& fronts = whole_[samples];
    fronts.resize(n + 1);
    fronts[0].add({0, 0, {}});
    for (size_t j = 0; j < n; ++j) {
      const auto& points = fronts[j].points();
      for (size_t i = 0; i < points.size(); ++i) {
        for (size_t k = 1; j + k <= n; ++k) {
          const Front::Point point{
              std::max(points[i].largest, seconds[j][k]), points[i].sum + seconds[j][k], {j, i, 0}};
          if (total(point) + rest[j + k] <= known) fronts[j + k].add(point);
        }
      }
    }
  }

  SlicePlan::Part part(size_t samples, size_t point) const {
    SlicePlan::Part out;
    out.samples = static_cast<int64_t>(samples);
    const auto& fronts = whole_[samples];
    for (size_t position = fronts.size() - 1; position > 0;) {
      const Previous& back = fronts[position].points()[point].back;
      out.slices.push_back(static_cast<int64_t>(position - back.before));
      position = back.before;
      point = back.point;
    }
    std::reverse(out.slices.begin(), out.slices.end());
    return out;
  }

  const SliceProblem& problem_;
  double later_;
  std::vector<std::vector<Front>> whole_;  // by samples, then by position
};

}  // namespace

SlicePlan best_slices(const SliceProblem& problem) { return Slicer(problem).solve(); }

double slices_seconds(const SliceProblem& problem, const std::vector<int64_t>& slices) {
  double sum = 0;
  double slowest = 0;
  int64_t context = 0;
  for (const int64_t slice : slices) {
    const double own = problem.seconds(problem.batch, slice, context);
    sum += own;
    slowest = std::max(slowest, own);
    context += slice;
  }
  return static_cast<double>(problem.repeats) * sum +
         static_cast<double>(problem.stages - 1) * slowest;
}

}  // namespace tessera::published
