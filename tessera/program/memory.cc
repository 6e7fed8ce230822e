// Memory is planned, not allocated: lifetimes follow from which blocks touch a buffer, frees go
// behind the last touch, and each tier of the rank is one arena with fixed offsets
// (shared/design.md, Program).
//
// Time is the line prologue | forward | backward | update. With one micro-batch in flight every
// buffer has an interval on it; with more, what lives from forward to backward goes into slots (one
// a micro-batch in flight), and everything that lives across micro-batches spans forward and
// backward whole. Offsets: largest buffer first, lowest place that is free during its whole
// interval (greedy by size; offset calculation for static arenas).
#include <algorithm>
#include <map>

#include "tessera/base/check.h"
#include "tessera/program/stage_text.h"

namespace tessera {
namespace {

constexpr int64_t kAlignment = 64;
int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

struct Item {
  size_t buffer = 0;
  int64_t bytes = 0;
  int64_t first = 0, last = 0;  // on the time line, inclusive
  int64_t offset = -1;
};

// Assigns offsets from `base` on; returns the end of the last byte, 0 if there is none.
int64_t place(std::vector<Item>& items, int64_t base) {
  std::vector<Item*> order;
  for (Item& item : items) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const Item* a, const Item* b) {
    if (a->bytes != b->bytes) return a->bytes > b->bytes;
    if (a->first != b->first) return a->first < b->first;
    return a->buffer < b->buffer;
  });
  std::vector<const Item*> placed;  // by offset
  int64_t end = 0;
  for (Item* item : order) {
    int64_t at = base;
    for (const Item* other : placed) {
      if (other->last < item->first || other->first > item->last || other->bytes == 0) continue;
      if (other->offset - at >= item->bytes) break;
      at = std::max(at, other->offset + aligned(other->bytes));
    }
    item->offset = at;
    if (item->bytes == 0) continue;
    end = std::max(end, at + item->bytes);
    const auto where =
        std::upper_bound(placed.begin(), placed.end(), item,
                         [](const Item* a, const Item* b) { return a->offset < b->offset; });
    placed.insert(where, item);
  }
  return end;
}

class MemoryPlanner {
 public:
  explicit MemoryPlanner(Program& program) : program_(program) {}

  void run() {
    find_touches();
    find_slots();
    find_lifetimes();
    insert_frees();
    assign_offsets();
  }

 private:
  struct Touch {
    std::array<int64_t, kBlockKinds> first{-1, -1, -1, -1};
    std::array<int64_t, kBlockKinds> last{-1, -1, -1, -1};
    bool in(BlockKind kind) const { return first[static_cast<size_t>(kind)] >= 0; }
  };

  template <class Visit>
  static void buffers_of(const Instruction& instruction, const Visit& visit) {
    if (const auto* compute = std::get_if<Compute>(&instruction.body)) {
      for (const View& view : compute->inputs) visit(view.buffer);
      for (const Output& output : compute->outputs) visit(output.view.buffer);
    } else if (const auto* issue = std::get_if<Issue>(&instruction.body)) {
      for (const Transfer& transfer : issue->transfers) {
        if (transfer.in) visit(transfer.in->buffer);
        if (transfer.out) visit(transfer.out->buffer);
      }
    } else if (const auto* send = std::get_if<Send>(&instruction.body)) {
      visit(send->view.buffer);
    } else if (const auto* recv = std::get_if<Recv>(&instruction.body)) {
      visit(recv->view.buffer);
    } else if (const auto* copy = std::get_if<Copy>(&instruction.body)) {
      visit(copy->from.buffer);
      visit(copy->to.buffer);
    } else if (const auto* load = std::get_if<Load>(&instruction.body)) {
      visit(load->to.buffer);
    }
  }

