// Philox4x32-10 (Salmon et al., SC'11) is a counter-based generator of random numbers. The value at
// a counter is the same on every rank that computes it. So initialisation and dropout are identical
// under every plan if (seed, stream) is the key and the *global* index of the element is the
// counter.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tessera {

struct Philox {
  uint64_t seed = 0;  // key
  // upper words of the counter, for example a hash of the tensor's name and the step
  uint64_t stream = 0;

  // Returns the four 32-bit words for counter `block`.
  std::array<uint32_t, 4> block(uint64_t block) const;
  // Returns 32 uniform bits for element `index`, which are word index%4 of block index/4.
  uint32_t bits(uint64_t index) const { return block(index / 4)[index % 4]; }
  // Returns a number uniform in [0, 1) with 24 bits, whatever the dtype of the tensor.
  double uniform(uint64_t index) const { return (bits(index) >> 8) * 0x1p-24; }
  // Returns a standard normal number, made by the Box-Muller method from two of the four words of
  // block index/2.
  double normal(uint64_t index) const;
};

// Returns a 64-bit hash (FNV-1a and then a mixer) that is the same on all machines, to derive
// streams from names.
uint64_t stable_hash(const char* data, size_t size, uint64_t salt = 0);

}  // namespace tessera
