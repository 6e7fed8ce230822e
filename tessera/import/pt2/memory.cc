#include "tessera/import/pt2/memory.h"

#include <algorithm>
#include <set>

namespace tessera::pt2 {
namespace {

// Returns the ops whose results are, or may be, views of their first operand. If this operand is a
// list, result i is a view of its element i.
const std::set<std::string_view>& views_of_operands() {
  static const std::set<std::string_view> names = {"alias",     "broadcast_tensors",
                                                   "chunk",     "contiguous",
                                                   "detach",    "dropout",
                                                   "expand",    "expand_as",
                                                   "flatten",   "numpy_T",
                                                   "permute",   "reshape",
                                                   "select",    "slice",
                                                   "split",     "split_with_sizes",
                                                   "squeeze",   "t",
                                                   "to",        "transpose",
                                                   "type_as",   "unbind",
                                                   "unflatten", "unsqueeze",
                                                   "view"};
  return names;
}

// Returns the tensors of which the node's results are views if its op makes views: the first
// operand, or the tensors in it if this operand is a list.
std::vector<std::string> operands_of(const Node& node) {
  for (const char* name : {"self", "input", "tensors"}) {
    const auto found = node.arguments.find(name);
    if (found == node.arguments.end()) continue;
    if (const auto* one = std::get_if<TensorArg>(&found->second)) return {one->name};
    if (const auto* several = std::get_if<TensorsArg>(&found->second)) return several->names;
  }
  return {};
}

}  // namespace

Memory::View& Memory::view(const std::string& tensor) {
  const auto [at, added] = views_.emplace(tensor, View{storages_.size(), 0});
  if (added) storages_.emplace_back();
  return at->second;
}

void Memory::add_lasting(const std::string& tensor) {
  storages_[view(tensor).storage].lasts = true;
}

void Memory::tie(const std::string& tensor, const std::string& other) {
  views_[tensor] = view(other);
}

bool Memory::in_place(std::string_view op) { return op.ends_with('_') && !op.ends_with("__"); }

bool Memory::add(const Node& node, std::string_view op) {
  bool kept = true;
  const std::vector<std::string> operands = operands_of(node);
  const bool writes = in_place(op), shares = writes || views_of_operands().contains(op);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const std::string& output = node.outputs[i];
    if (output.empty()) continue;
    if (!shares || operands.empty()) {
      views_[output] = {storages_.size(), 0};
      storages_.emplace_back();
      continue;
    }
    View shared = view(operands[std::min(i, operands.size() - 1)]);
    Storage& storage = storages_[shared.storage];
    if (writes) {
      shared.version = ++storage.version;
      storage.writer = &node;
      kept = kept && !(storage.lasts && storage.read);
    }
    views_[output] = shared;
  }
  return kept;
}

void Memory::renew(const std::string& tensor) {
  View& shared = view(tensor);
  shared.version = storages_[shared.storage].version;
}

const Node* Memory::read(const std::string& tensor, std::string_view op) {
  const View& shared = view(tensor);
  Storage& storage = storages_[shared.storage];
  const bool changes = in_place(op);
  storage.read = storage.read || !changes;
  const bool stale = shared.version < storage.version;
  const bool lost = storage.lasts && storage.version > 0 && !changes;
  return stale || lost ? storage.writer : nullptr;
}

}  // namespace tessera::pt2
