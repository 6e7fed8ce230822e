// The memory of a rank: an arena for each tier, where the program's buffers lie at the offsets that
// the program gives. The device tier may be memory of a device (device/device.h); then its addresses
// are for the threads that the device allows, and the host reaches its values through host_copies().
//
//   RankMemory memory(program);
//   TESSERA_TRY_VOID(memory.take(device));            // null: the processor itself
//   const kernels::Array x = memory.array(view, micro_batch);
//
// The highest end of what was touched is kept for each tier: touch() before each instruction, with
// the extent of its views. Private to tessera/runtime.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/program/program.h"
#include "tessera/runtime/arrays/arena.h"
#include "tessera/runtime/arrays/tier_copy.h"
#include "tessera/runtime/device/device.h"
#include "tessera/runtime/device/host_copies.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

// The buffers that an instruction touches, from which the peak of memory is found: for each tier
// the highest end of the buffers without slots, and a list of the buffers with slots.
struct Extent {
  std::array<int64_t, 3> plain{};
  std::vector<BufferId> slotted;
};

class RankMemory {
 public:
  explicit RankMemory(const Program& program) : program_(program) {}  // which outlives the object

  // Takes the arenas of device and host. `device` outlives the object; null: the processor itself.
  Status take(device::Device* device);
  // Creates the file of the disk tier, of the program's and the caches' bytes together.
  Status take_disk(int64_t bytes);
  // Takes the memory of the arenas of the processor from the system now.
  void populate() const;

  // Returns whether the memory of the buffer is that of a device.
  bool of_device(const Buffer& buffer) const {
    return device_ != nullptr && buffer.tier == Tier::kDevice;
  }
  // Returns whether the device is an accelerator of libtorch, whose streams are not threads.
  bool accelerated() const { return device_ != nullptr && !device_->place().is_processor(); }

  // Returns the address of a buffer that is not on disk. That of a device's memory is for the thread
  // that asks.
  std::byte* data(const Buffer& buffer, int64_t micro_batch) const;
  TierArray tier_array(const View& view, int64_t micro_batch) const;
  kernels::Array array(const View& view, int64_t micro_batch) const {
    return tier_array(view, micro_batch).array;
  }
  // Returns the array of a view for a communicator; `box`: the global region of the view. Without a
  // view the array has no memory.
  comm::ArrayView comm_view(const std::optional<View>& view, const Box& box,
                            int64_t micro_batch) const;
  // Returns copies on the host, which are none but on an accelerator.
  device::HostCopies host_copies() const;
  int64_t slots_of(const View& view) const { return program_.buffer(view.buffer).slots; }

  DiskFile& disk() { return disk_; }
  device::Memory& of_device() { return *device_memory_; }

  // Adds the buffer of a view to an extent.
  void extend(Extent& extent, const View& view) const;
  void touch(const Extent& extent, int64_t micro_batch);
  const std::array<int64_t, 3>& peak() const { return peak_; }  // bytes, by tier

 private:
  const Program& program_;
  device::Device* device_ = nullptr;
  std::array<Arena, 3> arenas_;  // those of device and host; without that of a device
  std::unique_ptr<device::Memory> device_memory_;
  DiskFile disk_;
  std::array<int64_t, 3> peak_{};
};

}  // namespace tessera
