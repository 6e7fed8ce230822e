// The part of a random plan that is drawn first: meshes, stages, places and the schedule.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "random_case.h"
#include "tessera/graph/graph.h"
#include "tessera/plan/plan.h"

namespace tessera {

struct Axis {
  std::string name;
  int64_t size = 1;
};
using MeshAxes = std::vector<Axis>;

// Returns the number of the forward op of `graph` of which `path` was made (an expansion, a step of
// a loop, a clone); -1: none.
int origin(const Graph& graph, std::string_view path);

struct Pipeline {
  std::vector<MeshAxes> axes;  // by named stage: what splits and stores there may use
  std::vector<int> stage_of;   // by op of the forward graph: its named stage
  int64_t micro_batches = 1;
  std::string keys;      // mesh, micro_batches, place, schedule: lines before the first table
  std::string tables;    // [[stage]], and a [[loop]] whose steps are stages
  std::string loop_dim;  // of that loop; "": none
  int64_t loop_steps = 1;
  bool has_table = false;  // of blocks, made for the stages that have a backward pass
};

// Returns which of the `stages` stages (with loops whose steps are stages, stages of all steps)
// have a backward block under the plan. Only the plan's keys, stages and loops count.
std::vector<bool> with_backward(const Graph& forward_graph, const Pipeline& pipeline,
                                const Plan& plan, int64_t stages);

// `meshes`: stages have meshes of their own, over any of three axes in any order, and no entry
// names some of the ops.
Pipeline random_pipeline(Choices& choices, const Graph& graph, Features& features,
                         bool meshes = false);

}  // namespace tessera