  void find_touches() {
    touches_.assign(program_.buffers.size(), {});
    std::map<int, std::vector<BufferId>> in_flight;  // handle -> buffers
    for (const auto& block : program_.blocks) {
      for (const Instruction& instruction : block) {
        int handle = -1;
        if (const auto* issue = std::get_if<Issue>(&instruction.body)) handle = issue->handle;
        if (const auto* send = std::get_if<Send>(&instruction.body)) handle = send->handle;
        if (const auto* recv = std::get_if<Recv>(&instruction.body)) handle = recv->handle;
        if (handle < 0) continue;
        buffers_of(instruction, [&](BufferId id) { in_flight[handle].push_back(id); });
      }
    }
    for (size_t k = 0; k < kBlockKinds; ++k) {
      const auto& block = program_.blocks[k];
      for (size_t i = 0; i < block.size(); ++i) {
        const auto touch = [&](BufferId id) {
          Touch& t = touches_[id.index()];
          if (t.first[k] < 0) t.first[k] = static_cast<int64_t>(i);
          t.last[k] = static_cast<int64_t>(i);
        };
        buffers_of(block[i], touch);
        if (const auto* wait = std::get_if<Wait>(&block[i].body)) {
          for (BufferId id : in_flight[wait->handle]) touch(id);
        }
      }
    }
  }

  // The fewest slots such that micro-batches in flight at the same time have different slots.
  void find_slots() {
    int64_t slots = 1;
    for (bool clash = true; clash; slots += clash ? 1 : 0) {
      clash = false;
      std::map<int64_t, int64_t> busy;  // slot -> micro-batch
      for (const BlockRunStep& run : program_.schedule) {
        const int64_t slot = run.micro_batch % slots;
        if (run.block == BlockKind::kForward)
          clash = clash || !busy.emplace(slot, run.micro_batch).second;
        if (run.block == BlockKind::kBackward) busy.erase(slot);
      }
      if (slots >= program_.micro_batches) clash = false;
    }
    program_.slots = slots;
  }

