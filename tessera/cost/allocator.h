// An emulation of PyTorch's caching allocator on a trace of allocations. It says how much memory a
// framework holds for the bytes that are live (docs/theory/cost-model.md section 6.4).
//
// The allocator rounds sizes up to 512 bytes. It serves requests up to 1 MiB from the small pool,
// in segments of 2 MiB, and larger requests from the large pool: below 10 MiB in segments of 20
// MiB, else in a segment of their own, rounded up to 2 MiB. It takes the smallest free block that
// fits (of equal blocks the lowest) and splits the block if the rest is at least 512 bytes (small
// pool) or more than 1 MiB (large pool). A freed block joins its free neighbours in the segment.
// Each stream has pools of its own. With expandable segments a pool is one segment that grows at
// its end, by whole pages of 2 MiB (small) or 20 MiB (large), and every rest of 512 bytes is split
// off.
//
//   CachingAllocator allocator;
//   const auto block = allocator.allocate(11 << 20);   // reserved_bytes() == 12 MiB
//   allocator.free(*block);                            // still reserved
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace tessera {

struct AllocatorOptions {
  bool expandable = false;
  int64_t capacity_bytes = 0;  // of all segments; 0: no limit
};

class CachingAllocator {
 public:
  explicit CachingAllocator(AllocatorOptions options = {}) : options_(options) {}

  // Allocates a block and returns its address; empty if the block does not fit the capacity, even
  // after whole free segments (expandable: their free ends) were given back. Zero bytes take a
  // block of 512.
  std::optional<int64_t> allocate(int64_t bytes, int32_t stream = 0);
  void free(int64_t address);  // of an allocated block

  int64_t live_bytes() const { return live_; }  // of allocated blocks, rounded
  int64_t reserved_bytes() const { return reserved_; }
  int64_t peak_live_bytes() const { return peak_live_; }
  int64_t peak_reserved_bytes() const { return peak_reserved_; }
  int64_t segments() const { return segments_; }

 private:
  struct PoolKey {
    int32_t stream = 0;
    bool small = false;
    friend auto operator<=>(const PoolKey&, const PoolKey&) = default;
  };
  struct Block {
    PoolKey pool;
    int64_t size = 0;
    int64_t segment = 0;  // address at which its segment begins
    bool used = false;
  };
  using Blocks = std::map<int64_t, Block>;  // by address
  struct Pool {
    std::set<std::pair<int64_t, int64_t>> free;  // size, address
    int64_t begin = -1, end = -1;  // expandable: addresses of the segment; -1: there is none yet
  };

  Blocks::iterator find_free(const PoolKey& key, int64_t size);
  Blocks::iterator add_segment(const PoolKey& key, int64_t size);  // end(): no capacity
  Blocks::iterator grow_segment(const PoolKey& key, int64_t size);
  bool reserve(int64_t bytes);
  void release_free_segments();
  void insert_free(Blocks::iterator block);
  void erase_free(Blocks::iterator block);
  // Joins the block with `other` if `other` is a free neighbour in its segment; returns the joined
  // block.
  Blocks::iterator join(Blocks::iterator block, Blocks::iterator other);

  AllocatorOptions options_;
  Blocks blocks_;
  std::map<PoolKey, Pool> pools_;
  int64_t next_segment_ = 0;
  int64_t live_ = 0, reserved_ = 0, peak_live_ = 0, peak_reserved_ = 0, segments_ = 0;
};

// One event of a trace: an allocation of `bytes` under an id, or (bytes < 0) the release of that
// id.
struct AllocatorEvent {
  int64_t id = 0;
  int64_t bytes = -1;
  int32_t stream = 0;
};
struct AllocatorUse {
  int64_t peak_live_bytes = 0, peak_reserved_bytes = 0;
  bool fits = true;  // false: the trace ended at `failed_event` for want of capacity
  int64_t failed_event = -1;
};
AllocatorUse replay(const std::vector<AllocatorEvent>& trace, AllocatorOptions options = {});

}  // namespace tessera
