// Opens a folder of torch.distributed.checkpoint as the state of a training run: one with the names
// of transformers, as get_state_dict() of PyTorch leaves it, or one by Megatron Core (megatron.h).
#pragma once

#include <string>

#include "tessera/import/convert/state.h"

namespace tessera {

// Opens a folder. `model`: the text of MODEL, of which the folder says nothing. Errors: those of
// open_state() (state.h).
Result<TrainingState> open_dcp_state(const std::string& path, const std::string& model);

}  // namespace tessera
