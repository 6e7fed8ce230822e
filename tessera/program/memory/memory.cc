// Plans memory before the run, so that a run allocates nothing. A buffer's lifetime follows from
// which blocks touch it, its free goes after the last instruction that touches it, and all buffers
// of a tier lie in one arena at fixed offsets (docs/concepts.md).
//
// Time is the sequence of the schedule's runs. A buffer that lives across micro-batches has one
// interval in this time. The interval ends after the last use, which is in the last run of a block,
// or in its first run if only that run uses the buffer (shards that are gathered once a step). If
// every micro-batch ends before the next begins, a buffer that lives within a micro-batch has one
// interval in each micro-batch. Else such a buffer has slots, one for each micro-batch that is at
// the same time between the first and the last block that touch it. A buffer whose message is
// awaited late has as many copies as lowering says, for the whole step. Micro-batches may run their
// blocks in different orders (weight parts that fill bubbles). A buffer is then freed in the first
// block that comes after its last use in all micro-batches. arena.h chooses the offsets.
#include "tessera/program/memory/memory.h"

#include <algorithm>
#include <map>
#include <optional>
#include <ranges>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/program/instantiate/instantiate.h"
#include "tessera/program/instructions.h"
#include "tessera/program/memory/arena.h"
#include "tessera/program/memory/buffer_touches.h"
#include "tessera/program/place_text.h"

namespace tessera {
namespace {

// Bytes. On disk the alignment is the size of a disk block, so that a buffer is read and written
// without the buffers next to it.
constexpr int64_t kAlignment = 64, kDiskAlignment = 4096;

using Runs = ArenaItem::Runs;
using Item = ArenaItem;

class MemoryPlanner {
 public:
  // `used_by`: by buffer; empty: all micro-batches use all buffers.
  MemoryPlanner(Program& program, bool offsets, std::vector<UsedBy> used_by)
      : program_(program),
        offsets_(offsets),
        used_by_(std::move(used_by)),
        times_(program),
        touches_(program, times_, rings_of(program)) {
    find_lifetimes();
  }

  void run() {
    insert_frees();
    assign_offsets();
  }
  // Plans memory for a program that already has its frees.
  void run_again() { assign_offsets(); }

 private:
  static std::vector<bool> rings_of(const Program& program) {
    std::vector<bool> rings;
    for (const Buffer& buffer : program.buffers) rings.push_back(buffer.slots > 1);
    return rings;
  }
  bool many() const { return program_.micro_batches > 1; }
  UsedBy used_by(BufferId id) const {
    return used_by_.empty() ? UsedBy::kAll : used_by_[id.index()];
  }
  int64_t micro_batches_of(UsedBy users) const {
    if (users == UsedBy::kLarger) return program_.larger;
    return program_.micro_batches - (users == UsedBy::kSmaller ? program_.larger : 0);
  }

  void find_lifetimes() {
    for (Buffer& buffer : program_.buffers) {
      const BufferTouch& touch = touches_.of(buffer.id);
      if (buffer.lifetime != Lifetime::kBlock || !touch.any()) continue;
      const size_t first = touch.first_block(), last = touch.last_block();
      if (first == last) continue;
      const bool ends = first == 0 || last + 1 == times_.blocks();
      buffer.lifetime =
          ends && !touches_.is_ring(buffer.id) ? Lifetime::kStep : Lifetime::kMicroBatch;
    }
    for (const Home& fetch : program_.fetches) {
      Buffer& buffer = program_.buffers[fetch.buffer.index()];
      if (buffer.lifetime != Lifetime::kPersistent) buffer.lifetime = Lifetime::kStep;
      fetched_.push_back(fetch.buffer);
    }
  }

  bool is_fetched(BufferId id) const {
    return std::find(fetched_.begin(), fetched_.end(), id) != fetched_.end();
  }

  // Returns the interval in which the buffer lives. Run r of the schedule starts at the time
  // start_[r]; within a micro-batch, block k starts at line_[k]. Intervals are only needed for
  // offsets.
  Item interval(const Buffer& buffer) const {
    Item item;
    item.buffer = buffer.id.index();
    item.bytes = buffer.bytes();
    if (!offsets_) return item;
    const BufferTouch& touch = touches_.of(buffer.id);
    if (touch.any()) {
      if (buffer.lifetime == Lifetime::kStep || times_.ref(touch.first_block()).once()) {
        set_in_step(touch, item);
      } else {
        const size_t first = touch.first_block(), last = touch.last_block();
        item.first = line_[first] + touch.at[first].first;
        item.last = line_[last] + touch.at[last].last;
        item.repeats = &repeats_[times_.overlapping() ? first : 0];
      }
    }
    if (is_fetched(buffer.id)) item.last = start_.back();
    return item;
  }

