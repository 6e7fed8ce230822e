#include "tessera/program/copied_stages.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "tessera/program/touches.h"

namespace tessera {
namespace {

bool alike(const TextView& a, const TextView& b) {
  return a.buffer == b.buffer && a.region == b.region;
}

// Where a message of the original goes to or comes from. A far stage only sends.
enum class Side : uint8_t { kBefore, kBehind, kFar };

// A message between stages that follow one another, as it is called between the original and the stage
// behind the copies; or one from a far stage to the original.
struct Message {
  Side side = Side::kBehind;
  TensorId tensor;
  int64_t number = 0;  // among those of its kind
};

// Compares the text of the original with that of the stage before it, and notes its messages.
class Comparison {
 public:
  // Places: of the stage before each of the two, of the stage, of the stage behind it.
  struct Beside {
    PlaceId before, here, behind;
  };
  Comparison(const StageTexts& in, Beside a, Beside b) : in_(in), a_(a), b_(b) {}

  bool run(const std::vector<OpId>& a, const std::vector<OpId>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      ops_[a[i]] = b[i];
      const Op &x = in_.graph->op(a[i]), &y = in_.graph->op(b[i]);
      for (size_t k = 0; k < x.inputs.size(); ++k) tensors_.emplace(x.inputs[k], y.inputs[k]);
      for (size_t k = 0; k < x.outputs.size(); ++k) tensors_.emplace(x.outputs[k], y.outputs[k]);
    }
    const PlaceText &x = text(a_.here), &y = text(b_.here);
    const auto same_home = [&](const TextHome& p, const TextHome& q) {
      return p.buffer == q.buffer && same(p.tensor, q.tensor);
    };
    const auto same_block = [&](const auto& p, const auto& q) {
      return p.first.kind == q.first.kind && equal(p.second, q.second);
    };
    return x.fetches.empty() && y.fetches.empty() && equal(x.buffers, y.buffers) &&
           std::ranges::equal(x.homes, y.homes, same_home) &&
           std::ranges::equal(x.blocks, y.blocks, same_block);
  }

  const std::map<int64_t, Message>& messages() const { return messages_; }  // by tag
  int64_t crossing() const { return crossing_; }                            // from stage to stage
  int64_t far() const { return far_; }

 private:
  const PlaceText& text(PlaceId place) const { return (*in_.texts)[place.index()]; }

  bool same(TensorId a, TensorId b) const {
    const auto found = tensors_.find(a);
    return found != tensors_.end() ? found->second == b : a == b;
  }
  bool same(OpId a, OpId b) const {
    const auto found = ops_.find(a);
    return found != ops_.end() && found->second == b;
  }
  bool same(int a, int b) { return handles_.try_emplace(a, b).first->second == b; }

  template <class T>
  bool equal(const std::vector<T>& a, const std::vector<T>& b) {
    return std::ranges::equal(a, b, [&](const T& x, const T& y) { return equal(x, y); });
  }
  bool equal(const TextBuffer& a, const TextBuffer& b) {
    return same(a.tensor, b.tensor) && a.region == b.region && a.dtype == b.dtype &&
           a.tier == b.tier && a.persistent == b.persistent && a.accumulates == b.accumulates &&
           a.slots == b.slots;
  }
  bool equal(const TextView& a, const TextView& b) { return alike(a, b); }
  bool equal(const TextOutput& a, const TextOutput& b) {
    return alike(a.view, b.view) && same(a.tensor, b.tensor) && a.write == b.write &&
           a.term == b.term && a.terms == b.terms;
  }
  bool equal(const TextTransfer& a, const TextTransfer& b) {
    return same(a.tensor, b.tensor) && alike(a.from, b.from) && alike(a.to, b.to);
  }

