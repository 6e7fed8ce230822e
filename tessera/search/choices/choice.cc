#include "tessera/search/choices/choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "tessera/base/text.h"
#include "tessera/cost/op_cost.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/order.h"
#include "tessera/plan/recipes/maps.h"
#include "tessera/plan/recipes/parts.h"
#include "tessera/plan/recipes/patterns.h"
#include "tessera/plan/resolve/selector.h"
#include "tessera/search/choices/offload_levels.h"
#include "tessera/search/choices/scoped_dims.h"
#include "tessera/search/constants.h"

namespace tessera {
namespace {

const std::string kBatch = "batch";
constexpr char kTravels = '~';  // separates the dim that is cut from the dim whose pieces travel

bool may_cut(const Op& op, const OpDim& dim) {
  if (dim.literal() || dim.size <= 1) return false;
  if (dim.mark != Mark::kFrozen) return true;
  if (dim.hidden || op.info == nullptr || op.info->expandable == nullptr || !op.info->expand)
    return false;
  const auto names = op.info->expandable(op);
  return std::find(names.begin(), names.end(), dim.name) != names.end();
}

std::string_view class_of(const Op& op) {
  return op.info != nullptr && op.info->work ? work_class_name(*op.info->work) : "";
}

// Returns whether the op compares queries of dim `query` with keys of dim `key`.
bool compares(const Op& op, std::string_view query, std::string_view key) {
  const auto dims = query_key_of(op);
  return dims && op.annotation.dims[static_cast<size_t>(dims->query)].name == query &&
         op.annotation.dims[static_cast<size_t>(dims->key)].name == key;
}

// Returns one pattern that selects the ops. If the ops are the same in every numbered block of the
// model, the pattern has a wildcard for the block's number.
std::string pattern_of(const Graph& forward, const std::vector<OpId>& ops) {
  std::map<std::string, std::set<int>> blocks_of;  // by name in the block
  std::map<std::string, std::set<int>> all_of;
  std::vector<std::string> names;
  std::vector<OpId> others;
  for (const OpId id : ops) {
    const Op& op = forward.op(id);
    if (op.block < 0 || !op.path.starts_with("blocks.")) {
      others.push_back(id);
      continue;
    }
    const std::string name = recipes::name_in_block(op.path);
    if (blocks_of[name].empty()) names.push_back(name);
    blocks_of[name].insert(op.block);
  }
  for (const Op& op : forward.ops()) {
    if (op.block >= 0 && op.path.starts_with("blocks."))
      all_of[recipes::name_in_block(op.path)].insert(op.block);
  }
  const bool uniform = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return blocks_of[name] == all_of[name];
  });
  std::vector<std::string> patterns;
  if (!uniform) {
    patterns = recipes::patterns_of(forward, ops);
  } else {
    if (!others.empty()) patterns = recipes::patterns_of(forward, others);
    if (!names.empty()) patterns.push_back("blocks.*." + recipes::by_scope(names));
  }
  return recipes::alternatives(patterns);
}

// Returns for each op the number of its unit; -1: the op is in no unit.
std::vector<int> units_of_ops(const Graph& forward, const std::vector<FoldUnit>& units) {
  std::vector<int> out(forward.ops().size(), -1);
  for (size_t u = 0; u < units.size(); ++u) {
    for (const OpId op : units[u].ops) out[op.index()] = static_cast<int>(u);
  }
  return out;
}

