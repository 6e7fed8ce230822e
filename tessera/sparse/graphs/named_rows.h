// Rows of a table that an op names by compressed rows (RowNaming, graph/kinds.h), for tables whose
// rows lie on several members of a group: the lists say which member names which rows of which
// owner. Both a run's exchanges (runtime/row_exchange.h) and the prediction for the ids of a step
// (count_named_rows) use these lists.
//
//   const NamedLists lists = name_rows({begin, end, columns, rows_of_table}, sampling_of(op, step), rows, owned);
//   for (const int32_t row : lists.of(names, owner)) ...   // behind owned[owner].begin
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/program/program.h"
#include "tessera/sparse/graphs/sample.h"

namespace tessera::sparse {

// Returns the sample that the op takes in a step.
Sampling sampling_of(const Op& op, int64_t step);

// The whole ids. An id out of range is taken as the nearest inside, as kernels do.
struct CompressedRows {
  std::span<const int64_t> begin, end, columns;
  int64_t table_rows = 0;
};

struct NamedLists {
  size_t members = 0;
  std::vector<std::vector<int32_t>> lists;  // by names * members + owner
  // Returns the rows that member `names` names of `owner`, ascending, each once, counted from the
  // owner's first row. A member does not name rows that it owns.
  const std::vector<int32_t>& of(size_t names, size_t owner) const {
    return lists[names * members + owner];
  }
  std::vector<int64_t> counts() const;
};
// Returns the lists. `rows`: of the op, by member. `owned`: of the table, by member, disjoint.
NamedLists name_rows(const CompressedRows& ids, const Sampling& sampling,
                     const std::vector<Interval>& rows, const std::vector<Interval>& owned);

bool exchanges_named_rows(const Program& program);
// Returns the whole ids of a step that an input holds.
using IdsOfStep = std::function<std::vector<int64_t>(TensorId input)>;
// Fills NamedRows::counted in all exchanges of the program.
void count_named_rows(Program& program, const Graph& graph, const IdsOfStep& ids, int64_t step);

}  // namespace tessera::sparse
