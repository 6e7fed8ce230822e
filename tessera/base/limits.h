// Bounds on what a user may ask for, wherever it is given (docs/reference/plan-language.md).
#pragma once

#include <cstdint>

namespace tessera {

// The most ranks of a plan and devices of a machine: eight times the 16,384 devices that the
// program is made and tested for. Layouts, programs and timelines are kept for each rank, so a plan
// for a hundred times as many would first take minutes and then all memory.
inline constexpr int64_t kMostRanks = int64_t{1} << 17;

}  // namespace tessera
