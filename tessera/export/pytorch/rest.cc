// How parameters, gradients and optimizer state rest: sharded over which axes, on which tier.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "tessera/export/compare.h"
#include "tessera/export/pytorch/facts.h"

namespace tessera::pytorch {
namespace {

// The tensors of a role: over which axes any of them rests in shards, and the entry that says so.
struct Shards {
  std::set<std::string> axes;
  int entry = -1;
  const Tensor* whole = nullptr;  // a matrix that rests whole
};

bool counts(const Graph& graph, const Tensor& tensor, Role role) {
  if (tensor.role != role || !is_matrix(tensor)) return false;
  if (role == Role::kGradient) return graph.is_parameter_gradient(tensor.id);
  return role != Role::kParameter || (!is_constant(tensor) && tensor.trained);
}

Shards shards_of(const Facts& facts, Role role) {
  Shards out;
  for (const Tensor& tensor : facts.graph->tensors()) {
    if (!counts(*facts.graph, tensor, role) || tensor.update_of.valid()) continue;
    const std::vector<std::string> axes = axes_at_rest(facts.resolved, tensor);
    if (axes.empty()) out.whole = &tensor;
    if (axes.empty()) continue;
    out.axes.insert(axes.begin(), axes.end());
    out.entry = facts.resolved.tensors[tensor.id.index()].over_entry;
  }
  return out;
}

Status find_keep(Facts& facts) {
  for (const Tensor& tensor : facts.graph->tensors()) {
    const TensorPlan& planned = facts.resolved.tensors[tensor.id.index()];
    if (tensor.role != Role::kParameter || tensor.update_of.valid()) continue;
    facts.kept = facts.kept || planned.keep == Keep::kMicroBatch || planned.keep == Keep::kStep;
    if (planned.keep_over.numbers().empty()) continue;
    const Stage& home = facts.resolved.stages[planned.home.index()];
    int64_t pieces = 1, inner = 1;
    for (const AxisId id : planned.keep_over.at(home.place)) pieces *= home.mesh.axis(id).size;
    for (auto axis = facts.axes.rbegin(); axis != facts.axes.rend() && inner < pieces; ++axis) {
      if (axis->use == AxisUse::kShards) inner *= axis->size;
    }
    if (inner != pieces) {
      return cannot_run(store_place(facts, planned.keep_over_entry),
                        "gathered parameters stay in pieces of neighbouring ranks",
                        "keep_over = the last axes of the shards");
    }
    facts.kept_pieces = pieces;
  }
  return {};
}

Status find_tiers(Facts& facts) {
  std::array<bool, 2> hosted{}, on_device{};
  int entry = -1;
  for (const Tensor& tensor : facts.graph->tensors()) {
    if (tensor.update_of.valid()) continue;
    const TensorPlan& planned = facts.resolved.tensors[tensor.id.index()];
    if (planned.cache || planned.tier == Tier::kDisk) {
      return cannot_run(store_place(facts, planned.tier_entry), "fully_shard has the host alone",
                        "tier = \"host\"");
    }
    const bool host = planned.tier == Tier::kHost;
    if (host && tensor.role == Role::kActivation && !parameter_read(*facts.graph, tensor.id)) {
      return cannot_run(store_place(facts, planned.tier_entry),
                        "this file keeps activations on the device", "recompute = true");
    }
    if (host) entry = planned.tier_entry;
    const bool state = tensor.role == Role::kOptimizerState;
    if (!state && !counts(*facts.graph, tensor, Role::kParameter)) continue;
    (host ? hosted : on_device)[state ? 0 : 1] = true;
  }
  facts.offload = hosted[0] && hosted[1];
  if (entry >= 0 && (!facts.offload || on_device[0] || on_device[1])) {
    return cannot_run(store_place(facts, entry),
                      "CPUOffloadPolicy has parameters, gradients and optimizer state on the host",
                      "tier = \"host\" for optimizer.* and role:parameter, all of them");
  }
  return {};
}

}  // namespace

Status find_rest(Facts& facts) {
  const Shards states = shards_of(facts, Role::kOptimizerState),
               gradients = shards_of(facts, Role::kGradient),
               parameters = shards_of(facts, Role::kParameter);
  int64_t level = 0;
  for (const Shards* shards : {&states, &gradients, &parameters}) {
    ++level;
    if (shards->axes.empty()) continue;
    facts.zero = level;
    facts.zero_entry = shards->entry;
  }
  if (facts.zero == 3 && parameters.whole != nullptr) {
    return cannot_run(
        store_place(facts, facts.zero_entry),
        fmt::format("fully_shard shards all parameters; '{}' rests whole", parameters.whole->name),
        "tensors = \"role:parameter\"");
  }
  std::set<std::string> sharded = states.axes;
  sharded.insert(gradients.axes.begin(), gradients.axes.end());
  if (facts.zero == 3) sharded = parameters.axes;
  facts.sums_each = !gradients.axes.empty();
  if (states.axes != sharded || (facts.sums_each && gradients.axes != sharded)) {
    return cannot_run(store_place(facts, std::max(states.entry, gradients.entry)),
                      "fully_shard cuts optimizer state and gradients over the axes of their "
                      "parameters",
                      "the same `over` for optimizer.*, role:gradient and role:parameter");
  }
  for (UsedAxis& axis : facts.axes) {
    if (!sharded.contains(axis.name)) continue;
    if (axis.use == AxisUse::kReplicas) axis.use = AxisUse::kShards;
    if (axis.use == AxisUse::kStages) {
      return cannot_run(store_place(facts, facts.zero_entry), "a stage keeps what it uses",
                        "shards over the replicas");
    }
  }
  // fully_shard wants the axes of the mesh in this order, and one axis for each use.
  for (size_t i = 1; i < facts.axes.size(); ++i) {
    const UsedAxis &before = facts.axes[i - 1], &axis = facts.axes[i];
    if (before.use <= axis.use) continue;
    return cannot_run(split_place(facts, std::max(before.entry, axis.entry)),
                      fmt::format("its meshes have stages, replicas, shards and tensor ranks in "
                                  "this order; '{}' stands before '{}'",
                                  before.name, axis.name),
                      "the mesh in this order");
  }
  TESSERA_TRY_VOID(find_keep(facts));
  return find_tiers(facts);
}

}  // namespace tessera::pytorch
