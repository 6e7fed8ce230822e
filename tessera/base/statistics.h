// Computes statistics of lists of measurements.
#pragma once

#include <vector>

namespace tessera {

// Returns the mean of the values, or 0 for an empty list.
double mean(const std::vector<double>& values);
// Returns the median of the values, which is the mean of the middle two for an even number of
// values, or 0 for an empty list.
double median(std::vector<double> values);

}  // namespace tessera
