#include "tessera/base/result.h"

#include <gtest/gtest.h>

#include <memory>

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

}  // namespace
}  // namespace tessera
