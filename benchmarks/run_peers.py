#!/usr/bin/env python3
"""Tessera beside PyTorch, in one session: writes build/results/<date>-peers.md and .json. Called by scripts/bench.

    benchmarks/run_peers.py               every comparison, about 15 minutes on two idle cores
    benchmarks/run_peers.py --quick       fewer steps and repeats, about 5 minutes
    benchmarks/run_peers.py --only zero   comparisons whose name contains a word

Both programs of a comparison run alternately (Tessera, PyTorch, Tessera, PyTorch, ...) after one run of each that does
not count; a repeat gives one ratio of two neighbouring runs. The page tells the median of the ratios and their spread,
for figures move from machine to machine and ratios less. It also tells how much of the processors other programs took.
"""
import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import re
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEER = ROOT / "benchmarks/peers/pytorch_gpt.py"
BATCH = 8
SIZES = {  # those of pytorch_gpt.py
    "large": {"layers": 6, "hidden": 384, "heads": 8, "seq": 256, "vocab": 256},
    "small": {"layers": 4, "hidden": 128, "heads": 4, "seq": 128, "vocab": 256},
}
# One thread a rank on both sides; Tessera is told by `threads` in its run file, the peer sets it itself. Not by
# OMP_THREAD_LIMIT: where a program asks for 2 threads and gets 1, oneDNN leaves the second's half of a product out.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "OMP_THREAD_LIMIT"}
ENVIRONMENT.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
# Work left out must not count as speed: the loss after the last step is checked in every run.
SAME_LOSS = 1e-3     # between plans of one program: same data, same random numbers
SIMILAR_LOSS = 0.35  # between the programs, in nats: other windows of the text, other random numbers


@dataclasses.dataclass
class Case:
    """One row of the table. The ratio is Tessera / PyTorch of a rate, or PyTorch / Tessera of a time or a size."""
    name: str
    ours: str  # what Tessera runs, as the page says it
    peer: str
    unit: str
    target: float | None
    measure_ours: object  # () -> (value, details)
    measure_peer: object
    more_is_better: bool = True
    ratios: list = dataclasses.field(default_factory=list)
    runs: list = dataclasses.field(default_factory=list)
    others: float = 0.0  # share of the processors that other programs took meanwhile
    error: str = ""

    def met(self):
        return self.target is None or (not self.error and statistics.median(self.ratios) >= self.target)


class Failed(Exception):
    pass


def execute(command, environment=ENVIRONMENT):
    """(standard output, peak resident bytes of the largest process)."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen([str(part) for part in command], stdout=out, stderr=err, cwd=ROOT, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            last = (err.read().strip() or out.read().strip()).splitlines()[-3:]
            raise Failed(f"{shlex.join(map(str, command))}: exit code {process.returncode}: {' | '.join(last)}")
        return out.read(), usage.ru_maxrss * 1024


def products(command):
    """Float32 products that the command's processes do by each library, as both libraries print them."""
    out, _ = execute(command, {**ENVIRONMENT, "DNNL_VERBOSE": "1", "MKL_VERBOSE": "1"})
    return {"oneDNN": len(re.findall(r"^onednn_verbose,.*,exec,cpu,(?:matmul|inner_product),", out, re.MULTILINE)),
            "MKL": len(re.findall(r"^MKL_VERBOSE SGEMM", out, re.MULTILINE))}


def rate(times, size, warmup):
    return BATCH * SIZES[size]["seq"] / statistics.median(times[warmup:])