  // The op for which something is done may be one of the next stage.
  bool equal(const TextInstruction& a, const TextInstruction& b) {
    return a.when == b.when && a.body.index() == b.body.index() &&
           match(a, [&](const OneOf<TextCompute, TextIssue, TextCross, TextWait, TextCopy,
                                    TextLoad> auto& body) {
             return equal(body, std::get<std::decay_t<decltype(body)>>(b.body));
           });
  }
  bool equal(const TextCompute& a, const TextCompute& b) {
    return same(a.op, b.op) && a.step == b.step && equal(a.inputs, b.inputs) &&
           equal(a.outputs, b.outputs);
  }
  // Rows that ids name are of one matrix, which no other stage has.
  bool equal(const TextIssue& a, const TextIssue& b) {
    return same(a.handle, b.handle) && a.kind == b.kind && a.classify == b.classify &&
           a.axes == b.axes && a.combiner == b.combiner && a.compression == b.compression &&
           !a.named && !b.named && equal(a.transfers, b.transfers);
  }
  // Planned routes name ranks.
  bool equal(const TextCross& a, const TextCross& b) {
    const TextView &own_a = a.sends ? a.from : a.to, &own_b = b.sends ? b.from : b.to;
    return a.sends == b.sends && same(a.handle, b.handle) && same(a.tensor, b.tensor) &&
           own_a.buffer == own_b.buffer && a.from.region == b.from.region &&
           a.to.region == b.to.region && !a.routes && !b.routes && !a.smaller_routes &&
           !b.smaller_routes && note(a, b);
  }
  bool equal(const TextWait& a, const TextWait& b) {
    return same(a.handle, b.handle) && a.lag == b.lag;
  }
  bool equal(const TextCopy& a, const TextCopy& b) {
    return same(a.tensor, b.tensor) && alike(a.from, b.from) && alike(a.to, b.to) &&
           a.write == b.write && (a.handle < 0) == (b.handle < 0) &&
           (a.handle < 0 || same(a.handle, b.handle));
  }
  bool equal(const TextLoad& a, const TextLoad& b) {
    return same(a.tensor, b.tensor) && alike(a.to, b.to);
  }

