// Emulates PyTorch's caching allocator on a trace of allocations, to find how much memory a
// framework reserves for the bytes that are live (docs/theory/cost-model.md section 6.4).
//
// The allocator rounds sizes up to 512 bytes. It serves requests up to 1 MiB from the small pool,
// which has segments of 2 MiB. It serves larger requests from the large pool: a request below 10
// MiB gets part of a segment of 20 MiB, a larger one gets a segment of its own, whose size is
// rounded up to 2 MiB. It takes the smallest free block that is large enough; among equal blocks,
// the one with the lowest address. It splits the block if the rest is at least 512 bytes (small
// pool) or more than 1 MiB (large pool). A freed block joins its free neighbours in the segment.
// Each stream has pools of its own. With expandable segments a pool is one segment. It grows at its
// end by whole pages of 2 MiB (small pool) or 20 MiB (large pool), and a block is split whenever
// the rest is at least 512 bytes.
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
  int64_t capacity_bytes = 0;  // most bytes of all segments together; 0: no limit
};

class CachingAllocator {
 public:
  explicit CachingAllocator(AllocatorOptions options = {}) : options_(options) {}

  // Allocates a block and returns its address. Returns nothing if the block exceeds the capacity
  // even after all free segments (expandable segments: their free ends) were given back. A request
  // of zero bytes takes a block of 512.
  std::optional<int64_t> allocate(int64_t bytes, int32_t stream = 0);
  void free(int64_t address);  // frees the allocated block at the address

  int64_t live_bytes() const { return live_; }  // sum of the rounded sizes of allocated blocks
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
    int64_t segment = 0;  // address of the segment of the block
    bool used = false;
  };
  using Blocks = std::map<int64_t, Block>;  // by address of the block
  struct Pool {
    std::set<std::pair<int64_t, int64_t>> free;  // (size, address) of each free block
    int64_t begin = -1, end = -1;  // expandable: addresses of the segment; -1: none yet
  };

  Blocks::iterator find_free(const PoolKey& key, int64_t size);
  // Returns end() if the capacity is too small.
  Blocks::iterator add_segment(const PoolKey& key, int64_t size);
  Blocks::iterator grow_segment(const PoolKey& key, int64_t size);
  bool reserve(int64_t bytes);
  void release_free_segments();
  void insert_free(Blocks::iterator block);
  void erase_free(Blocks::iterator block);
  // Joins the block with its neighbour `other` if that is free and in the same segment. Returns the
  // joined block, or `block` if they are not joined.
  Blocks::iterator join(Blocks::iterator block, Blocks::iterator other);

  AllocatorOptions options_;
  Blocks blocks_;
  std::map<PoolKey, Pool> pools_;
  int64_t next_segment_ = 0;
  int64_t live_ = 0, reserved_ = 0, peak_live_ = 0, peak_reserved_ = 0, segments_ = 0;
};

// One event of a trace: if bytes >= 0, an allocation of `bytes` under the name `id`; else the
// release of the allocation `id`.
struct AllocatorEvent {
  int64_t id = 0;
  int64_t bytes = -1;
  int32_t stream = 0;
};
struct AllocatorUse {
  int64_t peak_live_bytes = 0, peak_reserved_bytes = 0;
  bool fits = true;  // false: event `failed_event` exceeded the capacity
  int64_t failed_event = -1;
};
AllocatorUse replay(const std::vector<AllocatorEvent>& trace, AllocatorOptions options = {});

}  // namespace tessera
