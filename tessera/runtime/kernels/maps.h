// Internal to kernels/: helpers that the kernels of convolutions, pools and batch norms share.
// These compute in libtorch's temporaries and copy or add the result.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/runtime/kernels/tensor.h"

namespace tessera::kernels {

// The windows of an op over its spatial dims, each attribute with one number a dim.
struct WindowNumbers {
  std::vector<int64_t> stride, padding;
};
WindowNumbers window_numbers(const Op& op, size_t spatial);
std::vector<int64_t> numbers_of(const Op& op, std::string_view attribute, size_t count);

// Returns the array as a tensor, in float if its type is narrower: libtorch lacks some 16-bit
// kernels.
at::Tensor at_least_float(const Array& array);

// Returns x [lead.., rest..] as [product of lead, rest..] with `kept` dims left; copies if strides
// ask.
at::Tensor with_one_lead(const at::Tensor& x, size_t kept);

// Writes or adds `result`, whose elements are in the order of `out`, into the array.
void put(const Array& out, const at::Tensor& result, bool add);

}  // namespace tessera::kernels
