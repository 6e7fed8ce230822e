// Computes how often the rows of a table are looked up, if its description (table.h) says so. Rows
// are then in the order of their frequency, the most frequent row first.
//
//   share_of_rows(table, 0, 1000)      look-ups of the first 1,000 rows as a share of all
//
// With Table::zipf the frequency falls by Zipf's law. With Table::ordered it follows the histogram
// of reuse: in a batch of 65,536 samples, a bin's share of the rows that occur in the batch occur
// as often as the bin says. The rows of the last bin (bin 0) are spread over all rows that remain.
// Without both, all rows are equally frequent.
#pragma once

#include <cstdint>

#include "tessera/tables/sharding.h"

namespace tessera::tables {

bool knows_frequency(const Table& table);
double share_of_rows(const Table& table, int64_t first, int64_t rows);
// Returns the value of Piece::share for the piece on so many devices.
double share_of_piece(const Table& table, const Piece& piece, int devices);

}  // namespace tessera::tables
