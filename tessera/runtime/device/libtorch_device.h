// Devices that libtorch knows as accelerators, by what c10 offers for all of them: guards, streams,
// events, allocators. Nothing here names one of them, so it is compiled without their headers and
// tested on the stand-in (stand_in.h).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "tessera/base/result.h"
#include "tessera/comm/communicator.h"
#include "tessera/runtime/device/device.h"
#include "tessera/runtime/device/host_copies.h"

namespace tessera::device {

// Makes the communicator of a device. `world` connects the hosts and outlives what is returned.
using MakeCommunicator = std::function<Result<std::unique_ptr<comm::Communicator>>(
    comm::Communicator& world, const Connections& connections, PlaceOf)>;

// libtorch must know the accelerator `place`, whose name is `name`.
std::unique_ptr<Device> libtorch_device(Place place, std::string name,
                                        MakeCommunicator communicator);

}  // namespace tessera::device
