// The shares of embedding tables that ranks keep, read from their programs. Reports and the record
// of a run show them. A table is a parameter of two dims, rows and width, that is read only by
// look-ups of its rows.
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

// Returns the names of the tables of a model's forward graph.
std::vector<std::string> tables_of(const Graph& forward);

// A `TableShare` describes what a rank keeps of a table between steps.
struct TableShare {
  std::string table;
  int rank = 0;
  Interval rows, columns;  // empty if the rank keeps only optimizer states of the table
  Tier tier = Tier::kDevice;
  // Bytes of these rows and columns, and of the table's optimizer states on this rank.
  int64_t bytes = 0, state_bytes = 0;
  friend bool operator==(const TableShare&, const TableShare&) = default;
};
// Returns the shares in the order of `tables`. `graph`: the graph that the program was lowered
// from.
std::vector<TableShare> table_shares(const Program& program, const std::vector<std::string>& tables,
                                     const Graph& graph);

}  // namespace tessera
