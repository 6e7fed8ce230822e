// Estimates the memory of a run by formulas (docs/reference/memory.md). The estimates are used only
// to choose values that a row does not state. The memory that a prediction reports comes from the
// simulated program.
#pragma once

#include "tessera/predict/infer.h"

namespace tessera {

// Returns the bytes of parameters, gradients and optimizer states on the fullest device. If
// `sharded`, they are sharded by ZeRO as the run says, else not at all.
double estimated_state_bytes(const Run& run, bool sharded = true);

// Returns the bytes of everything on the fullest device.
double estimated_bytes(const Run& run);

}  // namespace tessera
