// Tracks which tensors of a program share their elements, as far as ops in place matter. The
// lowering treats a tensor as a value. For it an op in place (`add_`) makes a new tensor, and in an
// exported program later readers of the changed tensor read this new tensor. But other tensors may
// share the changed elements (the base of a changed view, a view of a changed base), and their
// readers would get the old values. A later training step that reads a buffer or parameter which
// the program changes would get the old values, too. This class finds both cases, so that such
// programs are refused and not computed wrongly.
//
//   if (const Node* writer = memory.read("view", "sum")) ...  // changed through another name
//   memory.add(node, "add_");                                 // the node is done
//
// An op that may return a view or a copy (reshape, contiguous) is treated as if it returned a view.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/import/pt2/schema.h"

namespace tessera::pt2 {

class Memory {
 public:
  // Adds a lasting tensor: a buffer or parameter, whose changes would be seen by the next training
  // step.
  void add_lasting(const std::string& tensor);
  // Records that two names are the same tensor.
  void tie(const std::string& tensor, const std::string& other);

  // Records that op `op` reads the tensor. Returns null if the read gives the right values, else
  // the last op in place that changed the elements. A read is wrong in two cases. First, the
  // elements have been changed through another name. Second, the tensor is a lasting one and has
  // been changed; but if `op` itself works in place, this is no error, because a counter that only
  // such ops read is not part of the model.
  const Node* read(const std::string& tensor, std::string_view op);
  // Records which operands the node's results share elements with, and which elements the node
  // changes. Returns false if the node changes a lasting tensor that was read earlier in the
  // program.
  [[nodiscard]] bool add(const Node& node, std::string_view op);

  // Records that the tensor, which shares its elements with one that an op in place has changed, has
  // its new elements.
  void renew(const std::string& tensor);

  // Returns whether the op works in place, that is, changes its first operand.
  static bool in_place(std::string_view op);

 private:
  struct Storage {
    int version = 0;  // number of changes by ops in place so far
    const Node* writer = nullptr;
    bool lasts = false, read = false;
  };
  struct View {
    size_t storage = 0;
    int version = 0;  // version of the elements that readers of this name expect
  };
  View& view(const std::string& tensor);

  std::vector<Storage> storages_;
  std::map<std::string, View, std::less<>> views_;
};

}  // namespace tessera::pt2
