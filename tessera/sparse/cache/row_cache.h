// A cache of rows over a store: the rows that a batch needs lie in fast memory while it is computed
// on, and what is computed equals what it would be without the cache, to the bit.
//
//   MemoryRows table({.rows = 1'000'000, .row_bytes = 4 * (dim + 1)});  // weights, Adagrad's state
//   TESSERA_TRY(auto cache, RowCache::make(table, {.rows = table.rows(), .slots = 10'000}));
//   CacheBatch now, next;
//   TESSERA_TRY_VOID(cache->begin(ids_of(0), now));            // decides; the next two move
//   TESSERA_TRY_VOID(cache->move(now));
//   for (int64_t i = 0; i < batches; ++i) {
//     TESSERA_TRY_VOID(cache->begin(ids_of(i + 1), next));
//     // beside each other: cache->move(next), and the step on cache->row(now.places[...])
//     TESSERA_TRY_VOID(cache->finish(now, /*changed=*/true));
//     std::swap(now, next);
//   }
//   TESSERA_TRY_VOID(cache->flush());                          // before a checkpoint
//
// A row is everything that belongs to it: weights and optimizer state travel together, so every
// optimizer works.
//
// Prefetching is begin() and move() of the next batch before finish() of this one, so a program can
// order them as instructions. Rules:
//   - move() is called once for each batch, in the order of the begins. It may run on another thread
//     beside everything but another move() and flush().
//   - The rows of a batch may be read and changed from the end of its move() to its finish(). Two
//     open batches may share rows; then they are changed in the order that the program gives.
//   - begin(), announce() and finish() are called by one thread.
//
// After an error of the store a cache must not be used any more: rows may be missing at their places.
//
// Memory: slots * row_bytes, which the system gives as it is used; behind it address space for the
// overflow (cache_index.h), which takes as much memory as the largest overflow so far.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tessera/base/result.h"
#include "tessera/sparse/cache/cache_index.h"
#include "tessera/sparse/cache/row_store.h"

namespace tessera::sparse {

class RowCache {
 public:
  // The store outlives the cache. Errors: those of CacheIndex::make, another number of rows than
  // the store's, no memory.
  static Result<std::unique_ptr<RowCache>> make(RowStore& store, const CacheOptions& options);
  ~RowCache();
  RowCache(const RowCache&) = delete;
  RowCache& operator=(const RowCache&) = delete;

  // CacheIndex says what these do; errors are also those of the store.
  Status warm(double share);
  Status announce(std::span<const int64_t> ids) { return index_.announce(ids); }
  Status begin(std::span<const int64_t> ids, CacheBatch& batch) { return index_.begin(ids, batch); }
  Status move(const CacheBatch& batch);
  Status finish(const CacheBatch& batch, bool changed);
  void mark_changed(int32_t place) { index_.mark_changed(place); }
  Status flush();  // writes back what changed, and syncs the store

  // The bytes of the row at a place. All places lie in one array: row(p) = row(0) + p * row_bytes.
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
  std::atomic<int64_t> moved_ = 0;  // batches
};

}  // namespace tessera::sparse
