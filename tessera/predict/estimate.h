// Estimates the memory of a run by closed forms (docs/reference/memory.md), only to choose values
// that a row leaves open. The peak that is reported is that of the simulated program.
#pragma once

#include "tessera/predict/infer.h"

namespace tessera {

// Returns the bytes of parameters, gradients and optimizer states on the fullest device: sharded as
// the run has them, or whole.
double estimated_state_bytes(const Run& run, bool sharded = true);

// Returns the bytes of everything on the fullest device.
double estimated_bytes(const Run& run);

}  // namespace tessera
