#include "tessera/cost/collective_profile.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera {
namespace {

Profile threads() {
  Profile profile;
  Family family{{"ranks", "bytes"}, {}};
  for (const double ranks : {2., 4.}) {
    family.samples.push_back({{ranks, 1024}, 1e-5 * ranks, 0});
    family.samples.push_back({{ranks, 1048576}, 1e-4 * ranks, .2});
  }
  profile.families["all_reduce.threads"] = family;
  return profile;
}

TEST(Profiled, a_sample_is_measured) {
  const auto found = profiled_collective(threads(), "all_reduce", 1, 2, 1048576);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->source, CostSource::kMeasured);
  EXPECT_DOUBLE_EQ(found->seconds, 2e-4);
  EXPECT_DOUBLE_EQ(found->uncertainty, .1);  // half of the spread
}

TEST(Profiled, between_samples_linear_in_the_logarithms) {
  const auto bytes = profiled_collective(threads(), "all_reduce", 1, 2, 32768);
  EXPECT_EQ(bytes->source, CostSource::kInterpolated);
  EXPECT_NEAR(bytes->seconds, 2e-5 * std::sqrt(10.), 1e-12);
  const auto ranks = profiled_collective(threads(), "all_reduce", 1, 3, 1024);
  EXPECT_NEAR(ranks->seconds, 3e-5, 1e-12);
}

TEST(Profiled, outside_the_samples_is_less_certain) {
  const auto below = profiled_collective(threads(), "all_reduce", 1, 2, 8);
  EXPECT_DOUBLE_EQ(below->seconds, 2e-5);
  const auto above = profiled_collective(threads(), "all_reduce", 1, 2, 8 << 20);
  EXPECT_NEAR(above->seconds, 16e-4, 1e-12);
  EXPECT_NEAR(above->uncertainty, .08 + .1 * 2, 1e-12);
  const auto ranks = profiled_collective(threads(), "all_reduce", 1, 8, 1024);
  EXPECT_NEAR(ranks->seconds, 8e-5, 1e-12);
  EXPECT_GE(ranks->uncertainty, .2);
}

TEST(Profiled, noise_never_makes_more_bytes_faster) {
  Profile profile = threads();
  profile.families["all_reduce.threads"].samples.push_back({{2, 4096}, 1e-6, 0});
  EXPECT_DOUBLE_EQ(profiled_collective(profile, "all_reduce", 1, 2, 4096)->seconds, 2e-5);
}

TEST(Profiled, one_node_does_not_speak_for_several) {
  Profile profile = threads();
  EXPECT_FALSE(profiled_collective(profile, "all_reduce", 2, 2, 1024).has_value());
  EXPECT_FALSE(profiled_collective(profile, "all_gather", 1, 2, 1024).has_value());
  profile.families["all_reduce.mpi"] = {{"ranks", "bytes"}, {{{2, 1024}, 5e-5, 0}}};
  EXPECT_FALSE(profiled_collective(profile, "all_reduce", 2, 2, 1024).has_value());
  profile.families["all_reduce.nccl"] = {{"nodes", "ranks", "bytes"}, {{{4, 32, 1024}, 7e-5, 0}}};
  EXPECT_DOUBLE_EQ(profiled_collective(profile, "all_reduce", 4, 32, 1024)->seconds, 7e-5);
}

}  // namespace
}  // namespace tessera
