// Decides which rows of a table are in a cache, and in which slots. It does not hold the rows
// themselves: test_row_cache.h is a cache that does; replay.h needs only the decisions.
//
//   TESSERA_TRY(CacheIndex index, CacheIndex::make({.rows = 1'000'000, .slots = 10'000}));
//   CacheBatch batch;
//   TESSERA_TRY_VOID(index.begin(ids, batch));  // batch.places[i]: where the row of ids[i] will be
//   // write back the rows of batch.out, then read those of batch.in; compute on batch.places
//   const std::vector<RowMove> out = index.finish(batch, /*changed=*/true);  // write back, too
//
// A *place* is where a row can be in the cache's memory. Places 0 .. slots - 1 are the slots;
// places from `slots` on are the overflow. The rows of a batch stay at their places from its
// begin() to its finish(): no begin() in between evicts them. So a program may begin batch i+1, and
// move its rows, while it computes on batch i. At most kMostOpen batches may be open.
//
// A batch may need more slots than are free or can be evicted, because open batches use all the
// others. Then the rows that the policy values most get the slots, and the rest get places in the
// overflow. A row loses its place in the overflow when the last open batch that uses the row
// finishes; that finish() returns the row, if it changed, so that the caller writes it back at
// once.
//
// A row is written back only if it has changed since it was read (argument `changed` of finish()).
//
// Invariants (violation() checks them; docs/strategies/row-cache.md section 8)
//   1  a place in use and the row in it refer to each other: the row is mapped to that place
//   2  used slots + free slots = slots
//   3  every row of an open batch has a place
//   4  a row's newest value is at its place if the row has one, else in the store
//
// Memory. The index takes 4 bytes for each row of the table and 8 bytes for each slot. The word of
// a row in the index is its place if it has one, else its key (policy.h). In addition
// (scratch_bytes): 16 bytes for each eviction candidate, of which there are about 8 for each row
// that a batch evicts; for a policy with a window, 8 bytes for each row of each announced batch and
// 32 to 64 bytes for each distinct row in them; 12 bytes for each place of the overflow.
//
// Keys have 26 bits. So counts stop at 67,108,863. Stamps (numbers of batches) are lowered before
// they reach that; rows that were not used for 33 million batches then get equal stamps.
//
// Time of begin(): a few random reads for each id; ids are not sorted. When rows must be evicted
// and no candidate is left, one scan over all slots finds 8 times as many candidates as are needed.
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

// An open batch. An object can be used again for a later batch, so that its memory is kept.
struct CacheBatch {
  int64_t number = -1;          // counts the batches, from 0, in the order of begin()
  std::vector<int32_t> places;  // by id: its row's place; -1 if the id is padding (negative)
  std::vector<int32_t> used;    // the places of the batch's rows, each once
  std::vector<RowMove> out;     // rows to write back first, in ascending order
  std::vector<RowMove> in;      // rows to read after `out` is written, in ascending order
};

// Counts since the cache was made. A row that several batches use counts once for each of these
// batches. It counts as a hit if it has a place when the batch begins, even if its bytes are still
// on the way there.
struct CacheCounts {
  int64_t batches = 0;
  int64_t lookups = 0, lookup_misses = 0;  // by id, with duplicates, without padding
  int64_t rows = 0, row_misses = 0;        // by row: each row once a batch
  int64_t rows_in = 0, rows_out = 0;       // read from and written to the store, but not by warm()
  int64_t rows_warmed = 0;                 // rows that warm() read
  int64_t overflow_rows = 0;               // how many of rows_in found no slot
  double hit_rate() const;                 // share of the look-ups that hit; 1 if there were none
  double row_hit_rate() const;
  friend bool operator==(const CacheCounts&, const CacheCounts&) = default;
};

struct CacheOptions {
  int64_t rows = 0;   // of the table, below 2^32 - 1
  int64_t slots = 0;  // 1 .. 2^29
  std::string policy = "lookahead";
  // How often the data set uses each row, by row; for policies whose keys start from counts. Empty:
  // 0 for all rows.
  std::span<const int64_t> counts = {};
  // Memory for the index: first 4 bytes for each row, then 8 bytes for each slot, aligned to 4. It
  // must outlive the index. Empty: the index allocates its own memory.
  std::span<std::byte> memory = {};
};

class CacheIndex {
 public:
  static constexpr int kMostOpen = 7;

  // Makes an index. If `slots` is larger than `rows`, the index has only as many slots as rows.
  // Errors: rows or slots out of range; an unknown policy; counts that are negative, or not one for
  // each row.
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
  // Returns how many places the overflow has had at most so far.
  int64_t overflow_places() const { return static_cast<int64_t>(overflow_.size()); }
  const CachePolicy& policy() const { return policy_; }
  const CacheCounts& counts() const { return counts_; }
  int open() const { return open_; }

