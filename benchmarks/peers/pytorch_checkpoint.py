#!/usr/bin/env python3
"""PyTorch's side of benchmarks/run_checkpoints.py: torch.distributed.checkpoint on the state of a GPT (parameters and both
moments of AdamW, float32), 2 processes that talk by gloo. Prints one JSON line: seconds of each save and load.

    pytorch_checkpoint.py --layers 12 --hidden 768 --seq 32 --vocab 256 --folder /tmp/state --repeats 3

Every tensor is a DTensor. It is saved as fully_shard leaves it (cut along dim 0 over all ranks) and loaded back so, and
also as tensor parallelism needs it: weights behind a row-wise product cut along dim 1, norms and tables whole on all
ranks. Only dcp.save and dcp.load are timed, between two barriers, with their default settings. `--cold`: before each
load the files are dropped from the page cache; else they are as the save has left them, in it.
"""
import argparse
import json
import os
import pathlib
import shutil
import socket
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def parameters(args):
    """(name, shape, the dim that tensor parallelism cuts or None)"""
    h = args.hidden
    yield "embed.token.weight", (args.vocab, h), None
    yield "embed.position.weight", (args.seq, h), None
    for i in range(args.layers):
        for norm in ("ln_1", "ln_2"):
            yield f"blocks.{i}.{norm}.weight", (h,), None
            yield f"blocks.{i}.{norm}.bias", (h,), None
        for name in ("q", "k", "v"):
            yield f"blocks.{i}.attn.{name}.weight", (h, h), 0
            yield f"blocks.{i}.attn.{name}.bias", (h,), 0
        yield f"blocks.{i}.attn.out.weight", (h, h), 1
        yield f"blocks.{i}.attn.out.bias", (h,), None
        yield f"blocks.{i}.mlp.up.weight", (4 * h, h), 0
        yield f"blocks.{i}.mlp.up.bias", (4 * h,), 0
        yield f"blocks.{i}.mlp.down.weight", (h, 4 * h), 1
        yield f"blocks.{i}.mlp.down.bias", (h,), None
    yield "final.ln.weight", (h,), None
    yield "final.ln.bias", (h,), None


def state(args, mesh, placement_of):
    made = {}
    for name, shape, cut in parameters(args):
        for kind in ("parameters", "exp_avg", "exp_avg_sq"):
            made[f"{kind}.{name}"] = distribute_tensor(torch.randn(shape), mesh, [placement_of(cut)])
    return made


def timed(call):
    dist.barrier()
    start = time.perf_counter()
    call()
    dist.barrier()
    return time.perf_counter() - start


def drop_from_cache(folder):
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def run(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (args.ranks,))
    sharded = state(args, mesh, lambda cut: Shard(0))
    tensor_parallel = state(args, mesh, lambda cut: Replicate() if cut is None else Shard(cut))
    seconds = {"save": [], "load": [], "load with another sharding": []}

    def prepare_load():
        if args.cold and rank == 0:
            drop_from_cache(args.folder)

    for repeat in range(args.repeats + 1):  # the first does not count
        if rank == 0:
            shutil.rmtree(args.folder, ignore_errors=True)
        once = {"save": timed(lambda: dcp.save(sharded, checkpoint_id=args.folder))}
        for name, into in (("load", sharded), ("load with another sharding", tensor_parallel)):
            prepare_load()
            once[name] = timed(lambda into=into: dcp.load(into, checkpoint_id=args.folder))
        if repeat > 0:
            for name, value in once.items():
                seconds[name].append(value)
    if rank == 0:
        size = sum(path.stat().st_size for path in pathlib.Path(args.folder).rglob("*") if path.is_file())
        print(json.dumps({"seconds": seconds, "bytes": size, "torch": torch.__version__}), flush=True)
        shutil.rmtree(args.folder, ignore_errors=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for key in ("layers", "hidden", "seq", "vocab"):
        parser.add_argument(f"--{key}", type=int, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--folder", required=True, help="of the checkpoint; removed before and after")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cold", action="store_true", help="drop the files from the page cache before each load")
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(run, args=(args, port), nprocs=args.ranks)


if __name__ == "__main__":
    main()
