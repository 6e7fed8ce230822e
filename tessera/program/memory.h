// What the memory planner is told of a program with micro-batches of two sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/program/program.h"

namespace tessera {

// Which micro-batches' blocks touch a buffer. A rank may have no part of the smaller ones.
enum class UsedBy : uint8_t { kAll, kLarger, kSmaller };

// As plan_memory (place_text.h). `used_by`: by buffer; empty: all micro-batches use all buffers.
void plan_memory_of(Program& program, bool offsets, std::vector<UsedBy> used_by);

}  // namespace tessera
