// Which rows of a table are in a cache, and in which slots: all decisions of a cache, without the
// rows themselves (row_cache.h has those; replay.h needs none).
//
//   TESSERA_TRY(CacheIndex index, CacheIndex::make({.rows = 1'000'000, .slots = 10'000}));
//   CacheBatch batch;
//   TESSERA_TRY_VOID(index.begin(ids, batch));  // batch.places[i]: where the row of ids[i] will be
//   // perform batch.out, then batch.in; compute on batch.places
//   const std::vector<RowMove> out = index.finish(batch, /*changed=*/true);  // perform these too
//
// A *place* is a slot, 0 <= place < slots, or lies behind the slots: the overflow. The rows of a
// batch are at their places from its begin() to its finish(): no begin() in between evicts them.
// So a program may begin batch i+1, and move its rows, while it computes on batch i; at most
// kMostOpen batches are open.
//
// A batch that needs more slots than there are is served: rows that find no slot (every other slot
// is used by an open batch) get a place of the overflow, the most valuable ones by the policy a
// slot. A place of the overflow ends with the last open batch that uses its row; finish() returns
// those that changed, to be written back at once.
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
// the word that holds the place of a present one. Besides (scratch_bytes): 16 bytes for about 8
// rows for each one that a batch evicts; of a policy with a window, 8 bytes for each row of each
// announced batch and 32 to 64 for each distinct one; 12 bytes for each place of the overflow.
//
// Keys have 26 bits: counts stop at 67,108,863; stamps go on for longer, and lose the order of rows
// that were not used for 33 million batches.
//
// Time of begin(): a few random reads for each id, no sort of ids; and a scan of all slots once for
// about 8 times as many evictions as a batch needs.
//
// One thread at a time.
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
  int64_t number = -1;          // batches in the order of begin()
  std::vector<int32_t> places;  // by id; -1 where the id is padding (negative)
  std::vector<int32_t> used;    // the places of its rows, each once
  std::vector<RowMove> out;     // to write back first, by rising row
  std::vector<RowMove> in;      // then to read, by rising row
};

// What happened since the cache was made. A row that several batches use counts once for each; it is
// a hit if it has a place when the batch begins, even if it is still on its way there.
struct CacheCounts {
  int64_t batches = 0;
  int64_t lookups = 0, lookup_misses = 0;  // ids, duplicates too, padding not
  int64_t rows = 0, row_misses = 0;        // each row of a batch once
  int64_t rows_in = 0, rows_out = 0;       // read from and written to the store, without warm-up
  int64_t rows_warmed = 0;                 // read by warm()
  int64_t overflow_rows = 0;               // of rows_in: found no slot
  double hit_rate() const;                 // of look-ups; 1 without any
  double row_hit_rate() const;
  friend bool operator==(const CacheCounts&, const CacheCounts&) = default;
};

struct CacheOptions {
  int64_t rows = 0;   // of the table, below 2^32 - 1
  int64_t slots = 0;  // 1 .. 2^29
  std::string policy = "lookahead";
  // How often the data set uses each row, for policies that start from counts; empty: 0 for all.
  std::span<const int64_t> counts = {};
  // Where the index lies: 4 bytes for each row and behind them 8 for each slot, aligned to 4, which
  // outlive it. Empty: in memory of its own.
  std::span<std::byte> memory = {};
};

class CacheIndex {
 public:
  static constexpr int kMostOpen = 7;

