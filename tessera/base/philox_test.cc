#include "tessera/base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

namespace tessera {
namespace {

using Words = std::array<uint32_t, 4>;

// Known-answer vectors of Random123 (kat_vectors, philox4x32 with 10 rounds). The counter's low
// words are the block, its high words the stream; the key is the seed.
TEST(Philox, AgreesWithTheKnownAnswersOfRandom123) {
  EXPECT_EQ((Philox{0, 0}.block(0)), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint64_t ones = ~uint64_t{0};
  EXPECT_EQ((Philox{ones, ones}.block(ones)),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ((Philox{0x299f31d0a4093822, 0x0370734413198a2e}.block(0x85a308d3243f6a88)),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, ElementsAreTheWordsOfTheirBlock) {
  const Philox philox{7, 9};
  for (uint64_t i = 0; i < 12; ++i) EXPECT_EQ(philox.bits(i), philox.block(i / 4)[i % 4]);
}

TEST(Philox, UniformHasTheMomentsOfTheUniformDistribution) {
  const Philox philox{1, 2};
  const uint64_t count = 100000;
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const double u = philox.uniform(i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
  }
  // Five standard errors of the mean: 5 * sqrt(1/12) / sqrt(count) = 0.0046.
  EXPECT_NEAR(sum / count, 0.5, 0.0046);
  EXPECT_NEAR(squares / count, 1.0 / 3, 0.005);
}

TEST(Philox, NormalHasTheMomentsOfTheNormalDistribution) {
  const Philox philox{3, 4};
  const uint64_t count = 100000;
  double sum = 0, squares = 0, products = 0, previous = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const double z = philox.normal(i);
    ASSERT_TRUE(std::isfinite(z));
    sum += z;
    squares += z * z;
    products += z * previous;
    previous = z;
  }
  // Five standard errors: 5 / sqrt(count) = 0.0158 (mean, neighbours), sqrt(2) times that (square).
  EXPECT_NEAR(sum / count, 0, 0.0158);
  EXPECT_NEAR(squares / count, 1, 0.0224);
  EXPECT_NEAR(products / count, 0, 0.0158);
}

TEST(Philox, SeedsAndStreamsAreIndependent) {
  std::set<uint32_t> seen;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    for (uint64_t stream = 0; stream < 8; ++stream) seen.insert(Philox{seed, stream}.bits(5));
  }
  EXPECT_EQ(seen.size(), 64U);
}

uint64_t hash_of(const std::string& text, uint64_t salt = 0) {
  return stable_hash(text.data(), text.size(), salt);
}

TEST(StableHash, DependsOnEveryByteAndOnTheSalt) {
  std::set<uint64_t> seen = {hash_of(""),   hash_of("a"),    hash_of("b"),   hash_of("ab"),
                             hash_of("ba"), hash_of("a", 1), hash_of("a", 2)};
  EXPECT_EQ(seen.size(), 7U);
  EXPECT_EQ(hash_of("blocks.0.attn.q.weight"), hash_of("blocks.0.attn.q.weight"));
}

// The hash never changes, because checkpoints and losses of old runs depend on it.
TEST(StableHash, IsTheSameInEveryVersion) {
  EXPECT_EQ(hash_of("embed.token.weight"), 12806608839583615291U);
}

}  // namespace
}  // namespace tessera
