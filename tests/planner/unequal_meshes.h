// Compares stages on meshes of unequal size with every such plan of small questions, enumerated
// here without the search's help: sub-meshes, borders, dims, micro-batches, schedules and shards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::planner_test {

struct NodesQuestion {
  std::string model;
  std::vector<int64_t> nodes;  // devices of each
  int64_t batch = 2;
  std::string machine = "dgx-a100";
};

// Asks `auto` for unequal meshes, and expects a step at most `times` times the best of all.
void expect_as_fast_as_all(const NodesQuestion& asked, double times);
// The search finds borders and sub-meshes by formulas, which err by some percent for few layers.
inline constexpr double kFormulaErrs = 1.1;

}  // namespace tessera::planner_test
