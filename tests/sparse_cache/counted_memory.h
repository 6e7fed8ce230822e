// The bytes that this program holds in memory from `operator new`.
#pragma once

#include <cstdint>

namespace tessera {
int64_t held_bytes();
}  // namespace tessera
