// The pass that stages tensors between memory tiers. The update of an optimizer state is computed
// on the host if the state rests on the host or on disk. An op that reads or updates rows of a
// table is computed on the host if the table rests there or on disk. Almost all other ops are
// computed on the device (op_tier has the exact rule). If an instruction reads or writes a tensor
// that rests in another tier, the tensor gets a staging buffer in the instruction's tier. It exists
// for the block, or as long as the plan keeps gathered copies. Copies between the two buffers run
// at the same time as other instructions:
//
//   read     The value is copied to the staging buffer. The copy is issued ahead of the reader.
//   write    The instruction writes the staging buffer. After the last write of the block the value
//            is copied to the buffer at rest, or added to it if the instruction accumulates.
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/program/crossing.h"
#include "tessera/program/memory/touches.h"
#include "tessera/program/needs.h"
#include "tessera/program/passes/op_tiers.h"
#include "tessera/program/passes/tiered_items.h"
#include "tessera/program/place_text.h"

namespace tessera {
namespace {

struct Staged {
  StagedPart key;
  TensorId tensor;
  int buffer = -1;
  When when = When::kAlways;
  bool dirty = false;         // written, and not yet copied to the buffer at rest
  Write write = Write::kSet;  // how the copy to the buffer at rest writes
};

// Where a block writes a staged part for the last time.
class LastWrites {
 public:
  LastWrites() = default;
  LastWrites(const std::vector<TextInstruction>& block, const OpTiers& tiers) {
    for (size_t i = 0; i < block.size(); ++i) {
      const auto* compute = std::get_if<TextCompute>(&block[i].body);
      if (compute == nullptr) continue;
      const Tier tier = tiers.of(*compute);
      for (const TextOutput& output : compute->outputs) {
        if (tiers.of_buffer(output.view.buffer) != tier) position(part_of(output.view, tier)) = i;
      }
    }
  }
  bool contains(const StagedPart& part, size_t at) { return position(part) == at; }

 private:
  size_t& position(const StagedPart& part) {
    auto& of_buffer = positions_[part.buffer];
    for (auto& [known, at] : of_buffer) {
      if (known == part) return at;
    }
    return of_buffer.emplace_back(part, 0).second;
  }

  std::map<int, std::vector<std::pair<StagedPart, size_t>>> positions_;  // by buffer
};

// A value that arrives in the staging buffer `from` and rests in `to`. The copy between them has
// the given `when` and `cause`.
struct Arriving {
  TensorId tensor;
  TextView from, to;
  When when = When::kAlways;
  OpId cause;
};

// The values that arrive in staging buffers, until they are copied to their buffers at rest.
class Arrivals {
 public:
  Arrivals() = default;
  explicit Arrivals(const std::vector<Need>& needs) {
    for (const Need& need : needs) {
      ends_[need.block].emplace(need.before, need);
      needed_in_.emplace(need.handle, need.block);
    }
  }
  void add(int handle, Arriving value) { arriving_[handle].push_back(std::move(value)); }

  // Takes the values that the instruction at this position of the block is the first to need. They
  // have arrived, because they are awaited before this instruction.
  std::vector<Arriving> at(BlockRef block, size_t position) {
    std::vector<Arriving> out;
    const auto& ends = ends_[block];
    for (auto end = ends.lower_bound(position); end != ends.upper_bound(position); ++end) {
      auto arrived = arriving_.extract(end->second.handle);
      if (!arrived) continue;
      for (Arriving& one : arrived.mapped()) {
        one.when = end->second.when;
        one.cause = end->second.cause;
        out.push_back(std::move(one));
      }
    }
    return out;
  }

  // Takes, at the end of a block, the values that are first needed in a block that runs later but
  // was rewritten before this block.
  std::vector<Arriving> at_end(BlockRef block) {
    rewritten_.insert(block);
    std::vector<Arriving> out;
    std::erase_if(arriving_, [&](auto& arriving) {
      const auto needed = needed_in_.find(arriving.first);
      if (needed == needed_in_.end() || !rewritten_.contains(needed->second)) return false;
      std::move(arriving.second.begin(), arriving.second.end(), std::back_inserter(out));
      return true;
    });
    return out;
  }

