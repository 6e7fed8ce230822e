// Streams and memory that the processor plays, for the devices `test` and `stand-in` (device.h).
//
// A stream is a thread. One of eight pieces of its work begins late, by up to 400 microseconds, as a
// seed draws. Memory is mapped twice: at hidden(), where a read or a write ends the process, and at
// open(), for the threads of streams.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "tessera/base/result.h"
#include "tessera/runtime/device/device.h"

namespace tessera::device {

class PlayedMemory {
 public:
  // Maps zeroed memory, of which the system gives only pages that are touched. Errors (invalid
  // input): there is not so much.
  static Result<std::unique_ptr<PlayedMemory>> map(int64_t bytes);
  ~PlayedMemory();
  PlayedMemory(const PlayedMemory&) = delete;
  PlayedMemory& operator=(const PlayedMemory&) = delete;

  int64_t bytes() const { return bytes_; }
  std::byte* hidden() const { return hidden_; }
  std::byte* open() const { return open_; }

 private:
  PlayedMemory() = default;
  std::byte *hidden_ = nullptr, *open_ = nullptr;
  int64_t bytes_ = 0;
};

// Returns whether the current thread is that of a stream.
bool on_played_stream();

// The state that the streams of a device share.
struct PlayedDevice {
  std::mutex mutex;
  std::condition_variable changed;  // a stream has done a piece of work, or stops
  std::exception_ptr failure;       // what the first failing work threw
};

class PlayedStream final : public Stream {
 public:
  // `seed` draws the delays. The thread keeps what `enter` returns as long as it lives.
  PlayedStream(std::shared_ptr<PlayedDevice> device, uint64_t seed,
               std::function<std::shared_ptr<void>()> enter);
  ~PlayedStream() override;
  PlayedStream(const PlayedStream&) = delete;
  PlayedStream& operator=(const PlayedStream&) = delete;

  void launch(std::function<void()> work) override;
  std::shared_ptr<const Event> record() override;
  void wait(std::shared_ptr<const Event> event) override;
  void stamp(int64_t& at) override;
  void finish() override;
  // Waits on the host for an event of a stream of the device; is_done() asks without waiting.
  void finish(const Event& event);
  bool is_done(const Event& event) const;

 private:
  // How far a stream is; guarded by the shared mutex. Outlives its stream where an event names it.
  struct Progress {
    int64_t launched = 0, done = 0;
  };
  struct Point final : Event {
    Point(std::shared_ptr<const Progress> stream, int64_t at) : of(std::move(stream)), number(at) {}
    std::shared_ptr<const Progress> of;
    int64_t number;
  };

  void work();
  std::exception_ptr attempt(const std::function<void()>& work);

  const std::shared_ptr<PlayedDevice> device_;
  std::mt19937_64 random_;  // used by the thread alone
  // The members below are guarded by the shared mutex.
  std::deque<std::function<void()>> queue_;
  const std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  bool stopping_ = false;
  std::condition_variable launched_;
  std::thread thread_;  // last, so that it begins when the others are there
};

}  // namespace tessera::device
