"""Saves a small GPT of Megatron Core with the shape of worker.py's Llama as torch_dist, by torchrun on gloo ranks.

Usage (torchrun megatron_worker.py) FOLDER TENSOR_PARALLEL; it trains some steps, and rank 0 writes FOLDER/logits.pt. Megatron Core
expects a GPU in places where none is needed (it waits for its copies, keeps the state of dropout that is not used, and asks for small
tensors on the device): here these are on the processor.
"""
import contextlib
import os
import sys

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

import worker


def main(folder, tensor_parallel):
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
    dist.init_process_group("gloo")
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
    CudaRNGStatesTracker.fork = lambda *_: contextlib.nullcontext()
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer.transformer_config import TransformerConfig
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=int(tensor_parallel))
    c = worker.CONFIG
    config = TransformerConfig(
        num_layers=c["num_hidden_layers"], hidden_size=c["hidden_size"], num_attention_heads=c["num_attention_heads"],
        num_query_groups=c["num_key_value_heads"], ffn_hidden_size=c["intermediate_size"], layernorm_epsilon=c["rms_norm_eps"],
        normalization="RMSNorm", gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False,
        bias_activation_fusion=False, hidden_dropout=0.0, attention_dropout=0.0, use_cpu_initialization=True,
        gradient_accumulation_fusion=False, masked_softmax_fusion=False, apply_rope_fusion=False, pipeline_dtype=torch.float32)
    torch.manual_seed(4)
    padded = -(-c["vocab_size"] // 8) * 8  # as Megatron pads for its ranks
    model = GPTModel(config, get_gpt_layer_local_spec(normalization="RMSNorm"), vocab_size=padded, max_sequence_length=worker.SEQ,
                     position_embedding_type="rope", rotary_base=int(c["rope_theta"]), share_embeddings_and_output_weights=False)
    tokens, targets = worker.data()
    inputs = tokens, torch.arange(worker.SEQ).expand(tokens.shape), torch.ones(worker.SEQ, worker.SEQ).triu(1).bool()[None, None]
    ddp = DistributedDataParallel(config, DistributedDataParallelConfig(), model)
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-2, weight_decay=0.0, clip_grad=0.0), [ddp])
    for _ in range(worker.STEPS):
        ddp.zero_grad_buffer()
        ddp(*inputs, labels=targets).mean().backward()
        ddp.finish_grad_sync()
        optimizer.step()
    with torch.no_grad():
        logits = model(*inputs)
    shards = [torch.empty_like(logits) for _ in range(dist.get_world_size())]
    dist.all_gather(shards, logits)
    if dist.get_rank() == 0:
        os.makedirs(folder)
    dist.barrier()
    state = model.sharded_state_dict(prefix="")
    dist_checkpointing.save({"model": state, "optimizer": optimizer.sharded_state_dict(state)}, folder)
    if dist.get_rank() == 0:
        torch.save(torch.cat(shards, -1)[..., :c["vocab_size"]], f"{folder}/logits.pt")
    dist.destroy_process_group()


class OnProcessor(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = {key: "cpu" if key == "device" and "cuda" in str(value) else value for key, value in (kwargs or {}).items()}
        return func(*args, **kwargs)


if __name__ == "__main__":
    torch.cuda.FloatTensor, torch.cuda.IntTensor = torch.FloatTensor, torch.IntTensor
    with OnProcessor():
        main(*sys.argv[1:])
