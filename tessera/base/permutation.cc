#include "tessera/base/permutation.h"

#include <algorithm>
#include <bit>

#include "tessera/base/philox.h"

namespace tessera {

int64_t permuted(int64_t index, int64_t count, int64_t seed, const std::string& stream,
                 int64_t round) {
  constexpr uint64_t kRounds = 4;
  const Philox philox{static_cast<uint64_t>(seed),
                      stable_hash(stream.data(), stream.size(), static_cast<uint64_t>(round))};
  const auto width =
      static_cast<int>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(1, count - 1))));
  const int half = (width + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half, right = value & mask;
    for (uint64_t i = 0; i < kRounds; ++i) {
      const auto words = philox.block(right * kRounds + i);
      const uint64_t mixed = left ^ (((uint64_t{words[0]} << 32) | words[1]) & mask);
      left = right;
      right = mixed;
    }
    value = (left << half) | right;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

}  // namespace tessera
