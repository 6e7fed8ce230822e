#include "tessera/base/philox.h"

#include <cmath>
#include <cstddef>
#include <numbers>

namespace tessera {

std::array<uint32_t, 4> Philox::block(uint64_t block) const {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                               static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  uint32_t k0 = static_cast<uint32_t>(seed);
  uint32_t k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

double Philox::normal(uint64_t index) const {
  const std::array<uint32_t, 4> words = block(index / 2);
  const size_t pair = (index % 2) * 2;
  const double u1 = (static_cast<double>(words[pair]) + 1.0) * 0x1p-32;  // (0, 1]
  const double u2 = static_cast<double>(words[pair + 1]) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u1)) * std::cos(2.0 * std::numbers::pi * u2);
}

uint64_t stable_hash(const char* data, size_t size, uint64_t salt) {
  uint64_t h = 14695981039346656037ULL ^ (salt * 0x9E3779B97F4A7C15ULL);
  for (size_t i = 0; i < size; ++i) {
    h ^= static_cast<unsigned char>(data[i]);
    h *= 1099511628211ULL;
  }
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdULL;
  h ^= h >> 33;
  return h;
}

}  // namespace tessera
