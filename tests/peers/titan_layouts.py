"""A rank of a small Llama of TorchTitan, sharded as a file of `export --to torchtitan` says, beside the whole model.

Usage: torchrun --nproc-per-node 2 titan_layouts.py PLANNED.py. The file is parsed and its overrides are applied as TorchTitan's
trainer does; the model is TorchTitan's debug model with two layers and attention that runs on processors. Rank 0 prints
"understood" with the largest relative error of the gradients, and which parameters are in pieces.
"""
import json
import pathlib
import sys

import torch
import torch.distributed as dist
import torchtitan.distributed.parallel_dims
from torch.distributed.tensor import DTensor
from torchtitan.config import ConfigManager
from torchtitan.config.override import apply_overrides
from torchtitan.distributed import ParallelDims
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.llama3 import llama3_configs

LAYERS, VOCAB, SHAPE = 2, 2048, (2, 16)


def make(config, is_planned):
    """The model with the sharding of the configuration, or with TorchTitan's own for one rank."""
    model = config.model_spec.model
    model.update_from_config(config=config)
    if is_planned:
        apply_overrides(config.override, config)
    torch.manual_seed(0)
    built = model.build()
    built.init_weights()
    return built


def small(config):
    model = llama3_configs["debugmodel"](attn_backend="flex")
    model.layers = model.layers[:LAYERS]
    for layer in model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    config.model_spec.model = model
    return config


def loss_of(model, tokens, targets):
    logits = model(tokens)
    logits = logits.full_tensor() if isinstance(logits, DTensor) else logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main():
    path = pathlib.Path(sys.argv[1])
    sys.path.insert(0, str(path.parent))
    dist.init_process_group("gloo")
    torchtitan.distributed.parallel_dims.device_type = "cpu"  # TorchTitan takes no machine without a GPU
    configs = [small(ConfigManager().parse_args(["--module", path.stem, "--config", "planned"])) for _ in range(2)]
    one, planned = make(configs[0], False), make(configs[1], True)
    planned.load_state_dict(one.state_dict())
    parallelism = configs[1].parallelism
    planned.parallelize(ParallelDims(dp_replicate=1, dp_shard=1, cp=1, tp=parallelism.tensor_parallel_degree, pp=1, ep=1,
                                     world_size=dist.get_world_size(), spmd_backend=parallelism.spmd_backend))
    tokens, targets = torch.randint(VOCAB, SHAPE), torch.randint(VOCAB, SHAPE)
    losses = []
    for model in (one, planned):
        loss = loss_of(model, tokens, targets)
        loss.backward()
        losses.append(loss.item())
    worst, cut = abs(losses[0] - losses[1]) / losses[0], []
    for (name, whole), (_, piece) in zip(one.named_parameters(), planned.named_parameters(), strict=True):
        if any(not place.is_replicate() for place in piece.placements):
            cut.append(name)
        error = (piece.grad.full_tensor() - whole.grad).abs().max() / whole.grad.abs().max()
        worst = max(worst, error.item())
    if dist.get_rank() == 0:
        print("understood", json.dumps({"error": worst, "cut": cut}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
