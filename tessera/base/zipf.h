// Zipf's law: rank k = 0, 1, ... of `count` is drawn with a probability proportional to
// (k + 1)^-exponent. Look-ups of embedding rows follow it roughly.
//
//   const Zipf zipf(1'000'000, 1.05);
//   const int64_t rank = zipf(philox, i);  // draw i, a function of philox and i alone
//
// Uses rejection-inversion (Hörmann and Derflinger, ACM TOMACS 6, 1996): so that no table is
// needed, and a draw takes an equally small number of operations for every count.
#pragma once

#include <cstdint>

#include "tessera/base/philox.h"

namespace tessera {

class Zipf {
 public:
  // Makes the law for count >= 1 and exponent >= 0 (0: all ranks are equally likely).
  Zipf(int64_t count, double exponent);
  int64_t operator()(const Philox& philox, uint64_t index) const;

 private:
  double density(double x) const;   // x^-exponent
  double integral(double x) const;  // integral of the density from 1 to x
  double inverse(double area) const;

  int64_t count_;
  double exponent_, first_, last_, near_;
};

}  // namespace tessera
