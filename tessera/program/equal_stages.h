// Stages of a pipeline that are equal but for names need not all be lowered for a price. The ops of
// all but two of them are taken out of the graph, so that the time of lowering does not depend on
// the depth of the model. Places, ranks and schedules stay those of all stages.
//
//   GPT with 96 layers on 16 places; in the shorter graph are the places 0, 1, 2 and 15
//   CopiedPlaces{.original = PlaceId(2), .count = 12}   // 3 to 14 are copies of 2
//
// Places are compared, each with all its stages: one under 1f1b, six under an interleaved schedule
// of six chunks. Their stages are compared as the plan has them resolved: op by op with splits,
// pins and the store keys of each tensor. A place may read tensors of its own, of the places beside
// it, and of any other place outside the run if all places of the run read them (a coefficient of
// all gradients). The place before the original is equal to it too, so that the same tensors enter
// the copies as enter the original (copied_stages.h). Private to tessera/program.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/plan/plan.h"

namespace tessera {

struct CopiedPlaces {
  PlaceId original;  // the place that the copies equal
  int64_t count = 0;
  PlaceId last() const { return PlaceId(original.value + static_cast<int32_t>(count)); }
  PlaceId next() const { return PlaceId(last().value + 1); }  // the place behind the copies
  bool contains(PlaceId place) const { return place > original && place <= last(); }
};

// Returns the ops of each place's stages, by place and in graph order.
std::vector<std::vector<OpId>> ops_by_place(const Graph& graph, const ResolvedPlan& plan);

struct ShorterGraph {
  CopiedPlaces copied;
  std::shared_ptr<const Graph> graph;  // without the ops of the copies
  ResolvedPlan plan;                   // of that graph, with all stages
};
// Returns the graph without copies; nothing if fewer than two places would be copies.
std::optional<ShorterGraph> without_copies(const Graph& graph, const ResolvedPlan& plan);

}  // namespace tessera
