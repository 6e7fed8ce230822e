#include "tessera/program/copies/copied_stages.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "tessera/program/copies/text_comparison.h"
#include "tessera/program/memory/touches.h"

namespace tessera {
namespace {

// A `Side` says with which place a message of the original is exchanged: with the place before it,
// with the place after it, or with a far place (any other). A far place only sends to the original.
enum class Side : uint8_t { kBefore, kBehind, kFar };

// A `Message` describes a message between neighbours or from a far place to the original. The
// messages between two neighbours correspond to those between the original and the place after the
// copies, so `tensor` and `number` are those of the latter.
struct Message {
  Side side = Side::kBehind;
  TensorId tensor;
  int64_t number = 0;  // counts the messages between neighbours, or those from far places
};

// A `Comparison` compares the text of the original with that of the place before it, and notes its
// messages.
class Comparison final : public TextComparison {
 public:
  struct Beside {  // a place and its two neighbours
    PlaceId before, here, behind;
  };
  Comparison(const PlaceTexts& in, Beside a, Beside b) : in_(in), a_(a), b_(b) {}

  // Compares the texts of the two places. a, b: the ops of the two places, in corresponding order.
  bool run(const std::vector<OpId>& a, const std::vector<OpId>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      ops_[a[i]] = b[i];
      const Op &x = in_.graph->op(a[i]), &y = in_.graph->op(b[i]);
      for (size_t k = 0; k < x.inputs.size(); ++k) tensors_.emplace(x.inputs[k], y.inputs[k]);
      for (size_t k = 0; k < x.outputs.size(); ++k) tensors_.emplace(x.outputs[k], y.outputs[k]);
    }
    return TextComparison::run((*in_.texts)[a_.here.index()], (*in_.texts)[b_.here.index()]);
  }

  const std::map<int64_t, Message>& messages() const { return messages_; }  // by tag
  // Numbers of messages between the original and the next place, and from far places.
  int64_t crossing() const { return crossing_; }
  int64_t far() const { return far_; }

 private:
  bool same(TensorId a, TensorId b) const override {
    const auto found = tensors_.find(a);
    return found != tensors_.end() ? found->second == b : a == b;
  }
  bool same(OpId a, OpId b) const override {
    const auto found = ops_.find(a);
    return found != ops_.end() && found->second == b;
  }
  bool same(const TextCross& a, const TextCross& b) override {
    if (!same(a.tensor, b.tensor)) return false;
    const PlaceId from_a = a.sends ? a.to_place : a.from_place,
                  from_b = b.sends ? b.to_place : b.from_place;
    if (from_a == a_.before && from_b == b_.before) {
      // Tensor and number are set when the other end of this message is compared, below.
      messages_[b.tag].side = Side::kBefore;
      return true;
    }
    if (from_a == a_.behind && from_b == b_.behind) {
      messages_[b.tag] = {Side::kBehind, b.tensor, crossing_};
      Message& before = messages_[a.tag];
      before.tensor = b.tensor;
      before.number = crossing_++;
      return true;
    }
    if (from_a != from_b || b.sends) return false;
    messages_[b.tag] = {Side::kFar, b.tensor, far_++};
    return true;
  }

  const PlaceTexts& in_;
  Beside a_, b_;
  std::map<TensorId, TensorId> tensors_;
  std::map<OpId, OpId> ops_;
  std::map<int64_t, Message> messages_;
  int64_t crossing_ = 0, far_ = 0;
};

class Copier {
 public:
  Copier(const PlaceTexts& in, const CopiedPlaces& copied, int next_handle)
      : in_(in), copied_(copied), next_handle_(next_handle) {}

