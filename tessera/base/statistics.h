// Computes figures of lists of measurements.
#pragma once

#include <vector>

namespace tessera {

// Returns 0 for an empty list.
double mean(const std::vector<double>& values);
// Returns the mean of the middle two for an even number of values, and 0 for an empty list.
double median(std::vector<double> values);

}  // namespace tessera
