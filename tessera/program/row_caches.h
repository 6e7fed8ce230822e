// Tables of which the device has some rows (RowCache, program.h): a pass over a rank's program,
// behind instantiation and before its memory is planned. It finds the ops that name rows of a table
// by ids, and puts in what brings the rows before the first of them and lets them go behind the
// last. It knows buffers, ids and rows, no op kind. Private to tessera/program.
//
// With one micro-batch the rows of a batch stay from the look-up to the update. With more, each
// block fetches and releases its own: what the forward pass of a micro-batch looked up is in its
// slots still when the update asks for it, unless others needed them.
#pragma once

#include <cstddef>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/plan/plan.h"
#include "tessera/program/program.h"

namespace tessera {

// `ordinals`: as of plan_memory_of_both; what is put in has the ordinal of its neighbour. Error: an
// op that needs the whole of a table that is kept by rows.
Status hold_by_rows(Program& program, const Graph& graph, const ResolvedPlan& plan,
                    ByBlock<std::vector<size_t>>& ordinals, int& next_handle);

// Of `draws` ids of a table of `rows` by Zipf's law with the exponent, how many different rows are
// behind the `first` most frequent ones, on the average: the rows that a batch misses where a cache
// keeps those.
double expected_rows_behind(int64_t first, int64_t rows, double draws, double exponent);

}  // namespace tessera
