// Draws random problems for the tests of planners of models and of tables: equal ones in each run and on each platform.
#pragma once

#include <random>

namespace tessera::test {

class Random {
 public:
  explicit Random(unsigned seed) : random_(seed) {}
  // Returns a number from 0 to most, both included.
  int up_to(int most) { return static_cast<int>(random_() % static_cast<unsigned>(most + 1)); }
  size_t up_to(size_t most) { return random_() % (most + 1); }
  // Returns one of 1,001 numbers from low to high.
  double from(double low, double high) {
    return low + (high - low) * static_cast<double>(up_to(1000)) / 1000;
  }

 private:
  std::mt19937 random_;
};

}  // namespace tessera::test
