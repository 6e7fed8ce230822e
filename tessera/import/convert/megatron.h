// Megatron Core's checkpoints ("torch_dist"): folders of torch.distributed.checkpoint in which one
// array has a weight of all layers, queries, keys and values are fused by groups of heads, gate and
// up projections are one array, and the vocabulary is padded. Each of Hugging Face's arrays of a
// Llama is a box of one of them, once its dims are split:
//
//   model.layers.2.self_attn.q_proj.weight
//     decoder.layers.self_attention.linear_qkv.weight
//     as [layer, kv_heads, group + 2, head_dim, hidden], box [2:3, :, 0:group, :, :]
#pragma once

#include <memory>
#include <string>

#include "tessera/models/model.h"
#include "tessera/state/source.h"

namespace tessera {

// The name that every one of these folders has, behind what stands before all names.
inline constexpr const char* kMegatronName = "decoder.final_layernorm.weight";

// Returns Hugging Face's arrays of the model. `theirs` has Megatron Core's names. Errors (invalid
// input): the model is no Llama; an array is missing or has another shape.
Result<std::unique_ptr<TensorSource>> megatron_as_huggingface(std::shared_ptr<TensorSource> theirs,
                                                              const Model& model);

}  // namespace tessera
