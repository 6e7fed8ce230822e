// Permutes the numbers below N without memory.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

// Returns the place of `index` in a permutation of the numbers below `count`, which (seed, stream,
// round) determine. The permutation is a balanced Feistel network of four rounds on the next power
// of four, repeated until the number is below `count`.
int64_t permuted(int64_t index, int64_t count, int64_t seed, const std::string& stream,
                 int64_t round);

}  // namespace tessera
