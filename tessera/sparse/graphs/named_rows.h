// Lists of the rows of a table that an op names by compressed rows (RowNaming, graph/kinds.h), when
// several members of a group each own some rows of the table. For each two members i and j, a list
// has the rows of member j that member i names. The exchanges of a run (runtime/cached_rows/row_exchange.h) and
// the prediction of their traffic for the ids of a step (count_named_rows) use the same lists.
//
//   const NamedLists lists = name_rows({begin, end, columns, rows_of_table}, sampling_of(op, step), rows, owned);
//   for (const int32_t row : lists.of(names, owner)) ...   // row number minus owned[owner].begin
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/program/program.h"
#include "tessera/sparse/graphs/sample.h"

namespace tessera::sparse {

// Returns which edges the op samples in a step.
Sampling sampling_of(const Op& op, int64_t step);

// The ids of an op that names rows, of all rows of the op. If an id is out of range, the nearest
// valid one is taken, as kernels do.
struct CompressedRows {
  std::span<const int64_t> begin, end, columns;
  int64_t table_rows = 0;
};

struct NamedLists {
  size_t members = 0;
  std::vector<std::vector<int32_t>> lists;  // index: names * members + owner
  // Returns the rows of member `owner` that member `names` names, in ascending order, each once.
  // Rows are counted from the owner's first row. The list is empty if both are the same member.
  const std::vector<int32_t>& of(size_t names, size_t owner) const {
    return lists[names * members + owner];
  }
  std::vector<int64_t> counts() const;
};
// Returns the lists. `rows` has the rows of the op that each member computes; `owned` has the rows
// of the table that each member owns, which are disjoint.
NamedLists name_rows(const CompressedRows& ids, const Sampling& sampling,
                     const std::vector<Interval>& rows, const std::vector<Interval>& owned);

bool exchanges_named_rows(const Program& program);
// Returns the whole contents of an input that holds ids, for one step.
using IdsOfStep = std::function<std::vector<int64_t>(TensorId input)>;
// Sets NamedRows::counted (program/program.h) in all exchanges of the program, by the ids of a
// step.
void count_named_rows(Program& program, const Graph& graph, const IdsOfStep& ids, int64_t step);

}  // namespace tessera::sparse