bool has_name(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The settings that a choice has for one unit: the unit's own where it has them, else the choice's.
class UnitView {
 public:
  UnitView(const Choice& choice, int unit) : choice_(choice) {
    if (unit >= 0 && !choice.units.empty())
      own_ = &choice.units.list().at(static_cast<size_t>(unit));
  }
  ChoiceAxis axis(size_t index) const {
    ChoiceAxis out = choice_.axes[index];
    if (own_ != nullptr && !own_->dims.empty()) out.dims = own_->dims.at(index);
    return out;
  }
  int64_t sharded() const {
    return own_ != nullptr ? own_->sharded.value_or(choice_.sharded) : choice_.sharded;
  }
  std::string recompute() const {
    return own_ != nullptr ? own_->recompute.value_or(choice_.recompute) : choice_.recompute;
  }
  int64_t halo_layers() const {
    return own_ != nullptr ? own_->halo_layers.value_or(choice_.halos.layers)
                           : choice_.halos.layers;
  }

 private:
  const Choice& choice_;
  const UnitChoice* own_ = nullptr;
};

// Returns whether the axis has more than one device in some stage.
bool is_used(const Choice& choice, size_t axis) {
  if (choice.stage_axes.empty()) return choice.axes[axis].size > 1;
  return std::any_of(choice.stage_axes.begin(), choice.stage_axes.end(),
                     [&](const auto& axes) { return axes[axis].size > 1; });
}

// For each dim along which ops have halos: by op, the number of ops with such halos on the path
// to it.
using Halos = std::map<std::string, std::vector<int64_t>>;
Halos halos_of(const Graph& forward) {
  Halos out;
  for (const Op& op : forward.ops()) {
    for (const OpDim& dim : op.annotation.dims) {
      const bool is_new = op.phase == Phase::kForward && recipes::has_halo(dim) &&
                          may_cut(op, dim) && !out.contains(dim.name);
      if (is_new) out.emplace(dim.name, recipes::halos_before(forward, dim.name));
    }
  }
  return out;
}

bool asks_for_halos(const Choice& choice) {
  return choice.halos != HaloChoice{} ||
         std::any_of(choice.units.begin(), choice.units.end(),
                     [](const UnitChoice& unit) { return unit.halo_layers.has_value(); });
}

// Writes the loops in which pieces travel around axes. If queries of causal ops are cut, also
// writes an order of the tokens with which all ranks have equal work in these ops.
void write_rings(recipes::PlanText& text, const Choice& choice, const Graph& forward,
                 const std::vector<int>& unit_of) {
  // The dim whose pieces travel, and the axes around which they travel.
  using Ring = std::pair<std::string, std::string>;
  std::vector<Ring> order;
  std::map<Ring, std::vector<OpId>> rings;
  int64_t most_pieces = 1;
  for (const Op& op : forward.ops()) {
    const auto compared = op.phase == Phase::kForward ? query_key_of(op) : std::nullopt;
    if (!compared) continue;
    const std::string& query = op.annotation.dims[static_cast<size_t>(compared->query)].name;
    const UnitView unit(choice, unit_of[op.id.index()]);
    int64_t pieces = 1;
    std::map<std::string, std::string> around;
    for (size_t a = 0; a < choice.axes.size(); ++a) {
      if (!is_used(choice, a)) continue;
      const AxisCut cut = cut_of(op, unit.axis(a));
      if (cut.dim == query) pieces *= choice.axes[a].size;
      if (cut.travels.empty()) continue;
      std::string& axes = around[cut.travels];
      axes += (axes.empty() ? "" : ",") + choice.axes[a].name;
    }
    if (is_causal(op)) most_pieces = std::max(most_pieces, pieces);
    for (const auto& [travels, axes] : around) {
      const Ring ring{travels, axes};
      if (!rings.contains(ring)) order.push_back(ring);
      rings[ring].push_back(op.id);
    }
  }
  for (const Ring& ring : order)
    text.rotate(pattern_of(forward, rings[ring]), ring.first, ring.second);
  // Slices need the model's order of tokens, so the order is not written for them.
  if (choice.slices.empty()) recipes::balance(text, forward, "zigzag", most_pieces);
}

// An entry of the plan's splits: the dim, the axes and loops over which it is cut, and whether the
// op computes the halos of its readers instead of letting them exchange these.
using Cut = std::tuple<std::string, std::string, bool>;

void write_splits(recipes::PlanText& text, const Choice& choice, const Graph& forward,
                  const std::vector<int>& unit_of) {
  // `cut`: the ops of each entry. `order`: the entries in the order of their first ops.
  std::vector<Cut> order;
  std::map<Cut, std::vector<OpId>> cut;
  std::map<std::string, size_t> having;  // by dim: the number of ops that the pattern "*" would cut
  // With meshes by stage, "*" also selects ops that must keep the dim whole, so these are
  // counted too.
  const bool has_small_stages = !choice.stage_axes.empty();
  const Halos halos = asks_for_halos(choice) ? halos_of(forward) : Halos{};
  for (const Op& op : forward.ops()) {
    if (op.phase != Phase::kForward) continue;
    for (const OpDim& dim : op.annotation.dims) {
      if (may_cut(op, dim) || has_small_stages) ++having[dim.name];
    }
    const UnitView unit(choice, unit_of[op.id.index()]);
    std::map<std::string, std::string> over;
    for (size_t a = 0; a < choice.axes.size(); ++a) {
      if (!is_used(choice, a)) continue;
      const ChoiceAxis axis = unit.axis(a);
      const std::string dim = dim_to_cut(op, axis);
      if (!dim.empty()) over[dim] += (over[dim].empty() ? "" : ",") + axis.name;
    }
    for (auto& [dim, axes] : over) {
      const auto counted = halos.find(dim);
      const bool may_have = counted != halos.end();
      if (may_have && choice.halos.rims) axes += ",time:rims";
      const bool makes_halo = may_have && counted->second[op.id.index()] % unit.halo_layers() != 0;
      const Cut entry{dim, axes, makes_halo};
      if (!cut.contains(entry)) order.push_back(entry);
      cut[entry].push_back(op.id);
    }
  }
  for (const Cut& entry : order) {
    const auto& [dim, over, makes_halo] = entry;
    const std::vector<OpId>& ops = cut[entry];
    const bool all = ops.size() == having[dim];
    text.split(all ? "*" : pattern_of(forward, ops), dim, over);
    if (makes_halo) text.splits.back().emplace_back("halo", "\"compute\"");
  }
}

Status write_stages(recipes::PlanText& text, const Choice& choice, const Graph& forward,
                    const std::vector<FoldUnit>& units) {
  if (choice.stages * choice.chunks == 1) {
    if (choice.sliced_stages) {
      text.schedule = choice.schedule;
      text.stages.push_back({"*", 0, "", ""});
      return {};
    }
    if (choice.micro_batches > 1) text.schedule = choice.schedule;
    return {};
  }
  text.schedule = choice.schedule;
  std::vector<std::vector<OpId>> ops_of;  // by stage
  for (size_t s = 0; s < choice.cuts.size(); ++s) {
    const size_t end = s + 1 < choice.cuts.size() ? choice.cuts[s + 1] : units.size();
    if (choice.cuts[s] >= end) {
      return invalid_input(fmt::format("a pipeline of {} stages needs as many units, found {}",
                                       choice.cuts.size(), units.size()));
    }
    std::vector<OpId>& ops = ops_of.emplace_back();
    for (size_t at = choice.cuts[s]; at < end; ++at) {
      const std::vector<OpId>& own = units[choice.unit_at(at)].ops;
      ops.insert(ops.end(), own.begin(), own.end());
    }
  }
  const auto patterns = recipes::patterns_of_each(forward, ops_of);
  for (size_t s = 0; s < choice.cuts.size(); ++s) {
    recipes::PlanText::StageLine line{recipes::alternatives(patterns[s]), static_cast<int64_t>(s),
                                      "", ""};
    if (!choice.stage_axes.empty()) {
      std::vector<std::string> sizes;
      for (const ChoiceAxis& axis : choice.stage_axes[s])
        sizes.push_back(fmt::format("{} = {}", axis.name, axis.size));
      line.mesh = fmt::format("{{ {} }}", join(sizes, ", "));
    }
    text.stages.push_back(std::move(line));
  }
  return {};
}

// Checks that there are as many meshes as stages, and that the axes of each mesh have the names of
// the choice's axes.
Status check_stage_axes(const Choice& choice) {
  if (choice.stage_axes.empty()) return {};
  if (choice.replicas_apart)
    return invalid_input("expected stages of equal meshes if the replicas lie apart");
  if (static_cast<int64_t>(choice.stage_axes.size()) != choice.stages || choice.chunks != 1) {
    return invalid_input(fmt::format("expected meshes for {} stages of one chunk, found {} for {}",
                                     choice.stages, choice.stage_axes.size(), choice.chunks));
  }
  for (const auto& axes : choice.stage_axes) {
    const bool same =
        std::equal(axes.begin(), axes.end(), choice.axes.begin(), choice.axes.end(),
                   [](const ChoiceAxis& a, const ChoiceAxis& b) { return a.name == b.name; });
    if (!same)
      return invalid_input("expected stages whose axes have the names of the choice's axes");
  }
  return {};
}

// Returns patterns that select those parameters whose first reader is one of these ops, and no
// other parameter. `ops`: by op, whether it is one of them.
std::vector<std::string> parameters_of(const Graph& forward, const std::vector<bool>& ops) {
  std::vector<bool> seen(forward.tensors().size());
  std::vector<std::string> names, others;
  for (const Op& op : forward.ops()) {
    for (const TensorId input : op.inputs) {
      const Tensor& tensor = forward.tensor(input);
      if (tensor.role != Role::kParameter || seen[input.index()]) continue;
      seen[input.index()] = true;
      (ops[op.id.index()] ? names : others).push_back(tensor.name);
    }
  }
  if (names.empty()) return {};
  // Replaces many names by a pattern such as "blocks.[0-3].*" if it selects exactly
  // these parameters.
  std::vector<OpId> chosen;
  for (const Op& op : forward.ops()) {
    if (ops[op.id.index()]) chosen.push_back(op.id);
  }
  std::vector<std::string> patterns = recipes::patterns_of(forward, chosen);
  for (std::string& pattern : patterns) pattern += ".*";
  const Glob glob(recipes::alternatives(patterns));
  const auto matches = [&](const std::string& name) { return glob.matches(name); };
  const bool same = std::all_of(names.begin(), names.end(), matches) &&
                    std::none_of(others.begin(), others.end(), matches);
  return same ? patterns : names;
}

// Finds for a unit the axes over which its parameters may rest in shards.
class CopyAxes {
 public:
  CopyAxes(const Choice& choice, const Graph& forward) : choice_(choice), forward_(forward) {}
  // Returns the names of these axes, separated by commas.
  std::string of(const UnitView& unit) {
    std::string out;
    for (size_t a = 0; a < choice_.axes.size(); ++a) {
      if (!is_used(choice_, a)) continue;
      ChoiceAxis axis = unit.axis(a);
      axis.size = 2;  // any size above 1, because the axis has several devices in some stage
      const auto [known, is_new] = known_.try_emplace(axis.dims);
      if (is_new) known->second = holds_copies(axis, forward_);
      if (known->second) out += (out.empty() ? "" : ",") + axis.name;
    }
    return out;
  }

 private:
  const Choice& choice_;
  const Graph& forward_;
  std::map<std::vector<std::string>, bool> known_;  // by list
};

// Calls act(value, ops) for each different value of key(unit), in the order of the forward ops.
// `ops`: by op, whether the op is forward and its unit has this value.
template <typename Key, typename Do>
void for_each_group(const Graph& forward, const std::vector<int>& unit_of, Key&& key, Do&& act) {
  std::vector<decltype(key(0))> keys;
  for (const Op& op : forward.ops()) {
    if (op.phase != Phase::kForward) continue;
    const auto one = key(unit_of[op.id.index()]);
    if (std::find(keys.begin(), keys.end(), one) == keys.end()) keys.push_back(one);
  }
  for (const auto& one : keys) {
    std::vector<bool> ops(forward.ops().size());
    for (const Op& op : forward.ops())
      ops[op.id.index()] = op.phase == Phase::kForward && key(unit_of[op.id.index()]) == one;
    act(one, ops);
  }
}

void write_shards(recipes::PlanText& text, const Choice& choice, const Graph& forward,
                  const std::vector<int>& unit_of) {
  struct Group {
    std::string over;
    int64_t sharded = 0;
    std::vector<bool> ops;
  };
  std::vector<Group> groups;
  CopyAxes copies(choice, forward);
  const auto key = [&](int unit) {
    const UnitView view(choice, unit);
    return std::pair(copies.of(view), view.sharded());
  };
  for_each_group(forward, unit_of, key, [&](const auto& group, const std::vector<bool>& ops) {
    groups.push_back({group.first, group.second, ops});
  });
  const bool is_narrow = choice.compute != storage_dtype(choice.compute);
  bool parameters = false;
  for (const Group& group : groups) {
    if (group.over.empty() || group.sharded == 0) continue;
    parameters = parameters || group.sharded >= 3;
    if (groups.size() == 1) {
      recipes::zero(text, group.sharded, group.over);
      continue;
    }
    const auto names = parameters_of(forward, group.ops);
    if (names.empty()) continue;
    const std::string pattern = recipes::alternatives(names);
    text.store("optimizer.*." + pattern, group.over);
    if (group.sharded >= 2) text.store("grad." + pattern, group.over);
    if (parameters_in_shards(group.sharded, choice.compute)) text.store(pattern, group.over);
    if (group.sharded < 3 && is_narrow) text.keep(pattern + ".cast", "step");
  }
  // Parameters in shards are gathered while an earlier block computes.
  if (parameters && recipes::block_count(forward) > 1) text.prefetch = "blocks.*";
  text.ahead = choice.transfers.ahead;
}

Status write_recompute(recipes::PlanText& text, const Choice& choice, const Graph& forward,
                       const std::vector<int>& unit_of) {
  if (choice.units.empty()) return recipes::recompute(text, forward, choice.recompute);
  Status status;
  const auto key = [&](int unit) { return UnitView(choice, unit).recompute(); };
  for_each_group(forward, unit_of, key, [&](const std::string& what, const std::vector<bool>& ops) {
    if (status) status = recipes::recompute_among(text, forward, what, ops);
  });
  return status;
}

}  // namespace

