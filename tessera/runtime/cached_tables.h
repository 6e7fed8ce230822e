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
  // `memory`: of buffers that are no file; `settle`: as of CachedRowsWants. Graph and program outlive this.
  Status prepare(const Graph& graph, const Program& program, const ExecutorOptions& options,
                 const std::function<std::byte*(BufferId)>& memory,
                 const std::function<Status()>& settle);

  CachedRows* rows_of(BufferId held) const;  // null: it is no table with a cache
  // Where all rows are of what has some on the device; else the buffer itself.
  BufferId rest_of(BufferId buffer) const;
  // Bytes of the disk tier's file: rows of caches have files of their own, and stand behind the rest.
  static int64_t disk_bytes(const Program& program);
  // What is allocated beside the homes.
  std::vector<BufferId> beside_homes() const;

  // An op that touches rows by ids, of a table of which the device has some: it is the same op on a
  // table of so many rows as there are places, whose ids are places. Changes the call, and returns
  // what makes these ids; empty for every other op.
  kernels::Kernel name_places(const Op& op, const Compute& compute, kernels::KernelCall& call);

  // `ids`: the arrays of the fetch's views. Returns what the copier is to do; null: nothing.
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
