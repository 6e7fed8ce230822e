// Reads instances of DT-FM (docs/reference/reproduce.md).
#include <fmt/format.h>

#include "tessera/planners/published/dtfm.h"
#include "tessera/planners/published/links.h"
#include "tessera/planners/published/systems.h"

namespace tessera::published {
namespace {

constexpr double kMostPartitions = 20e6;

Json region_plan_json(const RegionPlan& plan) {
  return {{"seconds", plan.seconds},
          {"data_seconds", plan.data_seconds},
          {"pipeline_seconds", plan.pipeline_seconds},
          {"groups", plan.groups}};
}

Result<std::vector<std::vector<size_t>>> read_groups(const JsonTable& row, size_t devices,
                                                     size_t stages) {
  std::vector<std::vector<int64_t>> given;
  TESSERA_TRY_VOID(row.require({"groups"}));
  TESSERA_TRY_VOID(row.whole_lists("groups", given, 0, static_cast<int64_t>(devices) - 1));
  TESSERA_TRY_VOID(row.done());
  std::vector<bool> seen(devices, false);
  std::vector<std::vector<size_t>> groups;
  for (const auto& own : given) {
    groups.emplace_back(own.begin(), own.end());
    for (const size_t p : groups.back()) {
      if (seen[p]) return row.error("groups", fmt::format("device {} is there twice", p));
      seen[p] = true;
    }
    if (own.size() != devices / stages || given.size() != stages) {
      return row.error("groups",
                       fmt::format("expected {} groups of {} devices", stages, devices / stages));
    }
  }
  return groups;
}

Result<Json> partition(const JsonTable& in, const Progress& progress) {
  RegionProblem problem;
  int64_t devices = 1;
  int64_t stages = 1;
  TESSERA_TRY_VOID(in.require({"devices", "stages", "gradient_gb", "activation_gb"}));
  TESSERA_TRY_VOID(in.whole("devices", devices, 1, 256));
  TESSERA_TRY_VOID(in.whole("stages", stages, 1, devices));
  if (devices % stages != 0) {
    return in.error("stages",
                    fmt::format("expected a divisor of devices = {}, found {}", devices, stages));
  }
  problem.stages = static_cast<size_t>(stages);
  TESSERA_TRY_VOID(in.real("gradient_gb", problem.gradient_gb, 0));
  TESSERA_TRY_VOID(in.real("activation_gb", problem.activation_gb, 0));
  TESSERA_TRY_VOID(read_links(in, static_cast<size_t>(devices), {"delay_ms", "gbit_per_second"},
                              problem.delay_seconds, problem.gbit_per_second));
  for (auto& row : problem.delay_seconds) {
    for (double& delay : row) delay /= 1e3;
  }
  GeneticOptions options;
  int64_t seed = 1;
  int64_t population = 100;
  int64_t offspring = 4900;
  TESSERA_TRY_VOID(in.whole("seed", seed));
  TESSERA_TRY_VOID(in.whole("population", population, 2, 100'000));
  TESSERA_TRY_VOID(in.whole("offspring", offspring, 0, 1'000'000));
  TESSERA_TRY_VOID(in.whole("local_moves", options.local_moves, 0, 100'000'000));
  options.seed = static_cast<uint64_t>(seed);
  options.population = static_cast<size_t>(population);
  options.offspring = static_cast<size_t>(offspring);

  Json evaluated = Json::array();
  TESSERA_TRY(const auto rows, in.tables("evaluate"));
  for (const JsonTable& row : rows) {
    TESSERA_TRY(const auto groups, read_groups(row, static_cast<size_t>(devices), problem.stages));
    evaluated.push_back(region_plan_json(price_regions(problem, groups)));
  }
  const double partitions = count_partitions(static_cast<size_t>(devices), problem.stages);
  Json out{{"genetic", region_plan_json(genetic_regions(problem, options, progress))},
           {"partitions", partitions},
           {"optimum", nullptr},
           {"ties", nullptr}};
  if (partitions <= kMostPartitions && problem.stages <= 16) {
    progress(fmt::format("the optimum of {:.0f} partitions", partitions));
    const ExactRegions exact = exact_regions(problem);
    out["optimum"] = region_plan_json(exact.plan);
    out["ties"] = exact.ties;
  }
  out["evaluated"] = std::move(evaluated);
  return out;
}

// Returns the gigabytes of gradients and activations, as the publication's program computes them.
Result<Json> region_sizes(const JsonTable& in) {
  double parameters = 0;
  double layers = 1;
  double layers_a_stage = 1;
  double sequence = 1;
  double hidden = 1;
  double samples = 1;
  TESSERA_TRY_VOID(in.require({"billion_parameters", "layers", "layers_a_stage", "sequence",
                               "hidden", "samples_a_replica"}));
  TESSERA_TRY_VOID(in.real("billion_parameters", parameters, 0));
  TESSERA_TRY_VOID(in.real("layers", layers, 1));
  TESSERA_TRY_VOID(in.real("layers_a_stage", layers_a_stage, 1));
  TESSERA_TRY_VOID(in.real("sequence", sequence, 1));
  TESSERA_TRY_VOID(in.real("hidden", hidden, 1));
  TESSERA_TRY_VOID(in.real("samples_a_replica", samples, 0));
  return Json{{"gradient_gb", parameters * 4 * layers_a_stage / layers},
              {"activation_gb", sequence * hidden * 2 * samples / 1073741824.0}};
}

}  // namespace

Result<Json> run_dtfm(const JsonTable& in, const Progress& progress) {
  std::string ask = "partition";
  TESSERA_TRY_VOID(in.choice("ask", ask, {"partition", "sizes"}));
  return ask == "sizes" ? region_sizes(in) : partition(in, progress);
}

}  // namespace tessera::published