bool holds_copies(const ChoiceAxis& axis, const Graph& forward, const std::vector<int64_t>& times) {
  if (axis.size == 1 || has_name(axis.dims, kBatch)) return axis.size > 1;
  double all = 0, alike = 0;  // elements
  std::vector<bool> seen(forward.tensors().size());
  for (const Op& op : forward.ops()) {
    if (op.phase != Phase::kForward) continue;
    const int dim = op.annotation.find(dim_to_cut(op, axis));
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Tensor& tensor = forward.tensor(op.inputs[i]);
      if (tensor.role != Role::kParameter || seen[tensor.id.index()]) continue;
      seen[tensor.id.index()] = true;
      const double elements = static_cast<double>(tensor.elements()) *
                              static_cast<double>(times.empty() ? 1 : times[op.id.index()]);
      all += elements;
      if (dim < 0 || !op.annotation.inputs[i].contains(dim)) alike += elements;
    }
  }
  return alike > kLittle * all;
}

std::string AxisCut::str() const { return travels.empty() ? dim : dim + kTravels + travels; }

ListEntry parse_entry(std::string_view entry) {
  ListEntry out;
  if (const size_t slash = entry.find('/'); slash != std::string_view::npos) {
    out.scope = entry.substr(0, slash);
    entry.remove_prefix(slash + 1);
  }
  const size_t sign = std::min(entry.find(kTravels), entry.size());
  out.dim = entry.substr(0, sign);
  if (sign < entry.size()) out.travels = entry.substr(sign + 1);
  return out;
}

