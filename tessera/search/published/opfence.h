// Implements OP-Fence: a chain of ops on devices whose links differ by orders of magnitude, with
// messages that are compressed most where links are slow (docs/theory/fusionllm.md sections 3 to
// 6).
//
//   T = sum over devices of (compute + message) + (m - 1) * the slowest compute or message     (1)
//   k_i = max(1, phi r R_i / max R)                                                            (2)
//
// R_i is the uncompressed time of message i, r the ratio that the user gives, phi the cost of a
// kept element in units of a dense one. A message with k <= phi is sent dense. Devices may stay
// unused.
//
//   const std::optional<FencePlan> fast = op_fence(problem);       // the published heuristic
//   const std::optional<FencePlan> best = exact_fence(problem);    // up to kExactFenceDevices devices
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::published {

using Matrix = std::vector<std::vector<double>>;

struct FenceProblem {
  std::vector<double> work;                  // by op, forward and backward
  std::vector<double> bytes;                 // that leave after each op; the last op's go nowhere
  std::vector<double> memory;                // by op
  std::vector<double> speed, capacity;       // by device: work a second, memory
  Matrix latency_seconds, bytes_per_second;  // by pair of devices
  int64_t micro_batches = 1;
  double messages = 2;  // over each border: activation and gradient
  double ratio = 0;     // r; 0 sends everything dense
  double phi = 3;
};
struct FencePlan {
  double seconds = 0;
  std::vector<size_t> devices;  // in the order of the chain
  std::vector<size_t> ends;     // for each device, the op after its last one
  std::vector<double> ratios;   // k of each border
};

// Returns the plan for these devices and cuts by equation (1), with the ratios of (2); infinite if
// memory is exceeded.
FencePlan fence_plan(const FenceProblem& problem, std::vector<size_t> devices,
                     std::vector<size_t> ends);

// Returns k of each message; compressed_share() returns its time as a multiple of R_i.
std::vector<double> top_k_ratios(const std::vector<double>& times, double ratio, double phi);
double compressed_share(double k, double phi);

// Returns the communities of the graph of bandwidths (Louvain's method), numbered by their first
// device.
std::vector<size_t> louvain(const Matrix& weights);
double modularity(const Matrix& weights, const std::vector<size_t>& communities);

// Finds a plan: communities, a path over them, fences at cheap cuts near each community's share of
// the work, the devices of a community along their best links, then moves of single ops, swaps and
// drops of devices while they gain. Returns none if the ops do not fit the devices in the order of
// that path.
std::optional<FencePlan> op_fence(const FenceProblem& problem);

// The sizes up to which exact_fence() is meant. It finds the optimum over all subsets, orders and
// cuts, by a program over (ops done, last device, devices used) on Pareto fronts of (slowest, sum),
// one for each value that max R may have. Devices that may be exchanged without a loss are in
// ascending order. The heuristic's plan is its first bound.
inline constexpr size_t kExactFenceDevices = 8;
inline constexpr size_t kExactFenceOps = 48;
std::optional<FencePlan> exact_fence(const FenceProblem& problem);

}  // namespace tessera::published
