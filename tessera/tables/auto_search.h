// Tessera's own planner for embedding tables.
//
// Problem: place pieces of tables on devices with a memory limit so that the slowest device is as
// fast as possible (placement.h), under any cost model.
//
// 1. Seeds are made: by the greedy rules, by longest first and largest differencing on the cost of
//    single pieces, and by NeuroShard's beam over the greedy grid. If none of these fits, whole
//    tables are packed by bytes (exactly if there are few), and then the largest pieces are cut
//    until packing succeeds.
// 2. Each restart takes one of the best seeds; the last restart takes the best placement so far.
//    First comes annealing over edits of the placement, each priced as a whole plan,
//    then descent over the edits that touch the slowest device, until none helps. An edit moves a
//    piece, exchanges two pieces, cuts a piece in columns or rows and moves a part, shifts the
//    border between two neighbouring pieces, joins neighbours, or replicates a table or gathers it
//    again. Annealing puts a price on missing memory; only placements that fit are kept.
// 3. If there are at most `enumerate` placements of whole tables, all are tried as well, so that
//    the answer is never worse than the best of them.
// 4. If the frequencies of rows are known (row_law.h), descent and annealing go on from that answer
//    with one more edit, which puts the first rows of a table on every device and takes them from
//    the piece that began with them. So hot rows never make an answer worse.
// 5. Steps 1 to 4 are made for each set of kinds of splits (columns, rows, replicas, hot rows) that
//    is allowed, from few kinds to many. The last restart may start from the answers with one kind
//    less, so that one more kind never makes an answer slower.
// The work is bounded by a number of priced placements and not by time, so that a question has the
// same answer on every machine.
#pragma once

#include <cstdint>
#include <functional>

#include "tessera/tables/placement.h"

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