AxisCut cut_of(const Op& op, const ChoiceAxis& axis) {
  const auto may_cut_dim = [&](std::string_view name) {
    const int d = op.annotation.find(name);
    return d >= 0 && may_cut(op, op.annotation.dims[static_cast<size_t>(d)]);
  };
  for (const std::string& text : axis.dims) {
    const ListEntry entry = parse_entry(text);
    const bool is_meant =
        entry.scope.empty() || class_of(op) == entry.scope || is_in_scope(op, entry.scope);
    const bool may_travel = entry.travels.empty() ||
                            (may_cut_dim(entry.travels) && compares(op, entry.dim, entry.travels));
    if (is_meant && may_travel && may_cut_dim(entry.dim))
      return {std::string(entry.dim), std::string(entry.travels)};
  }
  return {};
}

std::string dim_to_cut(const Op& op, const ChoiceAxis& axis) { return cut_of(op, axis).dim; }

bool parameters_in_shards(int64_t sharded, DType compute) {
  return sharded >= 3 || (sharded >= 1 && compute != storage_dtype(compute));
}

std::string layout_of(const Graph& graph, TensorId tensor, const ChoiceAxis& axis) {
  const Op& op = graph.op(graph.tensor(tensor).producer);
  const std::string dim = dim_to_cut(op, axis);
  if (dim.empty()) return "";
  const auto output = std::find(op.outputs.begin(), op.outputs.end(), tensor) - op.outputs.begin();
  return op.annotation.reduces(op.annotation.find(dim), static_cast<size_t>(output)) ? kParts : dim;
}

