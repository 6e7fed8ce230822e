// Finds what a caching allocator reserves in a step. Private to tessera/simulate.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/cost/allocator.h"
#include "tessera/cost/style.h"
#include "tessera/program/program.h"
#include "tessera/simulate/scratch.h"

namespace tessera {

// Emulates what a caching allocator reserves. Once many runs in a row have reserved nothing more,
// further runs that are like the others are left out.
class Emulation {
 public:
  Emulation(const Program& program, const Scratch& scratch, Style::Allocator kind)
      : allocator_(AllocatorOptions{kind == Style::Allocator::kExpandable, 0}),
        settles_after_(4 * program.blocks.size() + most_slots(program)) {
    size_t instances = scratch.workspace_bytes.size();
    for (const Buffer& buffer : program.buffers) instances += static_cast<size_t>(buffer.slots);
    address_.assign(instances, kNone);
  }

  void begin(size_t instance, int64_t bytes) {
    if (!settled_ && bytes > 0) address_[instance] = *allocator_.allocate(bytes);
  }
  void end(size_t instance) {
    if (settled_ || address_[instance] == kNone) return;
    allocator_.free(std::exchange(address_[instance], kNone));
  }
  // Must be called before each run. `is_alive` tells which instances live. `alike`: the run is like
  // most runs of its block. Runs of the prologue and update are not alike, and neither are last
  // runs, because these reduce gradients.
  template <class IsAlive>
  void next_run(bool alike, const IsAlive& is_alive) {
    quiet_ = allocator_.peak_reserved_bytes() == reserved_ ? quiet_ + 1 : 0;
    reserved_ = allocator_.peak_reserved_bytes();
    if (alike) {
      settled_ = settled_ || quiet_ > settles_after_;
      return;
    }
    if (!std::exchange(settled_, false)) return;
    for (size_t instance = 0; instance < address_.size(); ++instance) {
      if (address_[instance] == kNone || is_alive(instance)) continue;
      allocator_.free(std::exchange(address_[instance], kNone));
    }
  }
  // Returns whether the runs are left out, so that beginnings and ends change nothing.
  bool is_settled() const { return settled_; }
  int64_t peak_reserved() const { return allocator_.peak_reserved_bytes(); }

 private:
  static size_t most_slots(const Program& program) {
    int64_t slots = 1;
    for (const Buffer& buffer : program.buffers) slots = std::max(slots, buffer.slots);
    return static_cast<size_t>(slots);
  }

  CachingAllocator allocator_;
  static constexpr int64_t kNone = -1;
  std::vector<int64_t> address_;  // by instance (a copy of a buffer): its address, or kNone
  size_t settles_after_;
  size_t quiet_ = 0;
  bool settled_ = false;
  int64_t reserved_ = -1;
};

}  // namespace tessera
