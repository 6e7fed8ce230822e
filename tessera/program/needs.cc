// Finds first needs by comparing every access to a buffer with the instructions under way that read
// or write the buffer.
#include "tessera/program/needs.h"

#include <algorithm>
#include <deque>
#include <limits>

#include "tessera/program/memory/touches.h"

namespace tessera {
namespace {

constexpr size_t kNowhere = std::numeric_limits<size_t>::max();
constexpr size_t kLeaving = 2;  // the most copies out of a tier under way at a time in a block

// Returns whether the regions are pieces of different steps of the same loop over the same layout.
// Pieces that steps read through windows overlap and are not apart.
bool apart(const Region& a, const Region& b) {
  if (!a.piece || !b.piece || a.piece->step == b.piece->step || a.piece->overlaps()) return false;
  StepPiece same = *a.piece;
  same.step = b.piece->step;
  return same == *b.piece && a.layout == b.layout;
}

struct Started {
  int handle = 0;
  BlockRef block;
  size_t at = 0;
  When when = When::kAlways;
  OpId cause;
  bool collective = false;
  bool due = false;        // whether `here` follows from a due mark and not from a need
  bool again = false;      // whether the next run of the issuing block needs the result too
  size_t here = kNowhere;  // position of the first need in the issuing block
  // Other blocks that need the result, with the position of the first need in each.
  std::vector<std::pair<BlockRef, size_t>> others;
};

class Search {
 public:
  Search(const PlaceText& text, const BlockOrder& order)
      : text_(text), order_(order), touched_(text.buffers.size()) {}

  std::vector<Need> run() {
    for (const auto& [ref, block] : text_.blocks) find_in_own_block(ref, block);
    if (std::ranges::any_of(started_, [](const Started& s) { return s.here == kNowhere; }))
      find_in_other_blocks();
    if (!text_.due.empty()) await_due();
    await_leaving();
    std::vector<Need> out;
    out.reserve(started_.size());
    for (const Started& started : started_) out.push_back(need_of(started));
    return out;
  }

 private:
  struct Touch {
    size_t started;
    const TextView* view;
    AccessMode mode;
  };

  void start(BlockRef ref, size_t at, const TextInstruction& instruction) {
    const int handle = handle_of(instruction);
    if (handle < 0) return;
    if (const auto* cross = std::get_if<TextCross>(&instruction.body);
        cross != nullptr && cross->sends)
      return;
    Started& started = started_.emplace_back();
    started.handle = handle;
    started.block = ref;
    started.at = at;
    started.when = instruction.when;
    started.cause = instruction.cause;
    started.collective = std::holds_alternative<TextIssue>(instruction.body);
    touch(started_.size() - 1, instruction);
  }
  void touch(size_t started, const TextInstruction& instruction) {
    accesses(instruction, [&](const TextAccess& access) {
      touched_[index(access.view->buffer)].push_back({started, access.view, access.mode});
    });
  }
  static size_t index(int buffer) { return static_cast<size_t>(buffer); }

  void find_in_own_block(BlockRef ref, const std::vector<TextInstruction>& block) {
    const size_t first = started_.size();
    for (size_t i = 0; i < block.size(); ++i) {
      accesses(block[i], [&](const TextAccess& access) {
        // Once a started instruction is needed in this block, it is awaited, so its touches are no
        // longer under way.
        std::erase_if(touched_[index(access.view->buffer)], [&](const Touch& touch) {
          Started& started = started_[touch.started];
          if (started.here == kNowhere && meet(access, touch)) started.here = i;
          return started.here != kNowhere;
        });
      });
      start(ref, i, block[i]);
    }
    for (size_t s = first; s < started_.size(); ++s) {
      accesses(block[started_[s].at],
               [&](const TextAccess& access) { touched_[index(access.view->buffer)].clear(); });
    }
  }

