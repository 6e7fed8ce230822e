#include "tessera/runtime/device/libtorch_device.h"

#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <time.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::device {
namespace {

int64_t steady_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

at::Tensor bytes_of(std::byte* data, int64_t bytes, Place place) {
  return kernels::tensor_of(data, DType::kUInt8, {bytes}, {1}, place);
}

struct LibtorchEvent final : Event {
  explicit LibtorchEvent(c10::DeviceType type) : event(type) {}
  mutable c10::Event event;
};

class LibtorchStream final : public Stream {
 public:
  explicit LibtorchStream(c10::Stream stream) : stream_(stream) {}

  void launch(std::function<void()> work) override {
    const c10::StreamGuard current(stream_);
    attempt(work);
  }
  std::shared_ptr<const Event> record() override {
    auto point = std::make_shared<LibtorchEvent>(stream_.device_type());
    point->event.record(stream_);
    return point;
  }
  void wait(std::shared_ptr<const Event> event) override {
    static_cast<const LibtorchEvent&>(*event).event.block(stream_);
  }
  void stamp(int64_t& at) override {
    if (!origin_) {
      origin_ = timed();
      stream_.synchronize();
      origin_ns_ = steady_now();
    }
    stamps_.emplace_back(timed(), &at);
  }
  void finish() override {
    attempt([&] { stream_.synchronize(); });
    for (auto& [event, at] : std::exchange(stamps_, {})) {
      constexpr double kNsPerMs = 1e6;
      *at = origin_ns_ + static_cast<int64_t>(origin_->elapsedTime(event) * kNsPerMs);
    }
  }

 private:
  // Calls the work, and throws a fault of one line for an exception of libtorch.
  void attempt(const std::function<void()>& work) const {
    try {
      work();
    } catch (const c10::Error& error) {
      const std::string_view text = error.what_without_backtrace();
      throw comm::CommFault{
          fmt::format("device {}: {}", stream_.device().str(), text.substr(0, text.find('\n')))};
    }
  }

  c10::Event timed() const {
    c10::Event event(stream_.device_type(), c10::EventFlag::BACKEND_DEFAULT);
    event.record(stream_);
    return event;
  }

  const c10::Stream stream_;
  std::optional<c10::Event> origin_;  // recorded at the host's time origin_ns_
  int64_t origin_ns_ = 0;
  std::vector<std::pair<c10::Event, int64_t*>> stamps_;  // since the last finish()
};

class LibtorchMemory final : public Memory {
 public:
  explicit LibtorchMemory(at::Tensor bytes) : bytes_(std::move(bytes)) {}
  int64_t bytes() const override { return bytes_.numel(); }
  std::byte* data() const override { return static_cast<std::byte*>(bytes_.data_ptr()); }

 private:
  const at::Tensor bytes_;
};

class LibtorchDevice final : public Device {
 public:
  LibtorchDevice(Place place, std::string name, MakeCommunicator communicator)
      : place_(place),
        device_(kernels::device_of(place)),
        name_(std::move(name)),
        communicator_(std::move(communicator)) {}

  Description describe() const override {
    const auto memory = c10::getDeviceAllocator(device_.type())->getMemoryInfo(device_.index());
    return {name_, c10::impl::VirtualGuardImpl(device_.type()).deviceCount(),
            static_cast<int64_t>(memory.second)};
  }

  Place place() const override { return place_; }

  Result<std::unique_ptr<Memory>> allocate(int64_t bytes) override {
    try {
      at::Tensor memory = at::empty({bytes}, at::TensorOptions(at::kByte).device(device_));
      memory.zero_();
      c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
      ranges_.emplace_back(static_cast<const std::byte*>(memory.data_ptr()), bytes);
      return std::make_unique<LibtorchMemory>(std::move(memory));
    } catch (const c10::OutOfMemoryError&) {
      return invalid_input(fmt::format("device {}: expected {} of memory, found less",
                                       device_.str(), format_bytes(bytes)));
    }
  }

  std::unique_ptr<Stream> stream(std::function<std::shared_ptr<void>()>) override {
    return std::make_unique<LibtorchStream>(
        c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_));
  }

  Result<std::unique_ptr<comm::Communicator>> communicator(
      comm::Communicator& world, const Connections& connections) override {
    return communicator_(world, connections, [this](const std::byte* at) { return place_of(at); });
  }

  Place place_of(const std::byte* at) const override {
    for (const auto& [begin, bytes] : ranges_) {
      if (at >= begin && at < begin + bytes) return place_;
    }
    return {};
  }

  void upload(Stream& stream, const Memory& memory, int64_t offset, const std::byte* from,
              int64_t bytes) override {
    stream.launch([&] {
      // The bytes are read only.
      const at::Tensor host = bytes_of(const_cast<std::byte*>(from), bytes,
                                       {});  // NOLINT(cppcoreguidelines-pro-type-const-cast)
      bytes_of(memory.data() + offset, bytes, place_).copy_(host);
    });
    stream.finish();
  }
  void download(Stream& stream, const Memory& memory, int64_t offset, std::byte* to,
                int64_t bytes) override {
    stream.launch(
        [&] { bytes_of(to, bytes, {}).copy_(bytes_of(memory.data() + offset, bytes, place_)); });
    stream.finish();
  }

 private:
  const Place place_;
  const c10::Device device_;
  const std::string name_;
  const MakeCommunicator communicator_;
  // Begin and size of all memory that was allocated.
  std::vector<std::pair<const std::byte*, int64_t>> ranges_;
};

}  // namespace

std::unique_ptr<Device> libtorch_device(Place place, std::string name,
                                        MakeCommunicator communicator) {
  return std::make_unique<LibtorchDevice>(place, std::move(name), std::move(communicator));
}

}  // namespace tessera::device
