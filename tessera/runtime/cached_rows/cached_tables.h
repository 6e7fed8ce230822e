// Holds the caches of rows of a rank (cached_rows.h) and does what the interpreter asks of them.
// Private to tessera/runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/runtime/cached_rows/cached_rows.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

class CachedTables {
 public:
  // Makes the caches. `memory` returns the memory of each buffer that is not in a file; `settle` is
  // the function of CachedRowsWants. Graph and program outlive this object.
  Status prepare(const Graph& graph, const Program& program, const ExecutorOptions& options,
                 const std::function<std::byte*(BufferId)>& memory,
                 const std::function<Status()>& settle);

  CachedRows* rows_of(BufferId held) const;  // null: the buffer belongs to no table with a cache
  // Returns the buffer in which all rows rest, if `buffer` is a cache that holds only some of these
  // rows; else `buffer` itself.
  BufferId rest_of(BufferId buffer) const;
  // Returns the bytes of the disk tier's file. The rows of caches are not in this file, because
  // each cache has a file of its own. Their buffers are at the end of the disk arena, so the file
  // ends before them.
  static int64_t disk_bytes(const Program& program);
  // Returns the buffers that are allocated in addition to the homes: those in which rows rest, and
  // the indices of the caches.
  std::vector<BufferId> beside_homes() const;

  // Changes the call of an op that reads or writes rows of a cached table by ids: the op then
  // works on a table with one row for each place, and its ids are places. Returns the kernel
  // that computes the places from the ids. For every other op changes nothing and returns an
  // empty kernel.
  kernels::Kernel name_places(const Op& op, const Compute& compute, kernels::KernelCall& call);

  // Fetches rows; `ids` are the arrays of the fetch's views. Returns the copier's job that moves
  // the rows; null if no job is needed.
  Result<const Copier::Job*> fetch(const FetchRows& fetch, int64_t step, bool evaluating,
                                   const std::vector<kernels::Array>& ids);
  Status release(const ReleaseRows& release);
  Status end_evaluation();

  std::vector<RowCacheReport> reports() const;

 private:
  std::vector<int64_t> next_ids(const RowIds& ids, int64_t step) const;

  const Graph* graph_ = nullptr;
  const Program* program_ = nullptr;
  AheadFunction ahead_;
  std::vector<std::unique_ptr<CachedRows>> caches_;   // in the order of the program's caches
  std::vector<int> by_buffer_;                        // cache of each buffer; -1: none
  std::map<int, int> by_fetch_;                       // cache by handle
  std::vector<std::unique_ptr<std::byte[]>> places_;  // NOLINT(modernize-avoid-c-arrays)
  int64_t place_bytes_ = 0;
};

}  // namespace tessera
