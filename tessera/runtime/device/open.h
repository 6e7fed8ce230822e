// Opens devices by their names (docs/reference/devices.md).
//
// Devices by name:
//   cpu               the processor itself: no device object; work is done where it is launched
//   test              behaves like an accelerator, on the processor. The host has addresses of its
//                     memory that cannot be touched, each stream is a thread, and each piece of
//                     work may begin after a random delay. Values from other ranks are written when
//                     they are waited for. So a missing wait or a read by the host is a wrong
//                     value or a crash. `test(seed=N)` draws other delays; with
//                     `test(kernels=formulas)` ops that have a formula are computed by it.
//   stand-in          an accelerator of libtorch that the processor plays (stand_in.h): what runs on
//                     it uses nothing but what libtorch offers for every accelerator
//   cuda              a GPU, by the CUDA build of libtorch (cuda.h)
#pragma once

#include <memory>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/comm/communicator.h"
#include "tessera/runtime/device/device.h"

namespace tessera::device {

// Opens a device by its name, which for "" is the value of the environment variable TESSERA_DEVICE,
// or cpu without it; null is the processor itself. `world` has the ranks, each of which opens one:
// those of a host get its accelerators in turn. Null: only this rank opens one. Errors (invalid
// input): an unknown name or key, or a device that this machine or build lacks, with what is missing.
Result<std::unique_ptr<Device>> open(std::string_view name, comm::Communicator* world = nullptr);

}  // namespace tessera::device
