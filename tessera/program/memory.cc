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
#include "tessera/program/memory.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/program/arena.h"
#include "tessera/program/instantiate.h"
#include "tessera/program/instructions.h"
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
      : program_(program), offsets_(offsets), used_by_(std::move(used_by)) {}

  void run() {
    find_touches_and_lifetimes();
    insert_frees();
    assign_offsets();
  }
  // Plans memory for a program that already has its frees.
  void run_again() {
    find_touches_and_lifetimes();
    assign_offsets();
  }

 private:
  void find_touches_and_lifetimes() {
    find_order();
    for (const Buffer& buffer : program_.buffers) rings_.push_back(buffer.slots > 1);
    find_outlasting();
    find_touches();
    find_lifetimes();
  }

  // The touches of a buffer in one block; blocks are numbered by their positions in order_.
  struct TouchInBlock {
    int64_t first = -1, last = -1;
    std::optional<When> when;  // the When of all touches if it is the same; else kAlways
  };
  struct Touch {
    SmallVector<TouchInBlock, 4> at;
    bool in(size_t block) const { return at[block].first >= 0; }
    bool only(size_t block, When what) const { return at[block].when == what; }
  };

  // Visits the buffers that an instruction touches. A Free does not count, because frees follow
  // from these touches.
  template <class Visit>
  static void buffers_of(const Instruction& instruction, const Visit& visit) {
    accesses(instruction, [&](const Access& access) {
      if (access.mode != AccessMode::kFree) visit(access.buffer);
    });
  }

  bool many() const { return program_.micro_batches > 1; }
  size_t position(BlockRef block) const {
    return static_cast<size_t>(std::find(order_.begin(), order_.end(), block) - order_.begin());
  }
  const std::vector<Instruction>& block(size_t position) const {
    return std::as_const(program_).block(order_[position]);
  }

  // Finds the order of blocks, and whether micro-batches overlap: whether one begins before the one
  // before it has ended.
  void find_order() {
    order_.push_back(BlockKind::kPrologue);
    for (const BlockRunStep& run : program_.schedule) {
      if (!run.block.once() && position(run.block) == order_.size()) order_.push_back(run.block);
    }
    order_.push_back(BlockKind::kUpdate);
    std::vector<BlockRunStep> alone{{BlockKind::kPrologue, 0}};
    for (int64_t m = 0; m < program_.micro_batches; ++m) {
      for (size_t b = 1; b + 1 < order_.size(); ++b) alone.push_back({order_[b], m});
    }
    alone.push_back({BlockKind::kUpdate, 0});
    overlapping_ = program_.schedule != alone;
    find_runs_behind();
    first_run_.assign(order_.size(), -1);
    last_run_.assign(order_.size(), -1);
    for (size_t r = 0; r < program_.schedule.size(); ++r) {
      const size_t k = position(program_.schedule[r].block);
      if (first_run_[k] < 0) first_run_[k] = static_cast<int64_t>(r);
      last_run_[k] = static_cast<int64_t>(r);
    }
  }

  void find_runs_behind() {
    const auto micro_batches = static_cast<size_t>(program_.micro_batches);
    std::vector<std::vector<size_t>> ran_at(order_.size(), std::vector<size_t>(micro_batches));
    for (size_t i = 0; i < program_.schedule.size(); ++i) {
      const BlockRunStep& run = program_.schedule[i];
      std::vector<size_t>& at = ran_at[position(run.block)];
      if (run.block.once()) {
        at.assign(micro_batches, i);
      } else {
        at[static_cast<size_t>(run.micro_batch)] = i;
      }
    }
    for (const auto& late : ran_at) {
      std::vector<bool>& behind = runs_behind_.emplace_back();
      for (const auto& early : ran_at)
        behind.push_back(std::equal(late.begin(), late.end(), early.begin(), std::greater_equal()));
    }
  }

  // Finds sends that are awaited in later runs of their block, and whose buffers are also read, in
  // the same micro-batch, by later blocks before that run. The buffer of such a send need only live
  // until the last wait for the send (taken_).
  void find_outlasting() {
    std::map<int, std::pair<BufferId, size_t>> sent;  // by handle: buffer and position of its block
    std::vector<size_t> last_use(program_.buffers.size());
    std::set<int> lagged;
    for (size_t k = 1; k + 1 < order_.size(); ++k) {
      for (const Instruction& instruction : block(k)) {
        if (const auto* send = std::get_if<Send>(&instruction.body))
          sent[send->handle] = {send->view.buffer, k};
        const auto* wait = std::get_if<Wait>(&instruction.body);
        if (wait != nullptr && wait->lag > 0) lagged.insert(wait->handle);
        buffers_of(instruction, [&](BufferId id) { last_use[id.index()] = k; });
      }
    }
    for (const int handle : lagged) {
      const auto send = sent.find(handle);
      if (send == sent.end()) continue;
      const auto& [buffer, sending] = send->second;
      if (last_use[buffer.index()] != sending && !is_ring(buffer)) outlasting_.insert(handle);
    }
  }
  // Returns whether the buffer is a ring: lowering has given it a number of copies, which
  // micro-batches use in turn for the whole step.
  bool is_ring(BufferId id) const { return rings_[id.index()]; }

  void find_touches() {
    touches_.assign(program_.buffers.size(), {SmallVector<TouchInBlock, 4>(order_.size())});
    std::vector<SmallVector<BufferId, 4>> in_flight;  // buffers by handle
    for (size_t k = 0; k < order_.size(); ++k) {
      for (const Instruction& instruction : block(k)) {
        const int handle = handle_of(instruction);
        if (handle < 0) continue;
        const auto h = static_cast<size_t>(handle);
        if (in_flight.size() <= h) in_flight.resize(h + 1);
        buffers_of(instruction, [&](BufferId id) { in_flight[h].push_back(id); });
      }
    }
    for (size_t k = 0; k < order_.size(); ++k) {
      for (size_t i = 0; i < block(k).size(); ++i) {
        const auto touch = [&](BufferId id) {
          TouchInBlock& t = touches_[id.index()].at[k];
          if (t.first < 0) t.first = static_cast<int64_t>(i);
          t.last = static_cast<int64_t>(i);
          const When when = block(k)[i].when;
          t.when = t.when.value_or(when) == when ? when : When::kAlways;
        };
        buffers_of(block(k)[i], touch);
        const auto* wait = std::get_if<Wait>(&block(k)[i].body);
        if (wait == nullptr) continue;
        const bool outlasting = outlasting_.contains(wait->handle);
        if (static_cast<size_t>(wait->handle) >= in_flight.size()) continue;
        for (BufferId id : in_flight[static_cast<size_t>(wait->handle)]) {
          if (!outlasting) touch(id);
          if (outlasting && wait->lag == 0) taken_[id] = static_cast<int64_t>(i);
        }
      }
    }
  }

  UsedBy used_by(BufferId id) const {
    return used_by_.empty() ? UsedBy::kAll : used_by_[id.index()];
  }
  int64_t micro_batches_of(UsedBy users) const {
    if (users == UsedBy::kLarger) return program_.larger;
    return program_.micro_batches - (users == UsedBy::kSmaller ? program_.larger : 0);
  }

  // Returns the largest number of micro-batches that are between the two blocks at the same time,
  // which is a lower bound for the number of slots. Returns 1 if not all micro-batches run `first`
  // before `last`.
  int64_t most_between(size_t first, size_t last) const {
    std::vector<bool> begun(static_cast<size_t>(program_.micro_batches), false);
    int64_t now = 0, most = 1;
    for (const BlockRunStep& run : program_.schedule) {
      const auto m = static_cast<size_t>(run.micro_batch);
      if (run.block == order_[first]) {
        begun[m] = true;
        most = std::max(most, ++now);
      }
      if (run.block == order_[last] && !run.block.once()) {
        if (!begun[m]) return 1;
        --now;
      }
    }
    return most;
  }

  // Returns the smallest number of slots with which micro-batches that are between blocks `first`
  // and `last` at the same time have different slots. If `last` is the update, each micro-batch
  // needs a slot of its own.
  int64_t slots_between(size_t first, size_t last) const {
    for (int64_t slots = most_between(first, last); slots < program_.micro_batches; ++slots) {
      std::vector<bool> busy(static_cast<size_t>(slots), false);
      const bool clash = std::ranges::any_of(program_.schedule, [&](const BlockRunStep& run) {
        const auto slot = static_cast<size_t>(run.micro_batch % slots);
        const bool begins = run.block == order_[first], twice = begins && busy[slot];
        if (begins) busy[slot] = true;
        if (run.block == order_[last]) busy[slot] = false;
        return twice;
      });
      if (!clash) return slots;
    }
    return program_.micro_batches;
  }

  size_t first_block(const Touch& touch) const {
    size_t k = 0;
    while (k < order_.size() && !touch.in(k)) ++k;
    return k;
  }
  size_t last_block(const Touch& touch) const {
    size_t k = order_.size();
    while (k > 0 && !touch.in(k - 1)) --k;
    return k - 1;
  }
  bool touched(const Touch& touch) const { return first_block(touch) < order_.size(); }
  // Returns the first block that, in every micro-batch, comes after or has the buffer's last use.
  size_t free_block(const Touch& touch) const {
    const auto is_behind = [&](size_t k) {
      for (size_t other = 0; other < order_.size(); ++other) {
        if (touch.in(other) && !runs_behind_[k][other]) return false;
      }
      return true;
    };
    size_t k = first_block(touch);
    while (!is_behind(k)) ++k;
    return k;
  }

  void find_lifetimes() {
    for (Buffer& buffer : program_.buffers) {
      const Touch& touch = touches_[buffer.id.index()];
      if (buffer.lifetime != Lifetime::kBlock || !touched(touch)) continue;
      const size_t first = first_block(touch), last = last_block(touch);
      if (first == last) continue;
      const bool ends = first == 0 || last + 1 == order_.size();
      buffer.lifetime = ends && !is_ring(buffer.id) ? Lifetime::kStep : Lifetime::kMicroBatch;
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

  // For a buffer that lives for the step: `begins_in` returns the first run of block k that touches
  // the buffer, and `ends_in` the last one, as positions in the schedule.
  int64_t begins_in(const Touch& touch, size_t k) const {
    return touch.only(k, When::kLast) ? last_run_[k] : first_run_[k];
  }
  int64_t ends_in(const Touch& touch, size_t k) const {
    return touch.only(k, When::kFirst) ? first_run_[k] : last_run_[k];
  }
  // Returns the block that touches the buffer last in the step.
  size_t ending_block(const Touch& touch) const {
    size_t found = first_block(touch);
    for (size_t k = found; k < order_.size(); ++k) {
      if (touch.in(k) && ends_in(touch, k) > ends_in(touch, found)) found = k;
    }
    return found;
  }

  // Returns the interval in which the buffer lives. Run r of the schedule starts at the time
  // start_[r]; within a micro-batch, block k starts at line_[k]. Intervals are only needed for
  // offsets.
  Item interval(const Buffer& buffer) const {
    Item item;
    item.buffer = buffer.id.index();
    item.bytes = buffer.bytes();
    if (!offsets_) return item;
    const Touch& touch = touches_[buffer.id.index()];
    if (touched(touch)) {
      if (buffer.lifetime == Lifetime::kStep || order_[first_block(touch)].once()) {
        set_in_step(touch, item);
      } else {
        const size_t first = first_block(touch), last = last_block(touch);
        item.first = line_[first] + touch.at[first].first;
        item.last = line_[last] + touch.at[last].last;
        item.repeats = &repeats_[overlapping_ ? first : 0];
      }
    }
    if (is_fetched(buffer.id)) item.last = start_.back();
    return item;
  }

  void set_in_step(const Touch& touch, Item& item) const {
    const auto start = [&](int64_t run) { return start_[static_cast<size_t>(run)]; };
    size_t begin = first_block(touch);
    for (size_t k = begin; k < order_.size(); ++k) {
      if (touch.in(k) && begins_in(touch, k) < begins_in(touch, begin)) begin = k;
    }
    const size_t end = ending_block(touch);
    item.first = start(begins_in(touch, begin)) + touch.at[begin].first;
    item.last = start(ends_in(touch, end)) + touch.at[end].last;
  }

  // If the buffer belongs to a send of outlasting_, returns the time of the last wait for it; else
  // nothing.
  std::optional<int64_t> taken_at(BufferId id) const {
    const auto taken = taken_.find(id);
    if (taken == taken_.end()) return {};
    return start_[start_.size() - 2] + taken->second;
  }

  void insert_frees() {
    struct Behind {
      int64_t position;  // the position of the instruction after which the free goes
      Instruction free;
    };
    std::vector<std::vector<Behind>> behind(order_.size());  // by block
    for (const Buffer& buffer : program_.buffers) {
      if (buffer.lifetime == Lifetime::kPersistent || is_fetched(buffer.id)) continue;
      const Touch& touch = touches_[buffer.id.index()];
      if (!touched(touch)) continue;
      if (const auto taken = taken_.find(buffer.id); taken != taken_.end()) {
        behind.back().push_back({taken->second, {Free{buffer.id}, When::kAlways, {}}});
        continue;
      }
      const bool of_step = buffer.lifetime == Lifetime::kStep;
      const size_t k = of_step ? ending_block(touch) : free_block(touch);
      When when = When::kAlways;
      if (of_step && many() && !order_[k].once())
        when = touch.only(k, When::kFirst) ? When::kFirst : When::kLast;
      behind[k].push_back({touch.at[k].last, {Free{buffer.id}, when, {}}});
    }
    for (size_t k = 0; k < order_.size(); ++k) {
      if (behind[k].empty()) continue;
      std::stable_sort(behind[k].begin(), behind[k].end(),
                       [](const Behind& a, const Behind& b) { return a.position < b.position; });
      std::vector<Instruction>& instructions = program_.block(order_[k]);
      std::vector<Instruction> out;
      out.reserve(instructions.size() + behind[k].size());
      auto next = behind[k].begin();
      const auto free_behind = [&](int64_t position) {
        for (; next != behind[k].end() && next->position == position; ++next)
          out.push_back(std::move(next->free));
      };
      free_behind(-1);
      for (size_t i = 0; i < instructions.size(); ++i) {
        out.push_back(std::move(instructions[i]));
        free_behind(static_cast<int64_t>(i));
      }
      instructions = std::move(out);
    }
    if (offsets_) find_touches();  // positions have moved
  }

  void assign_offsets() {
    start_.assign(1, 0);
    for (const BlockRunStep& run : program_.schedule)
      start_.push_back(start_.back() + static_cast<int64_t>(block(position(run.block)).size()));
    line_.assign(1, 0);
    for (size_t k = 0; k < order_.size(); ++k)
      line_.push_back(line_.back() + static_cast<int64_t>(block(k).size()));
    // If micro-batches do not overlap, repeats_ has one list with the starts of all micro-batches;
    // else it has, for each block, the starts of the block's runs.
    repeats_.assign(order_.size(), {});
    for (size_t r = 0; r < program_.schedule.size(); ++r) {
      const size_t k = position(program_.schedule[r].block);
      if (overlapping_) repeats_[k].push_back(start_[r] - line_[k]);
      if (!overlapping_ && k == 1) repeats_[0].push_back(start_[r] - line_[1]);
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
      } else if (is_ring(buffer.id)) {
        const int64_t copies = std::min(buffer.slots, micro_batches_of(used_by(buffer.id)));
        SlotClass& ring = classes[{order_.size(), static_cast<size_t>(copies)}];
        ring.slots = copies;
        ring.items.push_back({buffer.id.index(), buffer.bytes(), 0, 0, nullptr, -1});
      } else if (buffer.lifetime == Lifetime::kMicroBatch && overlapping_) {
        const Touch& touch = touches_[buffer.id.index()];
        classes[{first_block(touch), free_block(touch), used_by(buffer.id)}].items.push_back(
            interval(buffer));
      } else {
        items.push_back(interval(buffer));
        if (const auto taken = offsets_ ? taken_at(buffer.id) : std::nullopt) {
          items.back().first = std::min(items.back().first, start_[1]);
          items.back().last = *taken;
          items.back().repeats = nullptr;
        }
      }
    }
    for (auto& [blocks, slots] : classes) {
      if (blocks.first < order_.size()) {
        slots.slots =
            std::min(slots_between(blocks.first, blocks.last), micro_batches_of(blocks.users));
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
      if (blocks.first == order_.size()) all_slots.last = start_.back();
      for (const Item& item : slots.items) {
        const auto taken = taken_at(program_.buffers[item.buffer].id);
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
  std::vector<BlockRef> order_;
  bool overlapping_ = false;
  // runs_behind_[a][b], by positions in order_: whether block a runs after block b in every
  // micro-batch.
  std::vector<std::vector<bool>> runs_behind_;
  std::vector<Touch> touches_;
  std::vector<bool> rings_;            // by buffer
  std::set<int> outlasting_;           // handles of the sends that find_outlasting finds
  std::map<BufferId, int64_t> taken_;  // by buffer of such a send: position of its last wait
  std::vector<BufferId> fetched_;
  std::vector<int64_t> first_run_, last_run_;  // by position in order_: the run in the schedule
  std::vector<int64_t> start_;  // by run of the schedule: its start; last the end of the step
  std::vector<int64_t> line_;   // by position in order_: the block's start within a micro-batch
  std::vector<Runs> repeats_;   // by position in order_; only [0] if micro-batches do not overlap
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
