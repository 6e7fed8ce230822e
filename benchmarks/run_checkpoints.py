#!/usr/bin/env python3
"""Checkpoints and changes of plan: writes build/results/<date>-checkpoints.md and .json.

    benchmarks/run_checkpoints.py                        everything, about 20 minutes on two idle cores
    benchmarks/run_checkpoints.py --quick                fewer repeats
    benchmarks/run_checkpoints.py --only dd --folder /data   rows whose name contains a word, files on another disk

What is compared is measured in turn, so that what else the machine does falls on both; a repeat gives one ratio, of which
the median and the spread are told. Tessera's times are those that `tessera train --json` prints ("saved", "loaded",
"change"); the other side is dd, PyTorch (benchmarks/peers/pytorch_checkpoint.py), the same run without checkpoints, a
restart, or a copy in memory.
"""
import argparse
import ctypes
import dataclasses
import datetime
import json
import mmap
import os
import pathlib
import shlex
import shutil
import statistics
import sys
import tempfile
import threading
import time

from run_peers import BATCH, ENVIRONMENT, ROOT, Clock, Failed, SIZES, execute, machine

PEER = ROOT / "benchmarks/peers/pytorch_checkpoint.py"
STATE = {"layers": 12, "heads": 12, "hidden": 768, "seq": 32, "vocab": 256}  # 1 GB of parameters and moments
PIECE = 8 << 20  # of a write: that of FileSystem in tessera/state/storage.h


@dataclasses.dataclass
class Row:
    """A ratio that has a target: `better` says on which side of it the target lies."""
    name: str
    ours: str
    other: str
    unit: str
    target: float
    better: str  # "more" or "less"
    pairs: list = dataclasses.field(default_factory=list)  # (Tessera, the other), by repeat
    ratio: object = None  # of a pair
    others: float = 0.0   # share of the processors that other programs took meanwhile
    error: str = ""

    def ratios(self):
        return [self.ratio(*pair) for pair in self.pairs]

    def met(self):
        if self.error:
            return False
        found = statistics.median(self.ratios())
        return found >= self.target if self.better == "more" else found <= self.target


def drop_from_cache(folder):
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def read_into_cache(folder):
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            with open(path, "rb", buffering=0) as file:
                while file.read(PIECE):
                    pass


def copy_seconds(bytes_of_each, threads=2):
    """Of a copy in memory by each thread at once, from and to memory that is there already; the median of three."""
    arrays = [[(ctypes.c_char * bytes_of_each).from_buffer(mmap.mmap(-1, bytes_of_each)) for _ in range(2)]
              for _ in range(threads)]
    for pair in arrays:
        for array in pair:
            ctypes.memset(array, 1, bytes_of_each)
    found = []
    for _ in range(3):
        barrier = threading.Barrier(threads + 1)

        def work(pair):
            barrier.wait()
            ctypes.memmove(pair[0], pair[1], bytes_of_each)
            barrier.wait()
        workers = [threading.Thread(target=work, args=(pair,)) for pair in arrays]
        for worker in workers:
            worker.start()
        barrier.wait()
        start = time.perf_counter()
        barrier.wait()
        found.append(time.perf_counter() - start)
        for worker in workers:
            worker.join()
    return statistics.median(found)


