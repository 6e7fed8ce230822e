#include "tessera/data/universes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>

#include "tessera/base/philox.h"
#include "tessera/data/array_file.h"
#include "tessera/data/fourier.h"

namespace tessera::universes_test {
namespace {

using Complex = std::complex<double>;

TEST(FourierTransform, IsTheSumOverAllPlacesAndGoesBack) {
  constexpr int64_t kSide = 4;
  const Philox philox{1, 2};
  std::vector<Complex> cube(kSide * kSide * kSide);
  for (size_t i = 0; i < cube.size(); ++i)
    cube[i] = {philox.normal(2 * i), philox.normal(2 * i + 1)};
  const std::vector<Complex> before = cube;
  fourier_transform(cube, kSide, false);
  for (const auto& [u, v, w] : {std::array<int64_t, 3>{0, 0, 0}, {1, 2, 3}, {3, 0, 2}}) {
    Complex sum = 0;
    for (int64_t i = 0; i < kSide * kSide * kSide; ++i) {
      const int64_t turns = u * (i / 16) + v * (i / 4 % 4) + w * (i % 4);
      sum += before[static_cast<size_t>(i)] *
             std::polar(1.0, -std::acos(-1.0) / 2 * static_cast<double>(turns));
    }
    EXPECT_LT(std::abs(cube[static_cast<size_t>(u * 16 + v * 4 + w)] - sum), 1e-12);
  }
  fourier_transform(cube, kSide, true);
  for (size_t i = 0; i < cube.size(); ++i) EXPECT_LT(std::abs(cube[i] - before[i]), 1e-14);
}

TEST(UniversesTest, HaveThePowerOfTheirParameter) {
  constexpr int64_t kWidth = 8, kUniverses = 400;
  const Universes universes({.width = kWidth, .seed = 5});
  double mean = 0, square = 0;
  // The mean of |x_k|^2 / (n P) is 1 for each |k|.
  std::vector<double> sums(3 * 16 + 1), counts(sums.size());
  for (int64_t i = 0; i < kUniverses; ++i) {
    const double parameter = universes.parameter(i);
    EXPECT_GE(parameter, -1);
    EXPECT_LT(parameter, 1);
    mean += parameter / kUniverses;
    square += parameter * parameter / kUniverses;
    const std::vector<double> power = universes.power(parameter);
    const std::vector<float> field = universes.field(i);
    std::vector<Complex> cube(field.begin(), field.end());
    fourier_transform(cube, kWidth, false);
    for (int64_t place = 0; place < kWidth * kWidth * kWidth; ++place) {
      size_t length = 0;
      for (const int64_t at : {place / 64, place / 8 % 8, place % 8}) {
        const int64_t number = at < 4 ? at : at - 8;
        length += static_cast<size_t>(number * number);
      }
      const double found = std::norm(cube[static_cast<size_t>(place)]) / 512;
      if (length == 0) {
        EXPECT_LT(found, 1e-9);
        continue;
      }
      sums[length] += found / power[length];
      ++counts[length];
    }
  }
  EXPECT_NEAR(mean, 0, 0.1);
  EXPECT_NEAR(square, 1.0 / 3, 0.05);
  for (size_t length = 1; length < sums.size(); ++length) {
    if (counts[length] == 0) continue;
    // A term deviates by up to the root of 2, and terms are equal in pairs.
    EXPECT_NEAR(sums[length] / counts[length], 1, 6 / std::sqrt(counts[length])) << length;
  }
}

TEST(UniversesTest, HaveTheVarianceOneAndSmootherOnesALargerParameter) {
  const Universes universes({.width = 16, .seed = 1});
  for (const double parameter : {-1.0, 0.0, 0.7}) {
    const std::vector<double> power = universes.power(parameter);
    EXPECT_EQ(power[0], 0);
    EXPECT_NEAR(power[4] / power[1], std::pow(2, -(2 + parameter)), 1e-12);
  }
  // This holds around other exponents, too: around 0 a universe of parameter 0 is white noise.
  const std::vector<double> flat = Universes({.width = 16, .seed = 1, .exponent = 0}).power(0);
  EXPECT_NEAR(flat[1], 4096.0 / 4095, 1e-12);
  EXPECT_NEAR(flat[4], flat[1], 1e-12);
  EXPECT_NE(universes.field(0), universes.field(1));
  EXPECT_EQ(universes.field(3), Universes({.width = 16, .seed = 1}).field(3));
  EXPECT_NE(universes.field(3), Universes({.width = 16, .seed = 2}).field(3));
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < 50; ++i) {
    for (const float value : universes.field(i)) {
      sum += value;
      squares += value * value;
    }
  }
  EXPECT_NEAR(sum / (50 * 4096), 0, 1e-6);
  EXPECT_NEAR(squares / (50 * 4096), 1, 0.05);
}

std::vector<float> read(const std::string& name, const Box& box) {
  const auto array = open_array_file(array_name(name));
  EXPECT_TRUE(array) << (array ? "" : array.error().message);
  std::vector<float> numbers(static_cast<size_t>(box.volume()));
  EXPECT_TRUE((*array)->read(box, reinterpret_cast<std::byte*>(numbers.data())));
  EXPECT_EQ((*array)->bytes_read(), 4 * box.volume());
  return numbers;
}

TEST(GeneratedArrays, AreReadByBoxesAndByPieces) {
  const std::string whole = "universes(width=8,samples=3,seed=4):",
                    cut = "universes(width=8,samples=24,seed=4,cut=2):";
  const Universes universes({.width = 8, .seed = 4});
  const std::vector<float> field = universes.field(2);
  EXPECT_EQ(read(whole + "volumes", Box({{2, 1}, {0, 8}, {0, 8}, {0, 8}})), field);
  // Piece 5 of universe 2 is its lower half in the first and third dim.
  const std::vector<float> piece = read(cut + "volumes", Box({{21, 1}, {1, 2}, {0, 4}, {2, 1}}));
  std::vector<float> expected;
  for (const size_t z : {5, 6}) {
    for (const size_t y : {0, 1, 2, 3}) expected.push_back(field[(z * 8 + y) * 8 + 6]);
  }
  EXPECT_EQ(piece, expected);
  EXPECT_EQ(read(cut + "parameters", Box({{21, 3}, {0, 1}})),
            std::vector<float>(3, static_cast<float>(universes.parameter(2))));
  EXPECT_EQ(read(whole + "parameters", Box({{2, 1}, {0, 1}})),
            std::vector<float>(1, static_cast<float>(universes.parameter(2))));
}

TEST(GeneratedArrays, WrongCallsAreOneLine) {
  const auto error = [](const std::string& name) {
    const auto array = open_array_file(array_name(name));
    return array ? "none" : array.error().message;
  };
  EXPECT_EQ(error("universes(width=12):volumes"),
            "'universes(width=12)': expected width to be a power of two from 4 to 256, found '12'");
  EXPECT_EQ(error("universes(samples=none):volumes"),
            "'universes(samples=none)': expected samples to be a whole number from 1 to "
            "4294967296, found 'none'");
  EXPECT_EQ(error("universes(widht=8):volumes"),
            "'universes(widht=8)': expected the arguments width, samples, seed, cut, "
            "exponent, found 'widht', did you mean 'width'?");
  EXPECT_EQ(
      error("universes(exponent=5):volumes"),
      "'universes(exponent=5)': expected exponent to be a whole number from 0 to 4, found '5'");
  EXPECT_EQ(error("universes(width=8,cut=16):volumes"),
            "'universes(width=8,cut=16)': expected cut to be at most width, 8, found 16");
  EXPECT_EQ(error("universes(width=8):volume"),
            "'universes(width=8)': expected a dataset volumes or parameters, found 'volume'");
  EXPECT_EQ(error("universes(width=8)"),
            "'universes(width=8)': expected a dataset volumes or parameters, found ''");
  EXPECT_EQ(error("galaxies(width=8):volumes"),
            "'galaxies(width=8)': expected a generator of arrays, universes, found 'galaxies'");
}

}  // namespace
}  // namespace tessera::universes_test