  // Puts rows into free slots until `share` of all slots (rounded up) are filled, and returns these
  // rows, which the caller must read. The rows with the largest keys are chosen, among equal keys
  // the smaller row numbers. Call warm() only before the first batch.
  std::vector<RowMove> warm(double share);

  // Adds the uses of rows in `ids` to the keys, as if CacheOptions::counts had counted them. Call
  // count() only before the first batch.
  Status count(std::span<const int64_t> ids);

  // Announces the ids of a later batch. Batches are announced in the order in which they will
  // begin. Announcements are hints: a batch that begins with other ids, or that was never
  // announced, is also served correctly. Policies without a window ignore announcements.
  Status announce(std::span<const int64_t> ids);
  int64_t announced() const { return static_cast<int64_t>(window_.size()); }

  // Begins a batch. Set `in_turn` if it is the next of the announced batches, or if none are
  // announced; clear it for a batch outside their order, such as one of an evaluation. Error: an id
  // is not below rows(); nothing is changed then.
  Status begin(std::span<const int64_t> ids, CacheBatch& batch, bool in_turn = true);
  // Ends the use of the batch's places. Returns the changed rows that lose their places in the
  // overflow; the caller writes them back.
  std::vector<RowMove> finish(const CacheBatch& batch, bool changed);
  // Returns all changed rows, which the caller writes back. They keep their places and are marked
  // as unchanged. Used by checkpoints.
  std::vector<RowMove> flush();
  // Removes all rows from the cache. Changes that were not flushed before are lost. No batch may be
  // open.
  void clear();

  int32_t place_of(int64_t row) const;                             // -1 if the row has none
  int64_t row_at(int32_t place) const { return slot(place).row; }  // the place must have a row
  int64_t index_bytes() const;
  int64_t scratch_bytes() const;
  std::string violation() const;  // the invariant that is broken, as text; "" if none is

 private:
  // The word of a row is kPresent and its place, or its key if the row is not in the cache. While
  // begin() runs, kMissing means that the rest of the word is an index into `missing_`, not a
  // place.
  static constexpr uint32_t kPresent = 1U << 31, kMissing = 1U << 30;
  // Bits of a slot's word `use`: whether the row has changed; how many open batches use it (pins);
  // marks that the row was seen in this batch and that it is in the window; the lowest bits are its
  // key.
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
  // For a row in the window (the announced batches): the first of these batches that uses it, the
  // last one, and the row's index in the last one's `rows`.
  struct Use {
    uint32_t next = kNever, last_batch = kNever, last_at = 0;
  };
  struct WindowBatch {
    std::vector<uint32_t> rows, next;  // next: by row, the next batch that uses it
  };

  Slot& slot(int32_t place);
  const Slot& slot(int32_t place) const { return const_cast<CacheIndex*>(this)->slot(place); }
  Status check(std::span<const int64_t> ids) const;
  bool announced(uint32_t row) const { return next_uses_.find(row) != nullptr; }
  bool evictable(int32_t place) const;  // whether it is a slot that no open batch uses
  void advance_window();
  void note_use(Slot& place, uint32_t uses) const;
  // Returns a number that says when the row is evicted: the row with the smallest number goes
  // first.
  uint64_t order(uint32_t row, uint32_t use) const;
  void offer(int32_t place);  // makes the row a candidate for eviction if its order is low enough
  void refill(size_t wanted);
  // Evicts at most `wanted` rows. Adds their places to `freed`, and those that changed to `out`.
  void evict(size_t wanted, std::vector<int32_t>& freed, std::vector<RowMove>& out);
  void leave(int32_t place);  // removes the row at the place from the cache
  int32_t overflow_place();
  void place_missing(CacheBatch& batch);

  CachePolicy policy_;
  CacheCounts counts_;
  CacheIndex() = default;
  std::vector<uint32_t> own_rows_;  // empty if CacheOptions::memory is given
  std::vector<Slot> own_slots_;
  std::span<uint32_t> rows_;
  std::span<Slot> slots_;
  std::vector<Slot> overflow_;
  std::vector<int32_t> free_overflow_;
  int64_t used_ = 0;  // the slots from used_ on have never been used
  int open_ = 0;

  // Candidates for eviction: a heap of unpinned slots, the first to be evicted in front. It
  // contains every unpinned slot whose order is at most limit_. A slot's order may have changed
  // since it was added; such entries are skipped when they come up.
  std::vector<Candidate> candidates_;
  uint64_t limit_ = 0;
  size_t most_candidates_ = 0;

  std::deque<WindowBatch> window_;
  WindowBatch begins_;  // what was announced for the batch that is beginning
  RowMap<Use> next_uses_;
  uint32_t begun_ = 0;  // number, among the announced batches, of the first one in window_

  std::vector<Missing> missing_;  // rows of the beginning batch that have no place yet
  std::vector<int32_t> freed_;
  uint32_t stamp_ = 0;
};

}  // namespace tessera::sparse