  void find_in_other_blocks() {
    find_shared();
    for (size_t s = 0; s < started_.size(); ++s) {
      const Started& started = started_[s];
      if (started.here == kNowhere) touch(s, text_.blocks.at(started.block)[started.at]);
    }
    for (const auto& [ref, block] : text_.blocks) {
      for (size_t i = 0; i < block.size(); ++i) {
        accesses(block[i], [&, here = ref](const TextAccess& access) {
          for (const Touch& touch : touched_[index(access.view->buffer)]) {
            if (!meet(access, touch)) continue;
            Started& started = started_[touch.started];
            if (started.block != here) {
              used_in(started, here, i);
            } else if (i <= started.at && shared_[index(access.view->buffer)]) {
              started.again = true;
            }
          }
        });
      }
    }
    // Values that the step must have at its end (fetches) are needed at the end of the update.
    const auto update = text_.blocks.find(BlockKind::kUpdate);
    const size_t end = update == text_.blocks.end() ? 0 : update->second.size();
    for (const TextHome& fetch : text_.fetches) {
      for (const Touch& touch : touched_[index(fetch.buffer)]) {
        Started& started = started_[touch.started];
        if (touch.mode != AccessMode::kRead && started.block != BlockKind::kUpdate)
          used_in(started, BlockKind::kUpdate, end);
      }
    }
  }
  // Returns whether the access must wait for an instruction under way that touches the buffer.
  static bool meet(const TextAccess& access, const Touch& touch) {
    if (access.mode == AccessMode::kRead && touch.mode == AccessMode::kRead) return false;
    return !apart(access.view->region, touch.view->region);
  }
  static void used_in(Started& started, BlockRef block, size_t at) {
    const auto same = [&](const auto& use) { return use.first == block; };
    if (std::ranges::none_of(started.others, same)) started.others.emplace_back(block, at);
  }
  // Finds buffers that all micro-batches share. A buffer that only blocks of micro-batches touch is
  // not shared, because each micro-batch has a copy of its own (unless it rests or accumulates).
  void find_shared() {
    shared_.resize(text_.buffers.size());
    for (size_t b = 0; b < shared_.size(); ++b)
      shared_[b] = text_.buffers[b].persistent || text_.buffers[b].accumulates;
    for (const auto& [ref, block] : text_.blocks) {
      for (size_t i = 0; ref.once() && i < block.size(); ++i) {
        accesses(block[i],
                 [&](const TextAccess& access) { shared_[index(access.view->buffer)] = true; });
      }
    }
  }

  void await_due() {
    for (Started& started : started_) {
      const auto due = text_.due.find(started.handle);
      if (due == text_.due.end()) continue;
      const std::vector<TextInstruction>& block = text_.blocks.at(started.block);
      const size_t last = std::min(started.here, block.size());
      size_t at = started.at + 1;
      while (at < last && block[at].order < due->second) ++at;
      started.due = at != started.here;
      started.here = at;
    }
  }

  bool leaves(const Started& started) const {
    const auto* copy = std::get_if<TextCopy>(&text_.blocks.at(started.block)[started.at].body);
    return copy != nullptr && tier(copy->from) < tier(copy->to);
  }
  Tier tier(const TextView& view) const {
    return text_.buffers[static_cast<size_t>(view.buffer)].tier;
  }
  // Makes copies out of a tier be awaited so early that at most kLeaving of a block are under way.
  // started_ has the copies of a block one after the other, in the block's order.
  void await_leaving() {
    std::deque<Started*> under_way;
    const BlockRef* block = nullptr;
    for (Started& started : started_) {
      if (!leaves(started)) continue;
      if (block == nullptr || *block != started.block) under_way.clear();
      block = &started.block;
      std::erase_if(under_way, [&](const Started* s) { return s->here <= started.at; });
      if (under_way.size() == kLeaving) {
        under_way.front()->here = started.at;
        under_way.pop_front();
      }
      under_way.push_back(&started);
    }
  }

