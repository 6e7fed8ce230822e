// Implements OP-Fence: a chain of ops on devices whose links differ by orders of magnitude, with
// messages that are compressed most where links are slow (docs/theory/fusionllm.md sections 3 to
// 6).
//
//   T = sum over devices of (compute + message) + (m - 1) * the slowest compute or message     (1)
//   k_i = max(1, phi r R_i / max R)                                                            (2)
//
// R_i is the uncompressed time of message i, and r the compression ratio that the user gives. phi
// is the bytes of a kept element divided by those of an element of a dense message. A message with
// k <= phi is sent dense. Devices may stay unused.
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
  std::vector<double> work;   // by op, forward and backward
  std::vector<double> bytes;  // bytes of the message after each op; that of the last op is not sent
  std::vector<double> memory;                // by op
  std::vector<double> speed, capacity;       // by device: work in a second; memory
  Matrix latency_seconds, bytes_per_second;  // by pair of devices
  int64_t micro_batches = 1;
  size_t stages = 0;    // exactly so many devices are used; 0: any number
  double messages = 2;  // messages over each border: activation and gradient
  double ratio = 0;     // r; 0: all messages are dense
  double phi = 3;
  // A message may say by a bit for each element which are kept. These are the bytes of the values at
  // k = 1 and of the bits, as shares of the dense bytes; bitmap_share 0: no message has bits.
  double value_share = 0, bitmap_share = 0;
};
struct FencePlan {
  double seconds = 0;
  std::vector<size_t> devices;  // in the order of the chain
  std::vector<size_t> ends;     // for each device, the op after its last one
  std::vector<double> ratios;   // k of the message over each border
};

// Returns the plan for these devices and cuts, with the seconds of equation (1) and the ratios of
// (2). The seconds are infinite if memory is exceeded.
FencePlan fence_plan(const FenceProblem& problem, std::vector<size_t> devices,
                     std::vector<size_t> ends);

// Returns k of each message by equation (2). `times`: R_i. compressed_share() returns the time of a
// message as a multiple of R_i.
std::vector<double> top_k_ratios(const std::vector<double>& times, double ratio, double phi);
double compressed_share(double k, double phi);
// Returns the same with bitmaps where the problem has them.
double compressed_share(const FenceProblem& problem, double k);
// Returns the k up to which a message is sent dense, because it would not become smaller.
double dense_up_to(const FenceProblem& problem);

// Returns the plan with ratios that are no greater than needed: a message that hides behind the
// slowest device is compressed no further, and dense if it hides dense. The latency, which no codec
// shortens, is taken off first.
FencePlan with_hidden_ratios(const FenceProblem& problem, const FencePlan& plan);

// Returns the communities of the graph of bandwidths (Louvain's method), numbered by their first
// device.
std::vector<size_t> louvain(const Matrix& weights);
double modularity(const Matrix& weights, const std::vector<size_t>& communities);

// Finds a plan by the published heuristic, and improves it. The heuristic finds communities and a
// path over them, cuts the ops between communities where few bytes pass and near each community's
// share of the work, and orders the devices of a community along their best links. Then single ops
// are moved and devices are swapped or dropped as long as that gains. Other starts are the splits
// into equal numbers of ops and into equal work, over the devices by number and along the path, so
// that the answer is never slower than these, and plans that a beam search builds op by op. At last
// the best order of devices gets its best cuts by a dynamic program. Returns nothing if no start fits
// the devices.
std::optional<FencePlan> op_fence(const FenceProblem& problem);

// Finds the optimum over all subsets and orders of devices and all cuts, by a dynamic program over
// (ops done, class of the last device, devices used of each class) on Pareto fronts of (slowest,
// sum), which runs once for each possible value of max R. Devices of a class have equal speeds,
// capacities and links, so that one can stand for another. Devices that may be exchanged without a
// loss are in ascending order in the answer. The heuristic's plan is the first upper bound.
std::optional<FencePlan> exact_fence(const FenceProblem& problem);
// Returns how many steps exact_fence() takes at most; infinite if it would need more memory than
// some hundred megabytes. 16 devices of two sites that are equal inside take fewer than 8 that all
// differ.
double exact_fence_steps(const FenceProblem& problem);
inline constexpr double kMostFenceSteps = 4e9;  // some seconds

}  // namespace tessera::published
