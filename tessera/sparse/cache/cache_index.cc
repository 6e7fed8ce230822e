#include "tessera/sparse/cache/cache_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "tessera/base/check.h"

namespace tessera::sparse {
namespace {

constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();
constexpr int64_t kMostSlots = int64_t{1} << 29;

double rate_of(int64_t all, int64_t missed) {
  return all == 0 ? 1.0 : 1.0 - static_cast<double>(missed) / static_cast<double>(all);
}

void sort_by_row(std::vector<RowMove>& moves) {
  std::sort(moves.begin(), moves.end(),
            [](const RowMove& a, const RowMove& b) { return a.row < b.row; });
}

}  // namespace

double CacheCounts::hit_rate() const { return rate_of(lookups, lookup_misses); }
double CacheCounts::row_hit_rate() const { return rate_of(rows, row_misses); }

Result<CacheIndex> CacheIndex::make(const CacheOptions& options) {
  if (options.rows < 1 || options.rows >= int64_t{kNoRow}) {
    return invalid_input(fmt::format("cache: expected 1 to {} rows of the table, found {}",
                                     kNoRow - 1, options.rows));
  }
  if (options.slots < 1 || options.slots > kMostSlots) {
    return invalid_input(
        fmt::format("cache: expected 1 to {} slots, found {}", kMostSlots, options.slots));
  }
  if (!options.counts.empty() && std::ssize(options.counts) != options.rows) {
    return invalid_input(fmt::format("cache: expected counts of {} rows, found {}", options.rows,
                                     options.counts.size()));
  }
  CacheIndex index;
  TESSERA_TRY(index.policy_, cache_policy(options.policy));
  CachePolicy& policy = index.policy_;
  policy.counts_uses = policy.counts_uses && !(policy.given_is_all && !options.counts.empty());
  const auto rows = static_cast<size_t>(options.rows),
             slots = static_cast<size_t>(std::min(options.slots, options.rows));
  if (options.memory.empty()) {
    index.own_rows_.resize(rows);
    index.own_slots_.resize(slots);
    index.rows_ = index.own_rows_;
    index.slots_ = index.own_slots_;
  } else {
    TESSERA_CHECK(
        std::ssize(options.memory) == memory_bytes(options.rows, static_cast<int64_t>(slots)),
        "index: memory of {} bytes", options.memory.size());
    std::byte* behind = options.memory.data() + rows * sizeof(uint32_t);
    index.rows_ = {new (options.memory.data()) uint32_t[rows](), rows};
    index.slots_ = {new (behind) Slot[slots](), slots};
  }
  for (size_t row = 0; row < options.counts.size(); ++row) {
    const int64_t count = options.counts[row];
    if (count < 0) {
      return invalid_input(
          fmt::format("cache: expected counts of at least 0, found {} for row {}", count, row));
    }
    if (index.policy_.given_counts) {
      index.rows_[row] = static_cast<uint32_t>(std::min<int64_t>(count, kMostKey));
    }
  }
  return index;
}

CacheIndex::Slot& CacheIndex::slot(int32_t place) {
  const auto at = static_cast<size_t>(place);
  return at < slots_.size() ? slots_[at] : overflow_[at - slots_.size()];
}

int32_t CacheIndex::place_of(int64_t row) const {
  const uint32_t word = rows_[static_cast<size_t>(row)];
  return (word & kPresent) != 0 ? static_cast<int32_t>(word & ~kPresent) : -1;
}

bool CacheIndex::evictable(int32_t place) const {
  return place < slots() && (slots_[static_cast<size_t>(place)].use & kPins) == 0;
}

int64_t CacheIndex::index_bytes() const {
  return static_cast<int64_t>(rows_.size_bytes() + slots_.size_bytes());
}

int64_t CacheIndex::scratch_bytes() const {
  size_t bytes = overflow_.capacity() * sizeof(Slot) +
                 (free_overflow_.capacity() + freed_.capacity()) * sizeof(int32_t) +
                 candidates_.capacity() * sizeof(Candidate) +
                 missing_.capacity() * sizeof(Missing) + next_uses_.bytes();
  for (const WindowBatch& batch : window_) {
    bytes += (batch.rows.capacity() + batch.next.capacity()) * sizeof(uint32_t);
  }
  return static_cast<int64_t>(bytes);
}

Status CacheIndex::check(std::span<const int64_t> ids) const {
  const int64_t rows = this->rows();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= rows) {
      return invalid_input(
          fmt::format("cache: expected ids below {} (rows of the table), found {} "
                      "at position {}",
                      rows, ids[i], i));
    }
  }
  return {};
}

