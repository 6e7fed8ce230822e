#include "tessera/cost/allocator.h"

#include <algorithm>

#include "tessera/base/check.h"

namespace tessera {
namespace {

// Constants of c10's CUDACachingAllocator.
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kRounding = 512;
constexpr int64_t kSmallRequest = kMiB;      // largest request that the small pool serves
constexpr int64_t kSmallSegment = 2 * kMiB;  // segment of the small pool
// Segment of the large pool for requests below kOwnSegment.
constexpr int64_t kLargeSegment = 20 * kMiB;
constexpr int64_t kOwnSegment = 10 * kMiB;  // smallest request that gets a segment of its own
constexpr int64_t kSegmentRounding = 2 * kMiB;
// Distance between the addresses of two expandable segments. No segment of a program grows to that
// many bytes.
constexpr int64_t kAddressRange = int64_t{1} << 50;

int64_t round_up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

int64_t segment_size(int64_t size) {
  if (size <= kSmallRequest) return kSmallSegment;
  if (size < kOwnSegment) return kLargeSegment;
  return round_up(size, kSegmentRounding);
}

}  // namespace

std::optional<int64_t> CachingAllocator::allocate(int64_t bytes, int32_t stream) {
  TESSERA_CHECK(bytes >= 0, "an allocation of {} bytes", bytes);
  const int64_t size = std::max(kRounding, round_up(bytes, kRounding));
  const PoolKey key{stream, size <= kSmallRequest};
  auto block = find_free(key, size);
  for (int attempt = 0; block == blocks_.end() && attempt < 2; ++attempt) {
    if (attempt == 1) release_free_segments();
    block = options_.expandable ? grow_segment(key, size) : add_segment(key, size);
  }
  if (block == blocks_.end()) return std::nullopt;
  erase_free(block);
  const int64_t rest = block->second.size - size;
  const bool split = key.small || options_.expandable ? rest >= kRounding : rest > kSmallRequest;
  if (split) {
    Block other = block->second;
    other.size = rest;
    block->second.size = size;
    insert_free(blocks_.emplace(block->first + size, other).first);
  }
  block->second.used = true;
  live_ += block->second.size;
  peak_live_ = std::max(peak_live_, live_);
  return block->first;
}

void CachingAllocator::free(int64_t address) {
  auto block = blocks_.find(address);
  TESSERA_CHECK(block != blocks_.end() && block->second.used, "no block in use at {}", address);
  block->second.used = false;
  live_ -= block->second.size;
  block = join(block, std::next(block));
  if (block != blocks_.begin()) block = join(block, std::prev(block));
  insert_free(block);
}

CachingAllocator::Blocks::iterator CachingAllocator::find_free(const PoolKey& key, int64_t size) {
  Pool& pool = pools_[key];
  auto fit = pool.free.lower_bound({size, 0});
  // The last block of an expandable segment is taken only if no other block fits, because it can
  // still grow.
  if (fit != pool.free.end() && fit->second + fit->first == pool.end &&
      std::next(fit) != pool.free.end()) {
    ++fit;
  }
  return fit == pool.free.end() ? blocks_.end() : blocks_.find(fit->second);
}

bool CachingAllocator::reserve(int64_t bytes) {
  if (options_.capacity_bytes > 0 && reserved_ + bytes > options_.capacity_bytes) return false;
  reserved_ += bytes;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
  return true;
}

CachingAllocator::Blocks::iterator CachingAllocator::add_segment(const PoolKey& key, int64_t size) {
  const int64_t bytes = segment_size(size);
  if (!reserve(bytes)) return blocks_.end();
  ++segments_;
  const auto block = blocks_.emplace(next_segment_, Block{key, bytes, next_segment_, false}).first;
  next_segment_ += bytes;
  insert_free(block);
  return block;
}

CachingAllocator::Blocks::iterator CachingAllocator::grow_segment(const PoolKey& key,
                                                                  int64_t size) {
  Pool& pool = pools_[key];
  if (pool.begin < 0) {
    pool.begin = pool.end = next_segment_;
    next_segment_ += kAddressRange;
    ++segments_;
  }
  // The last block of the segment; used below only if it is free.
  auto last = blocks_.lower_bound(pool.end);
  if (last != blocks_.begin()) --last;
  const bool joins = last != blocks_.end() && !last->second.used &&
                     last->second.segment == pool.begin &&
                     last->first + last->second.size == pool.end;
  const int64_t have = joins ? last->second.size : 0;
  const int64_t more = round_up(size - have, key.small ? kSmallSegment : kLargeSegment);
  if (!reserve(more)) return blocks_.end();
  const int64_t begin = pool.end;
  pool.end += more;
  if (joins) {
    erase_free(last);
    last->second.size += more;
  } else {
    last = blocks_.emplace(begin, Block{key, more, pool.begin, false}).first;
  }
  insert_free(last);
  return last;
}

void CachingAllocator::release_free_segments() {
  for (auto& [key, pool] : pools_) {
    std::vector<std::pair<int64_t, int64_t>> whole;
    for (const auto& [size, address] : pool.free) {
      const auto block = blocks_.find(address);
      const auto next = std::next(block);
      const bool last = next == blocks_.end() || next->second.segment != block->second.segment;
      const bool releasable = options_.expandable ? address + size == pool.end
                                                  : last && block->second.segment == address;
      if (releasable) whole.emplace_back(size, address);
    }
    for (const auto& entry : whole) {
      const auto [size, address] = entry;
      // An expandable segment gives back only whole pages at its end.
      const int64_t page = key.small ? kSmallSegment : kLargeSegment;
      const int64_t released = options_.expandable ? size / page * page : size;
      if (released == 0) continue;
      pool.free.erase(entry);
      reserved_ -= released;
      const auto block = blocks_.find(address);
      if (released == size) {
        blocks_.erase(block);
      } else {
        block->second.size = size - released;
        insert_free(block);
      }
      if (options_.expandable) {
        pool.end -= released;
      } else {
        --segments_;
      }
    }
  }
}

void CachingAllocator::insert_free(Blocks::iterator block) {
  pools_[block->second.pool].free.emplace(block->second.size, block->first);
}
void CachingAllocator::erase_free(Blocks::iterator block) {
  pools_[block->second.pool].free.erase({block->second.size, block->first});
}

CachingAllocator::Blocks::iterator CachingAllocator::join(Blocks::iterator block,
                                                          Blocks::iterator other) {
  if (other == blocks_.end() || other->second.used ||
      other->second.segment != block->second.segment) {
    return block;
  }
  erase_free(other);
  const auto first = block->first < other->first ? block : other;
  const auto second = first == block ? other : block;
  first->second.size += second->second.size;
  blocks_.erase(second);
  return first;
}

AllocatorUse replay(const std::vector<AllocatorEvent>& trace, AllocatorOptions options) {
  CachingAllocator allocator(options);
  std::map<int64_t, int64_t> addresses;
  AllocatorUse use;
  for (size_t i = 0; i < trace.size() && use.fits; ++i) {
    const AllocatorEvent& event = trace[i];
    if (event.bytes < 0) {
      const auto found = addresses.find(event.id);
      TESSERA_CHECK(found != addresses.end(), "event {}: {} is not allocated", i, event.id);
      allocator.free(found->second);
      addresses.erase(found);
      continue;
    }
    const auto address = allocator.allocate(event.bytes, event.stream);
    if (!address) {
      use.fits = false;
      use.failed_event = static_cast<int64_t>(i);
      break;
    }
    const bool added = addresses.emplace(event.id, *address).second;
    TESSERA_CHECK(added, "event {}: {} is allocated already", i, event.id);
  }
  use.peak_live_bytes = allocator.peak_live_bytes();
  use.peak_reserved_bytes = allocator.peak_reserved_bytes();
  return use;
}

}  // namespace tessera
