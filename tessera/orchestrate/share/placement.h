// Placement: which GPUs a job gets when its number is decided.
#pragma once

#include <vector>

#include "tessera/orchestrate/share/policy.h"

namespace tessera::share {

using FreeGpus = std::vector<int>;  // by node

// Returns how many GPUs of each node no job of the view keeps.
FreeGpus all_free(const Machines& machines);
void remove(FreeGpus& free, const Allocation& allocation);
void put_back(FreeGpus& free, const Allocation& allocation);
int sum(const FreeGpus& free);

// Takes GPUs from the node of the type with the most free ones (of equal ones the first), as many as
// are needed or as it has, and so on. Returns an empty allocation, and takes nothing, if there are
// not enough. `type` -1: nodes of any type.
Allocation take_from_freest(const Machines& machines, FreeGpus& free, int gpus, int type = -1);

// Takes GPUs so that few nodes are used and few are left in pieces: whole free nodes first, then the
// node in which the rest leaves the fewest free.
Allocation take_packed(const Machines& machines, FreeGpus& free, int gpus, int type = 0);

// Returns the first type with enough free GPUs for the job; -1 if there is none. A job never runs on
// two types.
int type_with(const Machines& machines, const FreeGpus& free, int gpus);

// Places jobs whose sizes are decided. Those whose size has not changed keep their GPUs. The others
// are placed in ascending order of size, each from the nodes with the most free GPUs.
std::vector<Allocation> place_changed(const View& view, const std::vector<int>& sizes);

}  // namespace tessera::share
