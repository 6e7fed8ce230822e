#!/usr/bin/env python3
"""Where the time of one training step goes, Tessera beside PyTorch: writes build/results/<date>-profile-<size>.md.

    benchmarks/profile_step.py --size large                        1 rank: serial beside eager
    benchmarks/profile_step.py --size small --plan 'data_parallel(2)' --peer ddp

Both programs are sampled by `perf record` (Debian: linux-perf) on the processor's clock, so that no counters are needed,
and each sample is put into a class by the symbol it hit: the first class of CLASSES whose pattern matches. Samples of
the start (loading libraries, compiling, verifying) are left out: of Tessera only those of the last part of the run count,
which is as long as the timed steps; the peer tells when they began and ended. Times are processor time of one rank; what a step takes beyond them is time without a
processor: waiting for another rank, or for other programs of the machine. The products inside fused attention count as
matrix products; PyTorch's own profiler adds a table by operator. A symbol that matches nothing is named below the table.
"""
import argparse
import collections
import datetime
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import run_peers

ROOT = run_peers.ROOT
FREQUENCY = 499  # samples a second
CLASSES = [  # (class, pattern of "library symbol")
    ("matrix products", r"gemm|gemv|mkl_blas|brgemm|dnnl|\[JIT\]|jit_|/tmp/perf-"),
    ("attention", r"flash_attention|attention|cpu_flash"),
    ("gelu", r"gelu|tanhf|Tanh"),
    ("layer norm", r"layer_?norm|LayerNorm|RowwiseMoments|norm_(forward|backward)"),
    ("cross entropy, softmax", r"softmax|cross_entropy|nll_loss|log_?sum|expf"),
    ("embedding", r"embedding|index_"),
    ("optimizer, clipping", r"[Aa]dam|fused_|foreach|vector_norm|linalg_norm|norm_kernel"),
    ("waiting, messages", r"gloo|futex|sched_yield|pthread_(cond|mutex)|spin|tcp_|sock|sendmsg|recvmsg|epoll|communicat"
                          r"|comm::|barrier"),
    ("page faults, memory", r"clear_page|page_fault|alloc_pages|madvise|munmap|mmap|folio|_int_(malloc|free)|malloc|"
                            r"zap_|vma"),
    ("copies, fills", r"memcpy|memmove|memset|copy_|fill_|transpose"),
    ("sums, element-wise", r"vectorized_loop|VectorizedLoop|cascade_sum|sum_kernel|binary_kernel|TensorIterator|Reduce|"
                           r"rows_|row_loops|pointwise|add_|mul_"),
    ("Python", r"libpython|python3"),
    ("dispatch, autograd", r"c10::|torch::|at::|autograd|Engine"),
    ("kernel of the system", r"\[kernel|\[k\]|vmlinux"),
    ("the program itself", r"tessera"),
]


def samples(data):
    """(seconds, "library symbol") of each sample."""
    out = subprocess.run(["perf", "script", "-i", data, "-F", "time,ip,sym,dso", "-G"], capture_output=True, text=True,
                         check=True).stdout
    for line in out.splitlines():
        match = re.match(r"\s*([\d.]+):\s+[0-9a-f]+\s+(.*)\s\((\S*)\)\s*$", line)
        if match:
            library = match[3].rsplit("/", 1)[-1] if not match[3].startswith("/tmp/perf-") else "[JIT]"
            yield float(match[1]), f"{library} {match[2]}"


def attribute(data, divisor, last_seconds=None, between=None):
    """{class: processor seconds / divisor} and the largest [(symbol, seconds)] of the rest, in that time."""
    taken = list(samples(data))
    if not taken:
        sys.exit(f"profile_step.py: expected samples in {data}, found none")
    last = max(time for time, _ in taken)
    start, end = between or (last - last_seconds, last)
    counts, rest = collections.Counter(), collections.Counter()
    for time, symbol in taken:
        if not start <= time <= end:
            continue
        name = next((name for name, pattern in CLASSES if re.search(pattern, symbol)), "rest")
        counts[name] += 1
        if name == "rest":
            rest[symbol] += 1
    scale = 1 / (FREQUENCY * divisor)
    return ({name: count * scale for name, count in counts.items()},
            [(symbol, count * scale) for symbol, count in rest.most_common(8)])