  Need need_of(const Started& started) const {
    const std::vector<TextInstruction>& block = text_.blocks.at(started.block);
    const bool needed = !started.due && started.here < block.size();
    const Need here{started.handle, started.block,
                    started.block,  std::min(started.here, block.size()),
                    started.when,   needed ? block[started.here].cause : started.cause};
    if (started.here != kNowhere) return here;
    const bool early = started.block == BlockKind::kPrologue;
    if (early && !started.collective) return here;
    const auto* first = early ? first_run(started) : always_first(started);
    if (first == nullptr) return here;
    const bool repeats = order_.repeats() && !started.block.once() && started.when == When::kAlways;
    if (repeats && (started.again || first->first.once())) return here;
    const auto there = text_.blocks.find(first->first);
    const bool inside = there != text_.blocks.end() && first->second < there->second.size();
    return {started.handle,
            started.block,
            first->first,
            first->second,
            early ? When::kFirst : When::kAlways,
            inside ? there->second[first->second].cause : started.cause};
  }
  const std::pair<BlockRef, size_t>* first_run(const Started& started) const {
    const std::pair<BlockRef, size_t>* first = nullptr;
    for (const auto& use : started.others) {
      const auto position = order_.position(use.first);
      if (position && (first == nullptr || *position < *order_.position(first->first)))
        first = &use;
    }
    return first;
  }
  const std::pair<BlockRef, size_t>* always_first(const Started& started) const {
    const auto over = [&](const auto& use) {  // the use's block runs before the issuing block
      return order_.always_before(use.first, started.block);
    };
    for (const auto& use : started.others) {
      const bool before_all = std::ranges::all_of(started.others, [&](const auto& other) {
        return other.first == use.first || over(other) ||
               order_.always_before(use.first, other.first);
      });
      if (!over(use) && before_all) return &use;
    }
    return nullptr;
  }

  const PlaceText& text_;
  const BlockOrder& order_;
  std::vector<Started> started_;
  std::vector<std::vector<Touch>> touched_;  // by buffer: touches by instructions under way
  std::vector<bool> shared_;                 // by buffer: whether all micro-batches use it
};

}  // namespace

BlockRef block_of(const BlockRun& run) {
  constexpr BlockKind kKinds[]{BlockKind::kForward, BlockKind::kBackward, BlockKind::kWeight};
  return {kKinds[run.kind], static_cast<int32_t>(run.stage)};
}

BlockOrder::BlockOrder(const ResolvedPlan& plan, PlaceId place)
    : repeats_(plan.plan.micro_batches > 1) {
  std::optional<std::vector<BlockRef>> firsts;
  bool agree = true;
  for (size_t row = 0; row < plan.rows.size(); ++row) {
    if (std::ranges::find(plan.rows[row], place) == plan.rows[row].end()) continue;
    Runs& runs = rows_.emplace_back();
    std::vector<BlockRef> order;
    for (size_t at = 0; at < plan.schedule[row].size(); ++at) {
      const BlockRun& run = plan.schedule[row][at];
      const BlockRef block = block_of(run);
      const auto [it, fresh] = runs.try_emplace(block);
      if (fresh) it->second.assign(static_cast<size_t>(plan.plan.micro_batches), -1);
      it->second[static_cast<size_t>(run.micro_batch)] = static_cast<int64_t>(at);
      if (fresh && plan.place_of(StageId(static_cast<size_t>(run.stage))) == place)
        order.push_back(block);
    }
    agree = agree && (!firsts || *firsts == order);
    firsts = std::move(order);
  }
  if (!firsts || !agree) return;
  for (size_t i = 0; i < firsts->size(); ++i) positions_.emplace((*firsts)[i], i);
}

bool BlockOrder::always_before(BlockRef a, BlockRef b) const {
  if (a.once() || b.once()) return a.kind == BlockKind::kPrologue || b.kind == BlockKind::kUpdate;
  for (const Runs& row : rows_) {
    const auto first = row.find(a), second = row.find(b);
    if (first == row.end()) return false;
    if (second == row.end()) continue;
    for (size_t m = 0; m < second->second.size(); ++m) {
      const int64_t before = first->second[m], after = second->second[m];
      if (after >= 0 && (before < 0 || before > after)) return false;
    }
  }
  return !rows_.empty();
}

std::optional<size_t> BlockOrder::position(BlockRef block) const {
  const auto it = positions_.find(block);
  return it == positions_.end() ? std::nullopt : std::optional(it->second);
}

std::vector<Need> find_needs(const PlaceText& text, const BlockOrder& order) {
  return Search(text, order).run();
}

}  // namespace tessera