  void set_in_step(const BufferTouch& touch, Item& item) const {
    const auto start = [&](int64_t run) { return start_[static_cast<size_t>(run)]; };
    size_t begin = touch.first_block();
    for (size_t k = begin; k < times_.blocks(); ++k) {
      if (touch.in(k) && touches_.begins_in(touch, k) < touches_.begins_in(touch, begin)) begin = k;
    }
    const size_t end = touches_.ending_block(touch);
    item.first = start(touches_.begins_in(touch, begin)) + touch.at[begin].first;
    item.last = start(touches_.ends_in(touch, end)) + touch.at[end].last;
  }

  // Returns the time of the last wait for the buffer's message, if the buffer need live only until
  // then (BufferTouches::taken_at).
  std::optional<int64_t> taken_time(BufferId id) const {
    const auto taken = touches_.taken_at(id);
    return taken ? std::optional(start_[start_.size() - 2] + *taken) : std::nullopt;
  }

  void insert_frees() {
    struct Behind {
      int64_t position;  // the position of the instruction after which the free goes
      BufferId buffer;
      When when = When::kAlways;
    };
    std::vector<std::vector<Behind>> behind(times_.blocks());  // by block
    for (const Buffer& buffer : program_.buffers) {
      if (buffer.lifetime == Lifetime::kPersistent || is_fetched(buffer.id)) continue;
      const BufferTouch& touch = touches_.of(buffer.id);
      if (!touch.any()) continue;
      if (const auto taken = touches_.taken_at(buffer.id)) {
        behind.back().push_back({*taken, buffer.id});
        continue;
      }
      const bool of_step = buffer.lifetime == Lifetime::kStep;
      const size_t k = of_step ? touches_.ending_block(touch) : touches_.free_block(touch);
      When when = When::kAlways;
      if (of_step && many() && !times_.ref(k).once())
        when = touch.only(k, When::kFirst) ? When::kFirst : When::kLast;
      behind[k].push_back({touch.at[k].last, buffer.id, when});
    }
    for (size_t k = 0; k < times_.blocks(); ++k) {
      if (behind[k].empty()) continue;
      std::ranges::stable_sort(behind[k], {}, &Behind::position);
      // The instructions move to their new places from the last one on.
      std::vector<Instruction>& instructions = program_.block(times_.ref(k));
      auto from = static_cast<int64_t>(instructions.size());
      instructions.reserve(instructions.size() + behind[k].size());
      instructions.resize(instructions.size() + behind[k].size());
      size_t to = instructions.size();
      for (const Behind& next : std::views::reverse(behind[k])) {
        while (from > next.position + 1)
          instructions[--to] = std::move(instructions[static_cast<size_t>(--from)]);
        instructions[--to] = {Free{next.buffer}, next.when, {}};
      }
    }
    if (offsets_) touches_.find();  // positions have moved
  }

  void assign_offsets() {
    start_.assign(1, 0);
    for (const BlockRunStep& run : program_.schedule) {
      start_.push_back(start_.back() + static_cast<int64_t>(
                                           times_.instructions(times_.position(run.block)).size()));
    }
    line_.assign(1, 0);
    for (size_t k = 0; k < times_.blocks(); ++k)
      line_.push_back(line_.back() + static_cast<int64_t>(times_.instructions(k).size()));
    // If micro-batches do not overlap, repeats_ has one list with the starts of all micro-batches;
    // else it has, for each block, the starts of the block's runs.
    repeats_.assign(times_.blocks(), {});
    for (size_t r = 0; r < program_.schedule.size(); ++r) {
      const size_t k = times_.position(program_.schedule[r].block);
      if (times_.overlapping()) repeats_[k].push_back(start_[r] - line_[k]);
      if (!times_.overlapping() && k == 1) repeats_[0].push_back(start_[r] - line_[1]);
    }
    for (Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
      std::vector<Item> items;
      SlotClasses classes;
      const Resting resting = assign_resting(tier, items, classes);
      if (offsets_) assign_tier(tier, resting, std::move(items), classes);
    }
  }

  // The key of a class of buffers with slots. The buffers of a class live from block `first` to
  // block `last` of the same micro-batches, and one slot has all of them for one micro-batch. A
  // ring's key is {number of blocks, number of copies}. A class has no more slots than
  // micro-batches use it, so that every slot is used: these micro-batches have consecutive numbers
  // and so different slots.
  struct SlotKey {
    size_t first, last;
    UsedBy users = UsedBy::kAll;
    friend auto operator<=>(const SlotKey&, const SlotKey&) = default;
  };
  struct SlotClass {
    std::vector<Item> items;
    int64_t slots = 1;
  };
  using SlotClasses = std::map<SlotKey, SlotClass>;
  static int64_t alignment_of(Tier tier) {
    return tier == Tier::kDisk ? kDiskAlignment : kAlignment;
  }
  struct Resting {  // the part of a tier's arena for buffers at rest
    // The offset at which other buffers may begin, and the end of the last byte at rest.
    int64_t base = 0, last = 0;
  };

