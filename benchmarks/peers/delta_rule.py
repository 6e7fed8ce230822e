#!/usr/bin/env python3
"""The gated delta rule on one thread: Tessera's kernel beside torch_chunk_gated_delta_rule of transformers, which runs where no
kernels for GPUs are installed, both in chunks of 64 tokens. Prints a Markdown table of the forward and the backward pass. The two
sides take turns: a run of `tessera train`, of which a step is traced, then calls of the function in this process. A figure is the
least of all, in elapsed time, so nothing else should run. Values and gradients are compared in tests/huggingface.

The function is called with the decays of that run, e^-0.5 to e^-3.5 a token, whose products over a chunk leave the range of normal
numbers, and with decays of at most e^-1, whose products do not. Our kernel sets the former to zero.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/peers/delta_rule.py [--turns 5] [--calls 5] [--tessera build/tessera]
"""
import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import torch
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

WIDTH, HEADS, GROUP = 128, 4, 2  # of keys and values, heads of keys, heads of values for each
SHAPES = [(1, 512), (4, 512), (1, 2048), (1, 4096)]  # sequences, tokens of each


def ours(program, batch, tokens):
    """The milliseconds of the forward and the backward kernel, in a model of one block."""
    model = (f"llama:layers=1,hidden=64,heads=2,ffn=64,vocab=256,seq={tokens},delta_heads={HEADS},"
             f"delta_value_heads={HEADS * GROUP},delta_head_dim={WIDTH},delta_value_dim={WIDTH}")
    with tempfile.TemporaryDirectory(prefix="tessera_delta_rule_") as folder:
        run, trace = pathlib.Path(folder) / "run.toml", pathlib.Path(folder) / "trace.json"
        (pathlib.Path(folder) / "text.txt").write_text("0123456789" * (batch * tokens))
        run.write_text(f'threads = 1\nmodel = "{model}"\ndata = ["{folder}/text.txt"]\nbatch = {batch}\nsteps = 4\n')
        subprocess.run([program, "train", str(run), "--trace", str(trace)], check=True, capture_output=True)
        spent = {}
        for event in json.loads(trace.read_text())["traceEvents"]:
            if event["ph"] == "X":
                spent[event["name"]] = spent.get(event["name"], 0) + event["dur"] / 1e3
    return [spent[f"blocks.0.ssm.scan{end}"] for end in ("", ".backward")]


def theirs(batch, tokens, calls, strong):
    q, k = (torch.nn.functional.normalize(torch.randn(batch, tokens, HEADS, WIDTH), dim=-1) for _ in range(2))
    v = torch.randn(batch, tokens, HEADS * GROUP, WIDTH)
    g = -torch.rand(batch, tokens, HEADS * GROUP)
    if strong:
        g = -torch.nn.functional.softplus(1 + g / 10) * torch.exp(2 * torch.rand(HEADS * GROUP) - 1)
    beta = torch.rand(batch, tokens, HEADS * GROUP)
    operands = [x.requires_grad_() for x in (q, k, v, g, beta)]
    forward, backward = [], []
    for _ in range(calls):
        with torch.no_grad():
            start = time.perf_counter()
            torch_chunk_gated_delta_rule(*operands)
            forward.append(time.perf_counter() - start)
        y = torch_chunk_gated_delta_rule(*operands)[0]
        dy = torch.ones_like(y)
        start = time.perf_counter()
        torch.autograd.grad(y, operands, dy)
        backward.append(time.perf_counter() - start)
    return [min(forward) * 1e3, min(backward) * 1e3]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--tessera", default="build/tessera")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| sequences, tokens | decays | forward: ours, ms | transformers, ms | ratio | backward: ours, ms | transformers, ms "
          "| ratio |\n|---|---|--:|--:|--:|--:|--:|--:|")
    for batch, tokens in SHAPES:
        best = [[float("inf")] * 2 for _ in range(3)]
        for _ in range(options.turns):
            turn = [ours(options.tessera, batch, tokens)]
            turn += [theirs(batch, tokens, options.calls, strong) for strong in (True, False)]
            best = [[min(a, b) for a, b in zip(*each)] for each in zip(best, turn)]
        for name, their in zip(("of the run", "weak"), best[1:]):
            cells = [f"{best[0][i]:.1f} | {their[i]:.1f} | {best[0][i] / their[i]:.2f}" for i in range(2)]
            print(f"| {batch}, {tokens} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
