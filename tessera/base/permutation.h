// Permutations of the numbers below N that need no memory.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

// The place of `index` in a permutation of the numbers below `count`, by (seed, stream, round). Four
// rounds of a balanced Feistel network on the next power of four, walked until the number is below
// `count`.
int64_t permuted(int64_t index, int64_t count, int64_t seed, const std::string& stream,
                 int64_t round);

}  // namespace tessera
