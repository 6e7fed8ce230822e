#include "tessera/import/pt2/emitter.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"

namespace tessera::pt2 {
namespace {

bool has_name(const std::vector<Dim>& dims, const std::string& name) {
  return std::any_of(dims.begin(), dims.end(), [&](const Dim& dim) { return dim.name == name; });
}

}  // namespace

Vars Value::flat() const {
  Vars out;
  for (const Vars& dim : dims) out.insert(out.end(), dim.begin(), dim.end());
  return out;
}

Emitter::Emitter(std::string graph_name, const DimTable& dims, DimNames names, DefineSource source)
    : dims_(dims),
      names_(std::move(names)),
      source_(std::move(source)),
      builder_(std::move(graph_name)) {}

const Emitter::Slot& Emitter::slot(int index) {
  if (!slots_.contains(index)) source_(*this, index);
  return slots_.at(index);
}

const std::string& Emitter::name(Var leaf) const { return names_.at(dims_.find(leaf)); }

std::string Emitter::spell(const Vars& leaves) const {
  std::vector<std::string> out;
  for (const Var leaf : leaves) out.push_back(name(leaf));
  return tessera::join(out, " ");
}

void Emitter::begin(const std::string& path) { path_ = path; }

std::vector<TensorId> Emitter::ops(std::string_view kind, std::vector<TensorId> inputs,
                                   const Attributes& attributes, std::string_view suffix) {
  const std::string wanted = suffix.empty() ? path_ : fmt::format("{}.{}", path_, suffix);
  std::string path = wanted;
  for (int i = 2; !taken_.insert(path).second; ++i) path = fmt::format("{}_{}", wanted, i);
  return builder_.op(path, kind, std::move(inputs), attributes);
}

TensorId Emitter::op(std::string_view kind, std::vector<TensorId> inputs,
                     const Attributes& attributes, std::string_view suffix) {
  const std::vector<TensorId> out = ops(kind, std::move(inputs), attributes, suffix);
  return out.empty() ? TensorId() : out[0];
}

// Defines the tensor of a slot. Fails if the sizes of the tensor that the ops made differ from the
// sizes of the slot's variables, which come from the program.
void Emitter::define(int slot, Slot value) {
  if (builder_.ok()) {
    const Tensor& made = builder_.tensor(value.id);
    bool fits = made.dims.size() == value.dims.size();
    for (size_t d = 0; fits && d < made.dims.size(); ++d)
      fits = made.dims[d].size == dims_.size(value.dims[d]);
    if (!fits) {
      std::vector<std::string> expected;
      for (const Var leaf : value.dims) expected.push_back(std::to_string(dims_.size(leaf)));
      builder_.fail(fmt::format("'{}': expected a result of sizes ({}), found {}", path_,
                                tessera::join(expected, " "), describe(made)));
    }
  }
  slots_[slot] = builder_.ok() ? with_names(std::move(value)) : std::move(value);
}

TensorId Emitter::rename(TensorId id, const std::string& from, const std::string& to) {
  return op("rename", {id}, {{"from", from}, {"to", to}}, "rename");
}

// Adds ops that rename dims. If another dim still has the name that a dim should get, that other
// dim is renamed first. If dims exchange their names, one of them gets a spare name in between.
Emitter::Slot Emitter::with_names(Slot slot) {
  while (builder_.ok()) {
    const std::vector<Dim> dims = builder_.tensor(slot.id).dims;
    const std::string *from = nullptr, *to = nullptr, *blocked = nullptr;
    for (size_t i = 0; i < std::min(dims.size(), slot.dims.size()) && from == nullptr; ++i) {
      const std::string& wanted = name(slot.dims[i]);
      if (dims[i].name == wanted) continue;
      if (has_name(dims, wanted)) {
        blocked = &dims[i].name;
      } else {
        from = &dims[i].name;
        to = &wanted;
      }
    }
    if (from != nullptr) {
      slot.id = rename(slot.id, *from, *to);
    } else if (blocked != nullptr) {
      slot.id = rename(slot.id, *blocked, *blocked + ".spare");
    } else {
      break;
    }
  }
  return slot;
}

Emitter::Slot Emitter::read_by_position(const Value& value) {
  Slot slot = this->slot(value.slot);
  for (const auto& [from, to] : value.renamed) {
    const Vars old = dims_.leaves(from), now = dims_.leaves(to);
    bool fits = old.size() == now.size();
    for (size_t i = 0; fits && i < old.size(); ++i) fits = dims_.size(old[i]) == dims_.size(now[i]);
    if (fits) {
      for (Var& leaf : slot.dims) {
        const auto at = std::find(old.begin(), old.end(), leaf);
        if (at != old.end()) leaf = now[static_cast<size_t>(at - old.begin())];
      }
      continue;
    }
    // The variables of slot and view have different sizes, so the dims are joined into one dim and
    // cut again.
    slot = with_names(std::move(slot));
    Vars order;
    size_t place = slot.dims.size();
    for (size_t i = 0; i < slot.dims.size(); ++i) {
      if (!holds(old, slot.dims[i])) {
        order.push_back(slot.dims[i]);
        continue;
      }
      if (place != slot.dims.size()) continue;
      place = order.size();
      order.insert(order.end(), old.begin(), old.end());
    }
    if (place == slot.dims.size()) {  // the slot's tensor has none of the `old` dims
      place = order.size();
      order.insert(order.end(), old.begin(), old.end());
    }
    slot = arranged(std::move(slot), order, true);
    if (old.size() > 1) slot.id = join(slot.id, place, old.size(), "joint");
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(place);
    order.erase(begin, begin + static_cast<std::ptrdiff_t>(old.size()));
    std::vector<Vars> lists;
    for (const Var leaf : order) lists.push_back({leaf});
    lists.insert(lists.begin() + static_cast<std::ptrdiff_t>(place), now);
    slot = ungrouped(slot.id, lists);
  }
  return slot;
}

Emitter::Slot Emitter::read(const Value& value) {
  return value.renamed.empty() ? slot(value.slot) : with_names(read_by_position(value));
}

TensorId Emitter::join(TensorId id, size_t first, size_t count, const std::string& name) {
  const std::vector<Dim>& dims = builder_.tensor(id).dims;
  std::string free = name;
  for (size_t i = 0; i < dims.size(); ++i) {
    if ((i < first || i >= first + count) && dims[i].name == free) free += ".joint";
  }
  return op("group", {id},
            {{"first", static_cast<int64_t>(first)},
             {"count", static_cast<int64_t>(count)},
             {"name", free}},
            "group");
}

// Removes the dims of size 1 that are not in `wanted`: joins each with a neighbour or, if there is
// no other dim, removes it by a sum.
Emitter::Slot Emitter::without_units(Slot slot, const Vars& wanted) {
  for (size_t i = slot.dims.size(); i-- > 0;) {
    if (dims_.size(slot.dims[i]) != 1 || holds(wanted, slot.dims[i])) continue;
    if (slot.dims.size() == 1) {
      slot.id = op("reduce_sum", {slot.id}, {{"dims", name(slot.dims[0])}}, "reduce_sum");
    } else {
      const size_t first = i + 1 < slot.dims.size() ? i : i - 1;
      const Var stays = slot.dims[first == i ? i + 1 : first];
      slot.id = join(slot.id, first, 2, name(stays));
    }
    slot.dims.erase(slot.dims.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return slot;
}

// Brings the dims of the tensor into the order of `leaves`. If `all`, the tensor is also repeated
// along leaves that it does not have.
Emitter::Slot Emitter::arranged(Slot slot, const Vars& leaves, bool all) {
  if (!builder_.ok()) return slot;
  slot = without_units(std::move(slot), leaves);
  Vars have;
  for (const Var leaf : leaves) {
    if (holds(slot.dims, leaf)) have.push_back(leaf);
  }
  if (have.size() != slot.dims.size()) {
    builder_.fail(fmt::format("'{}': expected dims among ({}), found {}", path_, spell(leaves),
                              describe(builder_.tensor(slot.id))));
    return slot;
  }
  if (have != slot.dims) {
    slot.id = op("transpose", {slot.id}, {{"dims", spell(have)}}, "transpose");
    slot.dims = have;
  }
  if (!all || have.size() == leaves.size()) return slot;
  std::vector<std::string> wanted;
  for (const Var leaf : leaves)
    wanted.push_back(fmt::format("{}={}", name(leaf), dims_.size(leaf)));
  slot.id = op("broadcast_to", {slot.id}, {{"dims", tessera::join(wanted, " ")}}, "broadcast");
  slot.dims = leaves;
  return slot;
}

Emitter::Slot Emitter::exactly(const Value& value, const Vars& leaves) {
  return arranged(read(value), leaves, true);
}

Emitter::Slot Emitter::ordered(const Value& value, const Vars& leaves) {
  return arranged(read(value), leaves, false);
}

TensorId Emitter::grouped(const Value& value, const std::vector<Group>& groups) {
  Slot slot = read(value);
  // A dim of size 1 that the tensor has is kept if its group has no other dim.
  std::vector<Vars> lists;
  Vars order;
  for (const Group& group : groups) {
    Vars leaves = dims_.leaves(group.vars);
    if (leaves.empty()) {
      for (const Var unit : dims_.leaves(group.vars, true)) {
        if (holds(slot.dims, unit) && leaves.empty()) leaves.push_back(unit);
      }
    }
    order.insert(order.end(), leaves.begin(), leaves.end());
    lists.push_back(std::move(leaves));
  }
  TensorId id = arranged(std::move(slot), order, true).id;
  size_t end = order.size();
  for (size_t g = groups.size(); g-- > 0 && builder_.ok();) {
    const size_t count = lists[g].size();
    if (count > 1) id = join(id, end - count, count, groups[g].name);
    end -= count;
  }
  // The tensor now has a dim for each group that is not empty. For each empty group a dim of size 1
  // is added.
  for (size_t g = 0; g < groups.size() && builder_.ok(); ++g) {
    if (!lists[g].empty()) continue;
    const std::vector<Dim> dims = builder_.tensor(id).dims;
    if (dims.empty()) {
      id = op("broadcast_to", {id}, {{"dims", groups[g].name + "=1"}}, "broadcast");
      continue;
    }
    const Dim& beside = dims[g > 0 ? g - 1 : 0];
    const std::string parts =
        g > 0 ? fmt::format("{}={} {}=1", beside.name, beside.size, groups[g].name)
              : fmt::format("{}=1 {}={}", groups[g].name, beside.name, beside.size);
    id = op("ungroup", {id}, {{"dim", beside.name}, {"names", parts}}, "ungroup");
  }
  return id;
}

Emitter::Slot Emitter::ungrouped(TensorId id, const std::vector<Vars>& dims) {
  Slot slot{id, {}};
  for (size_t d = dims.size(); d-- > 0 && builder_.ok();) {
    Vars leaves = dims_.leaves(dims[d]);
    const std::vector<Dim> now = builder_.tensor(slot.id).dims;
    if (leaves.size() > 1) {
      std::vector<std::string> parts;
      for (const Var leaf : leaves) {
        // If another dim still has the name of a part, the part gets a spare name here;
        // with_names() gives the right names at the end.
        const bool free = !has_name(now, name(leaf)) || now[d].name == name(leaf);
        parts.push_back(fmt::format("{}{}={}", name(leaf), free ? "" : ".spare", dims_.size(leaf)));
      }
      slot.id = op("ungroup", {slot.id},
                   {{"dim", now[d].name}, {"names", tessera::join(parts, " ")}}, "ungroup");
    } else if (leaves.empty() && now.size() > 1) {
      const size_t first = d > 0 ? d - 1 : d;
      slot.id = join(slot.id, first, 2, now[d > 0 ? d - 1 : d + 1].name);
    } else if (leaves.empty()) {
      slot.id = op("reduce_sum", {slot.id}, {{"dims", now[d].name}}, "reduce_sum");
    }
    slot.dims.insert(slot.dims.begin(), leaves.begin(), leaves.end());
  }
  return with_names(std::move(slot));
}

}  // namespace tessera::pt2