// ---- order of eviction

uint64_t CacheIndex::order(uint32_t row, uint32_t use) const {
  const uint64_t tie = ~row;  // the larger row number is evicted first
  if ((use & kWindowed) == 0) return uint64_t{use & kMostKey} << 32 | tie;
  const Use* found = next_uses_.find(row);
  TESSERA_CHECK(found != nullptr, "row {} is marked as announced", row);
  return uint64_t{1} << 63 | uint64_t{~found->next & 0x7FFFFFFF} << 32 | tie;  // last use first
}

void CacheIndex::offer(int32_t place) {
  const Slot& slot = slots_[static_cast<size_t>(place)];
  const uint64_t order = this->order(slot.row, slot.use);
  if (order > limit_) return;
  if (candidates_.size() >= most_candidates_) {  // many candidates are out of date
    candidates_.clear();
    limit_ = 0;
    return;
  }
  candidates_.push_back({order, place});
  std::push_heap(candidates_.begin(), candidates_.end(), std::greater<>());
}

// Makes the `wanted` unpinned slots that are to be evicted first the candidates, in one pass over
// all slots.
void CacheIndex::refill(size_t wanted) {
  candidates_.clear();
  for (int32_t place = 0; place < used_; ++place) {
    const Slot& slot = slots_[static_cast<size_t>(place)];
    if (slot.row == kNoRow || (slot.use & kPins) != 0) continue;
    const uint64_t order = this->order(slot.row, slot.use);
    if (candidates_.size() == wanted) {
      if (order > candidates_.front().order) continue;
      std::pop_heap(candidates_.begin(), candidates_.end());
      candidates_.pop_back();
    }
    candidates_.push_back({order, place});
    std::push_heap(candidates_.begin(), candidates_.end());
  }
  limit_ = candidates_.size() < wanted ? kAll : candidates_.front().order;
  most_candidates_ = 2 * wanted + 1024;
  std::make_heap(candidates_.begin(), candidates_.end(), std::greater<>());
}

void CacheIndex::leave(int32_t place) {
  Slot& slot = this->slot(place);
  rows_[slot.row] = policy_.remembers ? slot.use & kMostKey : 0;
  slot = {};
}

void CacheIndex::evict(size_t wanted, std::vector<int32_t>& freed, std::vector<RowMove>& out) {
  while (wanted > 0) {
    if (candidates_.empty()) {
      if (limit_ == kAll) return;
      refill(8 * wanted);
      if (candidates_.empty()) return;
    }
    const Candidate first = candidates_.front();
    std::pop_heap(candidates_.begin(), candidates_.end(), std::greater<>());
    candidates_.pop_back();
    const Slot& slot = slots_[static_cast<size_t>(first.place)];
    if (slot.row == kNoRow || (slot.use & kPins) != 0) continue;
    if (order(slot.row, slot.use) != first.order) continue;
    if ((slot.use & kChanged) != 0) out.push_back({slot.row, first.place});
    freed.push_back(first.place);
    leave(first.place);
    --wanted;
  }
}

