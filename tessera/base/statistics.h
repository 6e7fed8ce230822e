// Figures of lists of measurements.
#pragma once

#include <vector>

namespace tessera {

// 0 of an empty list.
double mean(const std::vector<double>& values);
// Of an even number of values the mean of the middle two; 0 of an empty list.
double median(std::vector<double> values);

}  // namespace tessera
