// Internal to kernels/: libtorch tensors that use the memory of our arrays.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include "tessera/base/check.h"
#include "tessera/runtime/kernels/family.h"

namespace tessera::kernels {

inline at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return at::kDouble;
    case DType::kFloat32: return at::kFloat;
    case DType::kBFloat16: return at::kBFloat16;
    case DType::kFloat16: return at::kHalf;
    case DType::kInt64: return at::kLong;
    case DType::kInt32: return at::kInt;
    case DType::kUInt8: return at::kByte;
    case DType::kBool: return at::kBool;
  }
  return at::kFloat;
}

inline c10::Device device_of(Place place) {
  return {static_cast<c10::DeviceType>(place.type), place.index};
}
inline at::Tensor tensor_of(std::byte* data, DType dtype, at::IntArrayRef shape,
                            at::IntArrayRef strides, Place place = {}) {
  const c10::Device device = device_of(place);
  return at::for_blob(data, shape)
      .strides(strides)
      .options(at::TensorOptions(scalar_type(dtype)).device(device))
      .target_device(device)
      .make_tensor();
}
inline at::Tensor tensor_of(const Array& array) {
  return tensor_of(array.data, array.dtype, array.shape, array.strides, array.place);
}

}  // namespace tessera::kernels
