// Plans models with embedding tables. The way in which each table is spread over devices is written
// as entries of a plan text; a search then finds the rest of the plan.
//
//   1. A planner of tables (tables/shard.h) places them, by the closed form with the rates
//      of the question's machine. A table that it leaves whole is pinned to its device; one that it
//      cuts in rows or columns is cut so over all devices, evenly, which is what a plan can say;
//      one that it replicates is on every device.
//   2. Under "auto" all of these planners are seeds, and so are plans that treat all tables alike.
//      The programs of the seeds are simulated; from the fastest one, table by table, other ways
//      are tried, each by the program of the whole step, until none is faster.
//   3. The tables' entries are a part (plan/layout/part.h), and find_in_space() searches the rest:
//      micro-batches, shards, recomputation.
//
//   TESSERA_TRY(const PlanAnswer answer, plan_tables(question, "neuroshard"));
#pragma once

#include <string>
#include <vector>

#include "tessera/plan/resolve/look_ups.h"
#include "tessera/search/question/answer.h"
#include "tessera/search/question/question.h"

namespace tessera {

// How one table is spread over nodes x devices.
struct TableSpread {
  enum Kind : uint8_t {
    kWhole,     // on the device `at`
    kRows,      // over all devices
    kColumns,   // over all devices
    kNodeRows,  // over the devices of the node `at`
    kReplica,   // on every device
  };
  Kind kind = kReplica;
  int64_t at = 0;
  friend bool operator==(const TableSpread&, const TableSpread&) = default;
};

// Returns the text of a plan with one stage, in which the batch is cut over all devices and the
// tables are spread as `spreads` says. `spreads`: by table, in the order of the tables' first
// look-ups. The mesh has the axis "dp" inside a node and, if there are several nodes, the axis
// "nodes" around it. The first line is the comment `heading`.
std::string table_plan_text(const Graph& forward, int64_t nodes, int64_t devices_a_node,
                            const std::vector<TableSpread>& spreads, const std::string& heading);

// Returns whether it is worth spreading tables in different ways: the model's tables are at least a
// quarter of its parameters, there is more than one device, and the question has no part and fixes
// none of dp, tp and pp.
bool may_spread_tables(const PlanQuestion& question);

// Answers a question. `planner`: a name of tables/shard.h. Errors: those of find_plan; a
// model without tables; a single device; a part or degrees in the question (--with, --fix of dp,
// tp, pp), because the tables' entries are themselves a part.
Result<PlanAnswer> plan_tables(const PlanQuestion& question, const std::string& planner);

}  // namespace tessera
