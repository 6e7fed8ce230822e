// Makes the places and rows of a resolved plan (plan.h), and the shape of its pipeline.
#include <algorithm>
#include <map>
#include <set>

#include "tessera/base/check.h"
#include "tessera/plan/plan.h"

namespace tessera {
namespace {

std::vector<int> devices_of(const Mesh& mesh) {
  Axes all;
  for (size_t a = 0; a < mesh.axes.size(); ++a) all.emplace_back(a);
  return mesh.group(std::vector<int64_t>(all.size(), 0), all);
}

// Returns whether each stage waits for the stage with the next smaller number. The stages can then
// only run in the order 0, 1, 2, ..., which is what an empty PipelineShape::after means.
bool is_chain(const std::vector<std::vector<int64_t>>& after) {
  for (size_t s = 1; s < after.size(); ++s) {
    const auto before = static_cast<int64_t>(s) - 1;
    if (std::find(after[s].begin(), after[s].end(), before) == after[s].end()) return false;
  }
  return true;
}

}  // namespace

void make_places(ResolvedPlan& plan, const std::vector<Mesh>& meshes) {
  for (size_t s = 0; s < meshes.size(); ++s) {
    const auto known = std::find_if(plan.places.begin(), plan.places.end(),
                                    [&](const Place& place) { return place.mesh == meshes[s]; });
    const PlaceId place(static_cast<size_t>(known - plan.places.begin()));
    if (known == plan.places.end()) plan.places.push_back({meshes[s], {}});
    plan.places[place.index()].stages.emplace_back(s);
    plan.stages.push_back({meshes[s], place});
  }
  int64_t ranks = 0;
  for (const Place& place : plan.places) ranks += place.mesh.size();
  if (ranks == plan.plan.ranks()) {  // no device belongs to two places
    for (size_t p = 0; p < plan.places.size(); ++p) plan.rows.push_back({PlaceId(p)});
    return;
  }
  std::map<int, std::vector<PlaceId>> of_device;
  for (size_t p = 0; p < plan.places.size(); ++p) {
    for (int device : devices_of(plan.places[p].mesh)) of_device[device].emplace_back(p);
  }
  for (const auto& [device, places] : of_device) {
    if (std::find(plan.rows.begin(), plan.rows.end(), places) == plan.rows.end())
      plan.rows.push_back(places);
  }
}

std::vector<PlaceId> ResolvedPlan::places_of(int64_t rank) const {
  std::vector<PlaceId> out;
  for (size_t p = 0; p < places.size(); ++p) {
    if (places[p].mesh.contains(rank)) out.emplace_back(p);
  }
  return out;
}

size_t ResolvedPlan::row_of(int64_t rank) const {
  const auto row = std::find(rows.begin(), rows.end(), places_of(rank));
  TESSERA_CHECK(row != rows.end(), "rank {} is at no place", rank);
  return static_cast<size_t>(row - rows.begin());
}

PipelineShape pipeline_shape(const ResolvedPlan& plan, const Graph& graph) {
  PipelineShape shape{.places = static_cast<int64_t>(plan.rows.size()),
                      .micro_batches = plan.plan.micro_batches};
  const size_t stages = plan.stages.size();
  shape.at.resize(stages);
  for (size_t s = 0; s < stages; ++s) {
    for (size_t r = 0; r < plan.rows.size(); ++r) {
      const auto& row = plan.rows[r];
      if (std::find(row.begin(), row.end(), plan.stages[s].place) != row.end())
        shape.at[s].push_back(static_cast<int64_t>(r));
    }
  }
  std::vector<std::set<int64_t>> after(stages);
  std::vector<bool> backward(stages, false);
  bool differentiated = false;
  for (const Op& op : graph.ops()) {
    const StageId here = plan.ops[op.id.index()].stage;
    if (op.phase == Phase::kBackward) backward[here.index()] = differentiated = true;
    if (op.phase != Phase::kForward) continue;
    for (TensorId input : op.inputs) {
      const OpId producer = graph.tensor(input).producer;
      if (!producer.valid()) continue;
      const StageId there = plan.ops[producer.index()].stage;
      if (there != here) after[here.index()].insert(there.value);
    }
  }
  if (differentiated) shape.backward = backward;
  for (const auto& stage : after) shape.after.emplace_back(stage.begin(), stage.end());
  if (is_chain(shape.after)) shape.after.clear();
  return shape;
}

}  // namespace tessera
