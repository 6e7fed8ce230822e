// Compares two simulations of one step that must be equal.
#pragma once

#include "tessera/simulate/simulation.h"

namespace tessera {

inline constexpr double kExact = 1e-12;  // relative, of step times
inline constexpr double kRooted = 0.02;  // the tolerance for plans whose reductions have roots

// Compares the role of each rank's class in `folded` with the rank's own role in `unfolded`.
void expect_equal(const Simulation& folded, const Simulation& unfolded);

}  // namespace tessera
