#include "tessera/data/universes.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <string_view>

#include "tessera/base/philox.h"
#include "tessera/data/fourier.h"

namespace tessera {
namespace {

Philox philox_of(int64_t seed, std::string_view stream) {
  return {static_cast<uint64_t>(seed), stable_hash(stream.data(), stream.size())};
}

}  // namespace

Universes::Universes(UniverseOptions options) : options_(options) {
  const int64_t n = options.width;
  counts_.resize(static_cast<size_t>(3 * (n / 2) * (n / 2) + 1));
  const auto square = [&](int64_t at) {
    const int64_t number = at < n / 2 ? at : at - n;
    return number * number;
  };
  for (int64_t z = 0; z < n; ++z) {
    for (int64_t y = 0; y < n; ++y) {
      for (int64_t x = 0; x < n; ++x) {
        squares_.push_back(square(z) + square(y) + square(x));
        ++counts_[static_cast<size_t>(squares_.back())];
      }
    }
  }
}

double Universes::parameter(int64_t universe) const {
  const Philox philox = philox_of(options_.seed, "universes.parameter");
  return 2 * philox.uniform(static_cast<uint64_t>(universe)) - 1;
}

std::vector<double> Universes::power(double parameter) const {
  std::vector<double> power(counts_.size(), 0.0);
  double sum = 0;
  for (size_t square = 1; square < power.size(); ++square) {
    power[square] = std::pow(static_cast<double>(square),
                             -(static_cast<double>(options_.exponent) + parameter) / 2);
    sum += static_cast<double>(counts_[square]) * power[square];
  }
  for (double& value : power) value *= static_cast<double>(squares_.size()) / sum;
  return power;
}

std::vector<float> Universes::field(int64_t universe) const {
  const Philox philox = philox_of(options_.seed, "universes.noise");
  const size_t places = squares_.size();
  std::vector<std::complex<double>> cube(places);
  for (size_t i = 0; i < places; ++i)
    cube[i] = philox.normal(static_cast<uint64_t>(universe) * places + i);
  fourier_transform(cube, options_.width, false);
  std::vector<double> factors = power(parameter(universe));
  for (double& factor : factors) factor = std::sqrt(factor);
  for (size_t i = 0; i < places; ++i) cube[i] *= factors[static_cast<size_t>(squares_[i])];
  fourier_transform(cube, options_.width, true);
  std::vector<float> field(places);
  std::transform(cube.begin(), cube.end(), field.begin(), [](const std::complex<double>& value) {
    return static_cast<float>(value.real());
  });
  return field;
}

}  // namespace tessera