  void find_lifetimes() {
    for (Buffer& buffer : program_.buffers) {
      if (buffer.lifetime != Lifetime::kBlock) continue;
      const Touch& touch = touches_[buffer.id.index()];
      const bool forward = touch.in(BlockKind::kForward);
      const bool backward = touch.in(BlockKind::kBackward);
      const bool ends = touch.in(BlockKind::kPrologue) || touch.in(BlockKind::kUpdate);
      const int blocks = static_cast<int>(forward) + static_cast<int>(backward) +
                         static_cast<int>(touch.in(BlockKind::kPrologue)) +
                         static_cast<int>(touch.in(BlockKind::kUpdate));
      if (blocks > 1) buffer.lifetime = ends ? Lifetime::kStep : Lifetime::kMicroBatch;
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

  // Positions on the time line: block k starts at start_[k].
  Item interval(const Buffer& buffer) const {
    Item item;
    item.buffer = buffer.id.index();
    item.bytes = buffer.bytes();
    const Touch& touch = touches_[buffer.id.index()];
    item.first = start_[kBlockKinds];
    item.last = -1;
    for (size_t k = 0; k < kBlockKinds; ++k) {
      if (touch.first[k] < 0) continue;
      item.first = std::min(item.first, start_[k] + touch.first[k]);
      item.last = std::max(item.last, start_[k] + touch.last[k]);
    }
    if (item.last < 0) item.first = item.last = 0;  // never touched
    if (buffer.lifetime == Lifetime::kStep && program_.micro_batches > 1) {
      const int64_t main_begin = start_[static_cast<size_t>(BlockKind::kForward)];
      const int64_t main_end = start_[static_cast<size_t>(BlockKind::kUpdate)];
      const bool in_main = touch.in(BlockKind::kForward) || touch.in(BlockKind::kBackward);
      if (in_main) {
        item.first = std::min(item.first, main_begin);
        item.last = std::max(item.last, main_end - 1);
      }
    }
    if (is_fetched(buffer.id)) item.last = start_[kBlockKinds];
    return item;
  }

  void insert_frees() {
    std::array<std::map<int64_t, std::vector<BufferId>>, kBlockKinds>
        behind;  // position -> buffers freed after it
    for (const Buffer& buffer : program_.buffers) {
      if (buffer.lifetime == Lifetime::kPersistent || is_fetched(buffer.id)) continue;
      const Touch& touch = touches_[buffer.id.index()];
      int last_block = -1;
      for (size_t k = 0; k < kBlockKinds; ++k) {
        if (touch.first[k] >= 0) last_block = static_cast<int>(k);
      }
      if (last_block < 0) continue;
      const auto last = static_cast<size_t>(last_block);
      const bool lives_on = buffer.lifetime == Lifetime::kStep && program_.micro_batches > 1 &&
                            (last_block == static_cast<int>(BlockKind::kForward) ||
                             last_block == static_cast<int>(BlockKind::kBackward));
      if (lives_on) {
        behind[static_cast<size_t>(BlockKind::kUpdate)][-1].push_back(buffer.id);
      } else {
        behind[last][touch.last[last]].push_back(buffer.id);
      }
    }
    for (size_t k = 0; k < kBlockKinds; ++k) {
      std::vector<Instruction> out;
      const auto free_behind = [&](int64_t position) {
        const auto it = behind[k].find(position);
        if (it == behind[k].end()) return;
        for (BufferId id : it->second) out.push_back({Free{id}, When::kAlways, {}});
      };
      free_behind(-1);
      for (size_t i = 0; i < program_.blocks[k].size(); ++i) {
        out.push_back(std::move(program_.blocks[k][i]));
        free_behind(static_cast<int64_t>(i));
      }
      program_.blocks[k] = std::move(out);
    }
    find_touches();  // positions have moved
  }

  void assign_offsets() {
    start_[0] = 0;
    for (size_t k = 0; k < kBlockKinds; ++k) {
      start_[k + 1] = start_[k] + static_cast<int64_t>(program_.blocks[k].size());
    }
    for (Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) assign_tier(tier);
  }

  void assign_tier(Tier tier) {
    int64_t base = 0, last = 0;
    std::vector<Item> items, slot_items;
    for (Buffer& buffer : program_.buffers) {
      if (buffer.tier != tier) continue;
      if (buffer.lifetime == Lifetime::kPersistent) {
        buffer.offset = base;
        if (buffer.bytes() > 0) last = base + buffer.bytes();
        base += aligned(buffer.bytes());
      } else if (buffer.lifetime == Lifetime::kMicroBatch && program_.slots > 1) {
        slot_items.push_back(interval(buffer));
      } else {
        items.push_back(interval(buffer));
      }
    }
    const size_t slots_index = program_.buffers.size();
    if (!slot_items.empty()) {
      const int64_t bytes = place(slot_items, 0);
      TESSERA_CHECK(tier == Tier::kDevice, "slots in tier {}", tier_name(tier));
      program_.slot_bytes = aligned(bytes);
      const int64_t all = (program_.slots - 1) * program_.slot_bytes + bytes;
      items.push_back({slots_index, all, start_[static_cast<size_t>(BlockKind::kForward)],
                       start_[static_cast<size_t>(BlockKind::kUpdate)] - 1, -1});
    }
    const int64_t end = std::max(last, place(items, base));
    int64_t slots_offset = 0;
    for (const Item& item : items) {
      if (item.buffer == slots_index) {
        slots_offset = item.offset;
      } else {
        program_.buffers[item.buffer].offset = item.offset;
      }
    }
    for (const Item& item : slot_items)
      program_.buffers[item.buffer].offset = slots_offset + item.offset;
    program_.arena_bytes[static_cast<size_t>(tier)] = end;
  }

  Program& program_;
  std::vector<Touch> touches_;
  std::vector<BufferId> fetched_;
  std::array<int64_t, kBlockKinds + 1> start_{};
};

}  // namespace

void plan_memory(Program& program, const Graph&) { MemoryPlanner(program).run(); }

}  // namespace tessera