  // Errors: rows or slots out of range, a policy that is not known, counts of another number of
  // rows or below 0. More slots than rows are the rows.
  static Result<CacheIndex> make(const CacheOptions& options);
  CacheIndex(CacheIndex&&) noexcept = default;
  CacheIndex& operator=(CacheIndex&&) noexcept = default;
  CacheIndex(const CacheIndex&) = delete;
  CacheIndex& operator=(const CacheIndex&) = delete;
  ~CacheIndex() = default;
  // Bytes that CacheOptions::memory must have.
  static constexpr int64_t memory_bytes(int64_t rows, int64_t slots) {
    return int64_t{sizeof(uint32_t)} * rows + int64_t{sizeof(Slot)} * slots;
  }

  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }
  int64_t slots() const { return static_cast<int64_t>(slots_.size()); }
  int64_t overflow_places() const { return static_cast<int64_t>(overflow_.size()); }  // so far
  const CachePolicy& policy() const { return policy_; }
  const CacheCounts& counts() const { return counts_; }
  int open() const { return open_; }

  // Puts the rows with the largest keys (of equal ones the smaller row numbers) into free slots, up
  // to `share` of all slots, rounded up. Before the first batch. Returns what to read.
  std::vector<RowMove> warm(double share);

  // Counts uses of rows in the data set, as CacheOptions::counts does, before the first batch.
  Status count(std::span<const int64_t> ids);

  // Tells the ids of a batch to come, in the order of the begins. A hint: batches that begin with
  // other ids, or were never announced, are served as well. Policies without a window ignore it.
  Status announce(std::span<const int64_t> ids);
  int64_t announced() const { return static_cast<int64_t>(window_.size()); }

  // Error, and nothing has happened: an id that is not below rows().
  // `in_turn`: it is the next of the announced batches, if there are any; a batch beside them (of an
  // evaluation) is not.
  Status begin(std::span<const int64_t> ids, CacheBatch& batch, bool in_turn = true);
  // Ends the use of the batch's places. Returns rows of the overflow to write back.
  std::vector<RowMove> finish(const CacheBatch& batch, bool changed);
  // All rows at places that changed, to be written back; they stay, unchanged. For checkpoints.
  std::vector<RowMove> flush();
  // No row has a place any more; what was flushed before is what counts. No batch is open.
  void clear();

  int32_t place_of(int64_t row) const;                             // -1: none
  int64_t row_at(int32_t place) const { return slot(place).row; }  // of a place that has one
  int64_t index_bytes() const;
  int64_t scratch_bytes() const;
  std::string violation() const;  // of the invariants; "": none

 private:
  // The word of a row: kPresent and a place, or the key of an absent row. While begin() runs, a
  // place with kMissing is the number of a row among the missing ones.
  static constexpr uint32_t kPresent = 1U << 31, kMissing = 1U << 30;
  // The word `use` of a place.
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
  // A row of the window: the first announced batch that uses it, and where it stands in the last.
  struct Use {
    uint32_t next = kNever, last_batch = kNever, last_at = 0;
  };
  struct WindowBatch {
    std::vector<uint32_t> rows, next;  // next: the announced batch behind it that uses the row
  };

  Slot& slot(int32_t place);
  const Slot& slot(int32_t place) const { return const_cast<CacheIndex*>(this)->slot(place); }
  Status check(std::span<const int64_t> ids) const;
  bool announced(uint32_t row) const { return next_uses_.find(row) != nullptr; }
  bool evictable(int32_t place) const;  // a slot that no open batch uses
  void advance_window();
  void note_use(Slot& place, uint32_t uses) const;
  // Places are evicted in rising order.
  uint64_t order(uint32_t row, uint32_t use) const;
  void offer(int32_t place);  // a candidate for eviction
  void refill(size_t wanted);
  // Evicts at most `wanted` rows; their places are added to `freed`, and changed ones to `out`.
  void evict(size_t wanted, std::vector<int32_t>& freed, std::vector<RowMove>& out);
  void leave(int32_t place);  // the row has no place any more
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

  // Unpinned slots in rising order: every one whose order is at most limit_ is among them. Entries
  // whose slot has another order by now are passed over.
  std::vector<Candidate> candidates_;
  uint64_t limit_ = 0;
  size_t most_candidates_ = 0;

  std::deque<WindowBatch> window_;
  WindowBatch begins_;  // what was announced for the batch that begins
  RowMap<Use> next_uses_;
  uint32_t begun_ = 0;  // number of the window's first batch

  std::vector<Missing> missing_;  // of the batch that begins
  std::vector<int32_t> freed_;
  uint32_t stamp_ = 0;
};

}  // namespace tessera::sparse
