#include "tessera/runtime/device/test_device.h"

#include <random>
#include <utility>

#include "tessera/runtime/device/late_communicator.h"
#include "tessera/runtime/device/played.h"

namespace tessera::device {
namespace {

class TestMemory final : public Memory {
 public:
  explicit TestMemory(std::unique_ptr<PlayedMemory> memory) : memory_(std::move(memory)) {}
  int64_t bytes() const override { return memory_->bytes(); }
  std::byte* data() const override {
    return on_played_stream() ? memory_->open() : memory_->hidden();
  }

 private:
  const std::unique_ptr<PlayedMemory> memory_;
};

class TestDevice final : public Device {
 public:
  TestDevice(uint64_t seed, bool formulas) : formulas_(formulas), seeds_(seed) {}

  Description describe() const override { return {"device test", 1, 0}; }
  bool formulas() const override { return formulas_; }
  Result<std::unique_ptr<Memory>> allocate(int64_t bytes) override {
    TESSERA_TRY(auto memory, PlayedMemory::map(bytes));
    return std::make_unique<TestMemory>(std::move(memory));
  }
  Result<std::unique_ptr<comm::Communicator>> communicator(
      comm::Communicator& world, const Connections& /*connections*/) override {
    return late_communicator(world);
  }
  std::unique_ptr<Stream> stream(std::function<std::shared_ptr<void>()> enter) override {
    return std::make_unique<PlayedStream>(shared_, seeds_(), std::move(enter));
  }

 private:
  const bool formulas_;
  std::mt19937_64 seeds_;
  std::shared_ptr<PlayedDevice> shared_ = std::make_shared<PlayedDevice>();
};

}  // namespace

std::unique_ptr<Device> test_device(uint64_t seed, bool formulas) {
  return std::make_unique<TestDevice>(seed, formulas);
}

}  // namespace tessera::device
