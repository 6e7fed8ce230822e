// Decides which rows of a table are in a cache, and in which slots, without holding the rows
// (test_row_cache.h adds them; replay.h needs none).
//
//   TESSERA_TRY(CacheIndex index, CacheIndex::make({.rows = 1'000'000, .slots = 10'000}));
//   CacheBatch batch;
//   TESSERA_TRY_VOID(index.begin(ids, batch));  // batch.places[i]: where the row of ids[i] will be
//   // perform batch.out, then batch.in; compute on batch.places
//   const std::vector<RowMove> out = index.finish(batch, /*changed=*/true);  // perform these too
//
// A *place* is a slot, 0 <= place < slots, or lies behind the slots, in the overflow. The rows of a
// batch are at their places from its begin() to its finish(): no begin() in between evicts them. So
// a program may begin batch i+1, and move its rows, while it computes on batch i; at most kMostOpen
// batches are open.
//
// A batch that needs more slots than there are is served, too: if every other slot is used by an
// open batch, the most valuable rows by the policy get the slots, and the rest get places of the
// overflow. A place of the overflow ends with the last open batch that uses its row; finish()
// returns the rows at such places that changed, to be written back at once.
//
// Only rows that changed since they were read are written back (`changed` of finish()).
//
// Invariants (violation() checks them; docs/strategies/row-cache.md section 8)
//   1  the row in a used place is mapped to that place, and no other row is
//   2  used slots + free slots = slots
//   3  every row of an open batch has a place
//   4  a row's newest value is at its place if it has one, else in the store
//
// Memory. The index: 4 bytes a row of the table and 8 bytes a slot. An absent row keeps its key in
// the word that holds the place of a present one. Besides (scratch_bytes): 16 bytes for each of
// about 8 rows for each row that a batch evicts; for a policy with a window, 8 bytes for each row
// of each announced batch and 32 to 64 for each distinct row; 12 bytes for each place of the
// overflow.
//
// Keys have 26 bits: counts stop at 67,108,863; stamps go on longer, but lose the order of rows
// that were not used for 33 million batches.
//
// Time of begin(): a few random reads for each id, without sorting ids. Besides, one scan of all
// slots finds about 8 times as many rows to evict as a batch needs.
//
// Only one thread at a time may use an index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/sparse/cache/policy.h"
#include "tessera/sparse/cache/row_map.h"

namespace tessera::sparse {

struct RowMove {
  int64_t row = 0;
  int32_t place = 0;
  friend bool operator==(const RowMove&, const RowMove&) = default;
};

// An open batch. Reuse the object: its memory stays.
struct CacheBatch {
  int64_t number = -1;          // numbers batches in the order of begin()
  std::vector<int32_t> places;  // by id; -1 where the id is padding (negative)
  std::vector<int32_t> used;    // the places of the batch's rows, each once
  std::vector<RowMove> out;     // to write back first, by rising row
  std::vector<RowMove> in;      // then to read, by rising row
};

// Counts since the cache was made. A row that several batches use counts once for each; it is a hit
// if it has a place when the batch begins, even if the row is still on its way there.
struct CacheCounts {
  int64_t batches = 0;
  int64_t lookups = 0, lookup_misses = 0;  // ids, with duplicates, without padding
  int64_t rows = 0, row_misses = 0;        // each row once a batch
  int64_t rows_in = 0, rows_out = 0;       // read from and written to the store, without warm-up
  int64_t rows_warmed = 0;                 // read by warm()
  int64_t overflow_rows = 0;               // the rows of rows_in that found no slot
  double hit_rate() const;                 // by look-ups; 1 without any
  double row_hit_rate() const;
  friend bool operator==(const CacheCounts&, const CacheCounts&) = default;
};

struct CacheOptions {
  int64_t rows = 0;   // of the table, below 2^32 - 1
  int64_t slots = 0;  // 1 .. 2^29
  std::string policy = "lookahead";
  // How often the data set uses each row, for policies that start from counts; empty: 0 for all.
  std::span<const int64_t> counts = {};
  // Memory for the index: 4 bytes for each row and behind them 8 for each slot, aligned to 4, which
  // must outlive the index. Empty: memory of its own.
  std::span<std::byte> memory = {};
};

class CacheIndex {
 public:
  static constexpr int kMostOpen = 7;

  // Makes an index. If there are more slots than rows, the index has as many slots as rows. Errors:
  // rows or slots out of range, an unknown policy, counts below 0 or of another number of rows.
  static Result<CacheIndex> make(const CacheOptions& options);
  CacheIndex(CacheIndex&&) noexcept = default;
  CacheIndex& operator=(CacheIndex&&) noexcept = default;
  CacheIndex(const CacheIndex&) = delete;
  CacheIndex& operator=(const CacheIndex&) = delete;
  ~CacheIndex() = default;
  // Returns the bytes that CacheOptions::memory must have.
  static constexpr int64_t memory_bytes(int64_t rows, int64_t slots) {
    return int64_t{sizeof(uint32_t)} * rows + int64_t{sizeof(Slot)} * slots;
  }

  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }
  int64_t slots() const { return static_cast<int64_t>(slots_.size()); }
  int64_t overflow_places() const { return static_cast<int64_t>(overflow_.size()); }  // so far
  const CachePolicy& policy() const { return policy_; }
  const CacheCounts& counts() const { return counts_; }
  int open() const { return open_; }

