// The product of spmm.h on a CUDA device: the forward pass in float32, with all samplers. The kernel
// lies in tessera/sparse/cuda and is built where a CUDA compiler is found; elsewhere, and where no
// device is present, device_error() says so and spmm_on_device returns that. It has been compiled, and
// it has never been run: no machine of this project had a device when it was written. Its test
// (spmm_device_test.cc) compares it with spmm on the first machine that has one.
#pragma once

#include <string>

#include "tessera/sparse/graphs/spmm.h"

namespace tessera::sparse {

// Empty if products can run on a device; else the reason: not built in, or no device.
std::string device_error();

// Copies the operands to the device, multiplies, and copies y back. The sums are taken in the order of
// the slots, as on the processor, but with fused multiplications. Errors: those of spmm, and a fault of
// the device.
Status spmm_on_device(const CsrView<float>& graph, const SpmmOptions& options,
                      const Matrix<const float>& x, const Matrix<float>& y);

}  // namespace tessera::sparse
