// Random numbers for policies and generators: equal seeds give equal numbers on all machines.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/base/philox.h"

namespace tessera::share {

class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0) : philox_{seed, stream} {}
  double uniform() { return philox_.uniform(next_++); }  // in [0, 1)
  double normal() { return philox_.normal(next_++); }
  // Returns a whole number from 0 to count - 1.
  size_t below(size_t count) {
    return std::min(count - 1, static_cast<size_t>(uniform() * static_cast<double>(count)));
  }
  double exponential(double mean) { return -mean * std::log1p(-uniform()); }
  // Draws from the gamma distribution of scale 1 (Marsaglia and Tsang).
  double gamma(double shape) {
    if (shape < 1) return gamma(shape + 1) * std::pow(std::max(uniform(), 1e-12), 1 / shape);
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal(), v = std::pow(1 + c * x, 3);
      if (v > 0 && std::log(std::max(uniform(), 1e-300)) < x * x / 2 + d - d * v + d * std::log(v))
        return d * v;
    }
  }
  double beta(double a, double b) {
    const double x = gamma(a), y = gamma(b);
    return x / (x + y);
  }
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

 private:
  Philox philox_;
  uint64_t next_ = 0;
};

}  // namespace tessera::share
