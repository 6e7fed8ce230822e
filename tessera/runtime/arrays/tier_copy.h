// Prepares copies between the memory tiers of a rank, as jobs of the rank's copier (copier.h).
#pragma once

#include <cstdint>

#include "tessera/runtime/arrays/arena.h"
#include "tessera/runtime/arrays/copier.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

// A strided array in memory or in the disk tier's file. In the file, `array.data` is null and
// `offset` is the byte at which the first element begins.
struct TierArray {
  kernels::Array array;
  int64_t offset = -1;
  bool on_disk() const { return offset >= 0; }
};

// Prepares to = from or, with `add`, to += from. An array on disk is read and written in runs of
// adjacent elements. An array in memory that is not contiguous, and a sum on disk, are copied
// through memory that the job owns. `disk` outlives the job.
Copier::Job prepare_tier_copy(const TierArray& from, const TierArray& to, bool add, DiskFile& disk);

}  // namespace tessera
