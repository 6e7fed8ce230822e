"""Writes tests/dcp/golden, small folders by torch.distributed.checkpoint and what Megatron Core's checkpoints have besides, for tests
without PyTorch: torchrun on 2 ranks, OUT.

The values are counts, so that a test can say them: element i of the weight is i, of exp_avg 100 + i, of exp_avg_sq 200 + i.
"""
import argparse
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import SerializationFormat
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))


def counts(first, dim):
    return distribute_tensor(first + torch.arange(15, dtype=torch.float32).reshape(5, 3), mesh, [Shard(dim)])


state = {"model": {"weight": counts(0, 0), "half": torch.arange(4).to(torch.bfloat16)},
         "optim": {"state": {"weight": {"exp_avg": counts(100, 1), "exp_avg_sq": counts(200, 0), "step": torch.tensor(7.0)}},
                   "param_groups": [{"lr": 0.25, "betas": (0.5, 0.75), "params": ["weight"]}]}}
for layout in ("safetensors", "torch_save"):
    if layout == "torch_save":
        state["model"]["byte"] = torch.arange(3, dtype=torch.int8)  # which is not read, and disturbs nothing
    writer = dcp.FileSystemWriter(f"{sys.argv[1]}/{layout}", serialization_format=SerializationFormat(layout))
    dcp.save(state, storage_writer=writer)
if dist.get_rank() == 0:
    arguments = argparse.Namespace(params_dtype=torch.bfloat16, num_layers=2)
    group = {"lr": 0.25, "betas": (0.5, 0.75), "eps": 0.125, "weight_decay": 0.0625, "wd_mult": 1.0}
    torch.save({"args": arguments, "iteration": 9, "optimizer": {"state": {"common_step": torch.tensor(7.0)}, "param_groups": [group]},
                "content_metadata": {"distrib_optim_sharding_type": "fully_reshardable"}}, f"{sys.argv[1]}/common.pt")
dist.destroy_process_group()
