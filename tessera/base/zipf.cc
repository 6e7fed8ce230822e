#include "tessera/base/zipf.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/check.h"

namespace tessera {
namespace {

// Returns (e^x - 1) / x, accurate also near 0. log1p_over() does this for ln(1 + x) / x.
double expm1_over(double x) { return std::abs(x) > 1e-8 ? std::expm1(x) / x : 1 + x / 2; }
double log1p_over(double x) { return std::abs(x) > 1e-8 ? std::log1p(x) / x : 1 - x / 2; }

}  // namespace

Zipf::Zipf(int64_t count, double exponent) : count_(count), exponent_(exponent) {
  TESSERA_CHECK(count >= 1 && exponent >= 0, "{} ranks, exponent {}", count, exponent);
  first_ = integral(1.5) - 1;
  last_ = integral(static_cast<double>(count) + 0.5);
  near_ = 2 - inverse(integral(2.5) - density(2));
}

double Zipf::density(double x) const { return std::exp(-exponent_ * std::log(x)); }

double Zipf::integral(double x) const {
  const double log = std::log(x);
  return expm1_over((1 - exponent_) * log) * log;
}

double Zipf::inverse(double area) const {
  return std::exp(log1p_over(std::max(-1.0, area * (1 - exponent_))) * area);
}

int64_t Zipf::operator()(const Philox& philox, uint64_t index) const {
  // The most draws that are rejected in a row. About one draw in ten is rejected.
  constexpr uint64_t kMostTries = 64;
  for (uint64_t attempt = 0;; ++attempt) {
    const auto words = philox.block(index * kMostTries + attempt % kMostTries);
    const double uniform =
        (static_cast<double>(words[0]) + (words[1] >> 11) * 0x1p-21) * 0x1p-32;  // [0, 1), 53 bits
    const double area = last_ + uniform * (first_ - last_);
    const double x = inverse(area);
    const auto rank = std::clamp<int64_t>(std::llround(x), 1, count_);
    const auto k = static_cast<double>(rank);
    if (attempt >= kMostTries || k - x <= near_ || area >= integral(k + 0.5) - density(k)) {
      return rank - 1;
    }
  }
}

}  // namespace tessera