Status CacheIndex::count(std::span<const int64_t> ids) {
  TESSERA_TRY_VOID(check(ids));
  TESSERA_CHECK(counts_.batches == 0 && used_ == 0, "count() comes before the first batch");
  if (!policy_.given_counts) return {};
  if (policy_.given_is_all) policy_.counts_uses = false;
  for (const int64_t id : ids) {
    if (id < 0) continue;
    uint32_t& key = rows_[static_cast<size_t>(id)];
    key = std::min(key + 1, kMostKey);
  }
  return {};
}

// ---- the batches to come

Status CacheIndex::announce(std::span<const int64_t> ids) {
  TESSERA_TRY_VOID(check(ids));
  if (!policy_.window) return {};
  const uint32_t number = begun_ + static_cast<uint32_t>(window_.size());
  WindowBatch& batch = window_.emplace_back();
  for (const int64_t id : ids) {
    if (id < 0) continue;
    const auto row = static_cast<uint32_t>(id);
    const auto [use, fresh] = next_uses_.insert(row);
    if (!fresh && use->last_batch == number) continue;
    if (fresh) {
      use->next = number;
    } else {
      window_[use->last_batch - begun_].next[use->last_at] = number;
    }
    use->last_batch = number;
    use->last_at = static_cast<uint32_t>(batch.rows.size());
    batch.rows.push_back(row);
    batch.next.push_back(kNever);
    const int32_t place = place_of(row);
    if (!fresh || place < 0) continue;
    slot(place).use |= kWindowed;
    if (evictable(place)) offer(place);  // its next use is later than its old candidate says
  }
  return {};
}

// Takes the first announced batch, the one that begins now, out of the window, and updates the next
// uses of its rows.
void CacheIndex::advance_window() {
  if (window_.empty()) return;
  begins_ = std::move(window_.front());
  window_.pop_front();
  ++begun_;
  for (size_t i = 0; i < begins_.rows.size(); ++i) {
    const uint32_t row = begins_.rows[i];
    if (begins_.next[i] != kNever) {
      next_uses_.find(row)->next = begins_.next[i];
      continue;
    }
    next_uses_.erase(row);
    if (const int32_t place = place_of(row); place >= 0) slot(place).use &= ~kWindowed;
  }
}

// ---- batches

void CacheIndex::note_use(Slot& place, uint32_t uses) const {
  uint32_t key = place.use & kMostKey;
  if (policy_.counts_uses) key += std::min(uses, kMostKey - key);
  if (policy_.stamps) key = stamp_;
  place.use = (place.use & ~kMostKey) | key;
}

int32_t CacheIndex::overflow_place() {
  int32_t place = static_cast<int32_t>(slots_.size() + overflow_.size());
  if (free_overflow_.empty()) {
    TESSERA_CHECK(static_cast<uint32_t>(place) < kMissing, "{} places", place);
    overflow_.emplace_back();
  } else {
    place = free_overflow_.back();
    free_overflow_.pop_back();
  }
  return place;
}

std::vector<RowMove> CacheIndex::warm(double share) {
  TESSERA_CHECK(used_ == 0 && counts_.batches == 0, "warm() comes before the first batch");
  const auto most = static_cast<size_t>(
      std::ceil(std::clamp(share, 0.0, 1.0) * static_cast<double>(slots_.size())));
  // A heap of the `most` rows that would be evicted last; the one of them to be evicted first is in
  // front.
  std::vector<uint64_t> best;
  for (size_t row = 0; row < rows_.size() && most > 0; ++row) {
    const uint64_t order = this->order(static_cast<uint32_t>(row), rows_[row]);
    if (best.size() == most) {
      if (order < best.front()) continue;
      std::pop_heap(best.begin(), best.end(), std::greater<>());
      best.pop_back();
    }
    best.push_back(order);
    std::push_heap(best.begin(), best.end(), std::greater<>());
  }
  std::sort(best.begin(), best.end(), std::greater<>());
  std::vector<RowMove> in;
  for (const uint64_t order : best) {
    const uint32_t row = ~static_cast<uint32_t>(order);
    const auto place = static_cast<int32_t>(used_++);
    slots_[static_cast<size_t>(place)] = {row, rows_[row] | (announced(row) ? kWindowed : 0)};
    rows_[row] = kPresent | static_cast<uint32_t>(place);
    in.push_back({row, place});
  }
  counts_.rows_warmed += std::ssize(in);
  sort_by_row(in);
  return in;
}

