#include "tessera/base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tessera/base/broken_invariant.h"
#include "tessera/base/check.h"

namespace tessera {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return invalid_input("expected an even number");
  return value / 2;
}

Result<int> quarter(int value) {
  TESSERA_TRY(const int first, half(value));
  TESSERA_TRY(const int second, half(first));
  return second;
}

Status check_even(int value) {
  TESSERA_TRY_VOID(half(value));
  return {};
}

TEST(Result, TryUnwrapsOrReturnsTheError) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().message, "expected an even number");
  EXPECT_TRUE(check_even(2));
  EXPECT_EQ(check_even(3).error().message, "expected an even number");
}

TEST(Result, TryMovesValuesThatCannotBeCopied) {
  const auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(5); };
  const auto use = [&]() -> Result<int> {
    TESSERA_TRY(auto pointer, make());
    return *pointer;
  };
  EXPECT_EQ(use().value(), 5);
}

TEST(Result, CodesBecomeExitCodes) {
  EXPECT_EQ(exit_code(Status(check_failed("x")).error().code), 1);
  EXPECT_EQ(exit_code(Status(invalid_input("x")).error().code), 2);
  EXPECT_EQ(exit_code(Status(fault("x")).error().code), 3);
}

TEST(CheckDeathTest, PrintsTheConditionAndTheValues) {
  const int count = 3;
  EXPECT_DEATH(TESSERA_CHECK(count == 4, "count {}", count),
               "internal error: .*result_test.cc:[0-9]+: count == 4 does not hold: count 3");
}

TEST(BrokenInvariants, are_errors_of_the_try_that_meets_them) {
  BrokenInvariants broken;
  const auto half = [&](int count) {
    return broken.run([&]() -> Result<int> {
      if (count == 0) return invalid_input("nothing");
      TESSERA_CHECK(count % 2 == 0, "count {}\nand more", count);
      return count / 2;
    });
  };
  EXPECT_EQ(half(8).value(), 4);
  EXPECT_EQ(half(0).error().message, "nothing");
  EXPECT_EQ(broken.count, 0);
  const auto odd = half(3);
  ASSERT_FALSE(odd.has_value());
  EXPECT_EQ(odd.error().code, ErrorCode::kFault);
  EXPECT_NE(odd.error().message.find("count % 2 == 0 does not hold: count 3"), std::string::npos);
  EXPECT_EQ(odd.error().message.find('\n'), std::string::npos);
  EXPECT_FALSE(half(5).has_value());
  EXPECT_EQ(broken.count, 2);
  EXPECT_EQ(broken.first, odd.error().message);
  EXPECT_EQ(half(6).value(), 3);
}

TEST(BrokenInvariants, are_also_what_containers_throw) {
  BrokenInvariants broken;
  const std::vector<int> none;
  EXPECT_FALSE(broken.run([&]() -> Result<int> { return none.at(1); }).has_value());
  EXPECT_EQ(broken.count, 1);
}

TEST(BrokenInvariantsDeathTest, end_the_process_behind_a_try) {
  BrokenInvariants broken;
  EXPECT_TRUE(broken.run([]() -> Status { return {}; }).has_value());
  EXPECT_DEATH(TESSERA_CHECK(broken.count == 1, "count {}", broken.count), "count 0");
}

}  // namespace
}  // namespace tessera
