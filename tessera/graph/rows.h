// Tells which operands of an op name rows of a table, and which rows these are, for every kind of
// op. It is for code that keeps a table by rows (program/rows/row_caches.h).
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

// Returns the inputs that hold the ids of the rows which the op touches (touches_rows, kinds.h), or
// none if it touches no rows. Ids below 0 name no row.
std::vector<size_t> ids_of_rows(const Op& op);

// Returns the number of operands of a look-up. `mode` is one word of the attribute `modes` of an op
// that reads the gradients of look-ups: the operands are ids, dy and weights for "weighted", only
// ids for "ids", else ids and dy.
inline constexpr std::string_view kWeightedLookUp = "weighted", kIdsAlone = "ids";
size_t operands_of_look_up(std::string_view mode);

// Returns the number of operands before the first ids, in an op that reads the gradients of
// look-ups. These operands are the table and others with one row for each row of the table.
size_t tables_of_rows(const Op& op);

// Returns the op's dim that counts the rows of that input, a table. The rows are the table's
// first dim.
int row_dim(const Op& op, size_t input);

// Returns whether the op reads only the sizes of that input, a table, and none of its values.
bool reads_sizes_alone(const Op& op, size_t input);

// Returns how the kind of the op names rows by compressed rows (RowNaming, kinds.h), or null if it
// does not.
const struct RowNaming* naming_of(const Op& op);
// Returns the inputs begin, end and columns of an op for which naming_of is not null.
std::vector<size_t> ids_of_naming(const Op& op);
// Returns whether row i of one op names the same rows of tables as row i of the other, because both
// have the same ids and sample them in the same way.
bool name_alike(const Op& a, const Op& b);
// Returns the largest number of ids that all rows of the op can name together.
int64_t most_named(const Op& op);

}  // namespace tessera
