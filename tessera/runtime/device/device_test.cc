#include "tessera/runtime/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <vector>

namespace tessera::device {
namespace {

using testing::HasSubstr;

std::unique_ptr<Device> opened(std::string_view name) {
  auto device = open(name);
  EXPECT_TRUE(device) << device.error().message;
  return device ? std::move(*device) : nullptr;
}

TEST(Device, NamesAreReadAndOthersRefused) {
  EXPECT_EQ(*open("cpu"), nullptr);
  EXPECT_NE(opened("test"), nullptr);
  ::setenv("TESSERA_DEVICE", "bogus", 1);
  const auto other = open("");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("TESSERA_DEVICE 'bogus': expected cpu, test, "));
  EXPECT_NE(opened("test"), nullptr);
  ::setenv("TESSERA_DEVICE", "", 1);
  EXPECT_EQ(*open(""), nullptr);
  ::unsetenv("TESSERA_DEVICE");
  EXPECT_FALSE(opened("test(seed=3)")->formulas());
  EXPECT_TRUE(opened("test(seed=3,kernels=formulas)")->formulas());
  const auto message = [](std::string_view name) {
    const auto device = open(name);
    return device ? "" : device.error().message;
  };
  for (const char* name :
       {"gpu", "test(seed=x)", "test(speed=1)", "test(kernels=fast)", "cpu(seed=1)"})
    EXPECT_THAT(message(name),
                HasSubstr(std::string("device '") + name + "': expected cpu, test, "));
}

TEST(TestDevice, AStreamDoesItsWorkInOrder) {
  const auto device = opened("test(seed=2)");
  const auto stream = device->stream({});
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) stream->launch([&order, i] { order.push_back(i); });
  stream->finish();
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(TestDevice, AnEventOrdersTwoStreams) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const auto device = opened("test(seed=" + std::to_string(seed) + ")");
    const auto first = device->stream({}), second = device->stream({});
    int value = 0, seen = 0;
    for (int i = 1; i <= 20; ++i) {
      first->launch([&value, i] { value = i; });
      second->wait(first->record());
      second->launch([&value, &seen, i] { seen += value == i ? 1 : 0; });
      first->wait(second->record());
    }
    second->finish();
    EXPECT_EQ(seen, 20);
  }
}

TEST(TestDevice, OnlyWorkOfAStreamTouchesTheMemory) {
  const auto device = opened("test");
  const auto memory = device->allocate(4096);
  ASSERT_TRUE(memory);
  const auto stream = device->stream({});
  std::vector<std::byte> there(4096, std::byte{7}), back(4096);
  device->upload(*stream, **memory, 0, there.data(), 4096);
  stream->launch([&] { (*memory)->data()[5] = std::byte{9}; });
  device->download(*stream, **memory, 0, back.data(), 4096);
  there[5] = std::byte{9};
  EXPECT_EQ(back, there);
  volatile std::byte* hidden = (*memory)->data();
  EXPECT_DEATH(hidden[5] = std::byte{1}, "");
}

TEST(TestDevice, WhatWorkThrowsReachesTheHostAndStopsTheOtherStreams) {
  const auto device = opened("test");
  const auto first = device->stream({}), second = device->stream({});
  bool later = false;
  first->launch([] { throw std::runtime_error("no"); });
  first->launch([&] { later = true; });
  second->wait(first->record());
  second->launch([&] { later = true; });
  EXPECT_THROW(first->finish(), std::runtime_error);
  EXPECT_THROW(second->finish(), std::runtime_error);
  EXPECT_FALSE(later);
}

TEST(TestDevice, AThreadKeepsWhatItEntered) {
  const auto device = opened("test");
  std::atomic<int> alive = 0;
  {
    const auto stream = device->stream([&]() -> std::shared_ptr<void> {
      ++alive;
      return std::shared_ptr<void>(&alive, [&](void*) { --alive; });
    });
    stream->launch([] {});
    stream->finish();
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace tessera::device
