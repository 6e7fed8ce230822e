// Devices: where the memory of a rank's device tier lies, and in which order work on it is done.
//
// A device gives a rank memory and streams. Work that is launched on a stream is done in the order
// in which it was launched, at some time after the launch. Streams do not wait for each other, and
// the host does not wait for them, unless an event or finish() says so:
//
//   auto device = device::open("test(seed=3)");  // open.h
//   auto memory = (*device)->allocate(bytes);
//   auto compute = (*device)->stream({}), messages = (*device)->stream({});
//   compute->launch([&] { write((*memory)->data()); });
//   messages->wait(compute->record());  // what is launched on `messages` from now on comes later
//   messages->launch([&] { send((*memory)->data()); });
//   messages->finish();                 // the host waits
//
// Only work that a stream does may touch the memory; the host copies by upload() and download().
//
// There are two sorts of devices. Where place() is the processor, a stream is a thread that calls the
// launched functions later, and a function reads and writes the memory like any other. Where place()
// is an accelerator, launch() calls the function at once while the stream is libtorch's current one:
// the function gives the accelerator work on tensors (kernels/tensor.h) and does not wait for it.
//
// If work throws, all streams of the device pass over what is left, and finish() throws the same
// exception; the stream of an accelerator may throw it from launch(). A rank opens a device of its
// own. One thread of the rank, the host, uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/comm/communicator.h"
#include "tessera/runtime/device/place.h"

namespace tessera::device {

// Describes what the ranks of a program exchange, as one rank sees it.
struct Connections {
  struct Message {
    int from = 0, to = 0;
    int64_t tag = 0;
    int64_t line = 0;  // the messages of a line are those of one transfer for all micro-batches
  };
  std::vector<std::vector<int>> groups;  // members of each group that this rank belongs to
  std::vector<Message> messages;         // of a step: sent and received, in the order of issue
};

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
  // Writes the time at which the stream comes to this point, in nanoseconds of CLOCK_MONOTONIC, to
  // `at`, which must live until finish() has returned.
  virtual void stamp(int64_t& at) = 0;
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

// Describes a sort of device and how much of it a machine has.
struct Description {
  std::string name;          // with the versions of what drives it
  int64_t count = 1;         // on this host
  int64_t memory_bytes = 0;  // of one
};

class Device {
 public:
  virtual ~Device() = default;
  virtual Description describe() const = 0;
  // Returns where libtorch finds the memory. The processor: streams are its threads.
  virtual Place place() const { return {}; }
  // Returns whose memory is at an address: place() for what this device has allocated.
  virtual Place place_of(const std::byte*) const { return {}; }
  // Returns whether ops that have a formula (formulas/formula.h) are computed by it, and not by a
  // kernel of the processor. On an accelerator all are.
  virtual bool formulas() const { return false; }
  // Returns zeroed memory. Errors (invalid input): there is not so much.
  virtual Result<std::unique_ptr<Memory>> allocate(int64_t bytes) = 0;
  // Makes a stream. Where the stream is a thread, this thread keeps what `enter` returns as long as
  // it lives.
  virtual std::unique_ptr<Stream> stream(std::function<std::shared_ptr<void>()> enter) = 0;
  // Returns the communicator by which ranks exchange what lies in the device's memory. Only work of
  // one stream may use it, for `connections` and nothing else. `world`, which connects the hosts,
  // carries it; both `world` and the device outlive it. All ranks call this function. Errors
  // (invalid input): the library that it needs is missing.
  virtual Result<std::unique_ptr<comm::Communicator>> communicator(
      comm::Communicator& world, const Connections& connections) = 0;
  // Copies contiguous bytes from the host, which waits for it; download() copies them back.
  virtual void upload(Stream& stream, const Memory& memory, int64_t offset, const std::byte* from,
                      int64_t bytes);
  virtual void download(Stream& stream, const Memory& memory, int64_t offset, std::byte* to,
                        int64_t bytes);
};

}  // namespace tessera::device
