// Limits on sizes that a user may ask for, in whatever file or option the user states them
// (docs/reference/plan-language.md).
#pragma once

#include <cstdint>

namespace tessera {

// The largest number of ranks of a plan and of devices of a machine. It is eight times the 16,384
// devices for which the program is made and tested. Layouts, programs and timelines are kept for
// each rank, so a plan for a hundred times as many ranks would run for minutes and then exhaust the
// memory.
inline constexpr int64_t kMostRanks = int64_t{1} << 20;

}  // namespace tessera
