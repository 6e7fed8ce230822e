#!/usr/bin/env python3
"""The peer of benchmarks/run_recommender.py: a DLRM in PyTorch, trained on the arrays that `tessera data arrays` writes.

Dense layers are replicated by DistributedDataParallel. Each table is whole on one rank, the largest first to the rank
with the least, as the recipe `tables` places them; its rank looks up the ids of all samples, and the pooled vectors and
their gradients go by all-to-all (gloo). Tables are trained by Adagrad on sparse gradients, dense layers by Adagrad. One
thread a rank. Prints one line of JSON: seconds of each timed step, the loss of the last one.

    .venv/bin/python benchmarks/peers/pytorch_dlrm.py --arrays FOLDER --rows 1000-500 --width 16 --bottom 64-16 --top 64-1 --batch 512 --ranks 2
"""
import argparse
import json
import os
import socket
import time

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing


class Exchange(torch.autograd.Function):
    """Blocks of rows to ranks and back: all_to_all_single with the sizes given, whose gradient goes the other way."""

    @staticmethod
    def forward(ctx, x, sends, receives):
        ctx.sizes = (sends, receives)
        out = x.new_empty(sum(receives))
        dist.all_to_all_single(out, x, receives, sends)
        return out

    @staticmethod
    def backward(ctx, gradient):
        sends, receives = ctx.sizes
        out = gradient.new_empty(sum(sends))
        dist.all_to_all_single(out, gradient.contiguous(), sends, receives)
        return out, None, None


def layers(widths, first, last_is_plain):
    out = []
    for i, width in enumerate(widths):
        out.append(torch.nn.Linear(first, width))
        torch.nn.init.normal_(out[-1].weight, std=(2 / (first + width)) ** 0.5)
        torch.nn.init.zeros_(out[-1].bias)
        if not (last_is_plain and i + 1 == len(widths)):
            out.append(torch.nn.ReLU(inplace=True))
        first = width
    return torch.nn.Sequential(*out)


class Dense(torch.nn.Module):
    """Bottom layers, products of all pairs of vectors, top layers."""

    def __init__(self, numbers, tables, width, bottom, top):
        super().__init__()
        self.bottom = layers(bottom, numbers, False)
        self.pairs = torch.tril_indices(tables + 1, tables + 1, -1)
        self.top = layers(top, width + self.pairs.shape[1], True)

    def forward(self, dense, vectors):
        first = self.bottom(dense)
        fields = torch.cat([first.unsqueeze(1), vectors], 1)
        products = torch.bmm(fields, fields.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([first, products], 1)).squeeze(1)


def places(rows, ranks):
    load, out = [0] * ranks, [0] * len(rows)
    for table in sorted(range(len(rows)), key=lambda t: -rows[t]):
        rank = load.index(min(load))
        load[rank] += rows[table]
        out[table] = rank
    return out


def work(rank, args, port):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    ranks = args.ranks
    if ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=ranks)
    place = places(args.rows, ranks)
    order = [t for r in range(ranks) for t in range(len(args.rows)) if place[t] == r]  # as vectors arrive
    back = torch.tensor([order.index(t) for t in range(len(args.rows))])
    mine = [t for t in order if place[t] == rank]
    tables = []
    for t in mine:
        table = torch.nn.EmbeddingBag(args.rows[t], args.width, mode="sum", sparse=True)
        torch.nn.init.uniform_(table.weight, -args.rows[t] ** -0.5, args.rows[t] ** -0.5)
        tables.append(table)

    arrays = {name: numpy.load(f"{args.arrays}/{name}.npy", mmap_mode="r") for name in ["dense", "targets"] + [
        f"ids.{t}" for t in mine]}
    dense = Dense(arrays["dense"].shape[1], len(args.rows), args.width, args.bottom, args.top)
    replicated = torch.nn.parallel.DistributedDataParallel(dense) if ranks > 1 else dense
    optimizers = [torch.optim.Adagrad(dense.parameters(), lr=args.lr, eps=1e-8)]
    optimizers += [torch.optim.Adagrad(table.parameters(), lr=args.lr, eps=1e-8) for table in tables]
    share = args.batch // ranks
    here, each = len(mine), [place.count(r) for r in range(ranks)]
    sends = [here * share * args.width] * ranks
    receives = [each[r] * share * args.width for r in range(ranks)]
    seconds = []
    for step in range(args.warmup + args.steps):
        start = time.perf_counter()
        samples = slice(step * args.batch, (step + 1) * args.batch)
        own = slice(samples.start + rank * share, samples.start + (rank + 1) * share)
        pooled = []
        for table, t in zip(tables, mine):
            ids = torch.from_numpy(numpy.ascontiguousarray(arrays[f"ids.{t}"][samples]).reshape(args.batch, -1))
            pooled.append(table(ids))
        vectors = torch.stack(pooled, 1)  # [batch, tables here, width]
        if ranks > 1:
            arrived = Exchange.apply(vectors.reshape(-1), sends, receives)
            parts = [part.reshape(share, each[r], args.width) for r, part in enumerate(arrived.split(receives))]
            vectors = torch.cat(parts, 1)[:, back]
        logits = replicated(torch.from_numpy(numpy.ascontiguousarray(arrays["dense"][own])), vectors)
        targets = torch.from_numpy(numpy.ascontiguousarray(arrays["targets"][own])).reshape(-1).float()
        # The mean over all samples: DDP divides the dense gradients by the ranks, those of the tables are divided here.
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)
        loss.backward()
        for table in tables:
            if ranks > 1:
                table.weight.grad = table.weight.grad / ranks
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if step >= args.warmup:
            seconds.append(time.perf_counter() - start)
    total = loss.detach()
    if ranks > 1:
        dist.all_reduce(total)
        total /= ranks
    if rank == 0:
        print(json.dumps({"step_time_s": seconds, "loss": total.item(), "torch": torch.__version__}), flush=True)
    if ranks > 1:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(n) for n in text.split("-")]  # noqa: E731
    parser.add_argument("--arrays", required=True, help="folder that `tessera data arrays` wrote")
    parser.add_argument("--rows", type=numbers, required=True)
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--bottom", type=numbers, required=True)
    parser.add_argument("--top", type=numbers, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    if args.ranks == 1:
        return work(0, args, 0)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(work, (args, port), args.ranks)


if __name__ == "__main__":
    main()
