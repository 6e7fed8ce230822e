#!/usr/bin/env python3
"""PyTorch's side of `make bench`: the `gpt` family of docs/reference/models.md, trained the way PyTorch's users do.

Same function, shapes, batch, dtype (float32), optimizer (fused AdamW, betas 0.9/0.95, weight decay 0.1 on parameters of
rank 2 and more, gradient norm clipped to 1) and schedule as Tessera; one thread a rank, ranks are processes on this
machine that talk by gloo over loopback. Prints one JSON line.

    pytorch_gpt.py eager|compile --size large|small        1 process
    pytorch_gpt.py ddp|fsdp2|tp --ranks 2 --size large     DistributedDataParallel, fully_shard of each block, or
                                                           DTensor tensor parallelism
    pytorch_gpt.py fsdp2_prefetch                          fully_shard, the next block gathered ahead on both ways
    pytorch_gpt.py tp_sequence                             DTensor tensor parallelism with SequenceParallel
    pytorch_gpt.py 1f1b --micro-batches 4                  torch.distributed.pipelining, Schedule1F1B
    pytorch_gpt.py cp                                      torch's experimental context_parallel (PyTorch 2.13 has no
                                                           ring of its attention on CPU: NotImplementedError)
    pytorch_gpt.py all_reduce --ranks 2 --bytes 4194304    median time of one all-reduce
    pytorch_gpt.py eager --profile 4                       torch.profiler: seconds of a step by operator
    pytorch_gpt.py eager --products onednn                 matrix products by oneDNN, not by MKL (see use_products)

Choices meant in the peer's favour: gradient_as_bucket_view for DDP; one PrepareModuleInput a block half for TP, so that
the gradients of q, k and v meet in one all-reduce; outputs of pipeline stages are not collected; modules of a mode are imported only by that mode (memory). On a busy
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


# ---- the library of float32 products ----------------------------------------------------------------------------------
products = "mkl"


def choose_products(library):
    """Which library multiplies float32 matrices from here on: "mkl" (PyTorch's default) or "onednn".

    PyTorch has no switch of that name. With the precision "high" it calls oneDNN and allows it TF32; on a processor
    without TF32 instructions (no AMX-FP16) oneDNN then computes in float32.
    """
    torch.set_float32_matmul_precision("high" if library == "onednn" else "highest")


def use_products(library):
    """Of a whole run. The products inside attention are small and many, and ten times slower by oneDNN: they stay with
    MKL (Switch below)."""
    global products
    products = library
    choose_products(library)
    a, b = torch.randn(256, 512), torch.randn(512, 256)
    exact = a.double() @ b.double()
    error = ((a @ b - exact).abs().max() / exact.abs().max()).item()
    if error > 1e-5:
        raise SystemExit(f"--products {library}: expected float32 products, found a relative error of {error:.1e}: this "
                         "processor has TF32 instructions")


class Switch(torch.autograd.Function):
    """The identity, at which the library changes: to `ahead` in the forward pass, to `back` in the backward pass."""

    @staticmethod
    def forward(ctx, x, ahead, back):
        choose_products(ahead)
        ctx.back = back
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        choose_products(ctx.back)
        return gradient, None, None


class Attention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.head_dim = hidden // heads
        self.q, self.k, self.v, self.out = (nn.Linear(hidden, hidden) for _ in range(4))

    def forward(self, x):
        batch, seq, _ = x.shape
        # -1: under tensor parallelism a rank has a part of the heads.
        q, k, v = (f(x).view(batch, seq, -1, self.head_dim).transpose(1, 2) for f in (self.q, self.k, self.v))
        if products == "onednn":
            q, k, v = (Switch.apply(x, "mkl", "onednn") for x in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        if products == "onednn":
            y = Switch.apply(y, "onednn", "mkl")
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

    def forward(self, tokens, places=None):
        """places: of the tokens in their sequence, if not 0, 1, ..."""
        x = self.token(tokens) + (self.position if places is None else F.embedding(places, self.position))
        x = x.to_local() if is_dtensor(x) else x
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


def to_fsdp2_prefetch(model, ranks):
    to_fsdp2(model, ranks)
    blocks = list(model.blocks)
    for block, after in zip(blocks, blocks[1:]):
        block.set_modules_to_forward_prefetch([after])
        after.set_modules_to_backward_prefetch([block])
    return model


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


def to_tp_sequence(model, ranks):
    """Between the split products a rank has a part of each sequence."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module)
    mesh = init_device_mesh("cpu", (ranks,))
    whole = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "ln_1": SequenceParallel(use_local_output=True), "ln_2": SequenceParallel(use_local_output=True),
            "attn": PrepareModuleInput(**whole),
            "attn.q": ColwiseParallel(), "attn.k": ColwiseParallel(), "attn.v": ColwiseParallel(),
            "attn.out": RowwiseParallel(output_layouts=Shard(1)),
            "mlp": PrepareModuleInput(**whole),
            "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
        })
    parallelize_module(model, mesh, {
        "token": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1), use_local_output=False),
        "ln": SequenceParallel(use_local_output=True),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    })
    model.position = nn.Parameter(distribute_tensor(model.position.data, mesh, [Shard(0)]))
    model.tie()
    return model


MODES = {"eager": None, "compile": None, "ddp": to_ddp, "fsdp2": to_fsdp2, "fsdp2_prefetch": to_fsdp2_prefetch,
         "tp": to_tp, "tp_sequence": to_tp_sequence, "cp": to_ddp, "1f1b": None}
