// Computes SplitBrain's costs: replicated convolutions, dense layers sharded within groups of
// workers (docs/strategies/split-brain.md sections 4 and 6). The formulas are in elements unless a
// name says otherwise.
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
// Returns the share of dense parameters at which that saving is reached.
double dense_share_for(double saving, double group);

// The traffic that a worker receives in a step of `workers` workers with `batch` samples each.
struct SplitTraffic {
  double border = 0;  // gather and scatter of the features ("modulo layer")
  double shards = 0;  // between dense layers
  double dense_average = 0, conv_average = 0;
  double data_parallel_dense = 0;  // if all dense parameters were averaged instead
  double break_even_batch =
      0;  // samples from which data parallelism moves less; infinite if group is 1
};
SplitTraffic split_traffic(const SplitNet& net, double workers, double group, double batch);
// Returns the start-up times of a step: group turns of a gather and a scatter for each dense layer,
// on rings.
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
// Returns the fastest that fits, of equal ones the smallest group; none if nothing fits.
std::optional<SplitChoice> best_group(const SplitQuestion& question);

}  // namespace tessera::published
