// Internal to the runtime: how parts of a value are merged on tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/base/dtype.h"

namespace tessera::kernels {

// Merges a part of a value into what `to` has, by any combiner but the weighted one, whose parts are
// merged with the log-sum-exps that belong to them. `part` may be broadcast to the shape of `to`.
void merge_into(const at::Tensor& to, const at::Tensor& part, Combiner combiner);

}  // namespace tessera::kernels