def record(command, folder, name):
    data = folder / name
    out, _ = run_peers.execute(["perf", "record", "-q", "-e", "cpu-clock", "-k", "CLOCK_MONOTONIC", "-F", FREQUENCY, "-o", data, *command])
    return data, out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=run_peers.SIZES, default="large")
    parser.add_argument("--plan", default="serial")
    parser.add_argument("--peer", default="eager", choices=["eager", "compile", "ddp", "fsdp2", "tp"])
    parser.add_argument("--steps", type=int, help="timed steps; default 6 (large), 100 (small)")
    parser.add_argument("--build", default="build", help="folder with the program `tessera`")
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"), help="one that has torch")
    parser.add_argument("--out", default="build/results", help="folder of the page")
    args = parser.parse_args()
    steps = args.steps or {"large": 6, "small": 100}[args.size]
    ranks = 1 if args.peer in ("eager", "compile") else 2

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        session = run_peers.Session(argparse.Namespace(build=args.build, python=args.python, quick=True, repeats=1),
                                    folder)
        tessera = [session.build / "tessera", "train", session.run_file(args.size, args.plan, 1 + steps), "--json"]
        data, out = record(tessera, folder, "tessera.perf")
        times = [json.loads(line)["step_time_s"] for line in out.splitlines() if '"step"' in line][1:]
        ours = (sum(times) / steps, *attribute(data, steps * ranks, last_seconds=sum(times)))
        peer = [args.python, run_peers.PEER, args.peer, "--size", args.size, "--ranks", ranks, "--warmup", 1,
                "--steps", steps, "--data", session.text]
        data, out = record(peer, folder, "pytorch.perf")
        report = json.loads(out.splitlines()[-1])
        times = report["step_time_s"]
        theirs = (sum(times) / steps, *attribute(data, steps * ranks, between=report["timed_from_to"]))
        session.torch = report["torch"]
        out, _ = run_peers.execute([*peer, "--profile", max(2, steps // 5)])
        operators = json.loads(out.splitlines()[-1])["profile"]
        about = run_peers.machine(session)

    date = datetime.date.today().isoformat()
    names = [name for name, _ in CLASSES] + ["rest"]
    names.sort(key=lambda name: -max(ours[1].get(name, 0), theirs[1].get(name, 0)))
    busy = [sum(side[1].values()) for side in (ours, theirs)]
    lines = [f"# Where a step goes, {args.size} model, {date}", "",
             f"`benchmarks/profile_step.py --size {args.size} --plan '{args.plan}' --peer {args.peer} --steps {steps}`; "
             f"processor time of one rank, from {FREQUENCY} samples a second. Products inside fused attention count as "
             "matrix products.", "",
             f"| class | Tessera {args.plan} | | PyTorch {args.peer} | |", "|---|--:|--:|--:|--:|",
             f"| a step, by the clock | {ours[0] * 1e3:.1f} ms | | {theirs[0] * 1e3:.1f} ms | |",
             f"| a step, on the processor | {busy[0] * 1e3:.1f} ms | | {busy[1] * 1e3:.1f} ms | |"]
    for name in names:
        mine, other = ours[1].get(name, 0), theirs[1].get(name, 0)
        if max(mine / busy[0], other / busy[1]) >= 0.001:
            lines.append(f"| {name} | {mine * 1e3:.2f} ms | {mine / busy[0]:.1%} | {other * 1e3:.2f} ms | "
                         f"{other / busy[1]:.1%} |")
    for title, side in (("Tessera", ours), ("PyTorch", theirs)):
        lines += ["", f"Most of the rest, {title}: " + "; ".join(f"`{s}` {seconds * 1e3:.2f} ms" for s, seconds in side[2])
                  + "."]
    lines += ["", "PyTorch's profiler, own time by operator (the profiler itself costs some):", "",
              "| operator | ms a step |", "|---|--:|",
              *[f"| `{key}` | {value * 1e3:.2f} |" for key, value in list(operators.items())[:16]], "",
              "## Machine", *[f"- {key}: {value}" for key, value in about.items()], ""]
    out = ROOT / args.out
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{date}-profile-{args.size}.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
