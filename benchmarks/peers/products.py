#!/usr/bin/env python3
"""Speed of float32 matrix products by the two libraries inside libtorch, one thread: MKL, which aten::mm uses, and oneDNN,
which mkldnn::_linear_pointwise uses. Prints a Markdown table in GFLOP/s; best of 30 calls each, in turn.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/peers/products.py
"""
import time

import torch

CALLS = 30
SHAPES = [(2048, 384, 384), (2048, 384, 1536), (2048, 1536, 384), (1024, 128, 128), (1024, 128, 512), (1024, 512, 128)]


def seconds(functions):
    best = [float("inf")] * len(functions)
    for call in range(3 + CALLS):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            spent = time.perf_counter() - start
            if call >= 3:
                best[i] = min(best[i], spent)
    return best


def onednn(a, b_transposed, out):
    """As the runtime would have to call it: the op has no form that writes to given memory."""
    out.copy_(torch.ops.mkldnn._linear_pointwise(a, b_transposed, None, "none", [], ""))


@torch.inference_mode()
def main():
    torch.set_num_threads(1)
    print("| tokens, in, out | y = x w: MKL | oneDNN and copy | dw = x' dy: MKL | oneDNN and copy | dx = dy w': MKL "
          "| oneDNN and copy | error MKL | error oneDNN |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for m, k, n in SHAPES:
        x, w, dy = torch.randn(m, k), torch.randn(k, n), torch.randn(m, n)
        y, dw, dx = torch.empty(m, n), torch.empty(k, n), torch.empty(m, k)
        cells = []
        for a, b, out in ((x, w, y), (x.t(), dy, dw), (dy, w.t(), dx)):
            times = seconds([lambda: torch.mm(a, b, out=out), lambda: onednn(a, b.t(), out)])
            cells += [f"{2 * m * k * n / 1e9 / t:.0f}" for t in times]
        exact = x.double() @ w.double()
        for product in (x @ w, torch.ops.mkldnn._linear_pointwise(x, w.t(), None, "none", [], "")):
            cells.append(f"{((product - exact).abs().max() / exact.abs().max()).item():.1e}")
        print(f"| {m}, {k}, {n} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
