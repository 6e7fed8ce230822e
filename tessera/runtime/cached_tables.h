// The caches of rows of a rank (cached_rows.h), and what the interpreter does with them. Private to
// tessera/runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/runtime/cached_rows.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

class CachedTables {
 public:
  // Makes the caches. `memory` gives the memory of buffers that are no file; `settle` is that of
  // CachedRowsWants. Graph and program outlive this object.
  Status prepare(const Graph& graph, const Program& program, const ExecutorOptions& options,
                 const std::function<std::byte*(BufferId)>& memory,
                 const std::function<Status()>& settle);

  CachedRows* rows_of(BufferId held) const;  // null: the buffer belongs to no table with a cache
  // Returns the buffer in which all rows rest, if the device holds some of the buffer's rows; else
  // the buffer itself.
  BufferId rest_of(BufferId buffer) const;
  // Returns the bytes of the disk tier's file. Rows of caches have files of their own and lie at
  // the end.
  static int64_t disk_bytes(const Program& program);
  // Returns the buffers that are allocated beside the homes.
  std::vector<BufferId> beside_homes() const;

  // Changes the call of an op that touches rows by ids of a table with a cache: the op then works
  // on a table with one row for each place, and its ids are places. Returns the kernel that
  // computes these ids; an empty one for every other op.
  kernels::Kernel name_places(const Op& op, const Compute& compute, kernels::KernelCall& call);

  // Fetches rows; `ids` are the arrays of the fetch's views. Returns the copier's job; null: none
  // needed.
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
  std::vector<std::unique_ptr<CachedRows>> caches_;   // as in the program
  std::vector<int> by_buffer_;                        // -1: none
  std::map<int, int> by_fetch_;                       // cache by handle
  std::vector<std::unique_ptr<std::byte[]>> places_;  // NOLINT(modernize-avoid-c-arrays)
  int64_t place_bytes_ = 0;
};

}  // namespace tessera
