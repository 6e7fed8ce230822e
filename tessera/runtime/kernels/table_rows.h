// Says which rows of a table a call has, for kernels whose operands name rows by ids.
#pragma once

#include "tessera/base/box.h"
#include "tessera/graph/pieces.h"
#include "tessera/runtime/kernels.h"

namespace tessera::kernels {

// Returns the call's interval of the op dim `dim`, the rows of a table, as ids name them: places of
// a cache, or rows of the whole table of which the op's table is a piece (graph/pieces.h).
inline Interval rows_named(const KernelCall& call, int dim) {
  Interval rows = call.box.dims[static_cast<size_t>(dim)];
  if (!call.row_at) rows.begin += begin_within(*call.op, dim);
  return rows;
}

}  // namespace tessera::kernels