  // Assigns offsets to the tier's buffers at rest, which come first in the arena. Buffers with
  // slots are added to their class, and all other buffers to `items`.
  Resting assign_resting(Tier tier, std::vector<Item>& items, SlotClasses& classes) {
    int64_t base = 0, last = 0;
    for (Buffer& buffer : program_.buffers) {
      if (buffer.tier != tier) continue;
      if (buffer.lifetime == Lifetime::kPersistent) {
        buffer.offset = base;
        if (buffer.bytes() > 0) last = base + buffer.bytes();
        base += aligned_to(buffer.bytes(), alignment_of(tier));
      } else if (touches_.is_ring(buffer.id)) {
        const int64_t copies = std::min(buffer.slots, micro_batches_of(used_by(buffer.id)));
        SlotClass& ring = classes[{times_.blocks(), static_cast<size_t>(copies)}];
        ring.slots = copies;
        ring.items.push_back({buffer.id.index(), buffer.bytes(), 0, 0, nullptr, -1});
      } else if (buffer.lifetime == Lifetime::kMicroBatch && times_.overlapping()) {
        const BufferTouch& touch = touches_.of(buffer.id);
        classes[{touch.first_block(), touches_.free_block(touch), used_by(buffer.id)}]
            .items.push_back(interval(buffer));
      } else {
        items.push_back(interval(buffer));
        if (const auto taken = offsets_ ? taken_time(buffer.id) : std::nullopt) {
          items.back().first = std::min(items.back().first, start_[1]);
          items.back().last = *taken;
          items.back().repeats = nullptr;
        }
      }
    }
    for (auto& [blocks, slots] : classes) {
      if (blocks.first < times_.blocks()) {
        slots.slots = std::min(times_.slots_between(blocks.first, blocks.last),
                               micro_batches_of(blocks.users));
      }
      for (const Item& item : slots.items) program_.buffers[item.buffer].slots = slots.slots;
    }
    return {base, last};
  }

  void assign_tier(Tier tier, const Resting& resting, std::vector<Item> items,
                   SlotClasses& classes) {
    const int64_t alignment = alignment_of(tier);
    const auto aligned = [&](int64_t bytes) { return aligned_to(bytes, alignment); };
    std::vector<SlotClass*> by_index;
    for (auto& [blocks, slots] : classes) {
      const int64_t bytes = place_items(slots.items, 0, alignment);
      for (const Item& item : slots.items)
        program_.buffers[item.buffer].slot_bytes = aligned(bytes);
      const int64_t all = (slots.slots - 1) * aligned(bytes) + bytes;
      Item all_slots{program_.buffers.size() + by_index.size(),
                     all,
                     start_[1],
                     start_[start_.size() - 2] - 1,
                     nullptr,
                     -1};
      if (blocks.first == times_.blocks()) all_slots.last = start_.back();
      for (const Item& item : slots.items) {
        const auto taken = taken_time(program_.buffers[item.buffer].id);
        all_slots.last = std::max(all_slots.last, taken.value_or(0));
      }
      items.push_back(all_slots);
      by_index.push_back(&slots);
    }
    const int64_t end = std::max(resting.last, place_items(items, resting.base, alignment));
    for (const Item& item : items) {
      if (item.buffer < program_.buffers.size()) {
        program_.buffers[item.buffer].offset = item.offset;
        continue;
      }
      for (const Item& inner : by_index[item.buffer - program_.buffers.size()]->items)
        program_.buffers[inner.buffer].offset = item.offset + inner.offset;
    }
    program_.arena_bytes[static_cast<size_t>(tier)] = end;
  }

  Program& program_;
  bool offsets_;
  std::vector<UsedBy> used_by_;
  BlockTimes times_;
  BufferTouches touches_;
  std::vector<BufferId> fetched_;
  std::vector<int64_t> start_;  // by run of the schedule: its start; last the end of the step
  std::vector<int64_t> line_;   // by block: the block's start within a micro-batch
  std::vector<Runs> repeats_;   // by block; only [0] if micro-batches do not overlap
};

}  // namespace

void plan_memory(Program& program, bool offsets) { plan_memory_of(program, offsets, {}); }
void plan_memory_of(Program& program, bool offsets, std::vector<UsedBy> used_by) {
  MemoryPlanner(program, offsets, std::move(used_by)).run();
}
void plan_memory_again(Program& program, bool offsets) {
  MemoryPlanner(program, offsets, {}).run_again();
}

}  // namespace tessera
