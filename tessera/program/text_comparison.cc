#include "tessera/program/text_comparison.h"

#include <algorithm>

#include "tessera/program/touches.h"

namespace tessera {

bool TextComparison::run(const PlaceText& a, const PlaceText& b) {
  const auto same_block = [&](const auto& x, const auto& y) {
    return x.first.kind == y.first.kind && equal(x.second, y.second);
  };
  return a.fetches.empty() && b.fetches.empty() && equal(a.buffers, b.buffers) &&
         equal(a.homes, b.homes) && std::ranges::equal(a.blocks, b.blocks, same_block);
}

template <class T>
bool TextComparison::equal(const std::vector<T>& a, const std::vector<T>& b) {
  return std::ranges::equal(a, b, [&](const T& x, const T& y) { return equal(x, y); });
}
bool TextComparison::equal(const TextBuffer& a, const TextBuffer& b) const {
  return same(a.tensor, b.tensor) && a.region == b.region && a.dtype == b.dtype &&
         a.tier == b.tier && a.persistent == b.persistent && a.accumulates == b.accumulates &&
         a.slots == b.slots;
}
bool TextComparison::equal(const TextView& a, const TextView& b) {
  return a.buffer == b.buffer && a.region == b.region;
}
bool TextComparison::equal(const TextOutput& a, const TextOutput& b) const {
  return equal(a.view, b.view) && same(a.tensor, b.tensor) && a.write == b.write &&
         a.term == b.term && a.terms == b.terms;
}
bool TextComparison::equal(const TextTransfer& a, const TextTransfer& b) const {
  return same(a.tensor, b.tensor) && equal(a.from, b.from) && equal(a.to, b.to);
}
bool TextComparison::equal(const TextHome& a, const TextHome& b) const {
  return a.buffer == b.buffer && same(a.tensor, b.tensor);
}

// The op for which something is done may be one of the next place.
bool TextComparison::equal(const TextInstruction& a, const TextInstruction& b) {
  return a.when == b.when && a.body.index() == b.body.index() &&
         match(
             a,
             [&](const OneOf<TextCompute, TextIssue, TextCross, TextWait, TextCopy, TextLoad> auto&
                     body) { return equal(body, std::get<std::decay_t<decltype(body)>>(b.body)); });
}
bool TextComparison::equal(const TextCompute& a, const TextCompute& b) {
  return same(a.op, b.op) && a.step == b.step && equal(a.inputs, b.inputs) &&
         equal(a.outputs, b.outputs);
}
// Rows that ids name are of one matrix, which no other place has.
bool TextComparison::equal(const TextIssue& a, const TextIssue& b) {
  return same(a.handle, b.handle) && a.kind == b.kind && a.classify == b.classify &&
         a.axes == b.axes && a.combiner == b.combiner && a.compression == b.compression &&
         !a.named && !b.named && equal(a.transfers, b.transfers);
}
// Planned routes name ranks.
bool TextComparison::equal(const TextCross& a, const TextCross& b) {
  const TextView &own_a = a.sends ? a.from : a.to, &own_b = b.sends ? b.from : b.to;
  return a.sends == b.sends && same(a.handle, b.handle) && own_a.buffer == own_b.buffer &&
         a.from.region == b.from.region && a.to.region == b.to.region && !a.routes && !b.routes &&
         !a.smaller_routes && !b.smaller_routes && same(a, b);
}
bool TextComparison::equal(const TextWait& a, const TextWait& b) {
  return same(a.handle, b.handle) && a.lag == b.lag;
}
bool TextComparison::equal(const TextCopy& a, const TextCopy& b) {
  return same(a.tensor, b.tensor) && equal(a.from, b.from) && equal(a.to, b.to) &&
         a.write == b.write && (a.handle < 0) == (b.handle < 0) &&
         (a.handle < 0 || same(a.handle, b.handle));
}
bool TextComparison::equal(const TextLoad& a, const TextLoad& b) const {
  return same(a.tensor, b.tensor) && equal(a.to, b.to);
}

}  // namespace tessera
