// The rows of a cached table (cached_rows.h) where they rest, in memory or in a file for this cache
// alone, and their copies to and from the places of the cache. Private to tessera/runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/program/program.h"
#include "tessera/runtime/step/execution.h"
#include "tessera/sparse/cache/cache_index.h"
#include "tessera/sparse/cache/row_store.h"

namespace tessera {

struct CachedRowsWants {
  const Graph* graph = nullptr;
  const Program* program = nullptr;
  int cache = 0;
  uint64_t seed = 0;
  std::function<std::byte*(BufferId)> memory;  // returns the memory of buffers that are no file
  AheadFunction ahead;                         // empty: later batches are not known
  // Waits until all jobs that were handed to the copier are done. Called before a fetch ahead that
  // no step took over is given up, because its job may still be running.
  std::function<Status()> settle;
};

class RowsAtRest {
 public:
  // Makes the file if the rows rest in one. Reading a row that was never written gives the initial
  // values of the cache's tensors.
  Status prepare(const CachedRowsWants& wants);

  Status read_in(const std::vector<sparse::RowMove>& moves);
  // Writes rows back from the device. The copier's jobs call this function, and so does the rank's
  // thread between the copier's jobs, for other rows.
  Status write_back(const std::vector<sparse::RowMove>& moves) const;
  // Returns the memory of all rows of the tensor whose buffer is `held`; null: they are in the file.
  std::byte* memory(BufferId held) const { return part(held).rest; }
  // Copies all rows of the tensor whose buffer is `held`.
  Status read(BufferId held, std::byte* out);
  Status write(BufferId held, const std::byte* in);
  int64_t row_bytes() const { return row_bytes_; }  // of all tensors of the cache

 private:
  struct Part {  // one tensor of the cache: the table's weights or a state
    BufferId held;
    std::byte* slots = nullptr;
    std::byte* rest = nullptr;  // null: in the file
    int64_t bytes = 0, at = 0;  // bytes of a row; where it begins in a record of the file
    DType dtype = DType::kFloat32;
  };
  Status open_file(const CachedRowsWants& wants);
  const Part& part(BufferId held) const;

  std::vector<Part> parts_;
  int64_t rows_ = 0, row_bytes_ = 0;
  std::unique_ptr<sparse::FileRows> file_;
  std::vector<std::byte> record_, record_of_copier_;
};

}  // namespace tessera
