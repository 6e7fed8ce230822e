// Finds which rows of a table a kernel call has, for kernels that have operands with ids of rows.
#pragma once

#include "tessera/base/box.h"
#include "tessera/graph/pieces.h"
#include "tessera/runtime/kernels.h"

namespace tessera::kernels {

// Returns which ids name rows of the call's box, where the op dim `dim` is the rows of a table. For
// a table with a cache the ids are places. Otherwise the ids are rows of the whole table, of which
// the op's table may be a piece (graph/pieces.h).
inline Interval rows_named(const KernelCall& call, int dim) {
  Interval rows = call.box.dims[static_cast<size_t>(dim)];
  if (!call.row_at) rows.begin += begin_within(*call.op, dim);
  return rows;
}

}  // namespace tessera::kernels
