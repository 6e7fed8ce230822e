#!/usr/bin/env python3
"""PyTorch's side of `make bench`: the `gpt` family of docs/reference/models.md, trained the way PyTorch's users do.

Same function, shapes, batch, dtype (float32), optimizer (fused AdamW, betas 0.9/0.95, weight decay 0.1 on parameters of
rank 2 and more, gradient norm clipped to 1) and schedule as Tessera; one thread a rank, ranks are processes on this
machine that talk by gloo over loopback. Prints one JSON line.

    pytorch_gpt.py eager|compile --size large|small        1 process
    pytorch_gpt.py ddp|fsdp2|tp --ranks 2 --size large     DistributedDataParallel, fully_shard of each block, or
                                                           DTensor tensor parallelism
    pytorch_gpt.py all_reduce --ranks 2 --bytes 4194304    median time of one all-reduce
    pytorch_gpt.py eager --profile                         torch.profiler: seconds of a step by operator

Choices meant in the peer's favour: gradient_as_bucket_view for DDP; one PrepareModuleInput a block half for TP, so that
the gradients of q, k and v meet in one all-reduce; modules of a mode are imported only by that mode (memory). On a busy
machine no effect of the first two could be told from the noise.
"""
import argparse
import json
import math
import os
import pathlib
import socket
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

SIZES = {
    "large": {"layers": 6, "hidden": 384, "heads": 8, "seq": 256, "vocab": 256},
    "small": {"layers": 4, "hidden": 128, "heads": 4, "seq": 128, "vocab": 256},
}
LR, MIN_LR, LR_WARMUP = 1e-3, 1e-4, 10


class Attention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.head_dim = hidden // heads
        self.q, self.k, self.v, self.out = (nn.Linear(hidden, hidden) for _ in range(4))

    def forward(self, x):
        batch, seq, _ = x.shape
        # -1: under tensor parallelism a rank has a part of the heads.
        q, k, v = (f(x).view(batch, seq, -1, self.head_dim).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, seq, -1))


class Mlp(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(hidden), Attention(hidden, heads)
        self.ln_2, self.mlp = nn.LayerNorm(hidden), Mlp(hidden)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, layers, hidden, heads, seq, vocab):
        super().__init__()
        self.token = nn.Embedding(vocab, hidden)
        self.position = nn.Parameter(torch.empty(seq, hidden))
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif "ln" not in name:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)
        self.tie()

    def tie(self):
        self.head.weight = self.token.weight

    def forward(self, tokens):
        x = self.token(tokens) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


class Windows:
    """Bytes of text files as tokens; a batch is a function of (seed, step), on every rank."""

    def __init__(self, files, seq, batch):
        data = b"".join(pathlib.Path(name).read_bytes() for name in files) or bytes(range(256)) * 64
        self.data = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        self.seq, self.batch = seq, batch

    def read(self, step):
        generator = torch.Generator().manual_seed(1_000_003 * step)
        starts = torch.randint(len(self.data) - self.seq, (self.batch,), generator=generator)
        rows = torch.stack([self.data[start:start + self.seq + 1] for start in starts]).long()
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


# ---- the modes: a model to a model whose forward and backward communicate --------------------------------------------
def to_ddp(model, ranks):
    from torch.nn.parallel import DistributedDataParallel
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def to_fsdp2(model, ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def to_tp(model, ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module)
    mesh = init_device_mesh("cpu", (ranks,))
    whole = {"input_layouts": (Replicate(),), "desired_input_layouts": (Replicate(),)}
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "attn": PrepareModuleInput(**whole),
            "attn.q": ColwiseParallel(), "attn.k": ColwiseParallel(), "attn.v": ColwiseParallel(),
            "attn.out": RowwiseParallel(),
            "mlp": PrepareModuleInput(**whole),
            "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel(),
        })
    parallelize_module(model, mesh, {
        "token": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Replicate()),
    })
    model.tie()  # both are split over the vocabulary
    return model


MODES = {"eager": None, "compile": None, "ddp": to_ddp, "fsdp2": to_fsdp2, "tp": to_tp}


# ---- training ---------------------------------------------------------------------------------------------------------
def learning_rate(step, steps):
    if step <= LR_WARMUP:
        return LR * step / LR_WARMUP
    progress = (step - LR_WARMUP) / max(1, steps - LR_WARMUP)
    return MIN_LR + 0.5 * (LR - MIN_LR) * (1 + math.cos(math.pi * progress))


def is_dtensor(parameter):
    return hasattr(parameter, "to_local")


