// The degrees and switches that a framework runs, as choices for a planner (search/choices/grid.h). A target
// of exports (export/target.h) states its grid, so that what a planner offers can be launched.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

struct DegreeGrid {
  // Lists of dims (search/choices/choice.h) for ranks that share a layer, and for ranks that share a
  // sequence. Empty: the framework has no such ranks. The dims of the first that a model lacks are
  // passed over; the second are tried for models with a dim `seq`.
  std::vector<std::vector<std::string>> tensor, context;
  bool experts = false;    // whether ranks may share the experts of a block
  bool pipelines = false;  // whether there may be several stages
  // Levels of recomputation, the least first; "none" is the first.
  std::vector<std::string> recompute = {"none", "full"};
  // Schedules of pipelines, and the numbers of stages of a rank that are tried with each.
  std::vector<std::pair<std::string, std::vector<int64_t>>> schedules = {{"1f1b", {1}}};
  std::vector<int64_t> sharded = {0, 1, 2, 3};  // values of Choice::sharded
};

}  // namespace tessera
