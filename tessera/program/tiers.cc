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
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/graph/kinds.h"
#include "tessera/plan/selector.h"
#include "tessera/program/crossing.h"
#include "tessera/program/needs.h"
#include "tessera/program/place_text.h"
#include "tessera/program/prefetch.h"
#include "tessera/program/touches.h"

namespace tessera {
namespace {

// A `Key` names a part of a buffer and another tier in which this part is staged.
struct Key {
  int buffer = -1;
  Region region;
  Tier tier = Tier::kDevice;
  friend bool operator==(const Key&, const Key&) = default;
};

struct Staged {
  Key key;
  TensorId tensor;
  int buffer = -1;
  When when = When::kAlways;
  bool dirty = false;         // written, and not yet copied to the buffer at rest
  Write write = Write::kSet;  // how the copy to the buffer at rest writes
};

// A `TieredItem` is an instruction of the text that is being rewritten, and its old position.
struct TieredItem {
  TextInstruction instruction;
  size_t origin = 0;
  bool ahead = false;  // the instruction is a copy that may be issued earlier
  bool inserted = false;
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
        next_handle_(next_handle) {}

  void run() {
    place_buffers();
    const bool plain = std::all_of(text_.buffers.begin(), text_.buffers.end(),
                                   [](const auto& b) { return b.tier == Tier::kDevice; });
    if (plain) return;
    choose_residents();
    for (const Need& need : find_needs(text_, order_)) {
      ends_[need.block].emplace(need.before, need);
      needed_in_.emplace(need.handle, need.block);
    }
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
  Tier tier_of(int index) const { return text_.buffers[static_cast<size_t>(index)].tier; }

  // ---- in which tier an op computes
  Tier op_tier(const TextCompute& compute) const {
    const Op& op = graph_.op(compute.op);
    const auto rests_below = [&](const TextView& view) {
      return tier_of(view.buffer) != Tier::kDevice;
    };
    // Rows are read and written in the tier where the table rests, because staging would copy the
    // whole table.
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const TextView& table = compute.inputs[i];
      if (touches_rows(op, i) && buffer_rests(table.buffer) && rests_below(table))
        return Tier::kHost;
    }
    if (op.phase == Phase::kUpdate) {
      bool updates = false;
      for (TensorId output : op.outputs) {
        const TensorId old = graph_.tensor(output).update_of;
        if (!old.valid()) continue;
        updates = true;
        if (graph_.tensor(old).role == Role::kOptimizerState &&
            plan_.tensors[old.index()].tier != Tier::kDevice) {
          return Tier::kHost;
        }
      }
      // An op that only reads gradients (a norm) is computed in the tier of the gradients.
      for (size_t i = 0; !updates && i < op.inputs.size(); ++i) {
        if (!graph_.tensor(op.inputs[i]).dims.empty() && rests_below(compute.inputs[i]))
          return Tier::kHost;
      }
      return Tier::kDevice;
    }
    // A cast to a narrower type is computed on the host if its tensor rests there, so that the copy
    // to the device moves fewer bytes.
    const bool narrows = info_of(op).converts && dtype_bytes(graph_.tensor(op.outputs[0]).dtype) <
                                                     dtype_bytes(graph_.tensor(op.inputs[0]).dtype);
    const bool rests = narrows && buffer_rests(compute.inputs[0].buffer);
    return rests && rests_below(compute.inputs[0]) ? Tier::kHost : Tier::kDevice;
  }
  bool buffer_rests(int index) const {
    return text_.buffers[static_cast<size_t>(index)].persistent;
  }

  // Moves buffers to the host tier that only ops on the host write. Moves buffers to the device
  // that are made and read inside one block, because such a tensor does not rest in a tier.
  void place_buffers() {
    const size_t n = text_.buffers.size();
    std::vector<std::set<BlockRef>> blocks(n);
    std::vector<bool> on_host(n, false), elsewhere(n, false);
    const auto touch = [&](int index, BlockRef ref) {
      blocks[static_cast<size_t>(index)].insert(ref);
    };
    for (const TextHome& fetch : text_.fetches) touch(fetch.buffer, BlockKind::kUpdate);
    for (const auto& [ref, block] : text_.blocks) {
      for (const TextInstruction& instruction : block) {
        const auto* compute = std::get_if<TextCompute>(&instruction.body);
        for_each_view(instruction, [&, here = ref](const TextView& view, bool writes) {
          touch(view.buffer, here);
          if (!writes) return;
          const bool host = compute != nullptr && op_tier(*compute) == Tier::kHost;
          (host ? on_host : elsewhere)[static_cast<size_t>(view.buffer)] = true;
        });
      }
    }
    for (size_t i = 0; i < n; ++i) {
      TextBuffer& b = text_.buffers[i];
      if (b.persistent) continue;
      if (on_host[i] && !elsewhere[i]) {
        b.tier = Tier::kHost;
      } else if (blocks[i].size() < 2) {
        b.tier = Tier::kDevice;
      }
    }
  }

