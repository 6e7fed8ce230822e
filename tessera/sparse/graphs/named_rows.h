// Rows of a table that an op names by compressed rows (RowNaming, graph/kinds.h), for tables whose rows
// lie on several members of a group: who names which rows of whom. What a run exchanges
// (runtime/row_exchange.h) and what is predicted for the ids of a step (count_named_rows) are both
// these lists.
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

// The sample that the op takes in a step.
Sampling sampling_of(const Op& op, int64_t step);

// Whole. What lies outside is taken as the nearest inside, as kernels take it.
struct CompressedRows {
  std::span<const int64_t> begin, end, columns;
  int64_t table_rows = 0;
};

struct NamedLists {
  size_t members = 0;
  std::vector<std::vector<int32_t>> lists;  // by names * members + owner
  // Ascending, each row once, counted from the owner's first; what a member owns it does not name.
  const std::vector<int32_t>& of(size_t names, size_t owner) const {
    return lists[names * members + owner];
  }
  std::vector<int64_t> counts() const;
};
// `rows`: of the op, by member. `owned`: of the table, by member, disjoint.
NamedLists name_rows(const CompressedRows& ids, const Sampling& sampling,
                     const std::vector<Interval>& rows, const std::vector<Interval>& owned);

bool exchanges_named_rows(const Program& program);
// Whole ids of a step, by the input that holds them.
using IdsOfStep = std::function<std::vector<int64_t>(TensorId input)>;
// Fills NamedRows::counted in all exchanges of the program.
void count_named_rows(Program& program, const Graph& graph, const IdsOfStep& ids, int64_t step);

}  // namespace tessera::sparse
