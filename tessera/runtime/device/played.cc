#include "tessera/runtime/device/played.h"

#include <fmt/format.h>

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "tessera/base/text.h"

namespace tessera::device {
namespace {

// One of so many pieces of work begins late, after at most so many microseconds; the others begin at
// once.
constexpr int kLateOneIn = 8, kLongestDelay = 400;

thread_local bool is_stream = false;

std::byte* map_file(int file, int64_t bytes, int protection) {
  void* at =
      mmap(nullptr, static_cast<size_t>(bytes), protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

int64_t clock_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

Result<std::unique_ptr<PlayedMemory>> PlayedMemory::map(int64_t bytes) {
  std::unique_ptr<PlayedMemory> memory(new PlayedMemory());
  if (bytes == 0) return memory;
  memory->bytes_ = bytes;
  const int file = memfd_create("tessera played device", MFD_CLOEXEC);
  const bool sized = file >= 0 && ftruncate(file, bytes) == 0;
  if (sized) {
    memory->open_ = map_file(file, bytes, PROT_READ | PROT_WRITE);
    memory->hidden_ = map_file(file, bytes, PROT_NONE);
  }
  const int error = errno;
  if (file >= 0) close(file);
  if (memory->open_ != nullptr && memory->hidden_ != nullptr) return memory;
  return invalid_input(
      fmt::format("device: expected {} of memory: {}", format_bytes(bytes), std::strerror(error)));
}

PlayedMemory::~PlayedMemory() {
  for (std::byte* at : {hidden_, open_}) {
    if (at != nullptr) munmap(at, static_cast<size_t>(bytes_));
  }
}

bool on_played_stream() { return is_stream; }

PlayedStream::PlayedStream(std::shared_ptr<PlayedDevice> device, uint64_t seed,
                           std::function<std::shared_ptr<void>()> enter)
    : device_(std::move(device)), random_(seed), thread_([this, enter = std::move(enter)] {
        is_stream = true;
        const std::shared_ptr<void> kept = enter ? enter() : nullptr;
        work();
      }) {}

PlayedStream::~PlayedStream() {
  {
    const std::lock_guard lock(device_->mutex);
    stopping_ = true;
  }
  launched_.notify_one();
  device_->changed.notify_all();
  thread_.join();
}

void PlayedStream::launch(std::function<void()> work) {
  {
    const std::lock_guard lock(device_->mutex);
    queue_.push_back(std::move(work));
    ++progress_->launched;
  }
  launched_.notify_one();
}

std::shared_ptr<const Event> PlayedStream::record() {
  const std::lock_guard lock(device_->mutex);
  return std::make_shared<Point>(progress_, progress_->launched);
}

void PlayedStream::wait(std::shared_ptr<const Event> event) {
  launch([this, event = std::move(event)] {
    const auto& point = static_cast<const Point&>(*event);
    std::unique_lock lock(device_->mutex);
    device_->changed.wait(lock, [&] {
      return point.of->done >= point.number || device_->failure != nullptr || stopping_;
    });
  });
}

void PlayedStream::stamp(int64_t& at) {
  launch([&at] { at = clock_now(); });
}

void PlayedStream::finish() {
  const std::shared_ptr<const Event> all = record();
  finish(*all);
}

void PlayedStream::finish(const Event& event) {
  const auto& point = static_cast<const Point&>(event);
  std::unique_lock lock(device_->mutex);
  device_->changed.wait(
      lock, [&] { return point.of->done >= point.number || device_->failure != nullptr; });
  if (device_->failure != nullptr) std::rethrow_exception(device_->failure);
}

bool PlayedStream::is_done(const Event& event) const {
  const auto& point = static_cast<const Point&>(event);
  const std::lock_guard lock(device_->mutex);
  return point.of->done >= point.number;
}

void PlayedStream::work() {
  std::unique_lock lock(device_->mutex);
  for (;;) {
    launched_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    std::function<void()> next = std::move(queue_.front());
    queue_.pop_front();
    const bool passed_over = device_->failure != nullptr;
    lock.unlock();
    const std::exception_ptr failure = passed_over ? nullptr : attempt(next);
    next = nullptr;  // what it holds may launch more work when it ends
    lock.lock();
    if (failure != nullptr && device_->failure == nullptr) device_->failure = failure;
    ++progress_->done;
    device_->changed.notify_all();
  }
}

std::exception_ptr PlayedStream::attempt(const std::function<void()>& work) {
  const auto delay = static_cast<int>(random_() % (kLateOneIn * kLongestDelay));
  if (delay < kLongestDelay) std::this_thread::sleep_for(std::chrono::microseconds(delay));
  try {
    work();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace tessera::device