  template <class Visit>
  static void for_each_view(const TextInstruction& instruction, const Visit& visit) {
    accesses(instruction, [&](const TextAccess& access) {
      visit(*access.view, access.mode != AccessMode::kRead);
    });
  }

  // ---- what stays
  // Chooses the tensors that stay on the device from one block to the next. Together they have at
  // most the plan's `resident_bytes`. Within a block there is nothing to choose: a block copies a
  // tensor at rest only once, because its later reads find the copy. With one micro-batch, the
  // chosen tensors are those that the backward pass uses first, which are those that the forward
  // pass uses last. With more micro-batches the same tensors are kept for the whole step, because
  // no other choice saves more copies if all tensors have the same size (docs/adr/0016-tiers.md).
  void choose_residents() {
    std::vector<std::pair<Key, TensorId>> uses;  // by first use
    for (const auto& [ref, block] : text_.blocks) {
      if (ref.kind != BlockKind::kForward || plan_.plan.resident_bytes == 0) continue;
      for (const TextInstruction& instruction : block) {
        for_each_read(instruction, [&](const TextView& view, TensorId tensor) {
          const Key key = key_of(view, Tier::kDevice);
          const bool candidate = instruction.when == When::kAlways && buffer_rests(view.buffer) &&
                                 tier_of(view.buffer) != Tier::kDevice &&
                                 kept(tensor) == Keep::kBlock;
          const auto same = [&](const auto& use) { return use.first == key; };
          if (candidate) {
            std::erase_if(uses, same);
            uses.emplace_back(key, tensor);
          }
        });
      }
    }
    int64_t left = plan_.plan.resident_bytes;
    const std::vector<int64_t> origin(text_.mesh.axes.size(), 0);
    for (auto use = uses.rbegin(); use != uses.rend(); ++use) {
      const auto& [key, tensor] = *use;
      const int64_t bytes =
          evaluate(key.region, text_.mesh, shapes_.shape(tensor), origin).volume() *
          dtype_bytes(buffer(key.buffer).dtype);
      if (bytes > left) continue;
      left -= bytes;
      residents_.push_back(key);
    }
  }

  // Calls visit(view, tensor) for all that the instruction reads, if it works on the device.
  template <class Visit>
  void for_each_read(const TextInstruction& instruction, const Visit& visit) const {
    match(
        instruction,
        [&](const TextCompute& compute) {
          if (op_tier(compute) != Tier::kDevice) return;
          const Op& op = graph_.op(compute.op);
          for (size_t i = 0; i < op.inputs.size(); ++i) visit(compute.inputs[i], op.inputs[i]);
        },
        [&](const TextIssue& issue) {
          for (const TextTransfer& transfer : issue.transfers)
            visit(transfer.from, transfer.tensor);
          if (!issue.named) return;
          for (const TextView& ids : issue.named->ids)
            visit(ids, text_.buffers[static_cast<size_t>(ids.buffer)].tensor);
        },
        [](const OneOf<TextCross, TextWait, TextCopy, TextLoad> auto&) {});
  }

  // ---- a block
  void rewrite(BlockRef ref, std::vector<TextInstruction>& block) {
    ref_ = ref;
    out_.clear();
    staged_.clear();
    find_last_writes(block);
    for (at_ = 0; at_ < block.size(); ++at_) {
      arrive(ref);
      TextInstruction instruction = std::move(block[at_]);
      when_ = instruction.when;
      cause_ = instruction.cause;
      std::visit([&](auto& body) { stage(instruction, body); }, instruction.body);
    }
    arrive(ref);
    rewritten_.insert(ref);
    arrive_before_others();
    when_ = When::kAlways;
    if (ref.kind == BlockKind::kPrologue) {
      for (const Staged& kept : for_step_) copy_up(kept, false);
    }
    block = issue_ahead(block.size());
  }

  static Key key_of(const TextView& view, Tier tier) {
    Key key{view.buffer, view.region, tier};
    key.region.layout.own().partial.clear();
    key.region.layout.own().combiner = Combiner::kSum;
    return key;
  }

  void find_last_writes(const std::vector<TextInstruction>& block) {
    last_writes_.clear();
    for (size_t i = 0; i < block.size(); ++i) {
      const auto* compute = std::get_if<TextCompute>(&block[i].body);
      if (compute == nullptr) continue;
      const Tier tier = op_tier(*compute);
      for (const TextOutput& output : compute->outputs) {
        if (tier_of(output.view.buffer) == tier) continue;
        const Key key = key_of(output.view, tier);
        auto& writes = last_writes_[key.buffer];
        const auto it = std::find_if(writes.begin(), writes.end(),
                                     [&](const auto& write) { return write.first == key; });
        if (it == writes.end()) {
          writes.emplace_back(key, i);
        } else {
          it->second = i;
        }
      }
    }
  }
  bool is_last_write(const Key& key) const {
    for (const auto& [written, position] : last_writes_.at(key.buffer)) {
      if (written == key) return position == at_;
    }
    return true;
  }

