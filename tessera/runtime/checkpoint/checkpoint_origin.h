// Functions that open_origin() (checkpointing.h) shares with the reading of weights. Private to
// tessera/runtime.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/runtime/run_config.h"

namespace tessera {

// Returns the run file's levels of checkpoints, the fast one first, each with its key.
std::vector<std::pair<std::string, const CheckpointLevel*>> levels_of(const RunConfig& config);
// Returns whether the run file's key `weights_of` names the tensor. "" names all tensors.
bool begins_with_weights(std::string_view pattern, std::string_view name);

}  // namespace tessera
