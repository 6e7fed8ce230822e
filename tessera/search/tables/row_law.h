// Computes how often the rows of a table are looked up, where its description says so (table.h):
// rows stand in the order of their frequency, the most frequent one first.
//
//   share_of_rows(table, 0, 1000)      of the look-ups, the share that the first 1,000 rows get
//
// With `zipf` the frequency falls by Zipf's law, with `ordered` by the histogram of reuse: of the
// rows that a batch of 65,536 samples names, the share of each bin comes as often as the bin says;
// the last ones (bin 0) are spread over all rows that are left. Without either all rows are alike,
// and their shares of look-ups are their shares of rows.
#pragma once

#include <cstdint>

#include "tessera/search/tables/sharding.h"

namespace tessera::tables {

bool knows_frequency(const Table& table);
double share_of_rows(const Table& table, int64_t first, int64_t rows);
// Returns the right Piece::share of the piece on so many devices.
double share_of_piece(const Table& table, const Piece& piece, int devices);

}  // namespace tessera::tables