  // ---- emission
  void emit(TextInstruction instruction, bool inserted = true, bool ahead = false) {
    out_.push_back({std::move(instruction), at_, ahead, inserted});
  }
  void copy(TensorId tensor, const TextView& from, const TextView& to, Write write,
            bool ahead = false) {
    arrivals_[to.buffer].push_back(next_handle_);
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
    out.key = key_of(view, tier);
    out.tensor = tensor;
    out.buffer = static_cast<int>(text_.buffers.size()) - 1;
    out.when = when_;
    return out;
  }

  Staged* find(std::deque<Staged>& all, const Key& key) {
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

  Keep kept(TensorId tensor) const {
    return plan_.tensors[tensor.index()].keep.value_or(Keep::kBlock);
  }
  Keep keep_of(const Key& key, TensorId tensor) const {
    const bool rests = buffer_rests(key.buffer) && !ref_.once() && when_ == When::kAlways;
    if (!rests) return Keep::kBlock;
    if (std::find(residents_.begin(), residents_.end(), key) == residents_.end())
      return kept(tensor);
    return plan_.plan.micro_batches > 1 ? Keep::kStep : Keep::kMicroBatch;
  }

  // Returns the buffer of the tier from which the view is to be read. Adds a copy to a staging
  // buffer if there is none with the value.
  int staged_for_reading(const TextView& view, Tier tier, TensorId tensor) {
    const Key key = key_of(view, tier);
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
    if (tier_of(view.buffer) == tier) {
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
    const Key key = key_of(view, tier);
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
    if (tier_of(rests) == tier) {
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
    const Tier tier = op_tier(compute);
    for (size_t i = 0; i < compute.inputs.size(); ++i) read(compute.inputs[i], tier, op.inputs[i]);
    std::vector<Key> done;
    for (TextOutput& output : compute.outputs) {
      const Key key = key_of(output.view, tier);
      if (write(output, tier) && is_last_write(key)) done.push_back(key);
    }
    emit(std::move(instruction), false);
    for (const Key& key : done) flush(key.buffer);
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
        for (const int handle : arrivals_[rests]) text_.due.try_emplace(handle, instruction.order);
      }
    } else {
      land(own, cross.tensor, cross.handle);
    }
    emit(std::move(instruction), false);
  }

  // Directs a value that arrives under `handle` to a staging buffer on the device, if `to` rests in
  // another tier. arrive() later copies the value to the buffer at rest.
  void land(TextView& to, TensorId tensor, int handle) {
    flush(to.buffer);
    if (tier_of(to.buffer) == Tier::kDevice) return forget(to.buffer, nullptr);
    const TextView rests = to;
    Staged& staged = staged_for_writing(to, Tier::kDevice, tensor);
    to.buffer = staged.buffer;
    arriving_[handle].push_back({tensor, to, rests, when_, cause_});
    forget(rests.buffer, &staged);
  }

  // Copies arrived values to their buffers at rest: those that the present instruction is the first
  // to need. They have arrived, because they are awaited before this instruction.
  void arrive(BlockRef ref) {
    const auto& ends = ends_[ref];
    for (auto end = ends.lower_bound(at_); end != ends.upper_bound(at_); ++end) {
      const auto arrived = arriving_.extract(end->second.handle);
      if (!arrived) continue;
      when_ = end->second.when;
      cause_ = end->second.cause;
      for (const Arriving& one : arrived.mapped()) copy(one.tensor, one.from, one.to, Write::kSet);
    }
  }

  // Copies arrived values to their buffers at rest at the end of this block: those that are first
  // needed in a block that runs later but was rewritten before this block.
  void arrive_before_others() {
    std::erase_if(arriving_, [&](const auto& arriving) {
      const auto needed = needed_in_.find(arriving.first);
      if (needed == needed_in_.end() || !rewritten_.contains(needed->second)) return false;
      for (const Arriving& one : arriving.second) {
        when_ = one.when;
        cause_ = one.cause;
        copy(one.tensor, one.from, one.to, Write::kSet);
      }
      return true;
    });
  }

  void stage(TextInstruction& instruction, TextWait&) { emit(std::move(instruction), false); }

  void stage(TextInstruction& instruction, TextCopy& body) {
    flush(body.from.buffer);
    flush(body.to.buffer);
    forget(body.to.buffer, nullptr);
    const Tier from = tier_of(body.from.buffer), to = tier_of(body.to.buffer);
    if (from == to && from != Tier::kDisk) return emit(std::move(instruction), false);
    copy(body.tensor, body.from, body.to, body.write);
  }

  void stage(TextInstruction& instruction, TextLoad&) { emit(std::move(instruction), false); }

  // ---- issuing ahead
  // Returns, for each position of an instruction, the position at which copies for this instruction
  // are issued. This is the beginning of an earlier unit (prefetch.h), or, without units, the
  // position of the reader before this one.
  std::vector<size_t> issue_positions(size_t size) const {
    std::vector<bool> reads(size + 1, false);
    for (const TieredItem& item : out_) reads[item.origin] = reads[item.origin] || item.ahead;
    std::vector<size_t> positions(size + 1, 0);
    size_t before = 0;
    for (size_t i = 0; i <= size; ++i) {
      positions[i] = before;
      if (reads[i]) before = i;
    }
    if (!plan_.plan.prefetch || ref_.once()) return positions;
    const auto ahead = static_cast<size_t>(plan_.plan.prefetch->ahead);
    const Glob glob(plan_.plan.prefetch->units);
    std::vector<std::pair<std::string, size_t>> runs;
    for (const TieredItem& item : out_) {
      if (item.inserted) continue;
      const auto* issue = std::get_if<TextIssue>(&item.instruction.body);
      const bool moved = issue != nullptr && issue->unit >= 0;
      const OpId cause = item.instruction.cause;
      const std::string unit = cause.valid() ? unit_of(glob, graph_.op(cause).path) : "";
      if (!moved && !unit.empty() && (runs.empty() || runs.back().first != unit))
        runs.emplace_back(unit, item.origin);
      if (runs.empty() || (!moved && unit.empty())) continue;
      // A collective that was moved ahead is just before the first instruction of a unit. Its
      // copies are issued one unit earlier still.
      const size_t back = std::min(moved ? 0 : ahead, runs.size() - 1);
      positions[item.origin] = std::min(item.origin, runs[runs.size() - 1 - back].second);
    }
    return positions;
  }

  static bool writes(const TextInstruction& instruction, int buffer) {
    bool found = false;
    for_each_view(instruction, [&](const TextView& view, bool writing) {
      found = found || (writing && view.buffer == buffer);
    });
    return found;
  }

  std::vector<TextInstruction> issue_ahead(size_t size) {
    const std::vector<size_t> positions = issue_positions(size);
    std::vector<std::pair<size_t, int>> target(out_.size());
    for (size_t i = 0; i < out_.size(); ++i) {
      target[i] = {i, 1};
      if (!out_[i].ahead) continue;
      const int source = std::get<TextCopy>(out_[i].instruction.body).from.buffer;
      size_t to = i;
      while (to > 0 && out_[to - 1].origin >= positions[out_[i].origin] &&
             !writes(out_[to - 1].instruction, source)) {
        --to;
      }
      // If the instruction before writes the source and is still under way, the copy stays, because
      // it would wait there.
      const bool travels = to > 0 && writes(out_[to - 1].instruction, source) &&
                           handle_of(out_[to - 1].instruction) >= 0;
      target[i] = {travels ? i : to, 0};
    }
    std::vector<size_t> order(out_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return target[a] < target[b]; });
    std::vector<TextInstruction> text;
    for (size_t i : order) text.push_back(std::move(out_[i].instruction));
    // An inserted instruction gets the order of writing of the instruction that follows it.
    for (size_t i = order.size(); i-- > 0;) {
      if (!out_[order[i]].inserted) continue;
      text[i].order =
          i + 1 < order.size() ? text[i + 1].order : std::numeric_limits<int64_t>::max();
    }
    return text;
  }

  struct Arriving {
    TensorId tensor;
    TextView from, to;
    When when = When::kAlways;
    OpId cause;
  };

  PlaceText& text_;
  const Graph& graph_;
  const ShapeRule& shapes_;
  const ResolvedPlan& plan_;
  const BlockOrder& order_;
  int& next_handle_;
  std::vector<Key> residents_;  // the parts that stay on the device from one use to the next
  BlockRef ref_;
  size_t at_ = 0;
  When when_ = When::kAlways;
  OpId cause_;
  std::vector<TieredItem> out_;
  std::deque<Staged> staged_;  // in this block
  std::deque<Staged> for_step_;
  std::map<int32_t, std::deque<Staged>> for_micro_batch_;
  ByBlock<std::multimap<size_t, Need>> ends_;  // by position: handles that are first needed there
  std::map<int, BlockRef> needed_in_;          // by handle: the block that needs it first
  std::set<BlockRef> rewritten_;
  std::map<int, std::vector<Arriving>> arriving_;  // by handle
  std::map<int, std::vector<int>> arrivals_;       // by buffer: handles of copies into it
  std::map<int, std::vector<std::pair<Key, size_t>>> last_writes_;  // by buffer
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