class Optimizer:
    """Fused AdamW; parameters that are DTensors in groups of their own (one fused call takes one kind)."""

    def __init__(self, model):
        self.kinds = [[p for p in model.parameters() if is_dtensor(p) is kind] for kind in (False, True)]
        self.kinds = [parameters for parameters in self.kinds if parameters]
        groups = []
        for parameters in self.kinds:
            groups.append({"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1})
            groups.append({"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0})
        self.adamw = torch.optim.AdamW([g for g in groups if g["params"]], lr=LR, betas=(0.9, 0.95), eps=1e-8,
                                       fused=True)

    def clip(self):
        if len(self.kinds) == 1:
            nn.utils.clip_grad_norm_(self.kinds[0], 1.0, foreach=True)
            return
        norms = [nn.utils.get_total_norm([p.grad for p in parameters], foreach=True) for parameters in self.kinds]
        total = torch.linalg.vector_norm(torch.stack([n.full_tensor() if is_dtensor(n) else n for n in norms]))
        for parameters in self.kinds:
            nn.utils.clip_grads_with_norm_(parameters, 1.0, total, foreach=True)

    def step(self, rate):
        for group in self.adamw.param_groups:
            group["lr"] = rate
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)


def train(args, rank):
    size = SIZES[args.size]
    torch.manual_seed(1)
    model = Gpt(**size)
    parameters = sum(p.numel() for p in model.parameters())
    if MODES[args.mode]:
        model = MODES[args.mode](model, args.ranks)
    forward = torch.compile(model) if args.mode == "compile" else model
    optimizer = Optimizer(model)
    windows = Windows(args.data, size["seq"], args.batch)
    share = args.batch // args.ranks if args.mode in ("ddp", "fsdp2") else args.batch
    mine = slice(rank * share, (rank + 1) * share) if share != args.batch else slice(None)
    steps = args.warmup + args.steps

    def one_step(step):
        tokens, targets = windows.read(step)
        logits = forward(tokens[mine])
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets[mine].view(-1))
        loss.backward()
        optimizer.clip()
        optimizer.step(learning_rate(step, steps))
        return loss.item()

    times, loss = [], math.nan
    for step in range(1, steps + 1):
        start = time.perf_counter()
        loss = one_step(step)
        times.append(time.perf_counter() - start)
    end = time.perf_counter()
    report = {"timed_from_to": [end - sum(times[args.warmup:]), end], "mode": args.mode, "size": args.size, "ranks": args.ranks, "parameters": parameters,
              "step_time_s": times[args.warmup:],
              "tokens_per_s": args.batch * size["seq"] / statistics.median(times[args.warmup:]), "loss": loss}
    if args.profile:
        report["profile"] = profile(one_step, steps, args.profile)
    return report


def profile(one_step, first, steps):
    """Seconds of a step by operator, own time only."""
    from torch.profiler import ProfilerActivity, profile as record
    with record(activities=[ProfilerActivity.CPU]) as trace:
        for step in range(first + 1, first + 1 + steps):
            one_step(step)
    own = {event.key: event.self_cpu_time_total / 1e6 / steps for event in trace.key_averages()}
    return dict(sorted(own.items(), key=lambda item: -item[1]))


def all_reduce(args, rank):
    import torch.distributed as dist
    array = torch.ones(args.bytes // 4)
    times = []
    for call in range(args.warmup + args.steps):
        array.fill_(1)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(array)
        times.append((time.perf_counter() - start) * 1e6)
    return {"mode": "all_reduce", "ranks": args.ranks, "bytes": args.bytes,
            "median_us": statistics.median(times[args.warmup:])}


# ---- processes --------------------------------------------------------------------------------------------------------
def peak_rss_bytes():
    """Of this program alone: getrusage would count what the parent had before exec."""
    status = pathlib.Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def run(rank, args):
    torch.set_num_threads(1)
    work = all_reduce if args.mode == "all_reduce" else train
    if args.mode in ("eager", "compile"):
        report = work(args, rank)
        peaks = [peak_rss_bytes()]
    else:
        import torch.distributed as dist
        dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
        report = work(args, rank)
        everyone = [None] * args.ranks
        dist.all_gather_object(everyone, (peak_rss_bytes(), report.get("loss", 0)))
        peaks, losses = zip(*everyone)
        if "loss" in report:
            report["loss"] = statistics.fmean(losses)  # equal parts of the batch, or all of it on each rank
    if rank == 0:
        print(json.dumps({**report, "peak_rss_bytes": peaks[0], "max_peak_rss_bytes": max(peaks),
                          "torch": torch.__version__}), flush=True)
    if args.mode not in ("eager", "compile"):
        dist.barrier()
        os._exit(0)  # gloo's threads sometimes abort an orderly end ("terminate called without an active exception")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=[*MODES, "all_reduce"])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20, help="timed steps or calls")
    parser.add_argument("--warmup", type=int, default=3, help="steps or calls before them")
    parser.add_argument("--batch", type=int, default=8, help="sequences a step over all ranks")
    parser.add_argument("--data", nargs="*", default=[], help="text files")
    parser.add_argument("--bytes", type=int, default=4 << 20, help="of each rank's array, all_reduce")
    parser.add_argument("--profile", type=int, default=0, metavar="STEPS", help="profile so many steps more")
    args = parser.parse_args()
    if args.mode in ("eager", "compile") and args.ranks != 1:
        parser.error(f"{args.mode} runs on 1 rank, found --ranks {args.ranks}")
    if args.batch % args.ranks:
        parser.error(f"expected --batch to be a multiple of --ranks, found {args.batch} and {args.ranks}")
    return args


def main():
    args = arguments()
    if args.ranks == 1 and args.mode in ("eager", "compile"):
        run(0, args)
        return
    import torch.multiprocessing
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.multiprocessing.spawn(run, args=(args,), nprocs=args.ranks)


if __name__ == "__main__":
    main()
