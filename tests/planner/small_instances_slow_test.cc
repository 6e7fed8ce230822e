// A thousand small questions. With all programs, the answer is as fast as the best of all plans;
// with the usual number of programs it nearly always is.
#include <gtest/gtest.h>

#include "brute_force.h"

namespace tessera::planner_test {
namespace {

void expect_nearly_all_equal(const char* what, uint64_t first_seed, uint64_t instances,
                             int64_t devices, Size size) {
  Outcome outcome;
  for (uint64_t seed = first_seed; seed < first_seed + instances; ++seed)
    compare(*random_instance(seed, devices, size), outcome);
  std::printf("%s: of %ld instances %ld as fast as brute force; the worst %.4f times: %s\n", what,
              outcome.instances, outcome.equal, outcome.worst, outcome.worst_instance.c_str());
  EXPECT_LE(outcome.worst, 1.5) << outcome.worst_instance;
  EXPECT_GE(10 * outcome.equal, 9 * outcome.instances);
}

TEST(SmallInstances, TinyOnTwoDevices) {
  expect_nearly_all_equal("tiny, two devices", 1000, 550, 2, Size::kTiny);
}
TEST(SmallInstances, OnTwoDevices) {
  expect_nearly_all_equal("two devices", 2000, 200, 2, Size::kSmall);
}
TEST(SmallInstances, TinyOnFourDevices) {
  expect_nearly_all_equal("tiny, four devices", 3000, 180, 4, Size::kTiny);
}
TEST(SmallInstances, OnFourDevices) {
  expect_nearly_all_equal("four devices", 4000, 30, 4, Size::kSmall);
}
TEST(SmallInstances, TinyOnEightDevices) {
  expect_nearly_all_equal("tiny, eight devices", 5000, 40, 8, Size::kTiny);
}

// The quick tests compare this question with an answer that may put nothing on the host.
TEST(SmallInstances, OnlyEditsFit) {
  Outcome outcome;
  compare(*random_instance(4025, 4, Size::kSmall), outcome);
  EXPECT_LE(outcome.worst, 1.1) << outcome.worst_instance;
}

}  // namespace
}  // namespace tessera::planner_test
