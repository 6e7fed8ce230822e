// Implements DT-FM's partition of devices on slow networks into pipeline stages of data-parallel
// replicas (docs/theory/fusionllm.md section 7). Devices form `stages` groups of equal size n, a
// group for each stage.
//
//   data      = max over groups and members i of sum over j of 2 (delay_ij + 8 g / (w_ij n))
//   link(G,H) = least over matchings of their members of the largest delay_ij + 8 a / w_ij
//   pipeline  = the shortest open path over the groups by link
//   seconds   = data + 2 pipeline
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace tessera::published {

struct RegionProblem {
  std::vector<std::vector<double>> delay_seconds;  // delays by pair of devices
  std::vector<std::vector<double>> gbit_per_second;
  size_t stages = 1;  // divides the devices
  double gradient_gb = 0, activation_gb = 0;
};
struct RegionPlan {
  double seconds = 0, data_seconds = 0, pipeline_seconds = 0;
  std::vector<std::vector<size_t>> groups;  // in the order of the pipeline, each ascending
};

// Prices given groups. The shortest path is exact up to `most_exact` groups, and greedy beyond.
RegionPlan price_regions(const RegionProblem& problem,
                         const std::vector<std::vector<size_t>>& groups, size_t most_exact = 16);

// Returns the groups, which stand in the order of the pipeline, with their members in the order in
// which they send to one another: member i of a group to member i of the next, by the matching whose
// slowest message is the fastest.
std::vector<std::vector<size_t>> matched_groups(const RegionProblem& problem,
                                                const std::vector<std::vector<size_t>>& groups);

// Options of genetic_regions(). It runs the published genetic search: a population of partitions,
// crossover at five points, then cyclic moves that raise the bandwidth inside groups; a child that
// is better than the worse parent replaces it. After that it makes local moves, first from the
// partitions of the population, the best first, then from random ones: two devices of different
// groups change places as long as the score falls. Equal seeds give equal answers.
struct GeneticOptions {
  uint64_t seed = 1;
  size_t population = 100, offspring = 4900;
  // The most exchanges and starts of local moves that are priced; 0: the published search alone.
  int64_t local_moves = 50'000;
};
RegionPlan genetic_regions(const RegionProblem& problem, const GeneticOptions& options,
                           const std::function<void(std::string_view)>& progress);

// Returns the number of partitions; infinite beyond the range of a double.
double count_partitions(size_t devices, size_t stages);
// The best of all partitions, and the number of equally good ones. exact_regions() leaves out
// partitions as soon as the data time of their groups alone exceeds the best known time.
struct ExactRegions {
  RegionPlan plan;
  int64_t ties = 0;
};
ExactRegions exact_regions(const RegionProblem& problem);

}  // namespace tessera::published
