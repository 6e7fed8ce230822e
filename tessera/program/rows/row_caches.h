// The pass for tables of which the device has only some rows (RowCache, program.h). It changes a
// rank's program after instantiation and before the program's memory is planned. It finds the ops
// that name rows of a table by ids, adds a fetch of the rows before the first of these ops, and
// adds a release after the last. The pass knows buffers, ids and rows, but no op kinds. Private to
// tessera/program.
//
// With one micro-batch, the rows of a batch stay on the device from the look-up to the update. With
// several, each block fetches and releases its own rows. The rows that a micro-batch's forward pass
// looked up are then still in their slots when the update asks for them, unless other rows needed
// the slots.
#pragma once

#include <cstddef>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/plan/plan.h"
#include "tessera/program/program.h"

namespace tessera {

// Adds the fetches and releases of rows. `ordinals`: as for plan_memory_of_both; a new instruction
// gets the ordinal of its neighbour. Returns an error if an op needs a whole table of which the
// device keeps only some rows.
Status hold_by_rows(Program& program, const Graph& graph, const ResolvedPlan& plan,
                    ByBlock<std::vector<size_t>>& ordinals, int& next_handle);

// Returns how many rows a batch misses on average if a cache keeps the `first` most frequent of
// `rows` rows. This is the expected number of different rows, without the `first` most frequent
// ones, among `draws` ids that are drawn by Zipf's law with the exponent.
double expected_rows_behind(int64_t first, int64_t rows, double draws, double exponent);

}  // namespace tessera