  bool note(const TextCross& a, const TextCross& b) {
    const PlaceId from_a = a.sends ? a.to_place : a.from_place,
                  from_b = b.sends ? b.to_place : b.from_place;
    if (from_a == a_.before && from_b == b_.before) {
      messages_[b.tag].side = Side::kBefore;  // the rest is known of it as the other's
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

  const StageTexts& in_;
  Beside a_, b_;
  std::map<TensorId, TensorId> tensors_;
  std::map<OpId, OpId> ops_;
  std::map<int, int> handles_;
  std::map<int64_t, Message> messages_;
  int64_t crossing_ = 0, far_ = 0;
};

class Copier {
 public:
  Copier(const StageTexts& in, const CopiedStages& copied, int next_handle)
      : in_(in), copied_(copied), next_handle_(next_handle) {}

  bool run() {
    if (copied_.original.value < 2 || !run_blocks_alike()) return false;
    const auto ops = ops_by_stage(*in_.graph, *in_.plan);
    const int32_t original = copied_.original.value;
    Comparison comparison(in_, {place(original - 2), place(original - 1), place(original)},
                          {place(original - 1), place(original), place(copied_.next().value)});
    if (!comparison.run(ops[copied_.original.index() - 1], ops[copied_.original.index()]))
      return false;
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
    const int32_t next = copied_.next().value;
    for (auto& [ref, block] : text(next).blocks)
      connect_neighbour(block, next, next - 1, copied_.count);
    for (auto& [ref, block] : text(original).blocks)
      connect_neighbour(block, original, original + 1, 0);
    return true;
  }

 private:
  PlaceId place(int32_t stage) const { return in_.plan->stages[static_cast<size_t>(stage)].place; }
  PlaceText& text(int32_t stage) { return (*in_.texts)[place(stage).index()]; }

  // The stages run their blocks in one order.
  bool run_blocks_alike() const {
    constexpr std::array kKinds{BlockKind::kForward, BlockKind::kBackward, BlockKind::kWeight};
    const int32_t original = copied_.original.value;
    const BlockOrder& there = (*in_.orders)[place(original).index()];
    for (int32_t stage = original - 1; stage <= copied_.last().value; ++stage) {
      const BlockOrder& here = (*in_.orders)[place(stage).index()];
      for (const BlockKind a : kKinds) {
        if (here.position({a, stage}) != there.position({a, original})) return false;
        for (const BlockKind b : kKinds) {
          if (here.always_before({a, stage}, {b, stage}) !=
              there.always_before({a, original}, {b, original})) {
            return false;
          }
        }
      }
    }
    return true;
  }

  // The message, of the original or of a stage beside it, becomes one between these stages: that of copy
  // number `pair`, where the original is number 0, and the stage behind it.
  void connect(TextCross& cross, int32_t stage, int32_t other, int64_t pair) const {
    const Message& message = messages_.at(cross.tag);
    cross.from_place = place(cross.sends ? stage : other);
    cross.to_place = place(cross.sends ? other : stage);
    cross.tensor = message.tensor;
    cross.tag = first_tag_ + pair * crossing_ + message.number;
  }
  // It becomes what a far stage sends to copy number k.
  void connect_far(TextCross& cross, int32_t k) const {
    const Message& message = messages_.at(cross.tag);
    cross.to_place = place(copied_.original.value + k);
    cross.tag = first_tag_ + (copied_.count + 1) * crossing_ + (k - 1) * far_ + message.number;
  }

  void write_copy(int32_t k) {
    const int32_t stage = copied_.original.value + k;
    PlaceText& out = text(stage);
    const PlaceText& from = text(copied_.original.value);
    out.mesh = in_.plan->stages[static_cast<size_t>(stage)].mesh;
    out.buffers = from.buffers;
    out.homes = from.homes;
    std::map<int, int> handles;
    const auto own = [&](int handle) {
      const auto [it, fresh] = handles.try_emplace(handle, next_handle_);
      next_handle_ += fresh ? 1 : 0;
      return it->second;
    };
    for (const auto& [ref, block] : from.blocks) {
      auto& copy = out.blocks[ref.once() ? ref : BlockRef(ref.kind, stage)];
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
                case Side::kBefore: connect(cross, stage, stage - 1, k - 1); break;
                case Side::kBehind: connect(cross, stage, stage + 1, k); break;
                case Side::kFar: connect_far(cross, k); break;
              }
            },
            [](OneOf<TextCompute, TextLoad> auto&) {});
      }
    }
  }

  // Where a far stage sends messages to the original, it sends the same messages to each copy right
  // behind them. Returns false if other instructions stand between the messages to the original,
  // because then it is unknown where the messages to the copies belong.
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
  // Directs the messages of the stage in this block to stage `other`, its neighbour since there are
  // copies.
  void connect_neighbour(std::vector<TextInstruction>& block, int32_t stage, int32_t other,
                         int64_t pair) const {
    for (TextInstruction& instruction : block) {
      if (side_of(instruction) == Side::kBehind)
        connect(std::get<TextCross>(instruction.body), stage, other, pair);
    }
  }
  // On which side the message goes or comes, if the instruction is a message of the original.
  std::optional<Side> side_of(const TextInstruction& instruction) const {
    const auto* cross = std::get_if<TextCross>(&instruction.body);
    const auto found = cross == nullptr ? messages_.end() : messages_.find(cross->tag);
    return found == messages_.end() ? std::nullopt : std::optional(found->second.side);
  }

  const StageTexts& in_;
  const CopiedStages copied_;
  int next_handle_;
  std::map<int64_t, Message> messages_;
  int64_t crossing_ = 0, far_ = 0, first_tag_ = 0;
};

}  // namespace

bool copy_stages(const StageTexts& in, const CopiedStages& copied, int next_handle) {
  return Copier(in, copied, next_handle).run();
}

}  // namespace tessera
