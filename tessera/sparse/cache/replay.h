// Replays a trace of look-ups through a cache of any policy, without rows: hit rates, rows in and
// out.
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

// Batches of ids, one behind the other.
struct LookupTrace {
  std::vector<int64_t> ids;
  std::vector<int64_t> ends;  // by batch, rising
  int64_t batches() const { return std::ssize(ends); }
  std::span<const int64_t> batch(int64_t i) const;
  void add(std::span<const int64_t> batch);
  int64_t rows() const;  // largest id + 1
  // Returns the look-ups of each row, for policies that start from counts. Ids are below `rows`.
  std::vector<int64_t> counts(int64_t rows) const;
};

// Reads a trace: a batch a line, ids separated by blanks; skips empty lines and lines that begin
// with #. Errors: "trace.txt:3: expected an id from 0 to 4294967293, found 'x'"; no batch at all.
Result<LookupTrace> read_lookup_trace(const std::string& path);
Result<LookupTrace> parse_lookup_trace(std::string_view text, const std::string& name);

// Look-ups in one table by Zipf's law: `batch` ids a batch, ranks in a random order of the rows.
// The trace is a function of these values alone.
struct ZipfTrace {
  int64_t rows = 0, batches = 100, batch = 1024;
  double exponent = 1.05;
  int64_t seed = 1;
};
// Parses "zipf:rows=1000000,exponent=1.05,batches=100,batch=1024,seed=1"; all keys but rows may be
// left out. Errors: an unknown key, a value out of range.
Result<ZipfTrace> parse_zipf_trace(std::string_view text);
LookupTrace make_trace(const ZipfTrace& what);

struct ReplayOptions {
  // The number of batches that a policy with a window knows ahead; belady knows all. -1:
  // default_window().
  int64_t window = -1;
  double warm = 0;      // share of the slots that is filled before the first batch
  bool changed = true;  // every batch changes its rows (training); false: evaluation
};
// Returns how many batches use, in the mean, four times as many rows as there are slots: with that
// window nearly all choices are those of Belady's rule.
int64_t default_window(const LookupTrace& trace, int64_t slots);

// Replays the trace: batches begin and finish one after the other; a last flush() is not counted.
Result<CacheCounts> replay(const LookupTrace& trace, const CacheOptions& cache,
                           const ReplayOptions& options);

}  // namespace tessera::sparse
