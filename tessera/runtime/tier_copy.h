// Copies between the tiers of a rank, as jobs of its copier.
#pragma once

#include <cstdint>

#include "tessera/runtime/arena.h"
#include "tessera/runtime/copier.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

// A strided array in memory, or in the disk tier's file: then `array.data` is null and `offset` is
// that of its first element, in bytes.
struct TierArray {
  kernels::Array array;
  int64_t offset = -1;
  bool on_disk() const { return offset >= 0; }
};

// Prepares to = from, or to += from. The disk side is read and written in runs of adjacent
// elements. A memory side that is not contiguous, and a sum on disk, go through memory of the job's
// own. `disk` outlives the job.
Copier::Job prepare_tier_copy(const TierArray& from, const TierArray& to, bool add, DiskFile& disk);

}  // namespace tessera
