// Internal to kernels/: helpers that the kernels of convolutions, pools and batch norms share.
// These kernels compute in temporaries of libtorch and then copy the result into the output or
// add it.
#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/runtime/kernels/tensor.h"

namespace tessera::kernels {

// Returns the array as a tensor. If the array's type is narrower than float, converts it to float,
// because libtorch lacks some 16-bit kernels.
at::Tensor at_least_float(const Array& array);

// Returns x with its leading dims joined into one, so that `kept` dims are left: [lead.., rest..]
// becomes [product of lead, rest..]. Copies x if its strides do not allow a view.
at::Tensor with_one_lead(const at::Tensor& x, size_t kept);

// Writes `result` into the array `out`, or adds it to the array if `add`. The elements of both are
// in the same order.
void put(const Array& out, const at::Tensor& result, bool add);

}  // namespace tessera::kernels
