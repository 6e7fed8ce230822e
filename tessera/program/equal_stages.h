// Stages of a pipeline that are equal but for names need not all be lowered for a price. The graph
// loses the ops of all but two of them, and what is left is lowered in a time that does not depend on
// the depth of the model. Places, ranks and schedules stay those of all stages.
//
//   GPT with 96 layers on 16 stages; in the shorter graph are the stages 0, 1, 2 and 15
//   CopiedStages{.original = StageId(2), .count = 12}   // 3 to 14 are copies of 2
//
// Stages are compared as the plan has them resolved: op by op with splits, pins and what is kept of
// each tensor. A stage may read what it makes itself, what the stages beside it make, and what any
// other stage outside the run makes, if all stages of the run read it (a coefficient of all
// gradients). The stage before the original is equal to it too, so that what enters the copies is what
// enters the original (copied_stages.h). Private to tessera/program.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/plan/plan.h"

namespace tessera {

struct CopiedStages {
  StageId original;  // the stage that the copies equal
  int64_t count = 0;
  StageId last() const { return StageId(original.value + static_cast<int32_t>(count)); }
  StageId next() const { return StageId(last().value + 1); }  // the stage behind the copies
  bool contains(StageId stage) const { return stage > original && stage <= last(); }
};

// By stage: its ops, in graph order.
std::vector<std::vector<OpId>> ops_by_stage(const Graph& graph, const ResolvedPlan& plan);

struct ShorterGraph {
  CopiedStages copied;
  std::shared_ptr<const Graph> graph;  // without the ops of the copies
  ResolvedPlan plan;                   // of that graph, with all stages
};
// Nothing: fewer than two stages would be copies.
std::optional<ShorterGraph> without_copies(const Graph& graph, const ResolvedPlan& plan);

}  // namespace tessera
