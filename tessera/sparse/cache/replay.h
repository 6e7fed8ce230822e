// Replays a trace of look-ups through a cache with any policy and counts hits and the rows that go
// in and out. No rows are held.
//
//   TESSERA_TRY(const LookupTrace trace, read_lookup_trace("trace.txt"));
//   TESSERA_TRY(const CacheCounts counts, replay(trace, {.rows = 1000, .slots = 50, .policy = "lru"}, {}));
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/sparse/cache/cache_index.h"

namespace tessera::sparse {

// The ids of several batches, one batch after the other.
struct LookupTrace {
  std::vector<int64_t> ids;
  std::vector<int64_t> ends;  // by batch: where it ends in `ids`
  int64_t batches() const { return std::ssize(ends); }
  std::span<const int64_t> batch(int64_t i) const;
  void add(std::span<const int64_t> batch);
  int64_t rows() const;  // largest id + 1
  // Returns how often each row is looked up, for policies whose keys start from counts. Ids must be
  // below `rows`.
  std::vector<int64_t> counts(int64_t rows) const;
};

// Reads a trace from a file: a line is a batch, and blanks separate its ids. Skips empty lines and
// lines that begin with #. Errors: "trace.txt:3: expected an id from 0 to 4294967293, found 'x'";
// the file has no batch.
Result<LookupTrace> read_lookup_trace(const std::string& path);
Result<LookupTrace> parse_lookup_trace(std::string_view text, const std::string& name);

// A generated trace of look-ups in one table. Each batch has `batch` ids. Zipf's law draws the rank
// of each id, and a random permutation says which row has which rank. The trace is a function of
// these values alone.
struct ZipfTrace {
  int64_t rows = 0, batches = 100, batch = 1024;
  double exponent = 1.05;
  int64_t seed = 1;
};
// Parses "zipf:rows=1000000,exponent=1.05,batches=100,batch=1024,seed=1". All keys but `rows` may
// be left out. Errors: an unknown key, a value out of range.
Result<ZipfTrace> parse_zipf_trace(std::string_view text);
LookupTrace make_trace(const ZipfTrace& what);

struct ReplayOptions {
  // How many batches after the current one are announced to a policy with a window; `belady` always
  // knows all. -1: default_window().
  int64_t window = -1;
  double warm = 0;      // share of the slots that is filled before the first batch
  bool changed = true;  // whether batches change their rows, as training does; evaluation does not
};
// Returns the number of batches that together use, on average, four times as many rows as there are
// slots. With such a window nearly all choices are those of Belady's rule.
int64_t default_window(const LookupTrace& trace, int64_t slots);

// Replays the trace: each batch finishes before the next begins. Changed rows that are still in the
// cache at the end are not counted as written.
Result<CacheCounts> replay(const LookupTrace& trace, const CacheOptions& cache,
                           const ReplayOptions& options);

}  // namespace tessera::sparse
