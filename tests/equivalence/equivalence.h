// The property that everything rests on: a random graph under a random plan computes what one rank
// computes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// Runs the case of the stream on threads in float64 and compares loss, gradients and updated
// parameters with the serial run (1e-9), and bytes, messages and peak memory with their predictions
// (exactly). "" if all agree; else what does not, with the plan's text and the graph's.
std::string disagreement(const std::vector<uint32_t>& stream);

// And every feature of the plan language that random_case knows is drawn (all_features).
void expect_random_plans_equal_serial(int cases);

}  // namespace tessera
