#include "tessera/base/zipf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tessera {
namespace {

TEST(ZipfTest, FrequenciesAreThoseOfTheLaw) {
  constexpr int kDraws = 200'000;
  for (const int64_t count : {1, 2, 10, 300}) {
    for (const double exponent : {0.0, 0.7, 1.0, 1.05, 2.5}) {
      const Zipf zipf(count, exponent);
      std::vector<double> found(static_cast<size_t>(count)), law(static_cast<size_t>(count));
      double sum = 0;
      for (size_t k = 0; k < law.size(); ++k) {
        sum += law[k] = std::pow(static_cast<double>(k + 1), -exponent);
      }
      const Philox philox{7, 3};
      for (uint64_t i = 0; i < kDraws; ++i) found[static_cast<size_t>(zipf(philox, i))] += 1;
      // The limit is the mean of chi-squared with count - 1 degrees of freedom and six standard
      // deviations.
      double chi = 0;
      for (size_t k = 0; k < law.size(); ++k) {
        const double expected = law[k] / sum * kDraws;
        chi += (found[k] - expected) * (found[k] - expected) / expected;
      }
      const auto freedom = static_cast<double>(count - 1);
      EXPECT_LE(chi, freedom + 6 * std::sqrt(2 * freedom)) << count << ", " << exponent;
    }
  }
}

TEST(ZipfTest, OfManyRanksTheFirstAreAsFrequentAsTheLawSays) {
  constexpr int kDraws = 100'000;
  const Zipf zipf(40'000'000, 1.0);
  int first = 0, beyond = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const int64_t rank = zipf({1, 2}, i);
    ASSERT_GE(rank, 0);
    ASSERT_LT(rank, 40'000'000);
    first += rank == 0 ? 1 : 0;
    beyond += rank >= 1'000'000 ? 1 : 0;
  }
  const double harmonic = std::log(40e6) + 0.5772156649;  // sum of 1/k
  EXPECT_NEAR(first, kDraws / harmonic, 6 * std::sqrt(kDraws / harmonic));
  const double share = std::log(40.0) / harmonic;
  EXPECT_NEAR(beyond, kDraws * share, 6 * std::sqrt(kDraws * share));
}

}  // namespace
}  // namespace tessera
