// Philox4x32-10 (Salmon et al., SC'11) is a counter-based generator. The value at a counter does
// not depend on who computes it, so initialisation and dropout are identical under every plan: key
// them by (seed, stream) and count by the *global* element index.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tessera {

struct Philox {
  uint64_t seed = 0;    // key
  uint64_t stream = 0;  // e.g. a hash of the tensor's name and the step: upper counter words

  // Returns the four 32-bit words for counter `block`.
  std::array<uint32_t, 4> block(uint64_t block) const;
  // Returns 32 uniform bits for element `index`: word index%4 of block index/4.
  uint32_t bits(uint64_t index) const { return block(index / 4)[index % 4]; }
  // Returns a number uniform in [0, 1) with 24 bits, whatever the dtype of the tensor.
  double uniform(uint64_t index) const { return (bits(index) >> 8) * 0x1p-24; }
  // Returns a standard normal number by Box-Muller from the two words of element `index` (block
  // index/2).
  double normal(uint64_t index) const;
};

// Returns a stable 64-bit hash (FNV-1a, finished by a mixer), to derive streams from names.
uint64_t stable_hash(const char* data, size_t size, uint64_t salt = 0);

}  // namespace tessera
