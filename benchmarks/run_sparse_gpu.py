#!/usr/bin/env python3
"""Sparse products on a CUDA device beside PyTorch (cuSPARSE): prints tables, and writes what it measured as JSON.

    benchmarks/run_sparse_gpu.py LIBRARY.so [OTHER.so] [--out FILE.json]

LIBRARY is build/benchmarks/libtessera_sparse_products.so of a build with CUDA (target `benchmarks`), OTHER a library to
compare it with, say of another commit. All sides multiply the same arrays, which lie on the device: float32, sums, values on
all edges, on generated power-law graphs. A time is the median of single calls, taken by events of the device after three
that do not count; the calls of all sides take turns. Results are compared with a product in float64 first.

"rows alone" is the least time for what must be moved: each edge's row of x, its column and value, and y, at the rate of a
copy on this device that is measured first. Rows that are still in the cache of the device are faster than that.
"""
import argparse
import ctypes
import json
import statistics
import sys

import numpy
import torch

GRAPHS = {"power law, degree 10": (1_000_000, 10_000_000), "power law, degree 50": (200_000, 10_000_000)}
FEATURES = (16, 32, 64, 128, 256, 100)
SAMPLERS = {"none": 0, "permutation": 4}
WIDTHS = (4, 8, 16, 32)
ROUNDS = 15


def median_ms(calls):
    """Of each call, in turns."""
    for call in calls:
        for _ in range(3):
            call()
    times = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, taken in zip(calls, times):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
            taken.append(start.elapsed_time(end))
    return [statistics.median(taken) for taken in times]


def copy_rate():
    """Bytes read and written a second."""
    a = torch.randn(1 << 28, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() * 4 / (median_ms([lambda: b.copy_(a)])[0] * 1e-3)


class Graph:
    def __init__(self, library, nodes, edges):
        offsets, columns = numpy.zeros(nodes + 1, numpy.int64), numpy.zeros(edges, numpy.int32)
        pointer = lambda array: ctypes.c_void_p(array.ctypes.data)  # noqa: E731
        if library.tessera_power_law(ctypes.c_int64(nodes), ctypes.c_int64(edges), ctypes.c_double(2.5), ctypes.c_uint64(1),
                                     pointer(offsets), pointer(columns)):
            sys.exit(1)
        self.rows, self.edges = nodes, edges
        self.offsets, self.columns = torch.from_numpy(offsets).cuda(), torch.from_numpy(columns).cuda()
        self.values = torch.randn(edges, device="cuda")
        self.degrees = self.offsets.diff()
        self.csr = torch.sparse_csr_tensor(self.offsets.int(), self.columns, self.values, size=(nodes, nodes))

    def product(self, library, x, y, sampler="none", width=0):
        at = lambda tensor: ctypes.c_void_p(tensor.data_ptr())  # noqa: E731
        rows = ctypes.c_int64(self.rows)
        arguments = (rows, rows, ctypes.c_int64(self.edges), at(self.offsets), at(self.columns), at(self.values),
                     SAMPLERS[sampler], ctypes.c_int64(width), ctypes.c_uint64(1), at(x), ctypes.c_int64(x.shape[1]), at(y))

        def call():
            if library.tessera_spmm_on_device(*arguments):
                sys.exit(1)
        return call

    def used(self, width):
        """Edges of a sample."""
        return int(self.degrees.clamp(max=width).sum())

    def exact(self, x):
        """The whole product in float64, of 64 columns at a time."""
        sizes = self.degrees
        result = []
        for part in x.split(64, dim=1):
            sums = torch.zeros(self.rows, part.shape[1], dtype=torch.float64, device="cuda")
            rows = torch.repeat_interleave(torch.arange(self.rows, device="cuda"), sizes)
            for start in range(0, self.edges, 1 << 21):
                cut = slice(start, start + (1 << 21))
                sums.index_add_(0, rows[cut], part[self.columns[cut].long()].double() * self.values[cut, None])
            result.append(sums)
        return torch.cat(result, dim=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("other", nargs="?")
    parser.add_argument("--out")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("run_sparse_gpu.py: expected a CUDA device, found none")
    libraries = [ctypes.CDLL(path) for path in (options.library, options.other) if path]
    if not hasattr(libraries[0], "tessera_spmm_on_device"):
        sys.exit(f"run_sparse_gpu.py: expected a library of a build with CUDA, found {options.library} without it")
    rate = copy_rate()
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "copy_bytes_per_s": rate, "products": [],
              "samples": []}
    print(f"{report['device']}, PyTorch {report['torch']}: a copy moves {rate / 1e12:.2f} TB/s")
    print("| graph | features | Tessera, ms | other, ms | PyTorch, ms | PyTorch / Tessera | rows alone, ms | error |")
    for name, sizes in GRAPHS.items():
        graph = Graph(libraries[0], *sizes)
        for features in FEATURES:
            x = torch.randn(graph.rows, features, device="cuda")
            results = [torch.full_like(x, float("nan")) for _ in libraries]
            calls = [graph.product(library, x, y) for library, y in zip(libraries, results)]
            for call in calls:
                call()
            exact = graph.exact(x)
            errors = [float((y - exact).norm() / exact.norm()) for y in results]
            if not max(errors) < 1e-5:
                sys.exit(f"run_sparse_gpu.py: {name}, {features} features: expected the product, found errors of {errors}")
            del exact
            times = median_ms([*calls, lambda: torch.sparse.mm(graph.csr, x)])
            alone = (graph.edges * (4 * features + 8) + graph.rows * (4 * features + 8)) / rate * 1e3
            report["products"].append({"graph": name, "features": features, "ms": times, "errors": errors, "alone_ms": alone})
            print(f"| {name} | {features} | {times[0]:.3f} | {times[1]:.3f} | {times[-1]:.3f} | {times[-1] / times[0]:.2f} | "
                  f"{alone:.3f} | {errors[0]:.1e} |", flush=True)
            if features in (64, 128):
                for width in WIDTHS:
                    call = [graph.product(library, x, y, "permutation", width) for library, y in zip(libraries, results)]
                    sampled = median_ms(call)
                    share = graph.used(width) / graph.edges
                    report["samples"].append({"graph": name, "features": features, "width": width, "ms": sampled,
                                              "coverage": share})
                    print(f"| {name} | {features} | permutation {width}: {sampled[0]:.3f} | {sampled[-1]:.3f} | "
                          f"{times[0] / sampled[0]:.2f} times the whole product's speed at {100 * share:.1f} % of the edges |",
                          flush=True)
            del x, results, calls
    if options.out:
        with open(options.out, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
