// Computes the product of spmm.h on a CUDA device: only the forward pass, in float32, with all
// samplers. The kernel is in tessera/sparse/cuda and is built if there is a CUDA compiler. Without
// the kernel or without a device, device_error() says so, and spmm_on_device returns that error.
// spmm_device_test.cc compares the results with those of spmm; it passes on an H100
// (docs/results/sparse.md).
#pragma once

#include <string>

#include "tessera/sparse/graphs/spmm.h"

namespace tessera::sparse {

// Returns "" if products can run on a device; else the reason: the kernel is not built in, or there
// is no device.
std::string device_error();

// Copies the operands to the device, multiplies, and copies y back. As on the processor, a row's
// slots are added in their order, but multiplications are fused with additions. Rows of more than
// 512 slots are added in up to 64 partial sums, which are then added in a fixed order. Errors:
// those of spmm, and a fault of the device.
Status spmm_on_device(const CsrView<float>& graph, const SpmmOptions& options,
                      const Matrix<const float>& x, const Matrix<float>& y);

}  // namespace tessera::sparse
