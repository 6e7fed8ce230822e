// Manages a cache of rows (RowCache, program.h): a rank's device holds some rows of a table and of
// the table's optimizer states. A CachedRows tells the interpreter which rows are at which places
// (sparse/cache/cache_index.h), and makes the jobs by which the copier moves rows to and from
// where they rest (rows_at_rest.h).
//
// The rank's thread decides which rows move (fetch, release), and the copier's thread runs the jobs
// that move them. Private to tessera/runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/program/program.h"
#include "tessera/runtime/arrays/copier.h"
#include "tessera/runtime/cached_rows/rows_at_rest.h"
#include "tessera/runtime/kernels.h"
#include "tessera/sparse/cache/cache_index.h"

namespace tessera {

class CachedRows {
 public:
  enum class Whose : uint8_t {
    kInTurn,      // ids that the data gives, in the order of the batches
    kMade,        // ids that an op computed from those of the data; their rows were fetched before
    kEvaluation,  // an evaluation's fetch, which is not counted
  };
  static Result<std::unique_ptr<CachedRows>> make(CachedRowsWants wants);
  ~CachedRows();
  CachedRows(const CachedRows&) = delete;
  CachedRows& operator=(const CachedRows&) = delete;

  // Fetches the rows of the table that `ids` names. Returns the job that moves the rows to the
  // device; null if fetch_ahead() has already fetched them.
  Result<const Copier::Job*> fetch(int handle, int64_t step, std::vector<int64_t> ids, Whose whose);
  // Fetches the rows of the later step `step` ahead of time. The fetch of that step takes the rows
  // over if its ids are equal. A fetch in an earlier step does not take them over, because it would
  // use rows whose copy has not been waited for.
  Result<const Copier::Job*> fetch_ahead(int64_t step, std::vector<int64_t> ids);
  Status release(int handle, bool changed);
  Status release_all();  // releases what an evaluation left open

  // Returns a kernel that reads fetched ids from `from` and writes to `to` the place of each id's
  // row, for the op that works on the cached rows. `from` and `to` have equal shapes. An id whose
  // row belongs to another rank gets the place `places()`; an id below 0 stays as it is.
  kernels::Kernel places_of(const kernels::Array& from, const kernels::Array& to) const;
  bool in_turn(int handle) const;  // whether the fetch's ids come from the data
  int64_t places() const { return cache().places; }
  // Returns the number of the row at a place, counted from the first row of the whole table.
  int64_t row_at(int64_t place) const {
    return first_ + cache().rows.begin + index_->row_at(static_cast<int32_t>(place));
  }

  // Returns the memory of all rows of the tensor whose buffer is `held`, after it writes back the
  // rows that changed in the cache; null if the rows rest in a file.
  std::byte* rest(BufferId held, bool to_be_written);
  Status read(BufferId held, std::byte* out);
  Status write(BufferId held, const std::byte* in);

  const sparse::CacheCounts& counts() const { return counts_; }
  int64_t row_bytes() const { return rest_.row_bytes(); }

 private:
  explicit CachedRows(CachedRowsWants wants) : wants_(std::move(wants)) {}
  struct Open {
    int64_t step = 0;          // the step for which the rows are fetched
    std::vector<int64_t> ids;  // this rank's numbers of the rows; -1: other rank
    sparse::CacheBatch batch;
    Copier::Job job;
    Whose whose = Whose::kInTurn;
  };
  // A turn is a fetch of ids that the data gives. `turns_` has those of one step, in the order in
  // which the step makes the fetches.
  struct Turn {
    const FetchRows* fetch = nullptr;
    int64_t micro_batch = 0;
  };

  const RowCache& cache() const {
    return wants_.program->caches[static_cast<size_t>(wants_.cache)];
  }
  Status prepare();
  void find_turns();
  std::vector<int64_t> rows_of(std::vector<int64_t> ids) const;
  Result<std::vector<int64_t>> ids_of_turn(int64_t turn) const;
  Status announce(int64_t turn);
  Status count_first();
  Result<std::unique_ptr<Open>> begin(std::vector<int64_t> ids, Whose whose, int64_t step);
  Status finish(const Open& open, bool changed);
  Status move(const sparse::CacheBatch& batch);
  Status update_rest();
  Status drop_next();
  Status forget();  // leaves no row in the cache and no fetch ahead

  CachedRowsWants wants_;
  RowsAtRest rest_;
  int64_t first_ = 0;  // row of the whole table at which this table begins, if it is a
                       // piece (graph/pieces.h)
  std::unique_ptr<sparse::CacheIndex> index_;
  std::map<int, std::unique_ptr<Open>> open_;  // by handle
  std::deque<std::unique_ptr<Open>> next_;     // fetched ahead
  std::vector<Turn> turns_;
  int64_t begun_ = 0, announced_ = 0;  // numbers of turns since the first step
  int64_t first_step_ = -1;
  bool counted_ = false;
  sparse::CacheCounts counts_;
};

}  // namespace tessera