ONE_PROCESS = ("eager", "compile")
CUT_BATCH = ("ddp", "fsdp2", "fsdp2_prefetch")


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


def mean_loss(logits, targets):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def context_parallel_passes(model, args):
    """Forward and backward of a model whose tokens lie on several ranks; returns a function of tokens and targets."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel
    mesh = init_device_mesh("cpu", (args.ranks,))

    def passes(tokens, targets):
        places = torch.arange(tokens.shape[1])
        buffers = [tokens, targets, places]
        with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[1, 1, 0], no_restore_buffers=set(buffers)):
            loss = mean_loss(model(tokens, places), targets)
            loss.backward()
        return loss.item()
    return passes


class Stage(nn.Module):
    """The blocks of one rank of a pipeline; the first has the embedding, the last the head, with weights of its own."""

    def __init__(self, model, rank, ranks):
        super().__init__()
        count = len(model.blocks)
        self.first, self.last = rank == 0, rank == ranks - 1
        self.blocks = model.blocks[rank * count // ranks:(rank + 1) * count // ranks]
        if self.first:
            self.token, self.position = model.token, model.position
        if self.last:
            self.ln, self.head = model.ln, model.head

    def forward(self, x):
        if self.first:
            x = self.token(x) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x)) if self.last else x


class StageOptimizer(Optimizer):
    """The embedding's gradient and that of the head, which starts equal, are summed; the norm is that of all stages."""

    def __init__(self, stage, ranks):
        import torch.distributed as dist
        super().__init__(stage)
        self.dist, self.ends = dist, dist.new_group([0, ranks - 1])
        self.tied = stage.token.weight if stage.first else stage.head.weight if stage.last else None
        self.counted = [p for p in stage.parameters() if p is not self.tied or stage.first]

    def clip(self):
        if self.tied is not None:
            self.dist.all_reduce(self.tied.grad, group=self.ends)
        square = nn.utils.get_total_norm([p.grad for p in self.counted], foreach=True) ** 2
        self.dist.all_reduce(square)
        nn.utils.clip_grads_with_norm_(self.kinds[0], 1.0, square.sqrt(), foreach=True)


def pipeline_passes(stage, args, rank):
    """Forward and backward of all micro-batches; the loss is known on the last rank only."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    schedule = Schedule1F1B(PipelineStage(stage, rank, args.ranks, torch.device("cpu")), args.micro_batches,
                            loss_fn=mean_loss)

    def passes(tokens, targets):
        losses = []
        schedule.step(*([tokens] if stage.first else []), target=targets if stage.last else None, losses=losses,
                      return_outputs=False)
        return torch.stack(losses).mean().item() if stage.last else None
    return passes


def plain_passes(model, args, rank):
    share = args.batch // args.ranks if args.mode in CUT_BATCH else args.batch
    mine = slice(rank * share, (rank + 1) * share) if share != args.batch else slice(None)

    def passes(tokens, targets):
        loss = mean_loss(model(tokens[mine]), targets[mine])
        loss.backward()
        return loss.item()
    return passes


def train(args, rank):
    size = SIZES[args.size]
    torch.manual_seed(1)
    model = Gpt(**size)
    parameters = sum(p.numel() for p in model.parameters())
    if MODES[args.mode]:
        model = MODES[args.mode](model, args.ranks)
    if args.mode == "1f1b":
        model = Stage(model, rank, args.ranks)
        optimizer, passes = StageOptimizer(model, args.ranks), pipeline_passes(model, args, rank)
    else:
        optimizer = Optimizer(model)
        passes = (context_parallel_passes(model, args) if args.mode == "cp" else
                  plain_passes(torch.compile(model) if args.mode == "compile" else model, args, rank))
    windows = Windows(args.data, size["seq"], args.batch)
    steps = args.warmup + args.steps

    def one_step(step):
        loss = passes(*windows.read(step))
        optimizer.clip()
        optimizer.step(learning_rate(step, steps))
        return loss

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
    use_products(args.products)
    work = all_reduce if args.mode == "all_reduce" else train
    if args.mode in ONE_PROCESS:
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
            # Equal parts of the batch, or all of it on each rank that knows the loss.
            report["loss"] = statistics.fmean(loss for loss in losses if loss is not None)
    if rank == 0:
        print(json.dumps({**report, "peak_rss_bytes": peaks[0], "max_peak_rss_bytes": max(peaks),
                          "torch": torch.__version__}), flush=True)
    if args.mode not in ONE_PROCESS:
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
    parser.add_argument("--micro-batches", type=int, default=4, help="of a pipeline")
    parser.add_argument("--products", choices=("mkl", "onednn"), default="mkl", help="library of float32 products")
    parser.add_argument("--data", nargs="*", default=[], help="text files")
    parser.add_argument("--bytes", type=int, default=4 << 20, help="of each rank's array, all_reduce")
    parser.add_argument("--profile", type=int, default=0, metavar="STEPS", help="profile so many steps more")
    args = parser.parse_args()
    if args.mode in ONE_PROCESS and args.ranks != 1:
        parser.error(f"{args.mode} runs on 1 rank, found --ranks {args.ranks}")
    if args.batch % args.ranks:
        parser.error(f"expected --batch to be a multiple of --ranks, found {args.batch} and {args.ranks}")
    if args.mode == "1f1b" and args.batch % args.micro_batches:
        parser.error(f"expected --batch to be a multiple of --micro-batches, found {args.batch} "
                     f"and {args.micro_batches}")
    return args


def main():
    args = arguments()
    if args.ranks == 1 and args.mode in ONE_PROCESS:
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
