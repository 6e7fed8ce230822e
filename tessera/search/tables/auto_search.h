// Tessera's own planner for embedding tables.
//
// Problem: place pieces of tables on devices with a memory limit so that the slowest device is as
// fast as possible (placement.h), under any cost model.
//
// 1. Seeds: the greedy rules, longest first and largest differencing on the cost of single pieces,
//    NeuroShard's beam over the greedy grid; where none of them fits, whole tables are packed by
//    bytes (exactly where there are few), and then the largest pieces are cut until packing
//    succeeds.
// 2. From the best seeds, by turns, and at last from the best that was found: annealing over edits
//    of the placement, each priced by the model for the whole plan; then descent over the edits
//    that touch the slowest device, until none helps. An edit: a piece moves; two change places; a
//    piece is cut in columns or rows and a part moves; the border between two neighbouring pieces
//    shifts; neighbours are joined; a table is replicated or gathered again. Annealing puts a price
//    on missing memory; only placements that fit are kept.
// 3. If there are at most `enumerate` placements of whole tables, all are tried as well, so that
//    the answer is never worse than the best of them.
// 4. Where the frequencies of rows are known (row_law.h): from that answer, descent and annealing
//    with one more edit: the first rows of a table lie on every device, in place of the piece that
//    began with them. So hot rows never make an answer worse.
// 5. All of this for each set of kinds of splits (columns, rows, replicas, hot rows) within the
//    allowed ones, from few to many: the last restart may start from the answers with one kind
//    less, so that one more kind never makes an answer slower.
// The work is bounded by a number of priced placements, not by time: the same question has the same
// answer on every machine.
#pragma once

#include <cstdint>
#include <functional>

#include "tessera/search/tables/placement.h"

namespace tessera::tables {

struct AutoOptions {
  // Most placements that annealing and descent price, for each set of kinds of splits.
  int64_t budget = 400000;
  int restarts = 4;
  uint64_t seed = 1;
  // All placements of whole tables are tried if there are at most so many (8 tables on 4 devices).
  int64_t enumerate = 65536;
  // Called now and then with a text that says what is being done.
  std::function<void(const std::string&)> progress;
};

Answer auto_search(const Problem& problem, const AutoOptions& options);

}  // namespace tessera::tables
