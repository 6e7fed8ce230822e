// A communicator for the memory of an accelerator that takes every array through the host: it copies
// what is sent to the host when a call is issued, and what has arrived to the accelerator when the
// call is waited for. It needs no library of the accelerator's maker and is slow: the host waits for
// the stream in both. Several ranks may share an accelerator.
#pragma once

#include <memory>

#include "tessera/comm/communicator.h"
#include "tessera/runtime/device/libtorch_device.h"

namespace tessera::device {

// `world` does the work and outlives what is returned.
std::unique_ptr<comm::Communicator> staged_communicator(comm::Communicator& world, PlaceOf place);

}  // namespace tessera::device
