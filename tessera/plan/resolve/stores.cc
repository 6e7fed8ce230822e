// Store and compress entries: where tensors rest, how long copies are kept, what is compressed.
#include "tessera/plan/resolve/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "tessera/base/text.h"

namespace tessera {
namespace {

// Returns the parameter to which a gradient or an optimizer state belongs; any other tensor
// belongs to itself. A `fraction` takes a parameter, its gradient and its state together.
TensorId owner(const Resolving& r, TensorId id) {
  const Tensor& tensor = r.graph.tensor(id);
  const bool belongs = tensor.of.valid() && r.graph.tensor(tensor.of).role == Role::kParameter;
  return belongs ? tensor.of : id;
}

// Returns the selected tensors whose first use is latest, as many as fit into the fraction of the
// bytes of all selected tensors.
std::vector<TensorId> share_of(const Resolving& r, const std::vector<TensorId>& selected,
                               double fraction) {
  std::vector<size_t> first_use(r.graph.tensors().size(), r.graph.ops().size());
  for (const Op& op : r.graph.ops()) {
    for (TensorId input : op.inputs)
      first_use[input.index()] = std::min(first_use[input.index()], op.id.index());
  }
  struct Group {
    size_t first_use = 0;
    int64_t bytes = 0;
    std::vector<TensorId> tensors;
  };
  std::map<TensorId, Group> groups;
  int64_t total = 0;
  for (TensorId id : selected) {
    const Tensor& tensor = r.graph.tensor(id);
    if (tensor.update_of.valid()) continue;
    Group& group = groups[owner(r, id)];
    group.first_use = first_use[owner(r, id).index()];
    group.bytes += tensor.elements() * dtype_bytes(tensor.dtype);
    group.tensors.push_back(id);
    total += tensor.elements() * dtype_bytes(tensor.dtype);
  }
  std::vector<const Group*> order;
  for (const auto& [id, group] : groups) order.push_back(&group);
  std::stable_sort(order.begin(), order.end(),
                   [](const Group* a, const Group* b) { return a->first_use > b->first_use; });
  auto left = static_cast<int64_t>(std::llround(fraction * static_cast<double>(total)));
  std::vector<TensorId> share;
  for (const Group* group : order) {
    if (group->bytes > left) continue;
    left -= group->bytes;
    share.insert(share.end(), group->tensors.begin(), group->tensors.end());
  }
  return share;
}

const Stage& home_of(const Resolving& r, TensorId id) {
  return r.out.stages[r.out.tensors[id.index()].home.index()];
}

// Returns the axes with these names in the mesh of the tensor's home; nothing if one is missing.
std::optional<OfPlace<Axes>> axes_at_home(const Resolving& r, TensorId id,
                                          const std::vector<std::string>& names) {
  const Stage& home = home_of(r, id);
  Axes axes;
  for (const std::string& name : names) {
    axes.push_back(home.mesh.find(name));
    if (!axes.back().valid()) return std::nullopt;
  }
  return OfPlace<Axes>(home.place, std::move(axes));
}

Status lacks_axis(const Resolving& r, int line, std::string_view key,
                  const std::vector<std::string>& axes, TensorId id) {
  const StageId stage = r.out.tensors[id.index()].home;
  return r.error(line, fmt::format("{} = \"{}\": tensor '{}' is at home on the mesh {} of stage "
                                   "{}, which lacks that axis",
                                   key, join(axes, ", "), r.graph.tensor(id).name,
                                   r.out.stages[stage.index()].mesh.to_string(), stage.value));
}

Status apply_over(const Resolving& r, size_t e, const std::vector<TensorId>& selected) {
  const StoreEntry& entry = r.plan().stores[e];
  TensorId without_axis;
  bool applied = false;
  for (TensorId id : selected) {
    const Tensor& tensor = r.graph.tensor(id);
    if (entry.dim && std::none_of(tensor.dims.begin(), tensor.dims.end(),
                                  [&](const Dim& dim) { return dim.name == *entry.dim; })) {
      continue;
    }
    const std::optional<OfPlace<Axes>> axes = axes_at_home(r, id, *entry.over);
    if (!axes) {
      if (!without_axis.valid()) without_axis = id;
      continue;
    }
    TensorPlan& tensor_plan = r.out.tensors[id.index()];
    tensor_plan.over = *axes;
    tensor_plan.dim = entry.dim.value_or("");
    tensor_plan.has_over = true;
    tensor_plan.over_entry = static_cast<int>(e);
    applied = true;
  }
  if (applied) return {};
  if (without_axis.valid()) return lacks_axis(r, entry.line, "over", *entry.over, without_axis);
  std::set<std::string> names;
  for (TensorId id : selected) {
    for (const Dim& dim : r.graph.tensor(id).dims) names.insert(dim.name);
  }
  return r.error(
      entry.line,
      fmt::format(
          "no tensor that tensors = \"{}\" selects has the dim '{}'{}", entry.tensors, *entry.dim,
          suggestion(nearest(*entry.dim, std::vector<std::string>(names.begin(), names.end())))));
}

Status apply_keep_over(const Resolving& r, size_t e, const std::vector<TensorId>& selected) {
  const StoreEntry& entry = r.plan().stores[e];
  bool applied = false;
  for (TensorId id : selected) {
    const std::optional<OfPlace<Axes>> axes = axes_at_home(r, id, *entry.keep_over);
    if (!axes) continue;
    r.out.tensors[id.index()].keep_over = *axes;
    r.out.tensors[id.index()].keep_over_entry = static_cast<int>(e);
    applied = true;
  }
  if (applied || selected.empty()) return {};
  return lacks_axis(r, entry.line, "keep_over", *entry.keep_over, selected.front());
}

// Checks that `keep_over` of a parameter has only axes over which the parameter is cut at rest.
Status check_kept(const Resolving& r) {
  for (const Tensor& tensor : r.graph.tensors()) {
    const TensorPlan& rule = r.out.tensors[tensor.id.index()];
    if (tensor.role != Role::kParameter || tensor.update_of.valid()) continue;
    const Stage& home = home_of(r, tensor.id);
    const Axes over = rule.has_over ? rule.over.at(home.place) : Axes();
    for (const AxisId axis : rule.keep_over.numbers()) {
      if (std::find(over.begin(), over.end(), axis) != over.end()) continue;
      const StoreEntry& entry = r.plan().stores[static_cast<size_t>(rule.keep_over_entry)];
      return r.error(
          entry.line,
          fmt::format("keep_over = \"{}\": parameter '{}' does not rest over axis '{}' "
                      "(store: over)",
                      join(*entry.keep_over, ", "), tensor.name, home.mesh.axis(axis).name));
    }
  }
  return {};
}

}  // namespace

Status apply_stores(const Resolving& r) {
  for (const Tensor& tensor : r.graph.tensors()) {
    TensorPlan& rule = r.out.tensors[tensor.id.index()];
    rule.recompute = tensor.recompute;
    rule.home = r.stages.home(tensor.id);
  }
  for (size_t e = 0; e < r.plan().stores.size(); ++e) {
    const StoreEntry& entry = r.plan().stores[e];
    TESSERA_TRY(const auto selected, r.selection.tensors(entry));
    if (entry.over) TESSERA_TRY_VOID(apply_over(r, e, selected));
    if (entry.recompute) TESSERA_TRY_VOID(apply_recompute(r, entry, static_cast<int>(e), selected));
    const auto share = entry.fraction ? share_of(r, selected, *entry.fraction) : selected;
    if (entry.keep) {
      for (TensorId id : share) r.out.tensors[id.index()].keep = *entry.keep;
    }
    if (entry.keep_over) TESSERA_TRY_VOID(apply_keep_over(r, e, share));
    if (!entry.tier) continue;
    for (TensorId id : share) {
      TensorPlan& tensor = r.out.tensors[id.index()];
      tensor.tier = entry.cache ? Tier::kDevice : *entry.tier;
      tensor.tier_entry = static_cast<int>(e);
      tensor.cache.reset();
      if (entry.cache) tensor.cache = TensorPlan::Cached{*entry.cache, *entry.tier};
    }
  }
  find_recomputed(r);
  return check_kept(r);
}

Status apply_compress(const Resolving& r) {
  for (const CompressEntry& entry : r.plan().compress) {
    StoreEntry selection;
    selection.tensors = entry.tensors;
    selection.line = entry.line;
    TESSERA_TRY(const auto selected, r.selection.tensors(selection));
    bool applied = false;
    for (TensorId id : selected) {
      if (!is_floating(r.graph.tensor(id).dtype) || r.graph.tensor(id).dims.empty()) continue;
      applied = true;
      for (size_t edge = 0; edge < kEdges; ++edge) {
        if (entry.on == "*" || entry.on == edge_name(edge))
          r.out.tensors[id.index()].compress.set(edge, entry.with);
      }
    }
    if (applied) continue;
    const Tensor& first = r.graph.tensor(selected.front());
    return r.error(entry.line, fmt::format("compress needs arrays of a floating dtype, but "
                                           "tensors = \"{}\" selects none: the first is {}",
                                           entry.tensors, describe(first)));
  }
  return {};
}

}  // namespace tessera
