// If a plan is only priced, stages of a pipeline that are equal but for names need not all be
// lowered. In a run of places whose stages are equal, only two places keep their ops in the graph;
// the ops of the others are taken out. So the time of lowering does not depend on the depth of the
// model. Places, ranks and schedules stay those of all stages.
//
//   GPT with 96 layers on 16 places; in the shorter graph are the places 0, 1, 2 and 15
//   CopiedPlaces{.original = PlaceId(2), .count = 12}   // 3 to 14 are copies of 2
//
// Two places are compared with all their stages: a place has one stage under 1f1b and six stages
// under an interleaved schedule of six chunks. The comparison goes op by op, with the splits, the
// pins and each tensor's store keys that the plan resolves to. A place may read its own tensors and
// those of the previous and the next place. It may read tensors of other places only if these are
// outside the run of equal places and all places of the run read the same tensors (such as a
// coefficient of all gradients). The place before the original is equal to the original too.
// copied_stages.h explains what this is needed for. Private to tessera/program.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/plan/plan.h"

namespace tessera {

struct CopiedPlaces {
  PlaceId original;  // the place of which the next `count` places are copies
  int64_t count = 0;
  PlaceId last() const { return PlaceId(original.value + static_cast<int32_t>(count)); }
  PlaceId next() const { return PlaceId(last().value + 1); }  // the first place after the copies
  bool contains(PlaceId place) const { return place > original && place <= last(); }
};

// Returns the ops of each place's stages, by place and in graph order.
std::vector<std::vector<OpId>> ops_by_place(const Graph& graph, const ResolvedPlan& plan);

struct ShorterGraph {
  CopiedPlaces copied;
  std::shared_ptr<const Graph> graph;  // without the ops of the copies
  ResolvedPlan plan;                   // of that graph, with all stages
};
// Returns the graph without the ops of copied places; nothing if fewer than two places would be
// copies.
std::optional<ShorterGraph> without_copies(const Graph& graph, const ResolvedPlan& plan);

}  // namespace tessera
