// Plans models with embedding tables: the place of each table as entries of a plan text, and the
// rest of the plan searched around them.
//
//   1. A planner of tables (search/tables/shard.h) places them, by the closed form with the rates
//      of the question's machine. A table that it leaves whole is pinned to its device; one that it
//      cuts in rows or columns is cut so over all devices, evenly, which is what a plan can say;
//      one that it replicates is looked up by each replica.
//   2. Under "auto" all of these planners are seeds, and so are plans that treat all tables alike.
//      The programs of the seeds are simulated; from the fastest one, table by table, other ways
//      are tried, each by the program of the whole step, until none is faster.
//   3. The tables' entries are a part (plan/part.h), and find_in_space() searches the rest:
//      micro-batches, shards, recomputation.
//
//   TESSERA_TRY(const PlanAnswer answer, plan_tables(question, "neuroshard"));
#pragma once

#include <string>
#include <vector>

#include "tessera/plan/look_ups.h"
#include "tessera/search/answer.h"
#include "tessera/search/question.h"

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

// Returns the text of a plan of one stage whose batch is cut over all devices, with the tables
// spread so: `spreads` by table, in the order of their first look-ups. One node has the axis "dp";
// several have "nodes" around it. The first line is a comment, `heading`.
std::string table_plan_text(const Graph& forward, int64_t nodes, int64_t devices_a_node,
                            const std::vector<TableSpread>& spreads, const std::string& heading);

// Returns whether the question's model has tables that a plan may spread, on more than one device,
// on which a step may depend (a quarter of the parameters or more), and the question leaves open
// how.
bool may_spread_tables(const PlanQuestion& question);

// Answers a question. `planner`: a name of search/tables/shard.h. Errors: those of find_plan; a
// model without tables; one device; a part or degrees that are given (--with, --fix of dp, tp, pp),
// because the tables' entries are a part themselves.
Result<PlanAnswer> plan_tables(const PlanQuestion& question, const std::string& planner);

}  // namespace tessera
