// Converts between float and the two floating formats of 16 bits. The code has no branches, so that
// loops vectorise. A conversion from float rounds to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera::half {

inline float from_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40U;
  return static_cast<uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet_nan : rounded);
}

// Converts from float16, which has 1 sign bit, 5 exponent bits (bias 15) and 10 mantissa bits.
inline float from_float16(uint16_t half_bits) {
  const uint32_t bits = half_bits;
  const uint32_t magnitude = (bits & 0x7FFFU) << 13;
  // Multiplies by 2^112, because the exponent biases of float and float16 differ by 112. The
  // product also normalises subnormal numbers.
  const uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  const uint32_t special = magnitude | 0x7F800000U;  // infinity and NaN keep the largest exponent
  const uint32_t value = (bits & 0x7C00U) == 0x7C00U ? special : finite;
  return std::bit_cast<float>(value | ((bits & 0x8000U) << 16));
}

inline uint16_t to_float16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  const uint32_t normal = (magnitude - (112U << 23) + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
  // Values below 2^-14 become subnormal numbers, which are multiples of 2^-24. Floats near 0.5 have
  // just this spacing, so the addition of 0.5 rounds the value to such a multiple.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
  const uint32_t subnormal = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5F);
  uint32_t result = magnitude < 0x38800000U ? subnormal : normal;
  result = magnitude >= 0x477FF000U ? 0x7C00U : result;  // values from 65520 on become infinity
  result = magnitude > 0x7F800000U ? 0x7E00U : result;   // NaN remains NaN
  return static_cast<uint16_t>(result | ((bits >> 16) & 0x8000U));
}

}  // namespace tessera::half
