// Computes the costs of SplitBrain, which replicates convolutions and shards dense layers within
// groups of workers (docs/strategies/split-brain.md sections 4 and 6). Values are in elements
// unless their names say otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::published {

struct SplitNet {
  double conv_parameters = 0;
  double dense_parameters = 0;
  std::vector<double> widths;  // d_0 (features), d_1 .. d_n
};
// Returns the number of weights of the dense layers, without bias.
double dense_parameters_of(const std::vector<double>& widths);

// Returns the share of the parameters that a worker of a group of `group` workers does not hold.
double memory_saving(const SplitNet& net, double group);
// Returns the share of dense parameters that a model must have for this memory_saving().
double dense_share_for(double saving, double group);

// The elements that a worker receives in a step.
struct SplitTraffic {
  double border = 0;  // gather and scatter of the features ("modulo layer")
  double shards = 0;  // elements that are exchanged between dense layers
  double dense_average = 0, conv_average = 0;
  // For comparison: if the dense layers were replicated and averaged.
  double data_parallel_dense = 0;
  double break_even_batch =
      0;  // batch of a worker from which on data parallelism moves less; infinite if group is 1
};
SplitTraffic split_traffic(const SplitNet& net, double workers, double group, double batch);
// Returns the sum of latencies in a step. For each dense layer and each of `group` turns there are
// a gather and a scatter on rings.
double split_latency_seconds(const SplitNet& net, double group, double latency_seconds);

struct SplitQuestion {
  SplitNet net;
  double workers = 1, batch = 1;
  double copies = 3;  // parameters, gradients, momentum
  double element_bytes = 4, activation_bytes = 0;
  double memory_bytes = 0;
  double compute_seconds = 0, latency_seconds = 0, bytes_per_second = 1;
};
struct SplitChoice {
  int64_t group = 1;
  double seconds = 0, memory_bytes = 0;
  bool fits = false;
};
// Returns the choices with every group size that divides the workers.
std::vector<SplitChoice> split_choices(const SplitQuestion& question);
// Returns the fastest choice that fits, among equally fast ones the one with the smallest group;
// nothing if no choice fits.
std::optional<SplitChoice> best_group(const SplitQuestion& question);

}  // namespace tessera::published
