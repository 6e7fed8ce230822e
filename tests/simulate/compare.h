// Two simulations of one step that must be the same.
#pragma once

#include "tessera/simulate/simulation.h"

namespace tessera {

inline constexpr double kExact = 1e-12;  // relative, of step times
inline constexpr double kRooted = 0.02;  // the same of plans whose reductions have roots

// The role of a rank's class in `folded`, the rank's own in `unfolded`.
void expect_equal(const Simulation& folded, const Simulation& unfolded);

}  // namespace tessera
