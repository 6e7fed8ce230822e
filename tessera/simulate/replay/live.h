// Names the buffers that live at the peak and over the step. Private to tessera/simulate.
#pragma once

#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/simulate/replay/replay.h"

namespace tessera {

// Returns the intervals in which copies of the largest buffers live, at most 100,000 in all. The
// replay must have played the schedule with events; its spans are taken.
std::vector<LiveInterval> live_intervals(const Program& program, const Graph& graph,
                                         const Scratch& scratch, Replay& replay);
// Returns the live buffers. The largest 200 are listed by name; the others are summed for
// each value of LiveBuffer::what.
std::vector<LiveBuffer> live_buffers(const Program& program, const Graph& graph,
                                     const Scratch& scratch, const Replay& replay);

}  // namespace tessera