bool has_halos(const Graph& forward, const std::vector<ChoiceAxis>& axes) {
  return std::any_of(forward.ops().begin(), forward.ops().end(), [&](const Op& op) {
    if (op.phase != Phase::kForward) return false;
    return std::any_of(axes.begin(), axes.end(), [&](const ChoiceAxis& axis) {
      const int d = axis.size > 1 ? op.annotation.find(dim_to_cut(op, axis)) : -1;
      return d >= 0 && recipes::has_halo(op.annotation.dims[static_cast<size_t>(d)]);
    });
  });
}

const std::vector<ChoiceAxis>& Choice::axes_of_stage(size_t stage) const {
  return stage_axes.empty() ? axes.list() : stage_axes[stage % stage_axes.size()];
}

int64_t Choice::ranks() const {
  const auto product = [](const std::vector<ChoiceAxis>& axes_of) {
    int64_t size = 1;
    for (const ChoiceAxis& axis : axes_of) size *= axis.size;
    return size;
  };
  if (stage_axes.empty()) return stages * product(axes);
  int64_t out = 0;
  for (const auto& axes_of : stage_axes) out += product(axes_of);
  return out;
}

std::string Choice::str() const {
  std::vector<std::string> parts;
  if (stages > 1) parts.push_back(fmt::format("pp={}", stages));
  for (size_t a = 0; a < axes.size(); ++a) {
    if (!is_used(*this, a)) continue;
    std::vector<std::string> sizes;  // "4" or "4/2/2", by stage
    for (size_t s = 0; s < std::max<size_t>(stage_axes.size(), 1); ++s)
      sizes.push_back(std::to_string(axes_of_stage(s)[a].size));
    parts.push_back(
        fmt::format("{}={}[{}]", axes[a].name, join(sizes, "/"), join(axes[a].dims, ",")));
  }
  if (parts.empty()) parts.emplace_back("one device");
  if (stages > 1 || micro_batches > 1) parts.push_back(schedule);
  if (replicas_apart) parts.emplace_back("replicas_apart");
  if (chunks > 1) parts.push_back(fmt::format("chunks={}", chunks));
  if (micro_batches > 1) parts.push_back(fmt::format("micro_batches={}", micro_batches));
  if (sharded > 0) parts.push_back(fmt::format("sharded={}", sharded));
  if (recompute != "none") parts.push_back("recompute=" + recompute);
  if (!offload.empty()) parts.push_back("offload=" + offload);
  if (halos.rims) parts.emplace_back("rims");
  if (halos.layers > 1) parts.push_back(fmt::format("halo_layers={}", halos.layers));
  if (!slices.empty()) parts.push_back(fmt::format("slices={}", fmt::join(slices, "+")));
  if (transfers.ahead != TransferChoice{}.ahead)
    parts.push_back(fmt::format("prefetch={}", transfers.ahead));
  if (transfers.bucket_bytes > 0)
    parts.push_back(fmt::format("bucket_bytes={}", transfers.bucket_bytes));
  const auto own = std::count_if(units.begin(), units.end(),
                                 [](const UnitChoice& unit) { return unit != UnitChoice{}; });
  if (own > 0)
    parts.push_back(fmt::format("{} of {} units with their own choice", own, units.size()));
  return join(parts, " ");
}