 private:
  ByBlock<std::multimap<size_t, Need>> ends_;  // by position: handles that are first needed there
  std::map<int, BlockRef> needed_in_;          // by handle: the block that needs it first
  std::set<BlockRef> rewritten_;
  std::map<int, std::vector<Arriving>> arriving_;  // by handle
};

class Tiering {
 public:
  Tiering(PlaceText& text, const ShapeRule& shapes, const ResolvedPlan& plan,
          const BlockOrder& order, int& next_handle)
      : text_(text),
        graph_(*shapes.graph),
        shapes_(shapes),
        plan_(plan),
        order_(order),
        next_handle_(next_handle),
        tiers_(text, *shapes.graph, plan) {}

  void run() {
    place_buffers(text_, tiers_);
    const bool plain = std::all_of(text_.buffers.begin(), text_.buffers.end(),
                                   [](const auto& b) { return b.tier == Tier::kDevice; });
    if (plain) return;
    residents_ = choose_residents(text_, tiers_, shapes_, plan_);
    arrivals_ = Arrivals(find_needs(text_, order_));
    for (auto& [ref, block] : text_.blocks) {
      if (!ref.once()) rewrite(ref, block);
    }
    if (text_.blocks.contains(BlockKind::kPrologue) || !for_step_.empty())
      rewrite(BlockKind::kPrologue, text_.blocks[BlockKind::kPrologue]);
    if (const auto it = text_.blocks.find(BlockKind::kUpdate); it != text_.blocks.end())
      rewrite(it->first, it->second);
  }

 private:
  TextBuffer& buffer(int index) { return text_.buffers[static_cast<size_t>(index)]; }
  const Mesh& mesh_of(PlaceId place) const { return plan_.places[place.index()].mesh; }

  // ---- a block
  void rewrite(BlockRef ref, std::vector<TextInstruction>& block) {
    ref_ = ref;
    out_.clear();
    staged_.clear();
    last_writes_ = LastWrites(block, tiers_);
    for (at_ = 0; at_ < block.size(); ++at_) {
      copy_down(arrivals_.at(ref, at_));
      TextInstruction instruction = std::move(block[at_]);
      when_ = instruction.when;
      cause_ = instruction.cause;
      std::visit([&](auto& body) { stage(instruction, body); }, instruction.body);
    }
    copy_down(arrivals_.at(ref, at_));
    copy_down(arrivals_.at_end(ref));
    when_ = When::kAlways;
    if (ref.kind == BlockKind::kPrologue) {
      for (const Staged& kept : for_step_) copy_up(kept, false);
    }
    block = issue_ahead(std::move(out_), block.size(), ref, graph_, plan_);
  }

  // ---- emission
  void emit(TextInstruction instruction, bool inserted = true, bool ahead = false) {
    out_.push_back({std::move(instruction), at_, ahead, inserted});
  }
  void copy(TensorId tensor, const TextView& from, const TextView& to, Write write,
            bool ahead = false) {
    copies_[to.buffer].push_back(next_handle_);
    emit({TextCopy{tensor, from, to, write, next_handle_++}, when_, cause_}, true, ahead);
  }

  // ---- staging
  Staged new_staged(const TextView& view, Tier tier, TensorId tensor) {
    TextBuffer staging;
    staging.tensor = tensor;
    staging.name = graph_.tensor(tensor).name + "@" + std::string(tier_name(tier));
    staging.region = view.region;
    staging.dtype = buffer(view.buffer).dtype;
    staging.tier = tier;
    text_.buffers.push_back(std::move(staging));
    Staged out;
    out.key = part_of(view, tier);
    out.tensor = tensor;
    out.buffer = static_cast<int>(text_.buffers.size()) - 1;
    out.when = when_;
    return out;
  }

  Staged* find(std::deque<Staged>& all, const StagedPart& key) {
    const auto it = std::find_if(all.begin(), all.end(), [&](const Staged& s) {
      return s.key == key && (s.when == When::kAlways || s.when == when_);
    });
    return it == all.end() ? nullptr : &*it;
  }

  void copy_up(const Staged& staged, bool ahead) {
    copy(staged.tensor, {staged.key.buffer, staged.key.region}, {staged.buffer, staged.key.region},
         Write::kSet, ahead);
  }

