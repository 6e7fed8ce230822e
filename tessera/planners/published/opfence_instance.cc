// Reads instances of OP-Fence (docs/reference/reproduce.md).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/planners/published/links.h"
#include "tessera/planners/published/opfence.h"
#include "tessera/planners/published/systems.h"

namespace tessera::published {
namespace {

Result<FenceProblem> read_problem(const JsonTable& in) {
  FenceProblem problem;
  constexpr size_t kMostOps = 512;
  constexpr size_t kMostDevices = 64;
  TESSERA_TRY_VOID(in.require({"work", "megabytes", "speeds"}));
  TESSERA_TRY_VOID(in.reals("work", problem.work, 0));
  TESSERA_TRY_VOID(in.reals("megabytes", problem.bytes, 0));
  TESSERA_TRY_VOID(in.reals("speeds", problem.speed, 1e-9));
  const size_t ops = problem.work.size();
  const size_t devices = problem.speed.size();
  if (ops == 0 || ops > kMostOps)
    return in.error("work", fmt::format("expected 1 to {} ops", kMostOps));
  if (devices == 0 || devices > kMostDevices) {
    return in.error("speeds", fmt::format("expected 1 to {} devices", kMostDevices));
  }
  problem.memory.assign(ops, 1);
  problem.capacity.assign(devices, static_cast<double>(ops));
  double most_ops = static_cast<double>(ops);
  TESSERA_TRY_VOID(in.real("most_ops_a_device", most_ops, 1));
  problem.capacity.assign(devices, most_ops);
  TESSERA_TRY_VOID(in.reals("memory", problem.memory, 0));
  TESSERA_TRY_VOID(in.reals("capacities", problem.capacity, 0));
  for (const auto& [key, found, wanted] :
       {std::tuple<const char*, size_t, size_t>{"megabytes", problem.bytes.size(), ops},
        {"memory", problem.memory.size(), ops},
        {"capacities", problem.capacity.size(), devices}}) {
    if (found != wanted) {
      return in.error(key, fmt::format("expected {} numbers, found {}", wanted, found));
    }
  }
  TESSERA_TRY_VOID(read_links(in, devices, {"latency_seconds", "megabytes_per_second"},
                              problem.latency_seconds, problem.bytes_per_second));
  TESSERA_TRY_VOID(in.whole("micro_batches", problem.micro_batches, 1));
  TESSERA_TRY_VOID(in.real("ratio", problem.ratio, 0));
  TESSERA_TRY_VOID(in.real("phi", problem.phi, 1));
  TESSERA_TRY_VOID(in.real("messages_a_border", problem.messages, 0));
  return problem;
}

Json fence_plan_json(const FenceProblem& problem, const FencePlan& plan) {
  Json unused = Json::array();
  for (size_t p = 0; p < problem.speed.size(); ++p) {
    if (std::find(plan.devices.begin(), plan.devices.end(), p) == plan.devices.end()) {
      unused.push_back(p);
    }
  }
  return {{"seconds", plan.seconds},
          {"devices", plan.devices},
          {"ends", plan.ends},
          {"unused", std::move(unused)},
          {"ratios", plan.ratios}};
}

// Prices given devices and cuts by equation (1).
Result<Json> evaluate(const JsonTable& in, const FenceProblem& problem) {
  Json out = Json::array();
  TESSERA_TRY(const auto rows, in.tables("evaluate"));
  for (const JsonTable& row : rows) {
    std::vector<int64_t> devices;
    std::vector<int64_t> ends;
    TESSERA_TRY_VOID(row.require({"devices", "ends"}));
    TESSERA_TRY_VOID(
        row.wholes("devices", devices, 0, static_cast<int64_t>(problem.speed.size()) - 1));
    TESSERA_TRY_VOID(row.wholes("ends", ends, 1, static_cast<int64_t>(problem.work.size())));
    TESSERA_TRY_VOID(row.done());
    const bool rising = std::is_sorted(ends.begin(), ends.end(), std::less_equal<>());
    if (ends.size() != devices.size() || ends.empty() || !rising ||
        ends.back() != static_cast<int64_t>(problem.work.size())) {
      return row.error("ends", fmt::format("expected {} rising numbers, the last of them {}",
                                           devices.size(), problem.work.size()));
    }
    const FencePlan plan =
        fence_plan(problem, {devices.begin(), devices.end()}, {ends.begin(), ends.end()});
    out.push_back(std::isinf(plan.seconds) ? Json() : Json(plan.seconds));
  }
  return out;
}

Result<Json> schedule(const JsonTable& in, const Progress& progress) {
  TESSERA_TRY(const FenceProblem problem, read_problem(in));
  TESSERA_TRY(Json evaluated, evaluate(in, problem));
  const auto fence = op_fence(problem);
  Json out{{"fits", fence.has_value()},
           {"opfence", fence ? fence_plan_json(problem, *fence) : Json()},
           {"optimum", nullptr}};
  if (exact_fence_steps(problem) <= kMostFenceSteps) {
    progress("the optimum");
    const auto best = exact_fence(problem);
    out["fits"] = best.has_value();
    if (best) out["optimum"] = fence_plan_json(problem, *best);
  }
  out["evaluated_seconds"] = std::move(evaluated);
  return out;
}

Result<Json> communities(const JsonTable& in) {
  int64_t devices = 0;
  Matrix unused;
  Matrix weights;
  TESSERA_TRY_VOID(in.require({"devices"}));
  TESSERA_TRY_VOID(in.whole("devices", devices, 1, 64));
  TESSERA_TRY_VOID(read_links(in, static_cast<size_t>(devices),
                              {"latency_seconds", "megabytes_per_second"}, unused, weights));
  std::vector<std::vector<int64_t>> given;
  TESSERA_TRY_VOID(in.whole_lists("communities", given, 0, devices - 1));
  const auto groups_of = [](const std::vector<size_t>& community) {
    Json groups = Json::array();
    for (size_t c = 0; c < community.size(); ++c) {
      Json group = Json::array();
      for (size_t p = 0; p < community.size(); ++p) {
        if (community[p] == c) group.push_back(p);
      }
      if (!group.empty()) groups.push_back(std::move(group));
    }
    return groups;
  };
  const std::vector<size_t> found = louvain(weights);
  Json out{{"communities", groups_of(found)}, {"modularity", modularity(weights, found)}};
  if (in.has("communities")) {
    std::vector<size_t> numbers(static_cast<size_t>(devices), static_cast<size_t>(devices));
    for (size_t g = 0; g < given.size(); ++g) {
      for (const int64_t p : given[g]) numbers[static_cast<size_t>(p)] = g;
    }
    for (size_t p = 0; p < numbers.size(); ++p) {
      if (numbers[p] == static_cast<size_t>(devices)) {
        return in.error("communities", fmt::format("device {} is in none", p));
      }
    }
    out["modularity_of_given"] = modularity(weights, numbers);
  }
  return out;
}

Result<Json> compression(const JsonTable& in) {
  std::vector<double> times;
  double ratio = 1;
  double phi = 3;
  TESSERA_TRY_VOID(in.require({"seconds", "ratio"}));
  TESSERA_TRY_VOID(in.reals("seconds", times, 0));
  TESSERA_TRY_VOID(in.real("ratio", ratio, 0));
  TESSERA_TRY_VOID(in.real("phi", phi, 1));
  const std::vector<double> ratios = top_k_ratios(times, ratio, phi);
  std::vector<double> sparse;
  std::vector<double> mixed;
  std::vector<double> uniform;
  for (size_t i = 0; i < times.size(); ++i) {
    sparse.push_back(ratios[i] > 1 ? times[i] * phi / ratios[i] : times[i]);
    mixed.push_back(times[i] * compressed_share(ratios[i], phi));
    uniform.push_back(times[i] / ratio);
  }
  return Json{{"ratios", ratios},
              {"sparse_seconds", sparse},
              {"dense_where_cheaper_seconds", mixed},
              {"uniform_seconds", uniform}};
}

}  // namespace

Result<Json> run_opfence(const JsonTable& in, const Progress& progress) {
  std::string ask = "schedule";
  TESSERA_TRY_VOID(in.choice("ask", ask, {"schedule", "communities", "compression"}));
  if (ask == "communities") return communities(in);
  if (ask == "compression") return compression(in);
  return schedule(in, progress);
}

}  // namespace tessera::published
