// Which operands of an op name rows of a table, and which rows: what those need to know who keep a
// table by rows (program/row_caches.h), whatever the op's kind.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

// The inputs whose ids name the rows that the op touches (touches_rows, kinds.h); none if it touches
// no rows. Ids below 0 name none.
std::vector<size_t> ids_of_rows(const Op& op);

// A look-up in the attribute `modes` of an op that reads what look-ups add to a table: its operands
// are ids and dy, and weights of the ids if the word is "weighted"; or ids alone.
inline constexpr std::string_view kWeightedLookUp = "weighted", kIdsAlone = "ids";
size_t operands_of_look_up(std::string_view mode);

// Of an op that reads what look-ups add to a table: its operands before the first ids, the table and
// what else has a row for each of the table's.
size_t tables_of_rows(const Op& op);

// The op's dim that counts the rows of that input, the first dim of the table.
int row_dim(const Op& op, size_t input);

// Does the op take of that input, a table, the sizes of its dims alone, and no value?
bool reads_sizes_alone(const Op& op, size_t input);

// Where an op names rows of a table by compressed rows (RowNaming, kinds.h); null: it names none.
const struct RowNaming* naming_of(const Op& op);
// begin, end and columns: which inputs of an op that has a naming.
std::vector<size_t> ids_of_naming(const Op& op);
// Do rows of the two ops name the same rows of tables? By the same ids, and the same sample of them.
bool name_alike(const Op& a, const Op& b);
// So many ids all rows of the op name at most.
int64_t most_named(const Op& op);

}  // namespace tessera
