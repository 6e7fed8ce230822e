// Internal to formulas/: which keys queries see.
#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/base/box.h"
#include "tessera/graph/graph.h"

namespace tessera::kernels {

// Returns which keys the queries see by their positions, [queries, keys] of truths, as the op's
// attributes causal, window and order say; undefined: all. Without an order the positions of queries
// are their indices plus `late`.
at::Tensor visible_pairs(const Op& op, Interval queries, Interval keys, int64_t late,
                         const at::Tensor& like);

}  // namespace tessera::kernels
