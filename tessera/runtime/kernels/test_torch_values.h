// For tests of this module that compare with PyTorch: converts numbers to float64 tensors and back.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <vector>

namespace tessera::testing {

inline at::Tensor tensor_of(const std::vector<double>& values, at::IntArrayRef shape) {
  return at::from_blob(const_cast<double*>(values.data()), shape, at::kDouble).clone();
}
inline std::vector<double> values_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  const auto* begin = flat.data_ptr<double>();
  return {begin, begin + flat.numel()};
}

}  // namespace tessera::testing
