// The entry into the memory planner for programs whose micro-batches have two sizes. The caller
// says which buffers are used by micro-batches of only one size.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/program/program.h"

namespace tessera {

// A `UsedBy` says for which micro-batches the blocks touch a buffer. A buffer may be used only by
// the larger ones because a rank may have no part of the smaller micro-batches.
enum class UsedBy : uint8_t { kAll, kLarger, kSmaller };

// Lays memory out as plan_memory does (place_text.h). `used_by`: by buffer; empty: all
// micro-batches use all buffers.
void plan_memory_of(Program& program, bool offsets, std::vector<UsedBy> used_by);

}  // namespace tessera