Status CacheIndex::begin(std::span<const int64_t> ids, CacheBatch& batch, bool in_turn) {
  TESSERA_TRY_VOID(check(ids));
  TESSERA_CHECK(open_ < kMostOpen, "at most {} batches are open", kMostOpen);
  ++open_;
  batch.number = counts_.batches++;
  batch.used.clear();
  batch.out.clear();
  batch.in.clear();
  batch.places.resize(ids.size());
  missing_.clear();
  if (policy_.stamps && ++stamp_ == kMostKey) {
    stamp_ -= kMostKey / 2;
    for (Slot& slot : slots_) {
      const uint32_t key = slot.use & kMostKey;
      slot.use = (slot.use & ~kMostKey) | (key - std::min(key, kMostKey / 2));
    }
    candidates_.clear();
    limit_ = 0;
  }
  begins_ = {};
  if (in_turn) advance_window();

  // Pins each row that has a place, at its first id in the batch. The other rows are numbered in
  // `missing_`.
  for (const int64_t id : ids) {
    if (id < 0) continue;
    ++counts_.lookups;
    uint32_t& word = rows_[static_cast<size_t>(id)];
    if ((word & kPresent) == 0) {
      missing_.push_back({static_cast<uint32_t>(id), word, 1, 0});
      word = kPresent | kMissing | static_cast<uint32_t>(missing_.size() - 1);
    } else if ((word & kMissing) != 0) {
      ++missing_[word & ~(kPresent | kMissing)].uses;
    } else {
      const auto place = static_cast<int32_t>(word & ~kPresent);
      Slot& slot = this->slot(place);
      if ((slot.use & kSeen) == 0) {
        slot.use = (slot.use | kSeen) + kPin;
        batch.used.push_back(place);
      }
      note_use(slot, 1);
    }
  }
  for (const int32_t place : batch.used) slot(place).use &= ~kSeen;
  // Rows that were announced for this batch but are not in it become candidates.
  for (const uint32_t row : begins_.rows) {
    const uint32_t word = rows_[row];
    const bool present = (word & kPresent) != 0 && (word & kMissing) == 0;
    if (present && evictable(place_of(row))) offer(place_of(row));
  }

  place_missing(batch);
  for (size_t i = 0; i < ids.size(); ++i) {
    batch.places[i] =
        ids[i] < 0 ? -1 : static_cast<int32_t>(rows_[static_cast<size_t>(ids[i])] & ~kPresent);
  }
  counts_.rows += std::ssize(batch.used);
  counts_.row_misses += std::ssize(missing_);
  counts_.rows_in += std::ssize(batch.in);
  counts_.rows_out += std::ssize(batch.out);
  return {};
}

// Gives places to the missing rows: first free slots, then slots of evicted rows, then the
// overflow.
void CacheIndex::place_missing(CacheBatch& batch) {
  freed_.clear();
  while (freed_.size() < missing_.size() && used_ < slots()) {
    freed_.push_back(static_cast<int32_t>(used_++));
  }
  if (freed_.size() < missing_.size()) evict(missing_.size() - freed_.size(), freed_, batch.out);
  const auto use_of = [&](const Missing& one) {
    Slot slot{one.row, policy_.remembers ? one.key : 0};
    note_use(slot, one.uses);
    return slot.use | (announced(one.row) ? kWindowed : 0);
  };
  if (freed_.size() < missing_.size()) {  // the most valuable rows get slots
    std::sort(missing_.begin(), missing_.end(), [&](const Missing& a, const Missing& b) {
      return order(a.row, use_of(a)) > order(b.row, use_of(b));
    });
  }
  for (size_t i = 0; i < missing_.size(); ++i) {
    const Missing& one = missing_[i];
    const bool in_slot = i < freed_.size();
    const int32_t place = in_slot ? freed_[i] : overflow_place();
    slot(place) = {one.row, use_of(one) | kPin};
    rows_[one.row] = kPresent | static_cast<uint32_t>(place);
    batch.used.push_back(place);
    batch.in.push_back({one.row, place});
    counts_.lookup_misses += one.uses;
    if (!in_slot) ++counts_.overflow_rows;
  }
  sort_by_row(batch.out);
  sort_by_row(batch.in);
}