  // Copies what was written to staging buffers of the buffer at rest `index` to that buffer.
  void flush(int index) {
    for (Staged& staged : staged_) {
      if (staged.key.buffer != index || !staged.dirty) continue;
      staged.dirty = false;
      const When when = std::exchange(when_, staged.when);
      copy(staged.tensor, {staged.buffer, staged.key.region}, {index, staged.key.region},
           staged.write);
      when_ = when;
    }
    // After an accumulation the staging buffer has what was added and not the value at rest, so it
    // must not be read.
    std::erase_if(staged_, [&](const Staged& staged) {
      return staged.key.buffer == index && staged.write != Write::kSet;
    });
  }

  Keep keep_of(const StagedPart& key, TensorId tensor) const {
    const bool rests = tiers_.rests(key.buffer) && !ref_.once() && when_ == When::kAlways;
    if (!rests) return Keep::kBlock;
    if (std::find(residents_.begin(), residents_.end(), key) == residents_.end())
      return tiers_.kept(tensor);
    return plan_.plan.micro_batches > 1 ? Keep::kStep : Keep::kMicroBatch;
  }

  // Returns the buffer of the tier from which the view is to be read. Adds a copy to a staging
  // buffer if there is none with the value.
  int staged_for_reading(const TextView& view, Tier tier, TensorId tensor) {
    const StagedPart key = part_of(view, tier);
    const Staged* here = find(staged_, key);
    const bool adds = here != nullptr && here->dirty && here->write != Write::kSet;
    if (here != nullptr && !adds) return here->buffer;
    const Keep keep = keep_of(key, tensor);
    if (keep == Keep::kStep) {
      if (Staged* known = find(for_step_, key)) return known->buffer;
      for_step_.push_back(new_staged(view, tier, tensor));
      return for_step_.back().buffer;
    }
    if (keep == Keep::kMicroBatch && ref_.kind != BlockKind::kForward) {
      if (Staged* known = find(for_micro_batch_[ref_.chunk], key)) return known->buffer;
    }
    flush(key.buffer);
    staged_.push_back(new_staged(view, tier, tensor));
    const Staged staged = staged_.back();
    copy_up(staged, true);
    if (keep == Keep::kMicroBatch && ref_.kind == BlockKind::kForward)
      for_micro_batch_[ref_.chunk].push_back(staged);
    return staged.buffer;
  }

  void read(TextView& view, Tier tier, TensorId tensor) {
    if (tiers_.of_buffer(view.buffer) == tier) {
      flush(view.buffer);
    } else {
      view.buffer = staged_for_reading(view, tier, tensor);
    }
  }

  // Forgets the staged copies, except `but`, of a buffer that is written now, because their values
  // are old.
  void forget(int index, const Staged* but) {
    const int kept = but == nullptr ? -1 : but->buffer;
    std::erase_if(staged_, [&](const Staged& staged) {
      return staged.key.buffer == index && staged.buffer != kept && !staged.dirty;
    });
  }

  // Returns the staging buffer of the tier into which the view is to be written.
  Staged& staged_for_writing(const TextView& view, Tier tier, TensorId tensor) {
    const StagedPart key = part_of(view, tier);
    Staged* known = find(staged_, key);
    if (known == nullptr) {
      staged_.push_back(new_staged(view, tier, tensor));
      known = &staged_.back();
    }
    return *known;
  }

  // Directs the output to a buffer of the tier. Returns whether it is staged.
  bool write(TextOutput& output, Tier tier) {
    const int rests = output.view.buffer;
    if (tiers_.of_buffer(rests) == tier) {
      flush(rests);
      forget(rests, nullptr);
      return false;
    }
    const TensorId tensor = output.tensor;
    Staged& staged = staged_for_writing(output.view, tier, tensor);
    if (!staged.dirty) {
      staged.write = output.write;
      staged.dirty = true;
      staged.when = when_;
      output.write = Write::kSet;
    } else if (output.write == Write::kSet) {
      staged.write = Write::kSet;
    } else {
      output.write = Write::kAdd;
    }
    staged.tensor = tensor;
    output.view.buffer = staged.buffer;
    forget(rests, &staged);
    return true;
  }

  // ---- instructions
  void stage(TextInstruction& instruction, TextCompute& compute) {
    const Op& op = graph_.op(compute.op);
    const Tier tier = tiers_.of(compute);
    for (size_t i = 0; i < compute.inputs.size(); ++i) read(compute.inputs[i], tier, op.inputs[i]);
    std::vector<StagedPart> done;
    for (TextOutput& output : compute.outputs) {
      const StagedPart key = part_of(output.view, tier);
      if (write(output, tier) && last_writes_.contains(key, at_)) done.push_back(key);
    }
    emit(std::move(instruction), false);
    for (const StagedPart& key : done) flush(key.buffer);
  }

