#include "tessera/program/copies/text_comparison.h"

#include <algorithm>

#include "tessera/program/memory/touches.h"

namespace tessera {

// Compares all members except two: the meshes, which the caller has compared, and the due marks,
// which follow from the instructions.
bool TextComparison::run(const PlaceText& a, const PlaceText& b) {
  const auto& [mesh, buffers, blocks, homes, fetches, due] = a;
  const auto same_block = [&](const auto& x, const auto& y) {
    return x.first.kind == y.first.kind && equal(x.second, y.second);
  };
  return fetches.empty() && b.fetches.empty() && equal(buffers, b.buffers) &&
         equal(homes, b.homes) && std::ranges::equal(blocks, b.blocks, same_block);
}

template <class T>
bool TextComparison::equal(const std::vector<T>& a, const std::vector<T>& b) {
  return std::ranges::equal(a, b, [&](const T& x, const T& y) { return equal(x, y); });
}
bool TextComparison::equal(const TextBuffer& a, const TextBuffer& b) const {
  const auto& [name, tensor, region, dtype, tier, persistent, accumulates, slots] = a;
  return same(tensor, b.tensor) && region == b.region && dtype == b.dtype && tier == b.tier &&
         persistent == b.persistent && accumulates == b.accumulates && slots == b.slots;
}
bool TextComparison::equal(const TextOutput& a, const TextOutput& b) const {
  const auto& [view, tensor, write, term, terms] = a;
  return view == b.view && same(tensor, b.tensor) && write == b.write && term == b.term &&
         terms == b.terms;
}
bool TextComparison::equal(const TextTransfer& a, const TextTransfer& b) const {
  const auto& [tensor, from, to] = a;
  return same(tensor, b.tensor) && from == b.from && to == b.to;
}
bool TextComparison::equal(const TextHome& a, const TextHome& b) const {
  const auto& [tensor, buffer] = a;
  return buffer == b.buffer && same(tensor, b.tensor);
}

// Compares two instructions without `cause` and `order`. The cause may be an op of the next place,
// and the order of writing follows from the order of the instructions.
bool TextComparison::equal(const TextInstruction& a, const TextInstruction& b) {
  const auto& [body, when, cause, order] = a;
  return when == b.when && body.index() == b.body.index() &&
         match(
             a,
             [&](const OneOf<TextCompute, TextIssue, TextCross, TextWait, TextCopy, TextLoad> auto&
                     one) { return equal(one, std::get<std::decay_t<decltype(one)>>(b.body)); });
}
bool TextComparison::equal(const TextCompute& a, const TextCompute& b) {
  const auto& [op, step, inputs, outputs] = a;
  return same(op, b.op) && step == b.step && inputs == b.inputs && equal(outputs, b.outputs);
}
// Accepts no named rows, because they belong to one matrix, which no other place has. The unit is
// not compared, because it is only a name.
bool TextComparison::equal(const TextIssue& a, const TextIssue& b) {
  const auto& [handle, kind, classify, axes, combiner, transfers, compression, unit, named] = a;
  return same(handle, b.handle) && kind == b.kind && classify == b.classify && axes == b.axes &&
         combiner == b.combiner && compression == b.compression && !named && !b.named &&
         equal(transfers, b.transfers);
}
// Accepts no planned routes, because routes name ranks. The subclass compares places, tensor and
// tag.
bool TextComparison::equal(const TextCross& a, const TextCross& b) {
  const auto& [handle, sends, from_place, to_place, tensor, tag, from, to, routes, smaller_routes] =
      a;
  const TextView &own_a = sends ? from : to, &own_b = b.sends ? b.from : b.to;
  return sends == b.sends && same(handle, b.handle) && own_a.buffer == own_b.buffer &&
         from.region == b.from.region && to.region == b.to.region && !routes && !b.routes &&
         !smaller_routes && !b.smaller_routes && same(a, b);
}
bool TextComparison::equal(const TextWait& a, const TextWait& b) {
  const auto& [handle, lag] = a;
  return same(handle, b.handle) && lag == b.lag;
}
bool TextComparison::equal(const TextCopy& a, const TextCopy& b) {
  const auto& [tensor, from, to, write, handle] = a;
  return same(tensor, b.tensor) && from == b.from && to == b.to && write == b.write &&
         (handle < 0) == (b.handle < 0) && (handle < 0 || same(handle, b.handle));
}
bool TextComparison::equal(const TextLoad& a, const TextLoad& b) const {
  const auto& [tensor, to] = a;
  return same(tensor, b.tensor) && to == b.to;
}

}  // namespace tessera
