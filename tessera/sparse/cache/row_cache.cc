#include "tessera/sparse/cache/row_cache.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tessera/base/check.h"

namespace tessera::sparse {

Result<std::unique_ptr<RowCache>> RowCache::make(RowStore& store, const CacheOptions& options) {
  if (options.rows != store.rows()) {
    return invalid_input(fmt::format("cache: expected the {} rows of the store, found {}",
                                     store.rows(), options.rows));
  }
  TESSERA_TRY(CacheIndex index, CacheIndex::make(options));
  std::unique_ptr<RowCache> cache(new RowCache(store, std::move(index)));
  // Address space for every row at once: the open batches together use each row at most once.
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

RowCache::~RowCache() {
  if (memory_ != nullptr) ::munmap(memory_, memory_bytes_);
}

Status RowCache::write_back(std::span<const RowMove> moves) {
  for (const RowMove& move : moves) TESSERA_TRY_VOID(store_.write(move.row, row(move.place)));
  return {};
}

Status RowCache::read_in(std::span<const RowMove> moves) {
  for (const RowMove& move : moves) TESSERA_TRY_VOID(store_.read(move.row, row(move.place)));
  return {};
}

Status RowCache::warm(double share) { return read_in(index_.warm(share)); }

Status RowCache::move(const CacheBatch& batch) {
  TESSERA_CHECK(batch.number == moved_, "batch {} is moved after {} others", batch.number,
                moved_.load());
  TESSERA_TRY_VOID(write_back(batch.out));
  TESSERA_TRY_VOID(read_in(batch.in));
  ++moved_;
  return {};
}

Status RowCache::finish(const CacheBatch& batch, bool changed) {
  TESSERA_CHECK(batch.number < moved_, "batch {} is finished before its rows are there",
                batch.number);
  return write_back(index_.finish(batch, changed));
}

Status RowCache::flush() {
  TESSERA_CHECK(moved_ == counts().batches, "rows are on their way");
  TESSERA_TRY_VOID(write_back(index_.flush()));
  return store_.sync();
}

}  // namespace tessera::sparse
