#include "tessera/program/memory/buffer_touches.h"

#include <functional>
#include <set>

#include "tessera/program/instructions.h"

namespace tessera {

// ---- blocks

BlockTimes::BlockTimes(const Program& program) : program_(program) {
  order_.push_back(BlockKind::kPrologue);
  for (const BlockRunStep& run : program_.schedule) {
    if (!run.block.once() && position(run.block) == order_.size()) order_.push_back(run.block);
  }
  order_.push_back(BlockKind::kUpdate);
  // The schedule in which micro-batches do not overlap runs the blocks of one after the other.
  const auto each = std::max<size_t>(1, order_.size() - 2);
  const auto inner = static_cast<size_t>(program_.micro_batches) * (order_.size() - 2);
  overlapping_ = program_.schedule.size() != inner + 2;
  for (size_t i = 0; i < program_.schedule.size() && !overlapping_; ++i) {
    const bool once = i == 0 || i == inner + 1;
    const BlockRunStep alone{once ? BlockRef(i == 0 ? BlockKind::kPrologue : BlockKind::kUpdate)
                                  : order_[1 + (i - 1) % each],
                             once ? 0 : static_cast<int64_t>((i - 1) / each)};
    overlapping_ = program_.schedule[i] != alone;
  }
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
  first_run_.assign(order_.size(), -1);
  last_run_.assign(order_.size(), -1);
  for (size_t r = 0; r < program_.schedule.size(); ++r) {
    const size_t k = position(program_.schedule[r].block);
    if (first_run_[k] < 0) first_run_[k] = static_cast<int64_t>(r);
    last_run_[k] = static_cast<int64_t>(r);
  }
}

size_t BlockTimes::position(BlockRef block) const {
  return static_cast<size_t>(std::find(order_.begin(), order_.end(), block) - order_.begin());
}

// Returns the largest number of micro-batches that are between the two blocks at the same time,
// which is a lower bound for the number of slots. Returns 1 if not all micro-batches run `first`
// before `last`.
int64_t BlockTimes::most_between(size_t first, size_t last) const {
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

int64_t BlockTimes::slots_between(size_t first, size_t last) const {
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

// ---- buffers

size_t BufferTouch::first_block() const {
  size_t k = 0;
  while (k < at.size() && !in(k)) ++k;
  return k;
}
size_t BufferTouch::last_block() const {
  size_t k = at.size();
  while (k > 0 && !in(k - 1)) --k;
  return k - 1;
}

namespace {

// Visits the buffers that an instruction touches. A Free does not count, because frees follow
// from these touches.
template <class Visit>
void buffers_of(const Instruction& instruction, const Visit& visit) {
  accesses(instruction, [&](const Access& access) {
    if (access.mode != AccessMode::kFree) visit(access.buffer);
  });
}

}  // namespace

BufferTouches::BufferTouches(const Program& program, const BlockTimes& times,
                             std::vector<bool> rings)
    : program_(program), times_(times), rings_(std::move(rings)) {
  find_outlasting();
  find();
}

std::optional<int64_t> BufferTouches::taken_at(BufferId id) const {
  const auto taken = taken_.find(id);
  return taken == taken_.end() ? std::nullopt : std::optional(taken->second);
}

void BufferTouches::find_outlasting() {
  std::map<int, std::pair<BufferId, size_t>> sent;  // by handle: buffer and position of its block
  std::vector<size_t> last_use(program_.buffers.size());
  std::set<int> lagged;
  for (size_t k = 1; k + 1 < times_.blocks(); ++k) {
    for (const Instruction& instruction : times_.instructions(k)) {
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
    if (last_use[buffer.index()] != sending && !is_ring(buffer)) outlasting_.push_back(handle);
  }
}

void BufferTouches::find() {
  touches_.assign(program_.buffers.size(), {SmallVector<BufferTouch::InBlock, 4>(times_.blocks())});
  std::vector<SmallVector<BufferId, 4>> in_flight;  // buffers by handle
  for (size_t k = 0; k < times_.blocks(); ++k) {
    for (const Instruction& instruction : times_.instructions(k)) {
      const int handle = handle_of(instruction);
      if (handle < 0) continue;
      const auto h = static_cast<size_t>(handle);
      if (in_flight.size() <= h) in_flight.resize(h + 1);
      buffers_of(instruction, [&](BufferId id) { in_flight[h].push_back(id); });
    }
  }
  for (size_t k = 0; k < times_.blocks(); ++k) {
    for (size_t i = 0; i < times_.instructions(k).size(); ++i) {
      const auto touch = [&](BufferId id) {
        BufferTouch::InBlock& t = touches_[id.index()].at[k];
        if (t.first < 0) t.first = static_cast<int64_t>(i);
        t.last = static_cast<int64_t>(i);
        const When when = times_.instructions(k)[i].when;
        t.when = t.when.value_or(when) == when ? when : When::kAlways;
      };
      buffers_of(times_.instructions(k)[i], touch);
      const auto* wait = std::get_if<Wait>(&times_.instructions(k)[i].body);
      if (wait == nullptr) continue;
      const bool outlasting = std::ranges::binary_search(outlasting_, wait->handle);
      if (static_cast<size_t>(wait->handle) >= in_flight.size()) continue;
      for (BufferId id : in_flight[static_cast<size_t>(wait->handle)]) {
        if (!outlasting) touch(id);
        if (outlasting && wait->lag == 0) taken_[id] = static_cast<int64_t>(i);
      }
    }
  }
}

size_t BufferTouches::free_block(const BufferTouch& touch) const {
  const auto is_behind = [&](size_t k) {
    for (size_t other = 0; other < times_.blocks(); ++other) {
      if (touch.in(other) && !times_.runs_behind(k, other)) return false;
    }
    return true;
  };
  size_t k = touch.first_block();
  while (!is_behind(k)) ++k;
  return k;
}

int64_t BufferTouches::begins_in(const BufferTouch& touch, size_t k) const {
  return touch.only(k, When::kLast) ? times_.last_run(k) : times_.first_run(k);
}
int64_t BufferTouches::ends_in(const BufferTouch& touch, size_t k) const {
  return touch.only(k, When::kFirst) ? times_.first_run(k) : times_.last_run(k);
}
size_t BufferTouches::ending_block(const BufferTouch& touch) const {
  size_t found = touch.first_block();
  for (size_t k = found; k < times_.blocks(); ++k) {
    if (touch.in(k) && ends_in(touch, k) > ends_in(touch, found)) found = k;
  }
  return found;
}

}  // namespace tessera