class Session:
    def __init__(self, args, folder):
        self.build = (ROOT / args.build).resolve()
        self.python = args.python
        self.folder = pathlib.Path(folder)
        self.quick = args.quick
        self.repeats = args.repeats or (2 if args.quick else 3)
        self.text = self.folder / "text.md"  # a copy: sources may change meanwhile
        self.text.write_text("".join(path.read_text() for path in sorted(ROOT.glob("docs/reference/*.md"))))
        self.torch = "unknown"
        self.losses = {}  # of the first run: by program, size

    def steps(self, size):
        """(not timed, timed)"""
        if self.quick:
            return {"large": (1, 4), "small": (5, 40)}[size]
        return {"large": (2, 10), "small": (10, 150)}[size]

    def run_file(self, size, plan, steps):
        model = "gpt:" + ",".join(f"{key}={value}" for key, value in SIZES[size].items())
        file = self.folder / "run.toml"
        file.write_text(f'model = "{model}"\ndata = ["{self.text}"]\nbatch = {BATCH}\nsteps = {steps}\n'
                        f'plan = "{plan}"\nprecision = "float32"\nseed = 1\nthreads = 1\n[optimizer]\nkind = "adamw"\nlr = 1e-3\n'
                        "min_lr = 1e-4\nwarmup = 10\nbeta1 = 0.9\nbeta2 = 0.95\nweight_decay = 0.1\nclip = 1.0\n")
        return file

    def command(self, size, plan, steps):
        return [self.build / "tessera", "train", self.run_file(size, plan, steps), "--json"]

    def peer_command(self, size, mode, ranks, library, warmup, timed):
        return [self.python, PEER, mode, "--size", size, "--ranks", ranks, "--warmup", warmup, "--steps", timed,
                "--batch", BATCH, "--products", library, "--data", self.text]

    def libraries(self):
        """Who multiplies: of one step of the large model, by program."""
        runs = {"Tessera": self.command("large", "serial", 1),
                "PyTorch": self.peer_command("large", "eager", 1, "mkl", 0, 1),
                "PyTorch with oneDNN products": self.peer_command("large", "eager", 1, "onednn", 0, 1)}
        try:
            return {f"products of {name}": " and ".join(f"{count} by {library}" for library, count in
                                                        products(command).items())
                    for name, command in runs.items()}
        except Failed as failure:
            return {"products": str(failure)}

    def tessera(self, size, plan):
        warmup, timed = self.steps(size)
        out, rss = execute(self.command(size, plan, warmup + timed))
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        steps = [line for line in lines if "step" in line]
        summary = next((line["summary"] for line in lines if "summary" in line), {})
        if len(steps) != warmup + timed:
            raise Failed(f"tessera train: expected {warmup + timed} steps, found {len(steps)}")
        self.check_loss("tessera", size, steps[-1]["loss"])
        sent = {kind: count / len(steps) for kind, count in summary.get("bytes_sent", {}).items()}
        return rate([line["step_time_s"] for line in steps], size, warmup), {
            "loss": steps[-1]["loss"], "rss": rss, "arena": summary.get("peak_memory_bytes"),
            "bytes_sent_a_step": sent}

    def pytorch(self, size, mode, ranks, library="mkl"):
        report, rss = self.peer(self.peer_command(size, mode, ranks, library, *self.steps(size)))
        self.check_loss("pytorch", size, report["loss"])
        return report["tokens_per_s"], {"loss": report["loss"], "rss": rss}

    def check_loss(self, program, size, loss):
        first = self.losses.setdefault((program, size), loss)
        if not abs(loss - first) <= SAME_LOSS * abs(first):
            raise Failed(f"{program}, {size}: expected the loss {first:.4f} of its first run, found {loss:.4f}")
        other = self.losses.get(("pytorch" if program == "tessera" else "tessera", size), loss)
        if not abs(loss - other) <= SIMILAR_LOSS:
            raise Failed(f"{program}, {size}: expected a loss like the other program's {other:.4f}, found {loss:.4f}")

    def peer(self, command):
        out, rss = execute(command)
        report = json.loads(out.splitlines()[-1])
        self.torch = report["torch"]
        return report, rss

    def all_reduce_threads(self):
        program = next((p for p in self.build.rglob("tessera_comm_benchmark") if os.access(p, os.X_OK)), None)
        if program is None:
            raise Failed(f"no tessera_comm_benchmark under {self.build}; build the target `benchmarks`")
        out, _ = execute([program, "--benchmark_filter=^all_reduce/ranks:2/bytes:4194304/", "--benchmark_format=json",
                          "--benchmark_repetitions=3"])
        times = [b["real_time"] for b in json.loads(out[out.index("{"):])["benchmarks"] if b["run_type"] == "iteration"]
        return statistics.median(times), {}

    def all_reduce_gloo(self):
        calls = 50 if self.quick else 200
        report, _ = self.peer([self.python, PEER, "all_reduce", "--ranks", 2, "--bytes", 4 << 20, "--warmup", 20, "--steps", calls])
        return report["median_us"], {}

    def cases(self):
        pairs = [("1 rank", "serial", "eager", 1, {"large": 1.05, "small": 1.15}),
                 ("1 rank, oneDNN products", "serial", "eager with oneDNN products", 1, {}),
                 ("1 rank, compiled", "serial", "compile", 1, {}),
                 ("data parallel", "data_parallel(2)", "ddp", 2, {"large": 1.05, "small": 1.25}),
                 ("tensor parallel", "tensor_parallel(2)", "tp", 2, {"large": 1.3, "small": 2.0}),
                 ("zero 3", "zero(stage=3,dp=2)", "fsdp2", 2, {"large": 1.15, "small": 2.0})]
        for name, plan, mode, ranks, targets in pairs:
            if self.quick and mode == "compile":
                continue
            library = "onednn" if "oneDNN" in mode else "mkl"
            for size in SIZES:
                yield Case(f"{name}, {size}", plan, f"{mode}, {ranks} rank{'s' * (ranks > 1)}", "tokens/s",
                           targets.get(size),
                           lambda size=size, plan=plan: self.tessera(size, plan),
                           lambda size=size, mode=mode.split()[0], ranks=ranks, library=library:
                           self.pytorch(size, mode, ranks, library))
        yield Case("all-reduce 4 MiB", "2 threads", "gloo, 2 processes", "µs", 5.0, self.all_reduce_threads,
                   self.all_reduce_gloo, more_is_better=False)

    def run(self, case):
        measured = [case.measure_ours, case.measure_peer]
        clock = Clock()
        try:
            for repeat in range(1 + self.repeats):
                pair = [measure() for measure in measured]
                if repeat == 0:
                    continue  # files are cached, caches of compilers filled
                case.runs.append({"tessera": {"value": pair[0][0], **pair[0][1]},
                                  "pytorch": {"value": pair[1][0], **pair[1][1]}})
                ratio = pair[0][0] / pair[1][0]
                case.ratios.append(ratio if case.more_is_better else 1 / ratio)
        except Failed as failure:
            case.error = str(failure)
        case.others = clock.share_of_others()


