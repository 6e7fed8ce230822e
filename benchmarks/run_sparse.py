#!/usr/bin/env python3
"""Sparse products beside SciPy and PyTorch: writes build/results/<date>-sparse.md and .json.

    benchmarks/run_sparse.py                everything, about 10 minutes
    benchmarks/run_sparse.py --quick        fewer rounds and the smaller generated graph only
    benchmarks/run_sparse.py --only cora    rows whose name contains a word

All programs multiply the same arrays in one process, each into memory that it has used before, and take turns call by
call after a round that does not count; a round gives one ratio of neighbouring calls, of which the median and the spread
are told. On one thread a call is timed by the thread's own time on a processor, on two by the clock on the wall, which
other programs disturb; the page tells the load. The other side is `scipy.sparse._sparsetools.csr_matvecs`, which is
what `A @ X` calls, and `torch.addmm(Y, A, X, beta=0, out=Y)` with a CSR tensor, which calls MKL. Results are compared.
"""
import argparse
import ctypes
import dataclasses
import datetime
import json
import os
import pathlib
import resource
import statistics
import sys
import time
import types
import warnings

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
import numpy  # noqa: E402
import scipy.io  # noqa: E402
import scipy.sparse  # noqa: E402
import torch  # noqa: E402
from scipy.sparse import _sparsetools  # noqa: E402

from run_peers import ROOT, machine  # noqa: E402

SAMPLERS = {"none": 0, "bucket": 1, "stride": 2, "quadratic": 3, "permutation": 4}
POWER_LAW = {"power law, degree 10": (1_000_000, 10_000_000), "power law, degree 50": (200_000, 10_000_000)}
WORK = 2e7  # elements of x that a timed call reads at least; smaller products are repeated


class Tessera:
    """The functions of benchmarks/peers/sparse_products.cc."""

    def __init__(self, build):
        self.library = ctypes.CDLL(str(build / "benchmarks/libtessera_sparse_products.so"))

    def power_law(self, nodes, edges):
        offsets, columns = numpy.zeros(nodes + 1, numpy.int64), numpy.zeros(edges, numpy.int32)
        check(self.library.tessera_power_law(ctypes.c_int64(nodes), ctypes.c_int64(edges), ctypes.c_double(2.5),
                                             ctypes.c_uint64(1), address(offsets), address(columns)))
        return offsets, columns

    def product(self, graph, x, y, threads=1, sampler="none", width=0, name="tessera_spmm"):
        rows = ctypes.c_int64(graph.rows)
        arguments = (rows, rows, address(graph.offsets), address(graph.columns), address(graph.values), 0,
                     SAMPLERS[sampler], ctypes.c_int64(width), ctypes.c_uint64(1), address(x), ctypes.c_int64(x.shape[1]),
                     address(y), threads)
        function = getattr(self.library, name)
        return lambda: check(function(*arguments))


