// Tracks which tensors of a program share their elements, as far as ops in place matter. To the
// lowering a tensor is a value: an op in place (`add_`) makes a new one, and the exporter lets
// later readers of the same tensor read that. A reader of another tensor that shares the elements
// (the base of a changed view, a view of a changed base) would get the old values; so would a later
// step of a run that reads a buffer or parameter which the program changes. Both are found here, so
// that they are refused and not lost.
//
//   if (const Node* writer = memory.read("view", "sum")) ...  // changed through another name
//   memory.add(node, "add_");                                 // the node is done
//
// An op that may give a view or a copy (reshape, contiguous) counts as one that gives a view.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/import/pt2/schema.h"

namespace tessera::pt2 {

class Memory {
 public:
  // Adds a buffer or parameter, whose changes would last from one step to the next.
  void add_lasting(const std::string& tensor);
  // Records two names of one tensor.
  void tie(const std::string& tensor, const std::string& other);

  // Records that op `op` reads the tensor. Returns the op in place that has changed the tensor's
  // elements through another name since it was made, or that changes a lasting tensor; null if
  // there is none. An op in place may read what it changes: a counter that nothing else reads is no
  // part of the model.
  const Node* read(const std::string& tensor, std::string_view op);
  // Records what the node's results share with its operands, and what it changes. Returns false if
  // the node changes a lasting tensor that was read before.
  [[nodiscard]] bool add(const Node& node, std::string_view op);

  // Returns whether the op changes its first operand.
  static bool in_place(std::string_view op);

 private:
  struct Storage {
    int version = 0;  // ops in place so far
    const Node* writer = nullptr;
    bool lasts = false, read = false;
  };
  struct View {
    size_t storage = 0;
    int version = 0;  // version that the name stands for
  };
  View& view(const std::string& tensor);

  std::vector<Storage> storages_;
  std::map<std::string, View, std::less<>> views_;
};

}  // namespace tessera::pt2
