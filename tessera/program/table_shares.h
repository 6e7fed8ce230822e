// The shares of embedding tables that ranks keep, as programs say it: for reports and the record of
// a run. A table is a parameter of two dims, rows and width, that only look-ups of its rows read.
//
//   for (const TableShare& share : table_shares(programs[rank], tables_of(model.graph), graph))
//     fmt::print("{} keeps rows {} of {}\n", rank, share.rows.size, share.table);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/graph/graph.h"
#include "tessera/program/program.h"

namespace tessera {

// Returns the tables of a model's forward graph, by name.
std::vector<std::string> tables_of(const Graph& forward);

// A `TableShare` describes what a rank keeps of a table between steps.
struct TableShare {
  std::string table;
  int rank = 0;
  Interval rows, columns;  // empty if the rank keeps only states
  Tier tier = Tier::kDevice;
  int64_t bytes = 0, state_bytes = 0;  // of the box; of the table's optimizer states on this rank
  friend bool operator==(const TableShare&, const TableShare&) = default;
};
// Returns the shares in the order of `tables`. `graph`: the graph that the program was lowered
// from.
std::vector<TableShare> table_shares(const Program& program, const std::vector<std::string>& tables,
                                     const Graph& graph);

}  // namespace tessera