std::string cuts_of(const Graph& forward, const std::vector<ChoiceAxis>& axes) {
  std::string out;
  for (const ChoiceAxis& axis : axes) {
    out += fmt::format("{}:", axis.size);
    for (const Op& op : forward.ops()) {
      if (op.phase == Phase::kForward) out += cut_of(op, axis).str() + ",";
    }
  }
  return out;
}

std::vector<std::string> dims_to_cut(const Graph& forward, double share) {
  std::map<std::string, double> work;      // by dim
  std::map<std::string, double> in_class;  // work of ops with queries and keys, by class and dim
  std::map<std::string, double> rings;     // work by "seq~kv": the queries' dim and the keys'
  double all = 0;
  for (const Op& op : forward.ops()) {
    if (op.phase != Phase::kForward) continue;
    double elements = 1;
    for (const OpDim& dim : op.annotation.dims) elements *= static_cast<double>(dim.size);
    all += elements;
    const auto compared = query_key_of(op);
    if (compared) {
      const OpDim& query = op.annotation.dims[static_cast<size_t>(compared->query)];
      const OpDim& key = op.annotation.dims[static_cast<size_t>(compared->key)];
      if (may_cut(op, query) && may_cut(op, key))
        rings[AxisCut{query.name, key.name}.str()] += elements;
    }
    for (const OpDim& dim : op.annotation.dims) {
      if (!may_cut(op, dim)) continue;
      work[dim.name] += elements;
      if (compared) in_class[fmt::format("{}/{}", class_of(op), dim.name)] += elements;
    }
  }
  // Drops the entries of dims that only ops with queries and keys have, because the plain dim says
  // the same, and of the batch, because all ops have it.
  std::erase_if(in_class, [&](const auto& entry) {
    const std::string dim = entry.first.substr(entry.first.find('/') + 1);
    return dim == kBatch || entry.second == work[dim];
  });
  std::vector<std::string> out;
  for (const auto* elements_of : {&work, &in_class, &rings}) {
    std::vector<std::pair<double, std::string>> order;
    for (const auto& [name, elements] : *elements_of) {
      if (elements >= share * all) order.emplace_back(-elements, name);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [elements, name] : order) out.push_back(name);
  }
  return out;
}

