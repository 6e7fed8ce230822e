// The rows of a table and its states of which a rank's device holds some (RowCache, program.h), as
// the interpreter uses them: which rows are at which places (sparse/cache/cache_index.h), their
// moves as jobs for the copier, and the rows at rest, in memory or in a file of their own.
//
// One thread decides (open, release, flush), the copier's thread moves. Private to tessera/runtime.
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
#include "tessera/runtime/copier.h"
#include "tessera/runtime/interpreter.h"
#include "tessera/runtime/kernels.h"
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
  // Waits until the jobs that were handed out are done. Fetches that no step took over may still be
  // running when they are given up.
  std::function<Status()> settle;
};

class CachedRows {
 public:
  enum class Whose : uint8_t {
    kInTurn,      // ids that the data gives, one batch after the other
    kMade,        // ids that an op computed from such ids: their rows were fetched before
    kEvaluation,  // an evaluation's fetch, which is not counted
  };
  static Result<std::unique_ptr<CachedRows>> make(CachedRowsWants wants);
  ~CachedRows();
  CachedRows(const CachedRows&) = delete;
  CachedRows& operator=(const CachedRows&) = delete;

  // Fetches the rows of ids of the table. Returns the job that moves the rows; null if they are
  // there.
  Result<const Copier::Job*> fetch(int handle, int64_t step, std::vector<int64_t> ids, Whose whose);
  // Fetches the rows of a later step ahead. A fetch in that step takes them over if its ids are
  // equal. A fetch in an earlier step does not: it would use rows whose copy has not been waited
  // for.
  Result<const Copier::Job*> fetch_ahead(int64_t step, std::vector<int64_t> ids);
  Status release(int handle, bool changed);
  Status release_all();  // releases what an evaluation left open

  // Returns a kernel that writes the places of fetched ids, as an op sees them. `from` and `to`
  // have equal shapes; an id of another rank's rows gets the place `places()`, an id below 0 stays.
  kernels::Kernel places_of(const kernels::Array& from, const kernels::Array& to) const;
  bool in_turn(int handle) const;  // whether each step makes this fetch, of ids that the data gives
  int64_t places() const { return cache().places; }
  // Returns the row at a place, counted from the whole table's first row.
  int64_t row_at(int64_t place) const {
    return first_ + cache().rows.begin + index_->row_at(static_cast<int32_t>(place));
  }

  // Returns all rows of a tensor that is held, brought up to date; null if they rest in a file.
  std::byte* rest(BufferId held, bool to_be_written);
  Status read(BufferId held, std::byte* out);
  Status write(BufferId held, const std::byte* in);

  const sparse::CacheCounts& counts() const { return counts_; }
  int64_t row_bytes() const { return row_bytes_; }

 private:
  explicit CachedRows(CachedRowsWants wants) : wants_(std::move(wants)) {}
  struct Part {  // a tensor
    BufferId held;
    std::byte* slots = nullptr;
    std::byte* rest = nullptr;  // null: in the file
    int64_t bytes = 0, at = 0;  // bytes of a row; its begin in the file's record
  };
  struct Open {
    int64_t step = 0;          // the step that uses the rows
    std::vector<int64_t> ids;  // rows of the piece
    sparse::CacheBatch batch;
    Copier::Job job;
    Whose whose = Whose::kInTurn;
  };
  // A fetch of ids that the data gives. Turns are in the order in which a step makes the fetches.
  struct Turn {
    const FetchRows* fetch = nullptr;
    int64_t micro_batch = 0;
  };

  const RowCache& cache() const {
    return wants_.program->caches[static_cast<size_t>(wants_.cache)];
  }
  Status prepare();
  Status open_file();
  void find_turns();
  std::vector<int64_t> rows_of(std::vector<int64_t> ids) const;
  Result<std::vector<int64_t>> ids_of_turn(int64_t turn) const;
  Status announce(int64_t turn);
  Status count_first();
  Result<std::unique_ptr<Open>> begin(std::vector<int64_t> ids, Whose whose, int64_t step);
  Status finish(const Open& open, bool changed);
  Status move(const sparse::CacheBatch& batch);
  Status read_in(const std::vector<sparse::RowMove>& moves);
  Status write_back(const std::vector<sparse::RowMove>& moves);
  Status update_rest();
  Status drop_next();
  const Part& part(BufferId held) const;

  CachedRowsWants wants_;
  std::vector<Part> parts_;
  int64_t row_bytes_ = 0;
  int64_t first_ = 0;  // the table's first row in the whole, if it is a piece (graph/pieces.h)
  std::unique_ptr<sparse::FileRows> file_;
  std::unique_ptr<sparse::CacheIndex> index_;
  std::map<int, std::unique_ptr<Open>> open_;  // by handle
  std::deque<std::unique_ptr<Open>> next_;     // fetched ahead
  std::vector<Turn> turns_;
  int64_t begun_ = 0, announced_ = 0;  // turns since the first step
  int64_t first_step_ = -1;
  bool counted_ = false;
  sparse::CacheCounts counts_;
  std::vector<std::byte> record_, record_of_copier_;
};

}  // namespace tessera