class Session:
    def __init__(self, args, folder):
        self.build = (ROOT / args.build).resolve()
        self.python = args.python
        self.folder = pathlib.Path(folder)
        self.repeats = args.repeats or (2 if args.quick else 5)
        self.torch = "unknown"
        self.checkpoints = self.folder / "checkpoints"
        self.notes = []

    def run_file(self, sizes, batch, steps, plan, checkpoint=""):
        model = "gpt:" + ",".join(f"{key}={value}" for key, value in sizes.items())
        file = self.folder / "run.toml"
        # The rate is the same whatever the number of steps.
        file.write_text(f'model = "{model}"\ndata = "random"\nbatch = {batch}\nsteps = {steps}\nplan = "{plan}"\nthreads = 1\n'
                        f"optimizer = {{ lr = 1e-3, min_lr = 1e-3 }}\n{checkpoint}\n")
        return file

    def train(self, file, *arguments):
        out, _ = execute([self.build / "tessera", "train", file, "--json", *arguments], ENVIRONMENT)
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]

    def save(self, saves=1, steps=None):
        """Seconds of each save by 2 ranks, of 1 GB, while steps wait; the checkpoints stay."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        file = self.run_file(STATE, 2, saves + 1, "fsdp(2)",
                             f'checkpoint = {{ dir = "{self.checkpoints}", every = 1, keep = {saves + 1}, asynchronous = 0 }}')
        saved = [line["saved"] for line in self.train(file) if "saved" in line]
        return [one["seconds"] for one in saved[1:]], saved[0]["bytes"]  # in the first, memory is touched first

    def newest(self):
        return int(max(self.checkpoints.glob("step-*")).name.removeprefix("step-"))

    def load(self, plan, cold):
        """Seconds of reading the newest checkpoint under a plan, and bytes that the ranks then hold."""
        file = self.run_file(STATE, 2, self.newest(), plan, f'checkpoint = {{ dir = "{self.checkpoints}" }}')
        (drop_from_cache if cold else read_into_cache)(self.checkpoints)
        loaded = next(line["loaded"] for line in self.train(file, "--resume") if "loaded" in line)
        return loaded["seconds"], loaded["bytes"]

    def dd(self, count):
        """Seconds in which dd writes as many bytes to the same folder, past the page cache, and syncs them."""
        target = self.folder / "dd"
        start = time.perf_counter()
        execute(["dd", "if=/dev/zero", f"of={target}", f"bs={PIECE}", f"count={count // PIECE}", "oflag=direct",
                 "conv=fsync"], ENVIRONMENT)
        seconds = time.perf_counter() - start
        target.unlink()
        return seconds * count / (count // PIECE * PIECE)

    def peer(self, cold):
        command = [self.python, PEER, "--folder", self.folder / "pytorch", "--repeats", 1]
        for key in ("layers", "hidden", "seq", "vocab"):
            command += [f"--{key}", STATE[key]]
        out, _ = execute(command + (["--cold"] if cold else []), ENVIRONMENT)
        report = json.loads(out.splitlines()[-1])
        self.torch = report["torch"]
        return {name: values[0] for name, values in report["seconds"].items()}

    # ---- rows
    def measure_dd(self, rows):
        for _ in range(self.repeats):
            (ours, *_), size = self.save()
            shutil.rmtree(self.checkpoints)
            rows[0].pairs.append((size / ours / 1e9, size / self.dd(size) / 1e9))

    def measure_pytorch(self, rows):
        for _ in range(self.repeats):
            (save, *_), _ = self.save()
            theirs = {True: self.peer(cold=True), False: self.peer(cold=False)}
            rows[0].pairs.append((save, statistics.mean(one["save"] for one in theirs.values())))
            for row, (name, plan, cold) in zip(rows[1:], (("load", "fsdp(2)", True), ("load", "fsdp(2)", False),
                                                          ("load with another sharding", "tensor_parallel(2)", True),
                                                          ("load with another sharding", "tensor_parallel(2)", False))):
                row.pairs.append((self.load(plan, cold)[0], theirs[cold][name]))

    def measure_asynchronous(self, rows):
        def step_time(checkpoint):
            shutil.rmtree(self.checkpoints, ignore_errors=True)
            lines = self.train(self.run_file(SIZES["large"], BATCH, 43, "data_parallel(2)", checkpoint))
            steps = [line["step_time_s"] for line in lines if "step" in line][2:42]  # two saves are in or behind these
            waited = sum(line["saved"]["waited_s"] for line in lines if "saved" in line and line["saved"]["step"] <= 40)
            return sum(steps), waited
        for _ in range(self.repeats):
            with_them, waited = step_time(f'checkpoint = {{ dir = "{self.checkpoints}", every = 20, keep = 1 }}')
            without, _ = step_time("")
            rows[0].pairs.append((with_them, without))
            rows[1].pairs.append((without + waited, without))

    def measure_change(self, rows):
        changes = ["--change", "2:tensor_parallel(2)"]
        for _ in range(self.repeats):
            lines = self.train(self.run_file(STATE, 2, 3, "fsdp(2)"), *changes)
            change = next(line["change"] for line in lines if "change" in line)
            self.save()
            steps = self.newest() + 1
            file = self.run_file(STATE, 2, steps, "tensor_parallel(2)", f'checkpoint = {{ dir = "{self.checkpoints}" }}')
            start = time.perf_counter()
            lines = self.train(file, "--resume", "--set", "checkpoint.every=1000000", "--steps", str(steps))
            whole = time.perf_counter() - start
            saved = sum(line["saved"]["seconds"] for line in lines if "saved" in line)
            loaded = next(line["loaded"] for line in lines if "loaded" in line)
            copy = copy_seconds(loaded["bytes"] // 2)
            rows[0].pairs.append((change["seconds"], copy))
            rows[1].pairs.append((change["total_s"], whole - saved))
            self.notes.append(f"change: {change['bytes']['counted'] / 1e6:.0f} MB sent (predicted the same: "
                              f"{change['bytes']['counted'] == change['bytes']['predicted']}), {loaded['bytes'] / 1e6:.0f} MB "
                              f"held afterwards; moved in {change['seconds']:.2f} s, {change['total_s']:.2f} s with taking the "
                              f"memory of the new arenas from the system")

    def measure_size(self, rows):
        _, _ = self.save()
        folder = max(self.checkpoints.glob("step-*"))
        out, _ = execute([self.build / "tessera", "checkpoint", "show", folder, "--json"], ENVIRONMENT)
        state = 0
        for tensor in json.loads(out)["tensors"]:
            elements = 4
            for size in tensor["shape"]:
                elements *= size
            state += elements
        rows[0].pairs.append((sum(path.stat().st_size for path in folder.iterdir()) / 1e6, state / 1e6))

    def groups(self):
        speed = lambda ours, other: ours / other
        faster = lambda ours, other: other / ours
        cost = lambda ours, other: ours / other - 1
        yield self.measure_dd, [Row("save beside dd", "2 ranks", "dd oflag=direct", "GB/s", 0.8, "more", ratio=speed)]
        yield self.measure_pytorch, [
            Row("save beside PyTorch", "fsdp(2)", "dcp.save", "s", 1.5, "more", ratio=faster),
            Row("load beside PyTorch, not cached", "fsdp(2)", "dcp.load", "s", 1.5, "more", ratio=faster),
            Row("load beside PyTorch, cached", "fsdp(2)", "dcp.load", "s", 1.5, "more", ratio=faster),
            Row("load with another sharding, not cached", "tensor_parallel(2)", "dcp.load", "s", 1.5, "more", ratio=faster),
            Row("load with another sharding, cached", "tensor_parallel(2)", "dcp.load", "s", 1.5, "more", ratio=faster)]
        yield self.measure_asynchronous, [
            Row("cost of a checkpoint every 20 steps", "with", "without, 40 steps", "s", 0.05, "less", ratio=cost),
            Row("of which steps waited", "with", "without, 40 steps", "s", 0.05, "less", ratio=cost)]
        yield self.measure_change, [
            Row("change of plan beside a copy in memory", "state moved", "as many bytes copied", "s", 1.2, "less", ratio=speed),
            Row("change of plan beside a restart", "steps waited", "process, load, 1 step", "s", 1.0, "less", ratio=speed)]
        yield self.measure_size, [Row("bytes on disk", "checkpoint", "state", "MB", 1.02, "less", ratio=speed)]

    def run(self, measure, rows):
        clock = Clock()
        try:
            measure(rows)
        except (Failed, OSError, StopIteration) as failure:
            for row in rows:
                row.error = f"{type(failure).__name__}: {failure}".replace(f"{self.folder}/", "").replace(f"{ROOT}/", "")
        share = clock.share_of_others()
        for row in rows:
            row.others = share


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def line(row):
    if row.error:
        return f"| {row.name} | {row.ours} | {row.other} | – | – | – | {row.target:g} | failed | {row.others:.0%} |"
    ours, other = (number(statistics.median(pair[i] for pair in row.pairs)) for i in range(2))
    ratios = row.ratios()
    sign = ">=" if row.better == "more" else "<="
    return (f"| {row.name} ({row.unit}) | {row.ours} | {row.other} | {ours} | {other} | **{statistics.median(ratios):.3g}** "
            f"({min(ratios):.3g}..{max(ratios):.3g}) | {sign} {row.target:g} | {'yes' if row.met() else 'no'} | {row.others:.0%} |")


def page(session, rows, about, date, command):
    def sizes(one):
        return ", ".join(f"{key} {value}" for key, value in one.items())
    lines = [f"# Checkpoints and changes of plan, {date}", "",
             f"`{command}`: {session.repeats} repeats, both sides in turn. Told are the medians, the median of the ratios of "
             "neighbouring runs and, in brackets, their spread.", "",
             f"State of 1 GB: parameters and both moments of AdamW of a GPT ({sizes(STATE)}), float32, 2 ranks; threads of one "
             "process here, processes that talk by gloo there. The large GPT of the row on asynchronous checkpoints: "
             f"{sizes(SIZES['large'])}, {BATCH} sequences a step.", "",
             "| what | Tessera | beside | Tessera | beside | ratio | target | met | others |",
             "|---|---|---|--:|--:|--:|--:|---|--:|", *[line(row) for row in rows], "",
             "- Save beside dd: bandwidth of a save that steps wait for, checksums and syncs included, over that of dd, which "
             f"writes zeros in pieces of {PIECE >> 20} MiB past the page cache to the same folder and syncs.",
             "- Beside PyTorch: how many times as fast. Not cached: the files were dropped from the page cache before. Tessera "
             "compares checksums while it loads; PyTorch has none.",
             "- Cost: time of 40 steps with two checkpoints beside training over that of 40 steps without, less 1; and the part "
             "of it that steps waited for copies and commits, which the processors' load hardly changes.",
             "- Change of plan: `fsdp(2)` to `tensor_parallel(2)`. The copy in memory is of as many bytes as the ranks hold "
             "afterwards, by 2 threads at once, to memory that is there already. A restart is a new process up to its first "
             "step, without the checkpoint at its end.",
             "- Bytes on disk: all files of a checkpoint over the bytes of its tensors.", "",
             "`others`: share of all processors that other programs took meanwhile; above a few percent the row is rough.", ""]
    if session.notes:
        lines += [f"The last {session.notes[-1]}.", ""]
    failures = {row.error for row in rows if row.error}
    if failures:
        lines += ["## Failed", *[f"- {one}" for one in failures], ""]
    return "\n".join(lines + ["## Machine", *[f"- {key}: {value}" for key, value in about.items()], ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 repeats")
    parser.add_argument("--repeats", type=int, help="default 5, with --quick 2")
    parser.add_argument("--only", default="", metavar="WORD", help="rows whose name contains it, and those measured with them")
    parser.add_argument("--folder", help="where files are written, with room for 5 GB; default: the folder of temporary files")
    parser.add_argument("--build", default="build", help="folder with the program `tessera`")
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"), help="one that has torch")
    parser.add_argument("--out", default="build/results", help="folder of the page")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        session = Session(args, folder)
        groups = [(measure, group) for measure, group in session.groups() if any(args.only in row.name for row in group)]
        if not groups:
            names = ", ".join(row.name for _, group in session.groups() for row in group)
            sys.exit(f"run_checkpoints.py: expected --only to match one of: {names}")
        for measure, group in groups:
            print(f"{group[0].name} ...", file=sys.stderr, flush=True)
            session.run(measure, group)
            for row in group:
                print(row.error or line(row), file=sys.stderr, flush=True)
            rows += group
        about = {**machine(session), "load when it ended": f"{os.getloadavg()[0]:.1f} (1 minute)"}
    command = shlex.join(["benchmarks/run_checkpoints.py", *sys.argv[1:]])
    out = ROOT / args.out
    out.mkdir(parents=True, exist_ok=True)
    text = page(session, rows, about, args.date, command)
    (out / f"{args.date}-checkpoints.md").write_text(text)
    (out / f"{args.date}-checkpoints.json").write_text(json.dumps({
        "date": args.date, "command": command, "machine": about,
        "rows": [{"name": row.name, "tessera": row.ours, "beside": row.other, "unit": row.unit, "target": row.target,
                  "pairs": row.pairs, "ratios": [] if row.error else row.ratios(), "met": row.met(), "others": row.others,
                  "error": row.error} for row in rows]}, indent=1) + "\n")
    print(text)
    return 1 if any(row.error for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
