// Reads instances of TeraPipe (docs/reference/reproduce.md).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tessera/planners/published/systems.h"
#include "tessera/planners/published/terapipe.h"

namespace tessera::published {
namespace {

// t(b, l, c) = start(b l) + [c > 0 or always_context] * (a0 + a1 b l + a2 b c + a3 b l c), where
// start(x) = max(least, per_token x) or, if there are measurements, is interpolated between them.
struct SliceTime {
  double least = 0, per_token = 0;
  std::map<double, double> measured;
  std::vector<double> context{0, 0, 0, 0};
  bool always_context = false;

  double start(double tokens) const {
    if (measured.empty()) return std::max(least, per_token * tokens);
    const auto after = measured.lower_bound(tokens);
    if (after == measured.begin()) return after->second;
    const auto before = std::prev(after);
    if (after == measured.end()) return before->second * tokens / before->first;
    const double share = (tokens - before->first) / (after->first - before->first);
    return before->second + share * (after->second - before->second);
  }
  double at(double samples, double slice, double before) const {
    double seconds = start(samples * slice);
    if (before > 0 || always_context) {
      seconds += context[0] + context[1] * samples * slice + context[2] * samples * before +
                 context[3] * samples * slice * before;
    }
    return seconds;
  }
};

Result<SliceTime> read_time(const JsonTable& in) {
  SliceTime time;
  TESSERA_TRY_VOID(in.real("least", time.least, 0));
  TESSERA_TRY_VOID(in.real("per_token", time.per_token, 0));
  TESSERA_TRY_VOID(in.reals("context", time.context));
  if (time.context.size() != 4) return in.error("context", "expected four coefficients");
  TESSERA_TRY_VOID(in.flag("context_always", time.always_context));
  TESSERA_TRY(const auto points, in.tables("measured"));
  for (const JsonTable& point : points) {
    double tokens = 0;
    TESSERA_TRY_VOID(point.require({"tokens", "seconds"}));
    TESSERA_TRY_VOID(point.real("tokens", tokens, 1));
    TESSERA_TRY_VOID(point.real("seconds", time.measured[tokens], 0));
    TESSERA_TRY_VOID(point.done());
  }
  if (points.empty()) TESSERA_TRY_VOID(in.require({"per_token"}));
  TESSERA_TRY_VOID(in.done());
  return time;
}

Json in_tokens(const std::vector<int64_t>& slices, int64_t unit) {
  Json out = Json::array();
  for (const int64_t slice : slices) out.push_back(slice * unit);
  return out;
}

}  // namespace

Result<Json> run_terapipe(const JsonTable& in, const Progress& progress) {
  constexpr int64_t kMostPositions = 1024;
  SliceProblem problem;
  int64_t length = 1;
  int64_t unit = 8;
  TESSERA_TRY_VOID(in.require({"length", "stages"}));
  TESSERA_TRY_VOID(in.whole("length", length, 1));
  TESSERA_TRY_VOID(in.whole("unit", unit, 1));
  if (length % unit != 0 || length / unit > kMostPositions) {
    return in.error("length", fmt::format("expected a multiple of unit = {}, at most {} times that",
                                          unit, kMostPositions));
  }
  TESSERA_TRY_VOID(in.whole("stages", problem.stages, 1));
  TESSERA_TRY_VOID(in.whole("batch", problem.batch, 1, 256));
  problem.positions = length / unit;
  SliceTime time;
  std::vector<std::vector<double>> table;
  if (in.has("table")) {
    TESSERA_TRY_VOID(in.matrix("table", table, 0));
    const auto n = static_cast<size_t>(problem.positions);
    if (table.size() != n || table[0].size() != n || problem.batch != 1) {
      return in.error("table", fmt::format("expected {0} rows of {0} numbers, and batch 1", n));
    }
    for (size_t slice = 1; slice <= n; ++slice) {
      for (size_t context = 0; context + slice <= n; ++context) {
        if (std::isinf(table[slice - 1][context])) {
          return in.error(fmt::format("table[{}][{}]", slice - 1, context),
                          "expected a number, found null");
        }
      }
    }
    problem.seconds = [&](int64_t, int64_t slice, int64_t context) {
      return table[static_cast<size_t>(slice - 1)][static_cast<size_t>(context)];
    };
  } else {
    TESSERA_TRY_VOID(in.require({"time"}));
    TESSERA_TRY(const JsonTable given, in.table("time"));
    TESSERA_TRY(time, read_time(given));
    const auto tokens = static_cast<double>(unit);
    problem.seconds = [&, tokens](int64_t samples, int64_t slice, int64_t context) {
      return time.at(static_cast<double>(samples), static_cast<double>(slice) * tokens,
                     static_cast<double>(context) * tokens);
    };
    for (int64_t slice = 1; slice <= problem.positions; ++slice) {
      for (int64_t context = 0; context + slice <= problem.positions; ++context) {
        if (problem.seconds(1, slice, context) < 0) {
          return in.error("time", fmt::format("is negative for {} tokens after {}", slice * unit,
                                              context * unit));
        }
      }
    }
  }
  std::vector<int64_t> equal;
  TESSERA_TRY_VOID(in.wholes("equal_slices", equal, 1, problem.positions));
  progress(fmt::format("{} positions", problem.positions));
  const SlicePlan plan = best_slices(problem);
  Json parts = Json::array();
  for (const SlicePlan::Part& part : plan.parts) {
    parts.push_back({{"samples", part.samples}, {"slices", in_tokens(part.slices, unit)}});
  }
  Json compared = Json::array();
  for (const int64_t count : equal) {
    if (problem.positions % count != 0) {
      return in.error("equal_slices", fmt::format("{} slices of {} positions are not equal", count,
                                                  problem.positions));
    }
    const std::vector<int64_t> slices(static_cast<size_t>(count), problem.positions / count);
    compared.push_back(slices_seconds(problem, slices));
  }
  return Json{{"seconds", plan.seconds},
              {"slowest", plan.slowest},
              {"sum", plan.sum},
              {"parts", std::move(parts)},
              {"equal_slices_seconds", std::move(compared)}};
}

}  // namespace tessera::published
