// The time or size of an impossible candidate, so that every possible candidate is better.
#pragma once

#include <limits>

namespace tessera {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace tessera