  void stage(TextInstruction& instruction, TextIssue& issue) {
    for (TextTransfer& transfer : issue.transfers) {
      read(transfer.from, Tier::kDevice, transfer.tensor);
      land(transfer.to, transfer.tensor, issue.handle);
    }
    if (issue.named) {
      for (TextView& ids : issue.named->ids) read(ids, Tier::kDevice, buffer(ids.buffer).tensor);
    }
    emit(std::move(instruction), false);
  }

  void stage(TextInstruction& instruction, TextCross& cross) {
    TextView& own = cross.sends ? cross.from : cross.to;
    if (cross.sends) {
      const int rests = own.buffer;
      read(own, Tier::kDevice, cross.tensor);
      // A rank at both places does not receive the message but copies from the buffer at rest,
      // which the other place's text names. So the value must be in that buffer.
      if (own.buffer != rests && share_ranks(mesh_of(cross.from_place), mesh_of(cross.to_place))) {
        flush(rests);
        for (const int handle : copies_[rests]) text_.due.try_emplace(handle, instruction.order);
      }
    } else {
      land(own, cross.tensor, cross.handle);
    }
    emit(std::move(instruction), false);
  }

  // Directs a value that arrives under `handle` to a staging buffer on the device, if `to` rests in
  // another tier. The value is later copied to the buffer at rest.
  void land(TextView& to, TensorId tensor, int handle) {
    flush(to.buffer);
    if (tiers_.of_buffer(to.buffer) == Tier::kDevice) return forget(to.buffer, nullptr);
    const TextView rests = to;
    Staged& staged = staged_for_writing(to, Tier::kDevice, tensor);
    to.buffer = staged.buffer;
    arrivals_.add(handle, {tensor, to, rests, when_, cause_});
    forget(rests.buffer, &staged);
  }

  // Copies arrived values to their buffers at rest.
  void copy_down(const std::vector<Arriving>& arrived) {
    for (const Arriving& one : arrived) {
      when_ = one.when;
      cause_ = one.cause;
      copy(one.tensor, one.from, one.to, Write::kSet);
    }
  }

  void stage(TextInstruction& instruction, TextWait&) { emit(std::move(instruction), false); }

  void stage(TextInstruction& instruction, TextCopy& body) {
    flush(body.from.buffer);
    flush(body.to.buffer);
    forget(body.to.buffer, nullptr);
    const Tier from = tiers_.of_buffer(body.from.buffer), to = tiers_.of_buffer(body.to.buffer);
    if (from == to && from != Tier::kDisk) return emit(std::move(instruction), false);
    copy(body.tensor, body.from, body.to, body.write);
  }

  void stage(TextInstruction& instruction, TextLoad&) { emit(std::move(instruction), false); }

  PlaceText& text_;
  const Graph& graph_;
  const ShapeRule& shapes_;
  const ResolvedPlan& plan_;
  const BlockOrder& order_;
  int& next_handle_;
  const OpTiers tiers_;
  std::vector<StagedPart> residents_;  // the parts that stay on the device from one use to the next
  BlockRef ref_;
  size_t at_ = 0;
  When when_ = When::kAlways;
  OpId cause_;
  std::vector<TieredItem> out_;
  std::deque<Staged> staged_;  // in this block
  std::deque<Staged> for_step_;
  std::map<int32_t, std::deque<Staged>> for_micro_batch_;
  Arrivals arrivals_;
  LastWrites last_writes_;                  // of this block
  std::map<int, std::vector<int>> copies_;  // by buffer: handles of copies into it
};

}  // namespace

void stage_tiers(PlaceText& text, const ShapeRule& shapes, const ResolvedPlan& plan,
                 const BlockOrder& order, int& next_handle) {
  Tiering(text, shapes, plan, order, next_handle).run();
}

int end_of_handles(const PlaceText& text) {
  int end = 0;
  for (const auto& [ref, block] : text.blocks) {
    for (const TextInstruction& instruction : block) {
      end = std::max(end, handle_of(instruction) + 1);
    }
  }
  return end;
}

}  // namespace tessera
