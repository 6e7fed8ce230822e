#include "tessera/base/doing.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera {
namespace {

// Runs `work`, which throws, and returns the message.
template <class Work>
std::string message_of(const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return is_memory_exhausted(error) ? memory_exhausted().message
                                      : std::string("not: ") + error.what();
  }
  return "nothing was thrown";
}

void throw_two_lines() { throw std::runtime_error("a\nb"); }

TEST(Doing, TheInnermostIsNamed) {
  const Doing outer("running", "tessera inspect");
  EXPECT_EQ(message_of([] { throw std::bad_alloc(); }),
            "memory is exhausted while running 'tessera inspect'");
  const auto nested = [] {
    const Doing reading("reading", std::string("plan.toml"));
    { const Doing done("making", "what is done"); }
    const Doing lowering("lowering");
    throw std::bad_alloc();
  };
  EXPECT_EQ(message_of(nested), "memory is exhausted while lowering");
  EXPECT_EQ(message_of([] { throw std::bad_alloc(); }),
            "memory is exhausted while running 'tessera inspect'");
}

TEST(Doing, WhatIsNamedMayBeGoneWhenItIsTold) {
  EXPECT_EQ(message_of([] {
              const std::string path(1000, 'x');
              const Doing reading("reading", path);
              throw std::bad_alloc();
            }),
            "memory is exhausted while reading '" + std::string(300, 'x') + "'");
}

TEST(Doing, OtherErrorsLeaveNothingBehind) {
  EXPECT_EQ(message_of([] {
              const Doing reading("reading", "a");
              throw std::runtime_error("of a file");
            }),
            "not: of a file");
  EXPECT_EQ(message_of([] {
              const Doing next("reading", "b");
              throw std::bad_alloc();
            }),
            "memory is exhausted while reading 'b'");
}

TEST(Doing, ContainersThatCannotBeSoLargeAreMemoryToo) {
  EXPECT_EQ(message_of([] { std::vector<int>().reserve(static_cast<size_t>(-1)); }),
            "memory is exhausted");
  EXPECT_EQ(
      message_of([] {
        throw std::runtime_error(
            "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate "
            "memory: you tried to allocate 80000000000 bytes.");
      }),
      "memory is exhausted");
  EXPECT_EQ(message_of([] { throw std::logic_error("index"); }), "not: index");
}

TEST(Doing, MemoryExhaustedIsWrongInput) {
  EXPECT_EQ(memory_exhausted().code, ErrorCode::kInvalidInput);
}

// A thread that cannot pass on an exception, as in a destructor, ends the process in order.
TEST(DoingDeathTest, WhatCannotBeHandedOnIsOneLine) {
  const auto allocate = [](size_t bytes) noexcept {
    const Doing work("working");
    std::vector<char> none(bytes);
    return none.size();
  };
  EXPECT_EXIT(
      {
        tell_when_memory_is_exhausted();
        allocate(size_t{1} << 62);
      },
      testing::ExitedWithCode(2), "^tessera: memory is exhausted while working\n$");
  EXPECT_EXIT(
      {
        tell_when_memory_is_exhausted();
        []() noexcept { throw_two_lines(); }();
      },
      testing::ExitedWithCode(3), R"(^tessera: a\\nb
$)");
}

}  // namespace
}  // namespace tessera
