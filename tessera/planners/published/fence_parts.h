// Parts of OP-Fence (opfence.h) that its heuristic and its exact search have in common: times of parts
// of a chain, and devices that can stand for one another.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

#include "tessera/planners/published/opfence.h"

namespace tessera::published::fence {

double sum_of(const std::vector<double>& values, size_t first, size_t last);
// Returns whether the device has memory for the ops first .. last - 1.
bool fits(const FenceProblem& problem, size_t device, size_t first, size_t last);
double compute_seconds(const FenceProblem& problem, size_t device, size_t first, size_t last);
// Returns the seconds of the messages after `op` from device p to device q, if they have this share
// of the dense bytes.
double border_seconds(const FenceProblem& problem, size_t p, size_t q, size_t op, double share);
// Returns the share of the bytes of a message that takes `dense` seconds dense, if the slowest one
// takes `slowest`.
double share_of(const FenceProblem& problem, double dense, double slowest);
// Returns whether a plan may have this number of devices for the ops before `end`.
bool may_end(const FenceProblem& problem, size_t devices, size_t end);
// Returns the classes of devices that can stand for one another: of equal speed and capacity, with
// equal links to one another and to all others.
std::vector<std::vector<size_t>> classes_of(const FenceProblem& problem);
// Returns the values that the slowest message may have, in rising order.
std::set<double> slowest_values(const FenceProblem& problem);

}  // namespace tessera::published::fence
