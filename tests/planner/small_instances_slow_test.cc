#include <gtest/gtest.h>

#include "brute_force.h"

namespace tessera::planner_test {
namespace {

void report(const char* what, const Outcome& outcome) {
  std::printf(
      "%s: %ld instances, %ld as fast as brute force or faster, %ld slower, %ld in which "
      "nothing fits; the worst %.4f times: %s\n",
      what, outcome.instances, outcome.equal, outcome.slower, outcome.infeasible, outcome.worst,
      outcome.worst_instance.c_str());
}

TEST(SmallInstances, OnTwoDevices) {
  Outcome outcome;
  for (uint64_t seed = 0; seed < 900; ++seed) compare(*random_instance(seed, 2), outcome);
  report("two devices", outcome);
  EXPECT_LE(outcome.worst, 1.5) << outcome.worst_instance;
  EXPECT_GE(10 * outcome.equal, 9 * outcome.instances);
}

TEST(SmallInstances, OnFourDevices) {
  Outcome outcome;
  for (uint64_t seed = 10000; seed < 10100; ++seed) compare(*random_instance(seed, 4), outcome);
  report("four devices", outcome);
  EXPECT_LE(outcome.worst, 1.5) << outcome.worst_instance;
  EXPECT_GE(2 * outcome.equal, outcome.instances);
}

}  // namespace
}  // namespace tessera::planner_test
