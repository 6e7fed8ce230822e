#include "tessera/runtime/device/test_device.h"

#include <fmt/format.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/runtime/device/late_communicator.h"

namespace tessera::device {
namespace {

// One of so many pieces of work begins late, after at most so many microseconds; the others begin at
// once.
constexpr int kLateOneIn = 8, kLongestDelay = 400;

// Whether the thread is that of a stream.
thread_local bool on_stream = false;

// The state that the streams of a device share.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;  // a stream has done a piece of work, or stops
  std::exception_ptr failure;       // what the first failing work threw
};

// How far a stream is; guarded by the shared mutex. Outlives its stream where an event names it.
struct Progress {
  int64_t launched = 0, done = 0;
};

class TestMemory final : public Memory {
 public:
  TestMemory() = default;
  ~TestMemory() override {
    for (std::byte* at : {hidden_, open_}) {
      if (at != nullptr) munmap(at, static_cast<size_t>(bytes_));
    }
  }
  TestMemory(const TestMemory&) = delete;
  TestMemory& operator=(const TestMemory&) = delete;

  Status map(int64_t bytes) {
    if (bytes == 0) return {};
    bytes_ = bytes;
    const int file = memfd_create("tessera test device", MFD_CLOEXEC);
    const bool sized = file >= 0 && ftruncate(file, bytes) == 0;
    if (sized) {
      open_ = map_file(file, PROT_READ | PROT_WRITE);
      hidden_ = map_file(file, PROT_NONE);
    }
    const int error = errno;
    if (file >= 0) close(file);
    if (open_ != nullptr && hidden_ != nullptr) return {};
    return invalid_input(fmt::format("device test: expected {} of memory: {}", format_bytes(bytes),
                                     std::strerror(error)));
  }

  int64_t bytes() const override { return bytes_; }
  std::byte* data() const override { return on_stream ? open_ : hidden_; }

 private:
  std::byte* map_file(int file, int protection) const {
    void* at = mmap(nullptr, static_cast<size_t>(bytes_), protection, MAP_SHARED, file, 0);
    return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
  }

  std::byte *hidden_ = nullptr, *open_ = nullptr;
  int64_t bytes_ = 0;
};

class TestStream final : public Stream {
 public:
  TestStream(std::shared_ptr<Shared> shared, uint64_t seed,
             std::function<std::shared_ptr<void>()> enter)
      : shared_(std::move(shared)), random_(seed), thread_([this, enter = std::move(enter)] {
          on_stream = true;
          const std::shared_ptr<void> kept = enter ? enter() : nullptr;
          work();
        }) {}
  ~TestStream() override {
    {
      const std::lock_guard lock(shared_->mutex);
      stopping_ = true;
    }
    launched_.notify_one();
    shared_->changed.notify_all();
    thread_.join();
  }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;

  void launch(std::function<void()> work) override {
    {
      const std::lock_guard lock(shared_->mutex);
      queue_.push_back(std::move(work));
      ++progress_->launched;
    }
    launched_.notify_one();
  }

  std::shared_ptr<const Event> record() override {
    const std::lock_guard lock(shared_->mutex);
    return std::make_shared<Point>(progress_, progress_->launched);
  }

  void wait(std::shared_ptr<const Event> event) override {
    launch([this, event = std::move(event)] {
      const auto& point = static_cast<const Point&>(*event);
      std::unique_lock lock(shared_->mutex);
      shared_->changed.wait(lock, [&] {
        return point.of->done >= point.number || shared_->failure != nullptr || stopping_;
      });
    });
  }

  void finish() override {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait(lock, [&] {
      return progress_->done == progress_->launched || shared_->failure != nullptr;
    });
    if (shared_->failure != nullptr) std::rethrow_exception(shared_->failure);
  }

 private:
  struct Point final : Event {
    Point(std::shared_ptr<const Progress> stream, int64_t at) : of(std::move(stream)), number(at) {}
    std::shared_ptr<const Progress> of;
    int64_t number;
  };

  void work() {
    std::unique_lock lock(shared_->mutex);
    for (;;) {
      launched_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      const std::function<void()> next = std::move(queue_.front());
      queue_.pop_front();
      if (shared_->failure == nullptr) {
        lock.unlock();
        const std::exception_ptr failure = attempt(next);
        lock.lock();
        if (failure != nullptr && shared_->failure == nullptr) shared_->failure = failure;
      }
      ++progress_->done;
      shared_->changed.notify_all();
    }
  }

  std::exception_ptr attempt(const std::function<void()>& work) {
    const auto delay = static_cast<int>(random_() % (kLateOneIn * kLongestDelay));
    if (delay < kLongestDelay) std::this_thread::sleep_for(std::chrono::microseconds(delay));
    try {
      work();
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  const std::shared_ptr<Shared> shared_;
  std::mt19937_64 random_;  // used by the thread alone
  // The members below are guarded by the shared mutex.
  std::deque<std::function<void()>> queue_;
  const std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  bool stopping_ = false;
  std::condition_variable launched_;
  std::thread thread_;  // last, so that it begins when the others are there
};

class TestDevice final : public Device {
 public:
  TestDevice(uint64_t seed, bool formulas) : formulas_(formulas), seeds_(seed) {}

  bool formulas() const override { return formulas_; }
  Result<std::unique_ptr<Memory>> allocate(int64_t bytes) override {
    auto memory = std::make_unique<TestMemory>();
    TESSERA_TRY_VOID(memory->map(bytes));
    return memory;
  }
  std::unique_ptr<comm::Communicator> communicator(comm::Communicator& world) override {
    return late_communicator(world);
  }
  std::unique_ptr<Stream> stream(std::function<std::shared_ptr<void>()> enter) override {
    return std::make_unique<TestStream>(shared_, seeds_(), std::move(enter));
  }

 private:
  const bool formulas_;
  std::mt19937_64 seeds_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace

std::unique_ptr<Device> test_device(uint64_t seed, bool formulas) {
  return std::make_unique<TestDevice>(seed, formulas);
}

}  // namespace tessera::device
