// The device `cuda` (device.h): NVIDIA's GPUs by the CUDA build of libtorch. This program is compiled
// against libtorch's build for processors; where the libraries of the CUDA build of the same version
// come first on the loader's path, it finds GPUs in them (docs/guides/run-on-gpus.md).
#pragma once

#include <memory>

#include "tessera/base/result.h"
#include "tessera/runtime/device/device.h"

namespace tessera::device {

// Loads libtorch's part for CUDA. Errors (invalid input), each one line that says what is missing:
// that part, the same version of it, a driver, a GPU.
Status cuda_missing();

// Opens a GPU for the rank that has the number `number` among the ranks of its host, which take the
// GPUs in turn. Messages go by NCCL, or through the host: if `through_host`, or if two ranks share a
// GPU, which NCCL refuses. cuda_missing() has found nothing.
Result<std::unique_ptr<Device>> cuda_device(int number, bool through_host);

}  // namespace tessera::device