class Clock:
    """How busy other programs kept the processors since its construction."""

    def __init__(self):
        self.busy, self.total = self.machine()
        self.mine = self.children()

    @staticmethod
    def machine():
        fields = [int(n) for n in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        idle = fields[3] + fields[4]
        return sum(fields) - idle, sum(fields)

    @staticmethod
    def children():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (usage.ru_utime + usage.ru_stime) * os.sysconf("SC_CLK_TCK")

    def share_of_others(self):
        busy, total = self.machine()
        others = (busy - self.busy) - (self.children() - self.mine)
        return max(0.0, others / max(1, total - self.total))


def memory_case(cases):
    """The large model on 1 rank, from the runs of its speed."""
    speed = next((case for case in cases if case.name == "1 rank, large"), None)
    if speed is None or speed.error:
        return []
    case = Case("memory, large", "serial", "eager, 1 rank", "MiB", 1.0, None, None, more_is_better=False)
    for run in speed.runs:
        values = {side: run[side]["rss"] / 2**20 for side in ("tessera", "pytorch")}
        case.runs.append({side: {"value": value} for side, value in values.items()})
        case.ratios.append(values["pytorch"] / values["tessera"])
    case.others = speed.others
    return [case]


def first_line(command):
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.split("\n")[0]


def machine(session):
    info = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), platform.machine())
    flags = next((line for line in info if line.startswith("flags")), "")
    vector = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "no AVX2"
    cache_file = session.build / "CMakeCache.txt"
    lines = cache_file.read_text().splitlines() if cache_file.exists() else []
    cache = {line.split(":")[0]: line.split("=", 1)[1] for line in lines if ":" in line and "=" in line}
    commit = first_line(["git", "rev-parse", "--short", "HEAD"])
    changed = bool(first_line(["git", "status", "--porcelain", "--untracked-files=no"]))
    return {
        "processor": f"{cpu}, {os.cpu_count()} cores, {vector}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"Linux {platform.release()}",
        "compiler": first_line([cache.get("CMAKE_CXX_COMPILER", "c++"), "--version"]),
        "build": cache.get("CMAKE_BUILD_TYPE", "unknown"),
        "PyTorch": session.torch,
        "Tessera": commit + (" with changes" if changed else ""),
    }


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def row(case):
    target = "" if case.target is None else f"{case.target:.2f}"
    if case.error:
        return f"| {case.name} | {case.ours} | {case.peer} | – | – | – | {target} | failed | {case.others:.0%} |"
    ours, peer = (number(statistics.median(run[side]["value"] for run in case.runs)) for side in ("tessera", "pytorch"))
    verdict = "" if case.target is None else "yes" if case.met() else "no"
    return (f"| {case.name} ({case.unit}) | {case.ours} | {case.peer} | {ours} | {peer} | "
            f"**{statistics.median(case.ratios):.2f}** ({min(case.ratios):.2f}..{max(case.ratios):.2f}) | {target} | "
            f"{verdict} | {case.others:.0%} |")


