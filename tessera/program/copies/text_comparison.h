// A `TextComparison` tells whether the texts of two places are equal but for names. A subclass says
// which names correspond and how messages may differ. Each comparison unpacks its first operand
// with a structured binding of all members. So if a struct gets a new member, the code does not
// compile until the member is compared or left out on purpose. Private to tessera/program.
#pragma once

#include <unordered_map>
#include <vector>

#include "tessera/program/place_text.h"

namespace tessera {

class TextComparison {
 public:
  // Compares the blocks in their order. Texts that fetch tensors at the end of the step always
  // differ.
  bool run(const PlaceText& a, const PlaceText& b);

 protected:
  ~TextComparison() = default;
  virtual bool same(TensorId a, TensorId b) const = 0;
  virtual bool same(OpId a, OpId b) const = 0;
  // Returns whether the messages may differ in places, tensor and tag as they do. The caller has
  // compared all other members and found them equal.
  virtual bool same(const TextCross& a, const TextCross& b) = 0;

 private:
  bool same(int a, int b) { return handles_.try_emplace(a, b).first->second == b; }
  template <class T>
  bool equal(const std::vector<T>& a, const std::vector<T>& b);
  bool equal(const TextBuffer& a, const TextBuffer& b) const;
  bool equal(const TextOutput& a, const TextOutput& b) const;
  bool equal(const TextTransfer& a, const TextTransfer& b) const;
  bool equal(const TextHome& a, const TextHome& b) const;
  bool equal(const TextInstruction& a, const TextInstruction& b);
  bool equal(const TextCompute& a, const TextCompute& b);
  bool equal(const TextIssue& a, const TextIssue& b);
  bool equal(const TextCross& a, const TextCross& b);
  bool equal(const TextWait& a, const TextWait& b);
  bool equal(const TextCopy& a, const TextCopy& b);
  bool equal(const TextLoad& a, const TextLoad& b) const;

  std::unordered_map<int, int> handles_;  // for look-up only
};

}  // namespace tessera
