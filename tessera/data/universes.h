// Synthetic universes: generated volumes of matter, each with a parameter that can be estimated
// from the volume and from nothing else. The best possible estimate follows from the definition
// (docs/workloads/cosmoflow.md).
//
//   const Universes universes({.width = 16, .seed = 1});
//   universes.parameter(7), universes.field(7);
//
// Universe i is a function of width, seed and i alone: any part of the data can be made anywhere.
//   parameter t   uniform in [-1, 1)
//   power         P(k) = c |k|^-(n + t), whose wave numbers k are integers from -width / 2 to
//                 width / 2 - 1 in each dim; P(0) = 0; c makes the mean of P 1
//   field         white noise whose Fourier transform is multiplied by the root of P: Gaussian,
//                 periodic, mean 0, variance 1. The larger t, the smoother it is.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct UniverseOptions {
  int64_t width = 16;  // a power of two
  int64_t seed = 1;
  int64_t exponent = 2;  // n, the exponent of universes with t = 0
};

class Universes {
 public:
  explicit Universes(UniverseOptions options);
  double parameter(int64_t universe) const;
  // Returns the field at every place, row-major.
  std::vector<float> field(int64_t universe) const;
  // Returns the power, indexed by the squared length of the wave number.
  std::vector<double> power(double parameter) const;

 private:
  UniverseOptions options_;
  std::vector<int64_t> squares_;  // squared length of each place's wave number
  std::vector<int64_t> counts_;   // number of places, by square
};

}  // namespace tessera
