// Parts of policies that give each job exactly the GPUs that it asked for, or none.
#pragma once

#include <vector>

#include "tessera/orchestrate/share/placement.h"

namespace tessera::share {

// Walks the jobs in an order, with a budget of all GPUs: a job that fits into what is left runs.
// `holds_up`: the first that does not fit ends the walk; without it later, smaller jobs may run. Jobs
// that ran and still run keep their GPUs; the others take theirs from the nodes with the most free
// ones, in the order of the walk. On machines of several types each type has a budget of its own, and
// a job takes the first type in which it fits.
Decision run_in_order(const View& view, const std::vector<size_t>& order, bool holds_up);

// Returns 0, 1, ..., count - 1 in the order of the keys; equal keys in the order of their numbers.
std::vector<size_t> sorted_by(size_t count, const std::vector<double>& keys);

// Returns the seconds that the job would still need on the GPUs that it asked for, packed.
double asked_seconds_left(const View& view, const JobView& job, BatchRule rule);

}  // namespace tessera::share
