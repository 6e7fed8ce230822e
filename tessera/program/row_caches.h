// Tables of which the device has some rows (RowCache, program.h): a pass over a rank's program,
// after instantiation and before its memory is planned. It finds the ops that name rows of a table
// by ids, puts in a fetch of the rows before the first of these ops, and a release behind the last.
// It knows buffers, ids and rows, no op kind. Private to tessera/program.
//
// With one micro-batch the rows of a batch stay from the look-up to the update. With more, each
// block fetches and releases its own rows: those that the forward pass of a micro-batch looked up
// are still in their slots when the update asks for them, unless others needed the slots.
#pragma once

#include <cstddef>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/plan/plan.h"
#include "tessera/program/program.h"

namespace tessera {

// Puts in the fetches and releases of rows. `ordinals`: as for plan_memory_of_both; a new
// instruction has the ordinal of its neighbour. Returns an error if an op needs the whole of a
// table that is kept by rows.
Status hold_by_rows(Program& program, const Graph& graph, const ResolvedPlan& plan,
                    ByBlock<std::vector<size_t>>& ordinals, int& next_handle);

// Returns the average number of different rows behind the `first` most frequent ones that are among
// `draws` ids of a table of `rows`, drawn by Zipf's law with the exponent. These are the rows that
// a batch misses if a cache keeps the most frequent ones.
double expected_rows_behind(int64_t first, int64_t rows, double draws, double exponent);

}  // namespace tessera
