// Memory is planned, not allocated: lifetimes follow from which blocks touch a buffer, frees go
// behind the last touch, and each tier of the rank is one arena with fixed offsets
// (docs/concepts.md).
//
// Time is a line: the runs of the schedule, one behind the other. A buffer that lives across
// micro-batches has an interval on it, which ends behind its last use: in the last run of a block,
// or in the first run if only that run uses it (shards that are gathered once a step, gradients
// that are reduced behind the last micro-batch). A buffer that lives within a micro-batch has an
// interval in each of them, as far apart as their runs are, if every micro-batch ends before the
// next begins. Else it goes into slots, one for each micro-batch that is between its first and its
// last block at the same time. A buffer that is sent late has as many copies as lowering says, for
// the whole step. Micro-batches may run their blocks in different orders (weight parts that fill
// bubbles): a buffer is then freed in the first block that is behind its last use in all of them.
// Offsets: see arena.h.
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

// On disk the alignment is a block, so that a buffer is read and written without its neighbours.
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
  // Plans again where the frees stand already.
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
    std::optional<When> when;  // of all touches, if they agree; else kAlways
  };
  struct Touch {
    SmallVector<TouchInBlock, 4> at;
    bool in(size_t block) const { return at[block].first >= 0; }
    bool only(size_t block, When what) const { return at[block].when == what; }
  };

  // Visits the buffers of an instruction, except those that it frees: frees are derived from these.
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

  // Finds the line of blocks, and whether micro-batches overlap on it.
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

  // Finds sends that are awaited in later runs of their block and whose buffers later blocks of the
  // same micro-batch read too, before that run: only their last wait keeps the buffer (taken_).
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
  // Returns whether micro-batches use copies of the buffer in turn all through the step: as many as
  // lowering has given it.
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

  // Returns the number of micro-batches that are between the two blocks at the same time, which is
  // the least number of slots; 1 if not all of them run `first` before `last`.
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

  // Returns the fewest slots such that micro-batches that are between blocks `first` and `last` at
  // the same time have different slots (all of them if `last` is the update).
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
  // Returns the first block that is behind the buffer's last use in every micro-batch.
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

  // Returns the run of the schedule in which a block first touches a buffer of the step; `ends_in`
  // returns the last.
  int64_t begins_in(const Touch& touch, size_t k) const {
    return touch.only(k, When::kLast) ? last_run_[k] : first_run_[k];
  }
  int64_t ends_in(const Touch& touch, size_t k) const {
    return touch.only(k, When::kFirst) ? first_run_[k] : last_run_[k];
  }
  // Returns the block in whose run the last touch is.
  size_t ending_block(const Touch& touch) const {
    size_t found = first_block(touch);
    for (size_t k = found; k < order_.size(); ++k) {
      if (touch.in(k) && ends_in(touch, k) > ends_in(touch, found)) found = k;
    }
    return found;
  }

  // Returns the buffer's interval: run r of the schedule starts at start_[r]; in a micro-batch,
  // block k starts at line_[k]. Only offsets depend on intervals.
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

  // Returns the time at which the last message of a buffer that outlives its sends is taken.
  std::optional<int64_t> taken_at(BufferId id) const {
    const auto taken = taken_.find(id);
    if (taken == taken_.end()) return {};
    return start_[start_.size() - 2] + taken->second;
  }

  void insert_frees() {
    struct Behind {
      int64_t position;  // of the instruction
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
    // The starts of the first block of each micro-batch, or of the runs of each block.
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

  // The class of buffers that live from and to the same blocks of the same micro-batches: each
  // micro-batch in flight has one slot with all of them. Rings of the same number of copies have
  // {number of blocks, copies}. No class has more slots than micro-batches that use it, so that
  // each slot is used: these micro-batches follow one another, and each then has its own slot.
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
  struct Resting {               // what rests in a tier's arena
    int64_t base = 0, last = 0;  // where other buffers begin; the end of the last byte
  };

  // Assigns offsets to buffers at rest, which come first. The others become items, or, if they
  // belong to micro-batches in flight, go to their class.
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
  // By positions in order_: whether the first block runs behind the second in every micro-batch.
  std::vector<std::vector<bool>> runs_behind_;
  std::vector<Touch> touches_;
  std::vector<bool> rings_;            // by buffer
  std::set<int> outlasting_;           // sends whose buffers are read again in later blocks
  std::map<BufferId, int64_t> taken_;  // buffers of outlasting_; the last wait in the update
  std::vector<BufferId> fetched_;
  std::vector<int64_t> first_run_, last_run_;  // by position in order_: the run in the schedule
  std::vector<int64_t> start_;                 // by run of the schedule, and the end
  std::vector<int64_t> line_;                  // by position in order_, of one micro-batch
  std::vector<Runs> repeats_;  // by position in order_; one if micro-batches do not overlap
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
