// Limits on sizes that a user may ask for, in whatever file or option the user states them
// (docs/reference/plan-language.md).
#pragma once

#include <cstdint>

namespace tessera {

// The largest number of ranks of a plan and of devices of a machine. A simulation of so many equal
// ranks takes little more than one of a few, but what is kept for each rank (timelines, the programs
// of a run) takes minutes and then all memory.
inline constexpr int64_t kMostRanks = int64_t{1} << 20;

}  // namespace tessera
