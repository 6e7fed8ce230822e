// Turns numbers of machines, positions and switches into indices of vectors. Private to
// tessera/network.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

inline size_t index_of(int64_t number) { return static_cast<size_t>(number); }

}  // namespace tessera
