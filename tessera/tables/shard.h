// Runs planners of tables by name, for `tessera shard` (docs/reference/tables.md).
//
//   const auto cost = load_cost_model("closed");
//   Problem problem{.tables = tables, .devices = 4, .memory_bytes = 4LL << 30, .cost = cost->get()};
//   TESSERA_TRY(const Answer answer, shard(problem, "auto", {}));
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/tables/placement.h"

namespace tessera::tables {

struct TablePlanner {
  std::string name, summary;
};
const std::vector<TablePlanner>& table_planners();

struct ShardOptions {
  uint64_t seed = 1;        // seed of the planners auto and random
  int64_t budget = 400000;  // most placements that auto prices
  std::function<void(const std::string&)> progress;
};
// Places the tables with a planner. Errors: an unknown planner, a number of devices that the cost
// model cannot price.
Result<Answer> shard(const Problem& problem, const std::string& planner,
                     const ShardOptions& options);

// Writes a placement as CSV, to be edited and read back:
//   table,kind,device,first_row,rows,first_column,columns
std::string placement_csv(const Problem& problem, const Placement& placement);
// Reads a placement. Errors: a wrong cell, with file:line. Whether the pieces cover the tables is
// not checked here but by evaluate().
Result<Placement> read_placement(const Problem& problem, std::string_view csv,
                                 std::string_view file);

}  // namespace tessera::tables
