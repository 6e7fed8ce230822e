// The device `test` (device.h): an accelerator that the processor plays. Its memory is mapped twice,
// once where nothing can be read or written, which is the address that the host gets, and once for
// the threads of its streams.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/runtime/device/device.h"

namespace tessera::device {

// `seed` draws the delays before pieces of work.
std::unique_ptr<Device> test_device(uint64_t seed);

}  // namespace tessera::device