  bool run() {
    if (copied_.original.value < 2 || !run_blocks_alike()) return false;
    const auto ops = ops_by_place(*in_.graph, *in_.plan);
    const PlaceId original = copied_.original, before = moved(original, -1);
    Comparison comparison(in_, {moved(original, -2), before, original},
                          {before, original, copied_.next()});
    if (!comparison.run(ops[before.index()], ops[original.index()])) return false;
    messages_ = comparison.messages();
    crossing_ = comparison.crossing();
    far_ = comparison.far();
    for (const PlaceText& text : *in_.texts) {
      for (const auto& [ref, block] : text.blocks) {
        for (const TextInstruction& instruction : block) {
          if (const auto* cross = std::get_if<TextCross>(&instruction.body))
            first_tag_ = std::max(first_tag_, cross->tag + 1);
        }
      }
    }
    for (PlaceText& text : *in_.texts) {
      if (&text == &this->text(original)) continue;
      for (auto& [ref, block] : text.blocks) {
        if (!send_to_copies(block)) return false;
      }
    }
    for (int32_t k = 1; k <= copied_.count; ++k) write_copy(k);
    const PlaceId next = copied_.next();
    for (auto& [ref, block] : text(next).blocks)
      connect_neighbour(block, next, moved(next, -1), copied_.count);
    for (auto& [ref, block] : text(original).blocks)
      connect_neighbour(block, original, moved(original, 1), 0);
    return true;
  }

 private:
  static PlaceId moved(PlaceId place, int32_t by) { return PlaceId(place.value + by); }
  PlaceText& text(PlaceId place) { return (*in_.texts)[place.index()]; }
  const std::vector<StageId>& stages(PlaceId place) const {
    return in_.plan->places[place.index()].stages;
  }

  // Returns whether the original, the place before it and the copies run their blocks in the same
  // order. Only pairs of blocks that meet (blocks_that_meet) are compared, because passes do not
  // ask for the order of other pairs.
  bool run_blocks_alike() const {
    const PlaceId original = copied_.original;
    const BlockOrder& there = (*in_.orders)[original.index()];
    const std::vector<BlockRef> blocks_there = blocks(original);
    const std::vector<size_t> meets = blocks_that_meet(blocks_there);
    for (PlaceId place = moved(original, -1); place <= copied_.last(); place = moved(place, 1)) {
      if (place == original) continue;
      const BlockOrder& here = (*in_.orders)[place.index()];
      const std::vector<BlockRef> blocks_here = blocks(place);
      for (size_t a = 0; a < blocks_here.size(); ++a) {
        if (here.position(blocks_here[a]) != there.position(blocks_there[a])) return false;
        for (size_t b = 0; b < blocks_here.size(); ++b) {
          const bool asked = meets[a] == meets[b];
          if (asked && here.always_before(blocks_here[a], blocks_here[b]) !=
                           there.always_before(blocks_there[a], blocks_there[b])) {
            return false;
          }
        }
      }
    }
    return true;
  }
  // Returns a number for each block of the original. Blocks have equal numbers if they touch the
  // same buffer, or if each touches a buffer that the same third block touches.
  std::vector<size_t> blocks_that_meet(const std::vector<BlockRef>& refs) const {
    const PlaceText& text = (*in_.texts)[copied_.original.index()];
    std::vector<size_t> meets(refs.size());
    std::iota(meets.begin(), meets.end(), size_t{0});
    std::vector<std::optional<size_t>> touched_by(text.buffers.size());
    for (size_t b = 0; b < refs.size(); ++b) {
      const auto block = text.blocks.find(refs[b]);
      if (block == text.blocks.end()) continue;
      for (const TextInstruction& instruction : block->second) {
        accesses(instruction, [&](const TextAccess& access) {
          auto& other = touched_by[static_cast<size_t>(access.view->buffer)];
          if (!other) other = b;
          const size_t from = meets[*other], to = meets[b];
          std::ranges::replace(meets, from, to);
        });
      }
    }
    return meets;
  }
  std::vector<BlockRef> blocks(PlaceId place) const {
    std::vector<BlockRef> out;
    for (const StageId stage : stages(place)) {
      for (const BlockKind kind : {BlockKind::kForward, BlockKind::kBackward, BlockKind::kWeight})
        out.emplace_back(kind, stage.value);
    }
    return out;
  }

  // Changes `cross`, a message that the original or the place after the copies exchanges with its
  // neighbour, into the corresponding message of place `here` with place `other`. The two places
  // are copy number `pair` (0 is the original) and the place after it.
  void connect(TextCross& cross, PlaceId here, PlaceId other, int64_t pair) const {
    const Message& message = messages_.at(cross.tag);
    cross.from_place = cross.sends ? here : other;
    cross.to_place = cross.sends ? other : here;
    cross.tensor = message.tensor;
    cross.tag = first_tag_ + pair * crossing_ + message.number;
  }
  // Changes `cross`, a message from a far place to the original, into the message from that far
  // place to copy number k.
  void connect_far(TextCross& cross, int32_t k) const {
    const Message& message = messages_.at(cross.tag);
    cross.to_place = moved(copied_.original, k);
    cross.tag = first_tag_ + (copied_.count + 1) * crossing_ + (k - 1) * far_ + message.number;
  }