Result<std::string> write_plan(const Choice& choice, const Graph& forward,
                               const std::vector<FoldUnit>& units, const std::string& heading) {
  TESSERA_TRY_VOID(check_stage_axes(choice));
  recipes::PlanText text;
  if (choice.stage_axes.empty()) {
    text.mesh.emplace_back("pp", choice.stages);
    for (const ChoiceAxis& axis : choice.axes) text.mesh.emplace_back(axis.name, axis.size);
    if (choice.replicas_apart) {  // from the axis of the farthest devices to that of the nearest
      std::vector<std::string> order = {choice.axes.front().name, "pp"};
      for (size_t a = 1; a < choice.axes.size(); ++a) order.push_back(choice.axes[a].name);
      text.device_order = join(order, ",");
    }
  } else {
    // Each stage writes a mesh of its own. The writer also needs a size of each axis, here
    // the largest.
    for (size_t a = 0; a < choice.axes.size(); ++a) {
      int64_t most = 1;
      for (const auto& axes : choice.stage_axes) most = std::max(most, axes[a].size);
      text.stage_axes.emplace_back(choice.axes[a].name, most);
    }
  }
  if (!choice.device_order.empty())
    text.device_order = fmt::format("{}", fmt::join(choice.device_order, ","));
  text.micro_batches = choice.micro_batches;
  const std::vector<int> unit_of = units_of_ops(forward, units);
  write_splits(text, choice, forward, unit_of);
  write_rings(text, choice, forward, unit_of);
  TESSERA_TRY_VOID(write_stages(text, choice, forward, units));
  TESSERA_TRY_VOID(write_recompute(text, choice, forward, unit_of));
  write_shards(text, choice, forward, unit_of);
  if (!choice.slices.empty()) {
    text.loop("*", choice.slice_dim,
              fmt::format("sizes = [{}]{}", fmt::join(choice.slices, ", "),
                          choice.sliced_stages ? ", stages = true" : ""));
  }
  text.compute_in(std::string(dtype_name(choice.compute)));
  write_offload(text, choice.offload);
  const int64_t bucket = choice.transfers.bucket_bytes;
  return fmt::format("# {}\n{}{}", heading,
                     bucket > 0 ? fmt::format("bucket_bytes = {}\n", bucket) : "", text.str());
}

}  // namespace tessera
