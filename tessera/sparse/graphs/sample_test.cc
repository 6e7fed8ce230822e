#include "tessera/sparse/graphs/sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "tessera/sparse/graphs/read.h"
#include "tessera/sparse/graphs/slot_formula.h"
#include "tessera/test/source_dir.h"

namespace tessera::sparse::sample_test {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> positions(Sampler sampler, int64_t degree, int64_t width, uint64_t seed = 0,
                               int64_t row = 0) {
  const Sampling sampling{sampler, width, seed};
  std::vector<int32_t> out(sampled_count(sampling, degree), -1);
  sampled_positions(sampling, row, degree, out.data());
  return out;
}

bool distinct(const std::vector<int32_t>& list) {
  return std::set<int32_t>(list.begin(), list.end()).size() == list.size();
}

constexpr Sampler kSamplers[] = {Sampler::kBucket, Sampler::kStride, Sampler::kQuadratic,
                                 Sampler::kPermutation};

// The worked examples of the specification.
TEST(Sample, worked_examples) {
  EXPECT_THAT(positions(Sampler::kBucket, 10, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(positions(Sampler::kStride, 10, 4), ElementsAre(0, 7, 4, 1));
  EXPECT_THAT(positions(Sampler::kStride, 10, 4, 1), ElementsAre(0, 9, 8, 7));  // the prime 769
  EXPECT_THAT(positions(Sampler::kQuadratic, 10, 4), ElementsAre(0, 1, 4, 9));
  // At a degree that the prime divides, all four slots would take position 0: the next prime
  // replaces it.
  EXPECT_THAT(positions(Sampler::kStride, 577, 4), ElementsAre(0, 192, 384, 576));
}

// Compares the formula of one slot, as the device kernel uses it, with a whole row's positions.
TEST(Sample, slots_one_at_a_time_are_those_of_the_row) {
  for (const Sampler sampler : kSamplers) {
    for (int64_t degree : {1, 2, 9, 577, 30030, 2147483647}) {
      for (const int64_t width : {1, 8, 300}) {
        const std::vector<int32_t> row = positions(sampler, degree, width, 13, 5);
        const uint32_t count = static_cast<uint32_t>(row.size());
        const uint32_t n = static_cast<uint32_t>(degree);
        const SlotFormula formula = slot_formula(sampler, 13, 5, n, count);
        for (uint32_t k = 0; k < count; ++k) {
          ASSERT_EQ(slot_position(formula, n, k), static_cast<uint32_t>(row[k]))
              << sampler_name(sampler);
        }
      }
    }
  }
}

TEST(Sample, every_sampler_keeps_short_rows_whole_and_in_order) {
  for (const Sampler sampler : kSamplers) {
    for (const int64_t width : {1, 4, 7}) {
      for (int64_t degree = 0; degree <= width; ++degree) {
        std::vector<int32_t> all(degree);
        std::iota(all.begin(), all.end(), 0);
        EXPECT_EQ(positions(sampler, degree, width, 5, 3), all) << sampler_name(sampler);
      }
    }
  }
}

TEST(Sample, positions_lie_in_the_row) {
  for (const Sampler sampler : kSamplers) {
    for (int64_t degree : {2, 3, 10, 577, 1154, 21767, 21768, 2147483647}) {
      for (uint64_t seed = 0; seed < 12; ++seed) {
        for (const int32_t at :
             positions(sampler, degree, std::min<int64_t>(degree - 1, 30000), seed)) {
          ASSERT_GE(at, 0);
          ASSERT_LT(at, degree) << sampler_name(sampler);
        }
      }
    }
  }
}

TEST(Sample, bucket_stride_and_permutation_take_distinct_edges) {
  for (const Sampler sampler : {Sampler::kBucket, Sampler::kStride, Sampler::kPermutation}) {
    for (int64_t degree : {2, 7, 12, 577, 1154, 2 * 577 * 769, 30030}) {
      for (uint64_t seed = 0; seed < 20; ++seed) {
        EXPECT_TRUE(distinct(positions(sampler, degree, std::min<int64_t>(degree - 1, 5000), seed)))
            << sampler_name(sampler) << " " << degree << " " << seed;
      }
    }
  }
}

// 21767 is a prime, 3 modulo 4: k^2 folded onto [0, 10884) is a permutation of the first half.
TEST(Sample, folded_squares_are_a_permutation) {
  // At degree 10884 the last step, modulo the degree, changes nothing; width 10883 is all but one.
  const std::vector<int32_t> squares = positions(Sampler::kQuadratic, 10884, 10883);
  EXPECT_TRUE(distinct(squares));
  EXPECT_LE(*std::max_element(squares.begin(), squares.end()), 10883);
}

TEST(Sample, quadratic_slots_repeat_edges_of_small_rows) {
  EXPECT_FALSE(distinct(positions(Sampler::kQuadratic, 20, 16)));
}

// Over all offsets every position is in exactly `count` samples, for every multiplier that is coprime
// to the degree: with a uniform offset the probability of each edge is count / degree, exactly.
TEST(Sample, permutation_is_unbiased_by_enumeration) {
  for (uint32_t degree = 1; degree <= 40; ++degree) {
    for (uint32_t multiplier = 1; multiplier < degree; ++multiplier) {
      if (std::gcd(multiplier, degree) != 1) continue;
      for (int64_t count = 1; count <= degree; ++count) {
        std::vector<int64_t> times(degree, 0);
        std::vector<int32_t> sample(count);
        for (uint32_t offset = 0; offset < degree; ++offset) {
          permuted_positions({multiplier, offset}, degree, count, sample.data());
          ASSERT_TRUE(distinct(sample));
          for (const int32_t at : sample) ++times[at];
        }
        for (const int64_t n : times) ASSERT_EQ(n, count) << degree << " " << multiplier;
      }
    }
  }
}

// Over all multipliers and offsets of a prime degree, the squared error of the sample's mean is
// that of draws without replacement: sigma^2 / S (n - S) / (n - 1).
TEST(Sample, permutation_has_the_variance_of_draws_without_replacement) {
  for (const uint32_t degree : {5U, 11U, 23U}) {
    std::vector<double> x(degree);
    for (uint32_t i = 0; i < degree; ++i) x[i] = static_cast<double>((i * i * 7 + 3 * i) % 13);
    const double n = degree;
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
    double sigma2 = 0;
    for (const double value : x) sigma2 += (value - mean) * (value - mean) / n;
    for (int64_t count = 1; count < degree; ++count) {
      double error2 = 0;
      std::vector<int32_t> sample(count);
      for (uint32_t multiplier = 1; multiplier < degree; ++multiplier) {
        for (uint32_t offset = 0; offset < degree; ++offset) {
          permuted_positions({multiplier, offset}, degree, count, sample.data());
          double sum = 0;
          for (const int32_t at : sample) sum += x[at];
          error2 += std::pow(sum / static_cast<double>(count) - mean, 2) / (n * (n - 1));
        }
      }
      const double s = static_cast<double>(count);
      EXPECT_NEAR(error2, sigma2 / s * (n - s) / (n - 1), 1e-12 * sigma2) << degree << " " << count;
    }
  }
}

// The draws for (seed, row) are uniform: chi-square of the offsets and of the multipliers, over
// seeds in one row and over rows at one seed. 99.99 % of such sums are below the bound.
TEST(Sample, drawn_permutations_are_uniform) {
  constexpr int64_t kDegree = 31;  // a prime: the 16 multipliers have different remainders or not
  constexpr int64_t kDraws = 62000;
  for (const bool over_seeds : {true, false}) {
    std::vector<double> offsets(kDegree, 0);
    std::vector<double> edges(kDegree, 0);
    for (int64_t i = 0; i < kDraws; ++i) {
      const uint64_t seed = over_seeds ? static_cast<uint64_t>(i) : 7;
      const int64_t row = over_seeds ? 7 : i;
      ++offsets[permutation_formula(seed, row, kDegree).offset];
      for (const int32_t at : positions(Sampler::kPermutation, kDegree, 5, seed, row)) ++edges[at];
    }
    const auto chi_square = [&](const std::vector<double>& counts, double expected) {
      double sum = 0;
      for (const double count : counts) sum += (count - expected) * (count - expected) / expected;
      return sum;
    };
    // 30 degrees of freedom: the quantile of 0.9999 is 67.6.
    EXPECT_LT(chi_square(offsets, kDraws / 31.0), 67.6) << over_seeds;
    EXPECT_LT(chi_square(edges, 5 * kDraws / 31.0), 67.6) << over_seeds;
  }
}

TEST(Sample, permutations_differ_between_seeds_and_rows) {
  EXPECT_NE(positions(Sampler::kPermutation, 1000, 8, 1, 0),
            positions(Sampler::kPermutation, 1000, 8, 2, 0));
  EXPECT_NE(positions(Sampler::kPermutation, 1000, 8, 1, 0),
            positions(Sampler::kPermutation, 1000, 8, 1, 1));
}

// The coverage of Cora with self-loops that the specification lists, in percent.
TEST(Sample, coverage_of_cora) {
  const CsrGraph cora =
      read_matrix_market(TESSERA_SOURCE_DIR "/data/graphs/cora.mtx", {.symmetric = true}).value();
  const std::vector<std::pair<int64_t, double>> expected = {
      {2, 40.8}, {4, 70.0}, {8, 88.7}, {16, 94.9}, {32, 97.7}, {64, 99.0}, {128, 99.7}};
  for (const auto& [width, percent] : expected) {
    EXPECT_NEAR(100 * coverage(cora, {Sampler::kBucket, width, 0}), percent, 0.05) << width;
  }
  EXPECT_EQ(coverage(cora, {}), 1);
}

TEST(Sample, names_and_refusals) {
  for (const Sampler sampler : kSamplers)
    EXPECT_EQ(parse_sampler(sampler_name(sampler)).value(), sampler);
  EXPECT_EQ(parse_sampler("random\n").error().message,
            "expected a sampler (none, bucket, stride, quadratic, permutation), found 'random\\n'");
  EXPECT_EQ(check(Sampling{Sampler::kStride, 0, 0}).error().message,
            "expected a width above 0 for the sampler stride, found 0");
  EXPECT_TRUE(check(Sampling{}));
}

}  // namespace
}  // namespace tessera::sparse::sample_test