  void write_copy(int32_t k) {
    const PlaceId place = moved(copied_.original, k);
    PlaceText& out = text(place);
    const PlaceText& from = text(copied_.original);
    out.mesh = in_.plan->places[place.index()].mesh;
    out.buffers = from.buffers;
    out.homes = from.homes;
    std::map<int, int> handles;
    const auto own = [&](int handle) {
      const auto [it, fresh] = handles.try_emplace(handle, next_handle_);
      next_handle_ += fresh ? 1 : 0;
      return it->second;
    };
    for (const auto& [ref, block] : from.blocks) {
      auto& copy = out.blocks[block_at(place, ref)];
      copy = block;
      for (TextInstruction& instruction : copy) {
        match(
            instruction,
            [&](OneOf<TextIssue, TextWait, TextCopy> auto& body) {
              if (body.handle >= 0) body.handle = own(body.handle);
            },
            [&](TextCross& cross) {
              cross.handle = own(cross.handle);
              switch (messages_.at(cross.tag).side) {
                case Side::kBefore: connect(cross, place, moved(place, -1), k - 1); break;
                case Side::kBehind: connect(cross, place, moved(place, 1), k); break;
                case Side::kFar: connect_far(cross, k); break;
              }
            },
            [](OneOf<TextCompute, TextLoad> auto&) {});
      }
    }
  }

  // Returns the block of `place` that corresponds to the block `ref` of the original.
  BlockRef block_at(PlaceId place, BlockRef ref) const {
    if (ref.once()) return ref;
    const std::vector<StageId>& there = stages(copied_.original);
    const auto chunk = std::ranges::find(there, StageId(ref.chunk)) - there.begin();
    return {ref.kind, stages(place)[static_cast<size_t>(chunk)].value};
  }

  // Adds, to a block of a far place, the messages to the copies right after the messages to the
  // original. Returns false if there are other instructions between the messages to the original,
  // because it is then unknown where the messages to the copies belong.
  bool send_to_copies(std::vector<TextInstruction>& block) {
    const auto is_far = [&](const TextInstruction& one) { return side_of(one) == Side::kFar; };
    const auto first = std::ranges::find_if(block, is_far);
    const auto end = std::find_if_not(first, block.end(), is_far);
    if (std::any_of(end, block.end(), is_far)) return false;
    std::vector<TextInstruction> copies;
    for (int32_t k = 1; k <= copied_.count; ++k) {
      for (auto sent = first; sent != end; ++sent) {
        copies.push_back(*sent);
        auto& cross = std::get<TextCross>(copies.back().body);
        cross.handle = next_handle_++;
        connect_far(cross, k);
      }
    }
    block.insert(end, copies.begin(), copies.end());
    return true;
  }
  // Directs the messages of the block, which the original and the place after the copies exchange
  // in the shorter graph, to `other`, the true neighbour of place `here`.
  void connect_neighbour(std::vector<TextInstruction>& block, PlaceId here, PlaceId other,
                         int64_t pair) const {
    for (TextInstruction& instruction : block) {
      if (side_of(instruction) == Side::kBehind)
        connect(std::get<TextCross>(instruction.body), here, other, pair);
    }
  }
  // Returns the side of a message of the original or of its counterpart at another place; nothing
  // if the instruction is no such message.
  std::optional<Side> side_of(const TextInstruction& instruction) const {
    const auto* cross = std::get_if<TextCross>(&instruction.body);
    const auto found = cross == nullptr ? messages_.end() : messages_.find(cross->tag);
    return found == messages_.end() ? std::nullopt : std::optional(found->second.side);
  }

  const PlaceTexts& in_;
  const CopiedPlaces copied_;
  int next_handle_;
  std::map<int64_t, Message> messages_;
  int64_t crossing_ = 0, far_ = 0, first_tag_ = 0;
};

}  // namespace

bool copy_places(const PlaceTexts& in, const CopiedPlaces& copied, int next_handle) {
  return Copier(in, copied, next_handle).run();
}

}  // namespace tessera
