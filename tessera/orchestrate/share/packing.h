// Placement of jobs that change their size live: few nodes for each, and moves only where needed.
#pragma once

#include <vector>

#include "tessera/orchestrate/share/futures.h"
#include "tessera/orchestrate/share/placement.h"

namespace tessera::share {

// Places jobs of given sizes, each on as few nodes as its size needs where possible. Jobs that keep
// their size keep their GPUs. If a job does not find whole nodes, smaller jobs are moved together for
// it (defragmentation), as few as suffice. `sizes`: 0 GPUs for a job that does not run.
std::vector<Allocation> place_packed(const View& view, const std::vector<GpuOption>& sizes);

}  // namespace tessera::share
