// Replaces tessera/sparse/cuda in builds without a CUDA compiler.
#include "tessera/sparse/graphs/spmm_device.h"

namespace tessera::sparse {

std::string device_error() {
  return "this build has no CUDA kernels (CMake found no CUDA compiler)";
}

Status spmm_on_device(const CsrView<float>&, const SpmmOptions&, const Matrix<const float>&,
                      const Matrix<float>&) {
  return invalid_input(device_error());
}

}  // namespace tessera::sparse