  // Puts the rows with the largest keys (among equal keys the smaller row numbers) into free slots,
  // up to `share` of all slots, rounded up. Returns the rows to read. Only before the first batch.
  std::vector<RowMove> warm(double share);

  // Counts uses of rows in the data set, as CacheOptions::counts does, before the first batch.
  Status count(std::span<const int64_t> ids);

  // Announces the ids of a coming batch; announcements come in the order of the begins. They are
  // hints: a batch that begins with other ids, or was never announced, is served as well. Policies
  // without a window ignore them.
  Status announce(std::span<const int64_t> ids);
  int64_t announced() const { return static_cast<int64_t>(window_.size()); }

  // Begins a batch. `in_turn` says that it is the next of the announced batches, if there are any;
  // an evaluation's batch beside them is not. Error: an id is not below rows(); nothing has
  // happened then.
  Status begin(std::span<const int64_t> ids, CacheBatch& batch, bool in_turn = true);
  // Ends the use of the batch's places. Returns rows of the overflow to write back.
  std::vector<RowMove> finish(const CacheBatch& batch, bool changed);
  // Returns all rows that changed at their places, to be written back; they stay, marked unchanged.
  // Checkpoints use it.
  std::vector<RowMove> flush();
  // Takes the place of every row away: what was not flushed before is lost. No batch may be open.
  void clear();

  int32_t place_of(int64_t row) const;                             // -1: none
  int64_t row_at(int32_t place) const { return slot(place).row; }  // the place must have a row
  int64_t index_bytes() const;
  int64_t scratch_bytes() const;
  std::string violation() const;  // says which invariant is broken; "": none

 private:
  // The word of a row: kPresent and a place, or the key of an absent row. While begin() runs,
  // kMissing marks a place that is the index of a row in `missing_`.
  static constexpr uint32_t kPresent = 1U << 31, kMissing = 1U << 30;
  // Bits of a slot's word `use`.
  static constexpr uint32_t kChanged = 1U << 31, kPinShift = 28, kPins = 7U << kPinShift,
                            kPin = 1U << kPinShift, kSeen = 1U << 27, kWindowed = 1U << 26,
                            kMostKey = kWindowed - 1;
  static constexpr uint32_t kNoRow = RowMap<int>::kNoRow, kNever = 0xFFFFFFFF;

  struct Slot {
    uint32_t row = kNoRow;
    uint32_t use = 0;
  };
  struct Missing {
    uint32_t row, key, uses;
    int32_t place;
  };
  struct Candidate {
    uint64_t order;
    int32_t place;
    bool operator>(const Candidate& other) const { return order > other.order; }
    bool operator<(const Candidate& other) const { return order < other.order; }
  };
  // For a row of the window: the first announced batch that uses it, and its position in the last.
  struct Use {
    uint32_t next = kNever, last_batch = kNever, last_at = 0;
  };
  struct WindowBatch {
    std::vector<uint32_t> rows, next;  // next: the announced batch after this one that uses the row
  };

  Slot& slot(int32_t place);
  const Slot& slot(int32_t place) const { return const_cast<CacheIndex*>(this)->slot(place); }
  Status check(std::span<const int64_t> ids) const;
  bool announced(uint32_t row) const { return next_uses_.find(row) != nullptr; }
  bool evictable(int32_t place) const;  // a slot that no open batch uses
  void advance_window();
  void note_use(Slot& place, uint32_t uses) const;
  // Returns a row's position in the order of eviction: the smallest is evicted first.
  uint64_t order(uint32_t row, uint32_t use) const;
  void offer(int32_t place);  // as a candidate for eviction
  void refill(size_t wanted);
  // Evicts at most `wanted` rows; adds their places to `freed`, and the changed rows to `out`.
  void evict(size_t wanted, std::vector<int32_t>& freed, std::vector<RowMove>& out);
  void leave(int32_t place);  // takes the row's place away
  int32_t overflow_place();
  void place_missing(CacheBatch& batch);

  CachePolicy policy_;
  CacheCounts counts_;
  CacheIndex() = default;
  std::vector<uint32_t> own_rows_;  // empty where memory was given
  std::vector<Slot> own_slots_;
  std::span<uint32_t> rows_;
  std::span<Slot> slots_;
  std::vector<Slot> overflow_;
  std::vector<int32_t> free_overflow_;
  int64_t used_ = 0;  // slots 0 .. used_ - 1 have been used
  int open_ = 0;

  // Unpinned slots in rising order. Every slot whose order is at most limit_ is among them; entries
  // whose slot has another order by now are passed over.
  std::vector<Candidate> candidates_;
  uint64_t limit_ = 0;
  size_t most_candidates_ = 0;

  std::deque<WindowBatch> window_;
  WindowBatch begins_;  // the announcement of the batch that begins
  RowMap<Use> next_uses_;
  uint32_t begun_ = 0;  // the number of the window's first batch

  std::vector<Missing> missing_;  // rows of the batch that begins
  std::vector<int32_t> freed_;
  uint32_t stamp_ = 0;
};

}  // namespace tessera::sparse
