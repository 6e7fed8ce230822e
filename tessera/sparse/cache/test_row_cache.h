// For tests and benchmarks: a cache of rows over a store, which uses a CacheIndex (cache_index.h)
// without any plan. While a batch is computed, its rows are in fast memory. The results equal those
// without the cache, to the bit.
//
//   MemoryRows table({.rows = 1'000'000, .row_bytes = 4 * (dim + 1)});  // weights, Adagrad's state
//   TESSERA_TRY(auto cache, RowCache::make(table, {.rows = table.rows(), .slots = 10'000}));
//   CacheBatch now, next;
//   TESSERA_TRY_VOID(cache->begin(ids_of(0), now));            // decides which rows move
//   TESSERA_TRY_VOID(cache->move(now));
//   for (int64_t i = 0; i < batches; ++i) {
//     TESSERA_TRY_VOID(cache->begin(ids_of(i + 1), next));
//     // at the same time: cache->move(next), and the step on cache->row(now.places[...])
//     TESSERA_TRY_VOID(cache->finish(now, /*changed=*/true));
//     std::swap(now, next);
//   }
//   TESSERA_TRY_VOID(cache->flush());                          // before a checkpoint
//
// A row contains everything that belongs to it: weights and optimizer state move together, so every
// optimizer works.
//
// To prefetch, a program calls begin() and move() for the next batch before finish() for the
// current one. Rules:
//   - move() is called once for each batch, in the order of the begins. It may run on another
//     thread at the same time as anything but another move() or flush().
//   - The rows of a batch may be read and changed from the end of its move() to its finish(). If
//     two open batches share a row, the program decides in which order they change it.
//   - begin(), announce() and finish() must all be called by the same thread.
//
// After an error of the store, a cache must not be used any more, because rows may be missing at
// their places.
//
// Memory: slots * row_bytes, which the system provides as it is used. After the slots comes address
// space for the overflow (cache_index.h); it takes as much memory as the largest overflow so far.
#pragma once

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tessera/base/check.h"
#include "tessera/base/result.h"
#include "tessera/sparse/cache/cache_index.h"
#include "tessera/sparse/cache/row_store.h"

namespace tessera::sparse {

// A store in memory.
class MemoryRows : public RowStore {
 public:
  explicit MemoryRows(RowShape shape, const RowInit& init = {})
      : RowStore(shape), bytes_(static_cast<size_t>(shape.rows * shape.row_bytes)) {
    if (!init) return;
    for (int64_t row = 0; row < rows(); ++row) init(row, bytes_.data() + row * row_bytes());
  }
  Status read(int64_t row, std::byte* out) override {
    std::memcpy(out, bytes_.data() + row * row_bytes(), static_cast<size_t>(row_bytes()));
    return {};
  }
  Status write(int64_t row, const std::byte* in) override {
    std::memcpy(bytes_.data() + row * row_bytes(), in, static_cast<size_t>(row_bytes()));
    return {};
  }

 private:
  std::vector<std::byte> bytes_;
};

class RowCache {
 public:
  // Makes a cache over a store, which must outlive the cache. Errors: those of CacheIndex::make;
  // the number of rows is not that of the store; there is no memory.
  static Result<std::unique_ptr<RowCache>> make(RowStore& store, const CacheOptions& options);
  ~RowCache();
  RowCache(const RowCache&) = delete;
  RowCache& operator=(const RowCache&) = delete;

  // Works like the function of CacheIndex with the same name, but also moves the rows, as the
  // functions below do. Errors are those of CacheIndex and of the store.
  Status warm(double share);
  Status announce(std::span<const int64_t> ids) { return index_.announce(ids); }
  Status begin(std::span<const int64_t> ids, CacheBatch& batch) { return index_.begin(ids, batch); }
  Status move(const CacheBatch& batch);
  Status finish(const CacheBatch& batch, bool changed);
  Status flush();  // writes back all changed rows and syncs the store

  // Returns the bytes of the row at a place. All places are in one array: row(p) = row(0) + p *
  // row_bytes.
  std::byte* row(int32_t place) { return memory_ + int64_t{place} * store_.row_bytes(); }
  const CacheIndex& index() const { return index_; }
  const CacheCounts& counts() const { return index_.counts(); }
  int64_t bytes_in() const { return (counts().rows_in + counts().rows_warmed) * row_bytes(); }
  int64_t bytes_out() const { return counts().rows_out * row_bytes(); }
  int64_t row_bytes() const { return store_.row_bytes(); }

 private:
  RowCache(RowStore& store, CacheIndex index) : store_(store), index_(std::move(index)) {}
  Status write_back(std::span<const RowMove> moves);
  Status read_in(std::span<const RowMove> moves);

  RowStore& store_;
  CacheIndex index_;
  std::byte* memory_ = nullptr;
  size_t memory_bytes_ = 0;
  std::atomic<int64_t> moved_ = 0;  // number of batches for which move() is done
};

inline Result<std::unique_ptr<RowCache>> RowCache::make(RowStore& store,
                                                        const CacheOptions& options) {
  if (options.rows != store.rows()) {
    return invalid_input(fmt::format("cache: expected the {} rows of the store, found {}",
                                     store.rows(), options.rows));
  }
  TESSERA_TRY(CacheIndex index, CacheIndex::make(options));
  std::unique_ptr<RowCache> cache(new RowCache(store, std::move(index)));
  // Reserves address space for the slots and for as many overflow places as there are rows. That is
  // enough because open batches together use each row at most once.
  const int64_t places = cache->index_.slots() + store.rows();
  cache->memory_bytes_ = static_cast<size_t>(places * store.row_bytes());
  void* memory = ::mmap(nullptr, cache->memory_bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    cache->memory_bytes_ = 0;
    return fault(fmt::format("cache: no address space for {} rows of {} bytes: {}", places,
                             store.row_bytes(), std::strerror(errno)));
  }
  cache->memory_ = static_cast<std::byte*>(memory);
  return cache;
}

inline RowCache::~RowCache() {
  if (memory_ != nullptr) ::munmap(memory_, memory_bytes_);
}

inline Status RowCache::write_back(std::span<const RowMove> moves) {
  for (const RowMove& move : moves) TESSERA_TRY_VOID(store_.write(move.row, row(move.place)));
  return {};
}

inline Status RowCache::read_in(std::span<const RowMove> moves) {
  for (const RowMove& move : moves) TESSERA_TRY_VOID(store_.read(move.row, row(move.place)));
  return {};
}

inline Status RowCache::warm(double share) { return read_in(index_.warm(share)); }

inline Status RowCache::move(const CacheBatch& batch) {
  TESSERA_CHECK(batch.number == moved_, "batch {} is moved after {} others", batch.number,
                moved_.load());
  TESSERA_TRY_VOID(write_back(batch.out));
  TESSERA_TRY_VOID(read_in(batch.in));
  ++moved_;
  return {};
}

inline Status RowCache::finish(const CacheBatch& batch, bool changed) {
  TESSERA_CHECK(batch.number < moved_, "batch {} is finished before its rows are there",
                batch.number);
  return write_back(index_.finish(batch, changed));
}

inline Status RowCache::flush() {
  TESSERA_CHECK(moved_ == counts().batches, "rows are on their way");
  TESSERA_TRY_VOID(write_back(index_.flush()));
  return store_.sync();
}

}  // namespace tessera::sparse
