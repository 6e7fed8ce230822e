// Synthetic universes: generated volumes of matter. Each volume has a parameter, which can be
// estimated only from the volume itself. How good the best possible estimate is follows from the
// definition (docs/workloads/cosmoflow.md).
//
//   const Universes universes({.width = 16, .seed = 1});
//   universes.parameter(7), universes.field(7);
//
// Universe i is a function of width, seed and i alone, so any part of the data can be made on any
// machine.
//   parameter t   uniform in [-1, 1)
//   power         P(k) = c |k|^-(n + t), whose wave numbers k are integers from -width / 2 to
//                 width / 2 - 1 in each dim; P(0) = 0; c makes the mean of P 1
//   field         white noise whose Fourier transform is multiplied by the square root of P. It is
//                 Gaussian and periodic with mean 0 and variance 1. The larger t is, the smoother
//                 the field is.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct UniverseOptions {
  int64_t width = 16;  // a power of two
  int64_t seed = 1;
  int64_t exponent = 2;  // the exponent n in P(k)
};

class Universes {
 public:
  explicit Universes(UniverseOptions options);
  double parameter(int64_t universe) const;
  // Returns the field at every point of the volume, row-major.
  std::vector<float> field(int64_t universe) const;
  // Returns P(k) for a parameter t. The index is the squared length of the wave number k.
  std::vector<double> power(double parameter) const;

 private:
  UniverseOptions options_;
  std::vector<int64_t> squares_;  // by point of the volume: the squared length of its wave number k
  std::vector<int64_t> counts_;   // by squared length: how many points have it
};

}  // namespace tessera
