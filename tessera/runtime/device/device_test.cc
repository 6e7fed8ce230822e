#include "tessera/runtime/device/device.h"
#include "tessera/runtime/device/open.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <vector>

#include "tessera/runtime/kernels.h"
#include "tessera/runtime/kernels/tensor.h"

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
  EXPECT_THAT(other.error().message, HasSubstr("TESSERA_DEVICE 'bogus': expected cpu, cuda, "));
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
  for (const char* name : {"gpu", "test(seed=x)", "test(speed=1)", "test(kernels=fast)",
                           "cpu(seed=1)", "stand-in(seed=1)", "cuda(messages=guest)"})
    EXPECT_THAT(message(name),
                HasSubstr(std::string("device '") + name + "': expected cpu, cuda, "));
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

// A number of a tensor on the stand-in, and tensors of the host beside it, are not for the host.
TEST(StandIn, StreamsAndMemoryAreThoseOfAnAccelerator) {
  const kernels::ThreadScope scope(1);
  const auto device = opened("stand-in");
  EXPECT_FALSE(device->place().is_processor());
  const auto memory = device->allocate(8 * 4).value();
  const auto first = device->stream({}), second = device->stream({});
  const auto values = [&] {
    return kernels::tensor_of(memory->data(), DType::kFloat64, {4}, {1}, device->place());
  };
  int64_t begin = 0, end = 0;
  first->stamp(begin);
  for (int i = 0; i < 50; ++i) {
    first->launch([&] { values().add_(1); });
    second->wait(first->record());
    second->launch([&] { values().mul_(2); });
    first->wait(second->record());
  }
  first->stamp(end);
  std::vector<double> found(4), expected(4, 0);
  for (int i = 0; i < 50; ++i) expected.assign(4, 2 * (expected[0] + 1));
  device->download(*first, *memory, 0, reinterpret_cast<std::byte*>(found.data()), 8 * 4);
  EXPECT_EQ(found, expected);
  EXPECT_GT(end, begin);
  const auto message = [&](const std::function<void()>& work) -> std::string {
    try {
      first->launch(work);
    } catch (const comm::CommFault& fault) {
      return fault.message;
    }
    return "";
  };
  EXPECT_THAT(message([&] { (void)values().sum().item(); }),
              HasSubstr("the host reads a number of an accelerator"));
  EXPECT_THAT(message([&] { values().add_(at::ones({4}, at::kDouble)); }), HasSubstr("cpu"));
  EXPECT_THAT(message([&] { (void)values().nonzero(); }), HasSubstr("the host waits for its size"));
  EXPECT_DEATH(*static_cast<volatile double*>(values().data_ptr()) = 1, "");
}

}  // namespace
}  // namespace tessera::device