def address(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def check(code):
    if code != 0:
        sys.exit("run_sparse: a product failed")


class Graph:
    def __init__(self, name, offsets, columns):
        self.name, self.offsets, self.columns = name, offsets, columns
        self.rows, self.edges = len(offsets) - 1, len(columns)
        self.values = numpy.random.default_rng(1).random(self.edges, numpy.float32)
        self.narrow = offsets.astype(numpy.int32)  # what SciPy and MKL take
        self.torch = torch.sparse_csr_tensor(torch.from_numpy(self.narrow), torch.from_numpy(columns),
                                             torch.from_numpy(self.values), (self.rows, self.rows))

    def coverage(self, width):
        return float(numpy.minimum(numpy.diff(self.offsets), width).sum() / self.edges)

    def scipy_product(self, x, y):
        def call():
            y.fill(0)
            _sparsetools.csr_matvecs(self.rows, self.rows, x.shape[1], self.narrow, self.columns, self.values,
                                     x.ravel(), y.ravel())
        return call

    def torch_product(self, x, y):
        given, out = torch.from_numpy(x), torch.from_numpy(y)
        return lambda: torch.addmm(out, self.torch, given, beta=0, out=out)


@dataclasses.dataclass
class Row:
    graph: str
    features: int
    what: str      # "scipy", "torch", "2 threads", "permutation 8"
    ours_ms: float
    other_ms: float
    ratios: list   # other / ours; of a sample whole / sampled
    target: float
    note: str = ""

    def median(self):
        return statistics.median(self.ratios)


def in_turn(calls, repeats, rounds, clock):
    """Seconds of one call, by name and round."""
    seconds = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            begin = clock()
            for _ in range(repeats):
                call()
            spent = (clock() - begin) / repeats
            if turn > 0:
                seconds[name].append(spent)
    return seconds


def row_of(graph, features, what, seconds, ours, other, target, note=""):
    ratios = [b / a for a, b in zip(seconds[ours], seconds[other])]
    return Row(graph.name, features, what, 1e3 * statistics.median(seconds[ours]),
               1e3 * statistics.median(seconds[other]), ratios, target, note)


def measure(tessera, graph, features, widths, rounds):
    random = numpy.random.default_rng(2)
    x = random.random((graph.rows, features), numpy.float32)
    ours, theirs, mkl = (numpy.zeros_like(x) for _ in range(3))
    calls = {"ours": tessera.product(graph, x, ours), "scipy": graph.scipy_product(x, theirs),
             "torch": graph.torch_product(x, mkl)}
    for call in calls.values():
        call()
    scale = numpy.abs(theirs).max()
    error = max(numpy.abs(ours - theirs).max(), numpy.abs(ours - mkl).max()) / scale
    if not error < 1e-4:
        sys.exit(f"run_sparse: {graph.name}: expected equal results, found a difference of {error}")
    repeats = max(1, int(WORK / (graph.edges * features)))
    seconds = in_turn(calls, repeats, rounds, time.thread_time)
    rows = [row_of(graph, features, other, seconds, "ours", other, 2.0) for other in ("scipy", "torch")]

    other = numpy.zeros_like(x)
    pair = {"ours": tessera.product(graph, x, ours, 2), "one": tessera.product(graph, x, other)}
    rows.append(row_of(graph, features, "1 thread / 2 threads", in_turn(pair, repeats, rounds, time.perf_counter),
                       "ours", "one", 1.8))
    if not numpy.array_equal(ours, other):
        sys.exit(f"run_sparse: {graph.name}: two threads gave other bits than one")
    back = {"ours": tessera.product(graph, x, ours, 1, name="tessera_spmm_grad_x"), "forward": calls["ours"]}
    rows.append(row_of(graph, features, "forward / backward", in_turn(back, repeats, rounds, time.thread_time),
                       "ours", "forward", 0.0))
    sampled = {"whole": calls["ours"]}
    for width in widths:
        for sampler in ("bucket", "stride", "quadratic", "permutation"):
            sampled[f"{sampler} {width}"] = tessera.product(graph, x, other, 1, sampler, width)
    seconds = in_turn(sampled, repeats, rounds, time.thread_time)
    for width in widths:
        for sampler in ("bucket", "stride", "quadratic", "permutation"):
            coverage = graph.coverage(width)
            rows.append(row_of(graph, features, f"{sampler} {width}", seconds, f"{sampler} {width}", "whole",
                               0.8 / coverage, f"coverage {100 * coverage:.1f} %"))
    return rows


def graphs(tessera, args):
    for name in ("cora", "p2p-Gnutella31"):
        if args.only in name:
            matrix = scipy.io.mmread(ROOT / f"data/graphs/{name}.mtx").tocsr()
            matrix.sort_indices()
            yield Graph(name, matrix.indptr.astype(numpy.int64), matrix.indices.astype(numpy.int32)), (16, 64, 128), (4, 8)
    for name, (nodes, edges) in POWER_LAW.items():
        if args.only in name and not (args.quick and nodes > 500_000):
            yield Graph(name, *tessera.power_law(nodes, edges)), (32, 64, 128), (4, 8, 16, 32)


def others_share(before):
    """Share of the processors that other programs took since `before`."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    mine = (usage.ru_utime + usage.ru_stime - before[2]) * os.sysconf("SC_CLK_TCK")
    busy, total = busy_ticks()
    return max(0.0, (busy - before[0] - mine) / max(1, total - before[1]))


def busy_ticks():
    fields = [int(n) for n in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def page(rows, about, load):
    yield f"# Sparse products beside SciPy and PyTorch, {datetime.date.today()}\n"
    yield f"`{' '.join(['benchmarks/run_sparse.py', *sys.argv[1:]])}`; how it is measured is said in that file. Float32, sums, "
    yield "values on all edges. A ratio is the other program's time by ours, of a sample the whole product's time by the "
    yield "sample's; median, and least and most of the rounds in brackets. Targets: 2 beside SciPy and PyTorch on one thread, "
    yield "1.8 on two threads, 0.8 / coverage of a sample.\n"
    yield f"Load average {load['before']:.1f} before and {load['after']:.1f} after; other programs took {100 * load['others']:.0f} % of the processors meanwhile.\n"
    met = [row for row in rows if row.target > 0]
    yield f"{sum(row.median() >= row.target for row in met)} of {len(met)} targets are met.\n"
    yield "| graph | features | what | Tessera, ms | other, ms | ratio | target | |\n|---|--:|---|--:|--:|--:|--:|---|"
    for row in rows:
        target = "" if row.target == 0 else f"{row.target:.2f} {'met' if row.median() >= row.target else '**missed**'}"
        yield (f"| {row.graph} | {row.features} | {row.what} | {row.ours_ms:.3f} | {row.other_ms:.3f} | {row.median():.2f} "
               f"[{min(row.ratios):.2f}, {max(row.ratios):.2f}] | {target} | {row.note} |")
    yield "\n## Machine"
    for key, value in about.items():
        yield f"- {key}: {value}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--build", default="build")
    parser.add_argument("--out", default=str(ROOT / "build/results"))
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="Sparse")
    torch.set_num_threads(1)
    build = ROOT / args.build
    tessera = Tessera(build)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    before = (*busy_ticks(), usage.ru_utime + usage.ru_stime)
    load = {"before": os.getloadavg()[0]}
    rows = []
    for graph, features, widths in graphs(tessera, args):
        for count in features:
            rows += measure(tessera, graph, count, widths, 3 if args.quick else 7)
            print(f"{graph.name}, {count} features: " +
                  ", ".join(f"{row.what} {row.median():.2f}" for row in rows if row.graph == graph.name and row.features == count),
                  flush=True)
    load.update(after=os.getloadavg()[0], others=others_share(before))
    about = machine(types.SimpleNamespace(build=build, torch=torch.__version__))
    about["SciPy"] = scipy.__version__
    stem = pathlib.Path(args.out) / f"{datetime.date.today()}-sparse"
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".md").write_text("\n".join(page(rows, about, load)) + "\n")
    stem.with_suffix(".json").write_text(json.dumps(
        {"machine": about, "load": load, "rows": [dataclasses.asdict(row) for row in rows]}, indent=1) + "\n")
    print(f"wrote {stem}.md and .json")


if __name__ == "__main__":
    main()
