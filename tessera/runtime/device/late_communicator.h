// The communicator of the device `test` (device.h): what arrives is written to the receiver's memory
// when the receiver waits for it, and not before, whatever other calls it waits for meanwhile. So a
// program that reads without waiting reads what was there before.
#pragma once

#include <memory>

#include "tessera/comm/communicator.h"

namespace tessera::device {

// `world` does the work and outlives what is returned.
std::unique_ptr<comm::Communicator> late_communicator(comm::Communicator& world);

}  // namespace tessera::device
