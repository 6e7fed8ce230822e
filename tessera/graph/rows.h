// Tells which operands of an op name rows of a table, and which rows, whatever the op's kind, for
// code that keeps a table by rows (program/row_caches.h).
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

// Returns the inputs whose ids name the rows that the op touches (touches_rows, kinds.h); none if
// it touches no rows. Ids below 0 name no row.
std::vector<size_t> ids_of_rows(const Op& op);

// Returns the number of operands of a look-up, a word in the attribute `modes` of an op that reads
// the gradients of look-ups: ids and dy; with weights if the word is "weighted"; only ids if "ids".
inline constexpr std::string_view kWeightedLookUp = "weighted", kIdsAlone = "ids";
size_t operands_of_look_up(std::string_view mode);

// Returns the number of operands before the first ids, in an op that reads the gradients of
// look-ups: the table and other operands with one row for each row of the table.
size_t tables_of_rows(const Op& op);

// Returns the op's dim that counts the rows of that input, the first dim of the table.
int row_dim(const Op& op, size_t input);

// Returns whether the op reads only the sizes of that input, a table, and none of its values.
bool reads_sizes_alone(const Op& op, size_t input);

// Returns how an op names rows by compressed rows (RowNaming, kinds.h); null: it names none.
const struct RowNaming* naming_of(const Op& op);
// Returns the inputs begin, end and columns of an op that has a naming.
std::vector<size_t> ids_of_naming(const Op& op);
// Returns whether rows of the two ops name the same rows of tables, by the same ids and sample.
bool name_alike(const Op& a, const Op& b);
// Returns the most ids that all rows of the op name together.
int64_t most_named(const Op& op);

}  // namespace tessera
