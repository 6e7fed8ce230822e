// The formulas of sample.h for a single slot of a single row. sampled_positions (sample.cc) and the
// CUDA kernel (tessera/sparse/cuda) use them, so this header uses only what a device compiler
// supports.
//
//   const SlotFormula formula = slot_formula(sampling.sampler, sampling.seed, row, degree, count);
//   const uint32_t edge = slot_position(formula, degree, k);
#pragma once

#include <cstdint>

namespace tessera::sparse {

enum class Sampler : uint8_t { kNone, kBucket, kStride, kQuadratic, kPermutation };

inline constexpr uint32_t kQuadraticPrime = 21767;

// The edge of slot k is at position (offset + multiplier k) mod n of its row, or, if quadratic, at
// position fold((k k + offset) mod 21767) mod n, with `fold` as in sample.h.
struct SlotFormula {
  uint32_t multiplier = 1, offset = 0;
  bool quadratic = false;
};

// Applies the finaliser of SplitMix64: every bit of the result depends on every bit of x.
constexpr uint64_t mixed_bits(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9;
  x ^= x >> 27;
  x *= 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Returns the prime of the seed or, if it divides the degree, the next of the ten primes that does
// not. There is one, because the product of the ten primes is larger than every degree.
constexpr uint32_t stride_prime(uint64_t seed, uint32_t degree) {
  const uint32_t primes[] = {577, 769, 983, 1193, 1429, 1619, 1871, 2089, 2339, 2579};
  uint64_t i = seed % 10;
  while (degree % primes[i] == 0) i = (i + 1) % 10;
  return primes[i];
}

constexpr SlotFormula permutation_formula(uint64_t seed, int64_t row, uint32_t degree) {
  // Primes spread over [2^31, 2^32). Being larger than every degree, they are coprime to it; their
  // remainders modulo the degree vary.
  const uint32_t multipliers[] = {2654435789, 3161387893, 3668340023, 4175292203,
                                  2534760611, 3041712731, 3548664853, 4055616973,
                                  2415085441, 2922037583, 3428989699, 3935941843,
                                  2295410287, 2802362401, 3309314527, 3816266659};
  const uint64_t bits = mixed_bits(mixed_bits(seed + 0x9E3779B97F4A7C15) +
                                   static_cast<uint64_t>(row) * 0xD1B54A32D192ED03);
  // The low bits choose the multiplier, the high bits the offset.
  return {multipliers[bits % 16] % degree, static_cast<uint32_t>(((bits >> 32) * degree) >> 32),
          false};
}

// Returns the formula for a row of `degree` edges, `count` of which are used.
constexpr SlotFormula slot_formula(Sampler sampler, uint64_t seed, int64_t row, uint32_t degree,
                                   uint32_t count) {
  if (count == degree) return {};
  switch (sampler) {
    case Sampler::kNone:
    case Sampler::kBucket: return {};
    case Sampler::kStride: return {stride_prime(seed, degree) % degree, 0, false};
    case Sampler::kQuadratic: return {1, static_cast<uint32_t>(seed % kQuadraticPrime), true};
    case Sampler::kPermutation: return permutation_formula(seed, row, degree);
  }
  return {};
}

constexpr uint32_t slot_position(const SlotFormula& formula, uint32_t degree, uint32_t k) {
  if (!formula.quadratic) {
    return static_cast<uint32_t>((formula.offset + uint64_t{formula.multiplier} * k) % degree);
  }
  const uint64_t j = k % kQuadraticPrime;
  const uint32_t r = static_cast<uint32_t>((j * j + formula.offset) % kQuadraticPrime);
  return (r <= kQuadraticPrime / 2 ? r : kQuadraticPrime - r) % degree;
}

}  // namespace tessera::sparse
