// NCCL as the processor plays it for the device `stand-in`: the functions of nccl.h between the
// threads of one process. As on a GPU, a call returns at once and its stream waits for the other
// members; messages between group_start and group_end go on side by side, and others one after the
// other.
#pragma once

#include "tessera/runtime/device/nccl.h"

namespace tessera::device {

const Nccl& stand_in_nccl();

}  // namespace tessera::device
