// The time or size of an impossible candidate: no candidate is worse.
#pragma once

#include <limits>

namespace tessera {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace tessera
