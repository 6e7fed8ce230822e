// Devices: where the memory of a rank's device tier lies, and in which order work on it is done.
//
// A device gives a rank memory and streams. Work that is launched on a stream is done in the order
// in which it was launched, at some time after the launch. Streams do not wait for each other, and
// the host does not wait for them, unless an event or finish() says so:
//
//   auto device = device::open("test(seed=3)");
//   auto memory = (*device)->allocate(bytes);
//   auto compute = (*device)->stream({}), messages = (*device)->stream({});
//   compute->launch([&] { write((*memory)->data()); });
//   messages->wait(compute->record());  // what is launched on `messages` from now on comes later
//   messages->launch([&] { send((*memory)->data()); });
//   messages->finish();                 // the host waits
//
// Only work that a stream does may touch the memory; the host copies by upload() and download().
//
// Devices by name:
//   cpu               the processor itself: no device object; work is done where it is launched
//   test              behaves like an accelerator, on the processor. The host has addresses of its
//                     memory that cannot be touched, each stream is a thread, and each piece of
//                     work may begin after a random delay. Values from other ranks are written when
//                     they are waited for. So a missing wait or a read by the host is a wrong
//                     value or a crash. `test(seed=N)` draws other delays; with
//                     `test(kernels=formulas)` ops that have a formula are computed by it.
//
// If work throws, all streams of the device pass over what is left, and finish() throws the same
// exception. A rank opens a device of its own. One thread of the rank, the host, uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/comm/communicator.h"

namespace tessera::device {

// A point in the work of a stream.
class Event {
 public:
  virtual ~Event() = default;
};

class Stream {
 public:
  virtual ~Stream() = default;  // drops what has not begun
  virtual void launch(std::function<void()> work) = 0;
  // Returns the point behind all work that was launched until now.
  virtual std::shared_ptr<const Event> record() = 0;
  // Lets all work that is launched from now on wait for the event, which may be of another stream
  // of the same device.
  virtual void wait(std::shared_ptr<const Event> event) = 0;
  // Waits on the host until all work is done. Throws what any stream of the device threw.
  virtual void finish() = 0;
};

class Memory {
 public:
  virtual ~Memory() = default;
  virtual int64_t bytes() const = 0;
  // Returns the first byte. Only work of a stream may use this address, and only the one that
  // it got by calling this function itself.
  virtual std::byte* data() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  // Returns whether ops that have a formula (formulas/formula.h) are computed by it, and not by a
  // kernel of the processor.
  virtual bool formulas() const = 0;
  // Returns zeroed memory. Errors (invalid input): there is not so much.
  virtual Result<std::unique_ptr<Memory>> allocate(int64_t bytes) = 0;
  // Makes a stream. Where the stream is a thread, this thread keeps what `enter` returns as long as
  // it lives.
  virtual std::unique_ptr<Stream> stream(std::function<std::shared_ptr<void>()> enter) = 0;
  // Returns the communicator by which ranks exchange what lies in the device's memory. Only work of
  // one stream may use it. `world`, which connects the hosts, carries it and outlives it.
  virtual std::unique_ptr<comm::Communicator> communicator(comm::Communicator& world) = 0;
  // Copies contiguous bytes from the host, which waits for it; download() copies them back.
  void upload(Stream& stream, const Memory& memory, int64_t offset, const std::byte* from,
              int64_t bytes);
  void download(Stream& stream, const Memory& memory, int64_t offset, std::byte* to, int64_t bytes);
};

// Opens a device by its name, which for "" is the value of the environment variable TESSERA_DEVICE,
// or cpu without it; null is the processor itself. Errors (invalid input): an unknown name or key,
// or a device that this machine or build lacks.
Result<std::unique_ptr<Device>> open(std::string_view name);

}  // namespace tessera::device
