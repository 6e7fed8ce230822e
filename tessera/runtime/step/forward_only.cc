#include "tessera/runtime/step/forward_only.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tessera/graph/pieces.h"
#include "tessera/plan/resolve/ahead_split.h"
#include "tessera/plan/resolve/selector.h"

namespace tessera {

Plan forward_part(Plan plan, const Graph& graph) {
  const Plan plain;
  plan.micro_batches = plain.micro_batches;
  plan.schedule = plain.schedule;
  plan.schedule_table = plain.schedule_table;
  plan.reorders = plain.reorders;
  plan.compress = plain.compress;
  std::vector<std::string_view> names;
  for (const Tensor& tensor : graph.tensors()) names.push_back(tensor.name);
  PathIndex index(names);
  std::erase_if(plan.stores, [&](const StoreEntry& entry) {
    if (entry.tensors == "role:parameter") return false;
    const std::vector<bool>& selected = index.select(entry.tensors);
    return std::find(selected.begin(), selected.end(), true) == selected.end();
  });
  for (StoreEntry& entry : plan.stores) {
    entry.recompute.reset();
    entry.keep.reset();
    entry.keep_over.reset();
  }
  std::erase_if(plan.splits, [](const SplitEntry& entry) {
    return entry.phase.value_or(Phase::kForward) != Phase::kForward || is_ahead(entry);
  });
  return plan;
}

Status check_weights(const Graph& graph, const TensorSource& source) {
  const Origins origins(graph);
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role != Role::kParameter) continue;
    const PieceOrigin origin = origins.of(tensor.id);
    const SourceArray* array = source.find(origin.name);
    if (array == nullptr) {
      return invalid_input(fmt::format("weights '{}': expected the parameter '{}' [{}], found none",
                                       source.where(), origin.name, fmt::join(origin.shape, ", ")));
    }
    if (array->shape != origin.shape) {
      return invalid_input(fmt::format("weights '{}': expected the shape [{}] of '{}', found [{}]",
                                       source.where(), fmt::join(origin.shape, ", "), origin.name,
                                       fmt::join(array->shape, ", ")));
    }
  }
  return {};
}

Status load_parameters(RankExecutor& executor, const Graph& graph, const Program& program,
                       const TensorSource& source) {
  const Origins origins(graph);
  for (const Home& home : program.homes) {
    const PieceOrigin origin = origins.of(home.tensor);
    const SourceArray* array = source.find(origin.name);
    // If the weights lack a running state, its home keeps the initial values.
    if (array == nullptr || array->shape != origin.shape) continue;
    HostArray values{home.tensor, home.region, program.buffer(home.buffer).dtype, {}};
    values.data.resize(static_cast<size_t>(home.region.volume() * dtype_bytes(values.dtype)));
    TESSERA_TRY_VOID(
        source.read(*array, origin.in_whole(home.region), values.dtype, values.data.data()));
    executor.write(home, values);
  }
  return {};
}

}  // namespace tessera
