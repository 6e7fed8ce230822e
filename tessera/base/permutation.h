// Permutes the numbers 0 .. N - 1 without a table.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

// Returns the number to which a permutation of 0 .. count - 1 maps `index`. The permutation is
// determined by (seed, stream, round). It is a balanced Feistel network of four rounds on the
// numbers below the next power of four, applied again until the result is below `count`.
int64_t permuted(int64_t index, int64_t count, int64_t seed, const std::string& stream,
                 int64_t round);

}  // namespace tessera