def page(session, cases, about, date, command):
    sizes = "; ".join(f"{name}: " + ", ".join(f"{value} {key}" if key == "layers" else f"{key} {value}"
                                              for key, value in size.items()) for name, size in SIZES.items())
    lines = [f"# Tessera beside PyTorch, {date}", "",
             f"`{command}`: {session.repeats} repeats, the two programs in turn, one run of each before that does not "
             "count. A ratio is that of two neighbouring runs, above 1 where Tessera is faster or smaller; told are the "
             "median and, in brackets, the spread.", "",
             f"GPT with separate q, k, v, tied head, float32, fused AdamW, norm clipped; {BATCH} sequences a step over "
             f"all ranks, one thread a rank. {sizes}. A rate is the median over the timed steps of a run: "
             + ", ".join(f"{session.steps(size)[1]} after {session.steps(size)[0]} ({size})" for size in SIZES) + ".", "",
             "| what | Tessera | PyTorch | Tessera | PyTorch | ratio | target | met | others |",
             "|---|---|---|--:|--:|--:|--:|---|--:|", *[row(case) for case in cases], "",
             "`others`: share of all processors that other programs took meanwhile; above a few percent the row is "
             "rough. Memory is the peak resident set of the process.", "",
             "Libraries: PyTorch multiplies float32 matrices by MKL unless a row says otherwise. Tessera takes oneDNN "
             "on processors with AVX-512 that are not Intel's, MKL on others; the counts of a step are below. In the rows "
             "\"oneDNN products\" PyTorch takes oneDNN too, but for those inside attention, which are faster by MKL.",
             ""]
    losses = [(case, case.runs[-1]) for case in cases if case.runs and "loss" in case.runs[-1]["tessera"]]
    if losses:
        lines += ["Losses after the last step (same text, same schedule, other windows and other random numbers): "
                  + "; ".join(f"{case.name} {run['tessera']['loss']:.2f} / {run['pytorch']['loss']:.2f}"
                              for case, run in losses) + ".", ""]
    failures = [case for case in cases if case.error]
    if failures:
        lines += ["## Failed", *[f"- {case.name}: {case.error}" for case in failures], ""]
    lines += ["## Machine", *[f"- {key}: {value}" for key, value in about.items()], ""]
    return "\n".join(lines)


def argument_parser(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer steps and repeats")
    parser.add_argument("--repeats", type=int, help="default 3, with --quick 2")
    parser.add_argument("--only", default="", metavar="WORD", help="comparisons whose name contains it")
    parser.add_argument("--build", default="build", help="folder with the program `tessera`")
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"), help="one that has torch")
    parser.add_argument("--out", default="build/results", help="folder of the page")
    return parser


def main():
    args = argument_parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        session = Session(args, folder)
        cases = [case for case in session.cases() if args.only in case.name]
        if not cases:
            sys.exit(f"run_peers.py: expected --only to match one of: {', '.join(c.name for c in session.cases())}")
        for case in cases:
            print(f"{case.name}: {case.ours} beside {case.peer} ...", file=sys.stderr, flush=True)
            session.run(case)
            print(case.error or row(case), file=sys.stderr, flush=True)
        cases += memory_case(cases)
        about = {**machine(session), **session.libraries()}
    date = datetime.date.today().isoformat()
    command = shlex.join(["benchmarks/run_peers.py", *sys.argv[1:]])
    out = ROOT / args.out
    out.mkdir(parents=True, exist_ok=True)
    text = page(session, cases, about, date, command)
    (out / f"{date}-peers.md").write_text(text)
    (out / f"{date}-peers.json").write_text(json.dumps({
        "date": date, "command": command, "machine": about,
        "cases": [{"name": c.name, "tessera": c.ours, "pytorch": c.peer, "unit": c.unit, "target": c.target,
                   "ratios": c.ratios, "met": c.met(), "others": c.others, "runs": c.runs, "error": c.error}
                  for c in cases]}, indent=1) + "\n")
    print(text)
    return 1 if any(case.error for case in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
