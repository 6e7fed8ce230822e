// Ops in place that change a tensor through a part of it (x[:, 1:].copy_(y)): the lowering makes the
// whole tensor anew, of the new part and of what was beside it (Lowering of lower.h).
#include <algorithm>

#include "tessera/import/pt2/aten.h"

namespace tessera::pt2 {
namespace {

// The part of a tensor that a node takes.
struct Part {
  std::string whole;  // the tensor
  size_t dim = 0;
  int64_t begin = 0, end = 0;
  bool drops = false;  // whether the part lacks the dim
};

// Returns the part that a node takes, if it takes one of places in a row.
std::optional<Part> part_of_node(const Call& call, const TensorMeta& whole) {
  const std::string_view op = op_name(call.node().target);
  if (op != "slice" && op != "select") return std::nullopt;
  const auto dim = call.dim("dim", whole.sizes.size(), 0);
  if (!dim) return std::nullopt;
  const int64_t size = whole.sizes[*dim];
  Part part{call.tensor_name("self"), *dim, 0, size, op == "select"};
  if (part.drops) {
    const auto index = call.integer("index");
    if (!index) return std::nullopt;
    part.begin = *index < 0 ? *index + size : *index;
    part.end = part.begin + 1;
  } else {
    const auto begin = call.integer("start", 0), end = call.integer("end", size),
               step = call.integer("step", 1);
    if (!begin || !end || !step || *step != 1) return std::nullopt;
    part.begin = std::min(*begin < 0 ? std::max<int64_t>(*begin, -size) + size : *begin, size);
    part.end = std::min(*end < 0 ? std::max<int64_t>(*end, -size) + size : *end, size);
  }
  if (part.begin < 0 || part.begin >= part.end || part.end > size) return std::nullopt;
  return part;
}

}  // namespace

// Returns the elements begin .. end - 1 along a dim of a tensor.
Result<Lowering::Item> Lowering::piece(const Call& call, const std::string& tensor, size_t dim,
                                       int64_t begin, int64_t end) {
  const Item* const found = item(tensor);
  if (const auto* known = found == nullptr ? nullptr : std::get_if<Constant>(found)) {
    if (auto part = slice(*known, static_cast<int64_t>(dim), begin, end, 1))
      return Item(std::move(*part));
  }
  TESSERA_TRY(const Value x, value_of(tensor));
  TESSERA_TRY(Value part, part_of(call, x, dim, begin, end - begin));
  return Item(std::move(part));
}

// Joins pieces along a dim: at import if all of them are known, else in the graph.
Result<Lowering::Item> Lowering::joint(const Call& call, const std::vector<Item>& pieces,
                                       size_t dim) {
  std::vector<const Constant*> known;
  for (const Item& one : pieces) known.push_back(std::get_if<Constant>(&one));
  if (std::find(known.begin(), known.end(), nullptr) == known.end()) {
    if (auto all = concatenate(known, static_cast<int64_t>(dim))) return Item(std::move(*all));
    return invalid_input("expected a part that fits the tensor");
  }
  std::vector<Value> values;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto* const value = std::get_if<Value>(&pieces[i]);
    values.push_back(
        value != nullptr
            ? *value
            : materialise(*known[i], constant_name(call.node().name + "." + std::to_string(i))));
  }
  TESSERA_TRY(Value y, concatenated(call, std::move(values), dim));
  return Item(std::move(y));
}

// Gives the tensor that the node has changed in place its new elements, and likewise the tensors of
// which it is a part, as long as one of them is read later.
Status Lowering::write_back(const Call& call) {
  const auto now = static_cast<size_t>(&call.node() - program_.nodes.data());
  const auto read_later = [&](const std::string& tensor) {
    const auto last = last_readers_.find(tensor);
    return last == last_readers_.end() || last->second > now;
  };
  const std::string& changed = call.tensor_name(call.has("input") ? "input" : "self");
  const auto made = items_.find(call.node().outputs.empty() ? "" : call.node().outputs[0]);
  if (changed.empty() || made == items_.end()) return {};
  // The tensors of which it is a part, up to the last one that is read later.
  std::vector<std::pair<std::string, Part>> wholes;
  size_t needed = 0;
  for (std::string tensor = changed; makers_.contains(tensor);
       tensor = wholes.back().second.whole) {
    const Call taken(*this, *makers_.find(tensor)->second);
    const auto whole = program_.tensors.find(taken.tensor_name("self"));
    if (whole == program_.tensors.end()) break;
    const std::optional<Part> part = part_of_node(taken, whole->second);
    if (!part) break;
    wholes.emplace_back(tensor, *part);
    if (read_later(part->whole)) needed = wholes.size();
  }
  Item value = made->second;
  const auto renew = [&](const std::string& tensor) {
    if (!read_later(tensor)) return;
    items_[tensor] = value;
    memory_.renew(tensor);
  };
  renew(changed);
  for (size_t i = 0; i < needed; ++i) {
    const Part& part = wholes[i].second;
    if (part.drops) {
      const auto at = static_cast<std::ptrdiff_t>(part.dim);
      if (auto* known = std::get_if<Constant>(&value))
        known->shape.insert(known->shape.begin() + at, 1);
      if (auto* one = std::get_if<Value>(&value)) one->dims.insert(one->dims.begin() + at, Vars{});
    }
    std::vector<Item> pieces;
    if (part.begin > 0) {
      TESSERA_TRY(Item before, piece(call, part.whole, part.dim, 0, part.begin));
      pieces.push_back(std::move(before));
    }
    pieces.push_back(std::move(value));
    const int64_t size = program_.tensors.find(part.whole)->second.sizes[part.dim];
    if (part.end < size) {
      TESSERA_TRY(Item after, piece(call, part.whole, part.dim, part.end, size));
      pieces.push_back(std::move(after));
    }
    if (pieces.size() == 1) {
      value = std::move(pieces[0]);
    } else {
      TESSERA_TRY(value, joint(call, pieces, part.dim));
    }
    renew(part.whole);
  }
  return {};
}

}  // namespace tessera::pt2
