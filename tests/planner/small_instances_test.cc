#include <gtest/gtest.h>

#include "brute_force.h"

namespace tessera::planner_test {
namespace {

// A few of the instances of small_instances_slow_test.cc.
TEST(SmallInstances, AutoFitsAndIsNearlyAsFastAsBruteForce) {
  Outcome outcome;
  for (uint64_t seed = 0; seed < 6; ++seed) compare(*random_instance(seed, 2), outcome);
  std::printf("%ld of %ld as fast as brute force, the worst %.4f times: %s\n", outcome.equal,
              outcome.instances, outcome.worst, outcome.worst_instance.c_str());
  EXPECT_LE(outcome.worst, 1.5) << outcome.worst_instance;
  EXPECT_GE(outcome.equal + 1, outcome.instances);
}

}  // namespace
}  // namespace tessera::planner_test
