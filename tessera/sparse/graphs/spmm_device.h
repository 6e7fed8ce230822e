// Computes the product of spmm.h on a CUDA device: the forward pass in float32, with all samplers.
// The kernel lies in tessera/sparse/cuda and is built where a CUDA compiler is found; elsewhere,
// and where no device is present, device_error() says so and spmm_on_device returns that error.
// spmm_device_test.cc compares it with spmm; the test passes on an H100 (docs/results/sparse.md).
#pragma once

#include <string>

#include "tessera/sparse/graphs/spmm.h"

namespace tessera::sparse {

// Returns "" if products can run on a device, else the reason why not: not built in, or no device.
std::string device_error();

// Copies the operands to the device, multiplies, and copies y back. Sums are taken in the order of
// the slots, as on the processor, but with fused multiplications; rows of more than 512 slots in up
// to 64 partial sums, added in a fixed order. Errors: those of spmm, and a fault of the device.
Status spmm_on_device(const CsrView<float>& graph, const SpmmOptions& options,
                      const Matrix<const float>& x, const Matrix<float>& y);

}  // namespace tessera::sparse
