// The device `stand-in` (device.h): an accelerator of libtorch that the processor plays, under
// libtorch's name for devices of others (PrivateUse1). A program on it goes the ways of a GPU:
// device guards, streams, events, the allocator of a device, tensors that the host cannot read.
//
// An operator of libtorch is computed by libtorch's own kernel for processors, on the thread of the
// stream that is current; so results are those of the processor, bit by bit. Refused, with one
// line, is what a GPU refuses or what makes the host wait for it in the middle of a step: a tensor
// of another device among the operands (unless it has no dims), reading an element, results whose
// size depends on values. Memory that is allocated or given back is filled with NaN, in the order of
// the stream, so that a use without a wait shows. There are eight such devices.
#pragma once

#include <cstddef>
#include <memory>

#include "tessera/base/result.h"
#include "tessera/comm/communicator.h"
#include "tessera/runtime/device/device.h"

namespace tessera::device {

// Opens the stand-in number `index`, modulo their number. Messages go by the communicator of GPUs
// (nccl.h) over a library that the processor plays too (stand_in_nccl.h), or through the host: if
// `through_host`, if there are more ranks than devices, or if the ranks are processes.
std::unique_ptr<Device> stand_in(int index, bool through_host);

// Returns the address at which the threads of streams find what a tensor has at the address `hidden`.
std::byte* opened_address(const void* hidden);

}  // namespace tessera::device
