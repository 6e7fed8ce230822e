// Networks that several tests of this module draw.
#pragma once

#include <cstdint>
#include <random>

#include "tessera/network/order_network.h"

namespace tessera {

// Returns latencies of 10 us to 1 ms and 10 MB/s to 1 GB/s, drawn for each direction of each pair.
inline PairCosts drawn_pairs(int64_t machines, uint32_t seed) {
  std::mt19937 draw(seed);
  std::uniform_real_distribution<double> latency(1e-5, 1e-3), rate(1e-9, 1e-7);
  PairCosts costs{machines, {}, {}, {}};
  for (int64_t i = 0; i < machines * machines; ++i) {
    costs.latency_s.push_back(latency(draw));
    costs.seconds_a_byte.push_back(rate(draw));
  }
  return costs;
}

}  // namespace tessera
