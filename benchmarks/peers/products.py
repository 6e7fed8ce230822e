#!/usr/bin/env python3
"""Float32 matrix products on one thread by the two libraries inside libtorch: MKL, which PyTorch calls by default, and
oneDNN (pytorch_gpt.py's use_products says how PyTorch is made to call it). Prints two Markdown tables: single products,
and whole training steps of pytorch_gpt.py. The libraries take turns, call by call and step by step; a figure is the
least of the calls, in time of this thread on a processor, so that other programs disturb little.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/peers/products.py [--calls 30] [--steps 6]
"""
import argparse
import time

import torch

import pytorch_gpt

SHAPES = [(2048, 384, 384), (2048, 384, 1536), (2048, 1536, 384), (1024, 128, 128), (1024, 128, 512), (1024, 512, 128)]
LIBRARIES = ("mkl", "onednn")


def least_seconds(function, choose, calls, warmup=3):
    """By library, in turn."""
    best = dict.fromkeys(LIBRARIES, float("inf"))
    for call in range(warmup + calls):
        for library in LIBRARIES:
            choose(library)
            start = time.thread_time()
            function()
            spent = time.thread_time() - start
            if call >= warmup:
                best[library] = min(best[library], spent)
    return best


def single_products(calls):
    print("GFLOP/s of one product:\n")
    print("| tokens, in, out | y = x w: MKL | oneDNN | dw = x' dy: MKL | oneDNN | dx = dy w': MKL | oneDNN | error MKL "
          "| error oneDNN |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for m, k, n in SHAPES:
        x, w, dy = torch.randn(m, k), torch.randn(k, n), torch.randn(m, n)
        y, dw, dx = torch.empty(m, n), torch.empty(k, n), torch.empty(m, k)
        cells = []
        for a, b, out in ((x, w, y), (x.t(), dy, dw), (dy, w.t(), dx)):
            best = least_seconds(lambda: torch.mm(a, b, out=out), pytorch_gpt.choose_products, calls)
            cells += [f"{2 * m * k * n / 1e9 / best[library]:.0f}" for library in LIBRARIES]
        exact = x.double() @ w.double()
        for library in LIBRARIES:
            pytorch_gpt.use_products(library)
            cells.append(f"{((x @ w - exact).abs().max() / exact.abs().max()).item():.1e}")
        print(f"| {m}, {k}, {n} | {' | '.join(cells)} |", flush=True)


def whole_steps(steps):
    print("\nMilliseconds of a training step of `pytorch_gpt.py eager`:\n")
    print("| size | MKL | oneDNN | MKL / oneDNN |\n|---|--:|--:|--:|")
    for size, numbers in pytorch_gpt.SIZES.items():
        torch.manual_seed(1)
        model = pytorch_gpt.Gpt(**numbers)
        optimizer = pytorch_gpt.Optimizer(model)
        windows = pytorch_gpt.Windows([], numbers["seq"], 8)

        def step():
            tokens, targets = windows.read(1)
            pytorch_gpt.mean_loss(model(tokens), targets).backward()
            optimizer.clip()
            optimizer.step(1e-4)

        best = least_seconds(step, pytorch_gpt.use_products, steps, warmup=1)
        print(f"| {size} | {best['mkl'] * 1e3:.1f} | {best['onednn'] * 1e3:.1f} | {best['mkl'] / best['onednn']:.2f} |",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=30, help="of a product, by each library")
    parser.add_argument("--steps", type=int, default=6, help="of a model, by each library")
    args = parser.parse_args()
    torch.set_num_threads(1)
    pytorch_gpt.use_products("onednn")  # fails where oneDNN would not compute in float32
    with torch.inference_mode():
        single_products(args.calls)
    whole_steps(args.steps)


if __name__ == "__main__":
    main()