std::vector<RowMove> CacheIndex::finish(const CacheBatch& batch, bool changed) {
  TESSERA_CHECK(open_ > 0, "a batch is open");
  --open_;
  std::vector<RowMove> out;
  for (const int32_t place : batch.used) {
    Slot& slot = this->slot(place);
    TESSERA_CHECK((slot.use & kPins) != 0, "place {} is used by an open batch", place);
    slot.use -= kPin;
    if (changed) slot.use |= kChanged;
    if ((slot.use & kPins) != 0) continue;
    if (place < slots()) {
      offer(place);
      continue;
    }
    if ((slot.use & kChanged) != 0) out.push_back({slot.row, place});
    leave(place);
    free_overflow_.push_back(place);
  }
  sort_by_row(out);
  counts_.rows_out += std::ssize(out);
  return out;
}

std::vector<RowMove> CacheIndex::flush() {
  std::vector<RowMove> out;
  const auto clean = [&](int32_t place) {
    Slot& slot = this->slot(place);
    if ((slot.use & kChanged) == 0) return;
    slot.use &= ~kChanged;
    out.push_back({slot.row, place});
  };
  for (int32_t place = 0; place < used_; ++place) clean(place);
  for (int64_t i = 0; i < overflow_places(); ++i) clean(static_cast<int32_t>(slots() + i));
  sort_by_row(out);
  counts_.rows_out += std::ssize(out);
  return out;
}

void CacheIndex::clear() {
  TESSERA_CHECK(open_ == 0, "{} batches are open", open_);
  for (int32_t place = 0; place < used_; ++place) {
    if (slot(place).row != kNoRow) leave(place);
  }
  used_ = 0;
  candidates_.clear();
  limit_ = 0;
}

std::string CacheIndex::violation() const {
  int64_t present = 0, used = 0;
  for (size_t row = 0; row < rows_.size(); ++row) {
    const int32_t place = place_of(static_cast<int64_t>(row));
    if (place < 0) continue;
    ++present;
    if (place >= slots() + overflow_places() || slot(place).row != row) {
      return fmt::format("row {} is mapped to place {}, which does not hold it", row, place);
    }
  }
  for (int32_t place = 0; place < slots() + overflow_places(); ++place) {
    const Slot& slot = this->slot(place);
    if (slot.row == kNoRow) {
      if (place < used_) return fmt::format("slot {} lost its row", place);
      continue;
    }
    ++used;
    if (place_of(slot.row) != place) {
      return fmt::format("place {} holds row {}, which is mapped to {}", place, slot.row,
                         place_of(slot.row));
    }
    if ((slot.use & kSeen) != 0) return fmt::format("place {} is marked as seen", place);
    if (place >= slots() && (slot.use & kPins) == 0) {
      return fmt::format("place {} of the overflow is used by no open batch", place);
    }
    if (open_ == 0 && (slot.use & kPins) != 0) {
      return fmt::format("place {} is pinned, and no batch is open", place);
    }
    if (announced(slot.row) != ((slot.use & kWindowed) != 0)) {
      return fmt::format("row {}: announced {}, marked otherwise", slot.row, announced(slot.row));
    }
  }
  if (present != used) return fmt::format("{} rows have a place, {} places a row", present, used);
  return "";
}

}  // namespace tessera::sparse
