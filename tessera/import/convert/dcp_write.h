// Writes the state of a training run as a folder of torch.distributed.checkpoint, in as many files as
// the plan of the request has ranks: with the names of transformers, or with Megatron Core's.
#pragma once

#include "tessera/base/result.h"
#include "tessera/import/convert/state.h"
#include "tessera/state/conversion.h"

namespace tessera {

// Writes {"model": ..., "optim": ...}, as get_state_dict() of PyTorch has it.
Result<ConvertReport> write_dcp(const TrainingState& state, const ConvertRequest& request);
// Writes what dist_checkpointing.load() of Megatron Core reads: arrays (megatron.h), common.pt,
// metadata.json. Errors: those of megatron_table().
Result<ConvertReport> write_torch_dist(const TrainingState& state, const ConvertRequest& request);

}  // namespace tessera
