#!/usr/bin/env python3
"""Predicted against measured steps on this machine: writes build/results/<date>-reality.md and .json. `make accuracy`
puts data/measured/reality.json on docs/accuracy.md: copy the .json there to have it on that page.

    benchmarks/run_reality.py                    measures the machine (tessera profile), then 31 (model, plan) pairs
    benchmarks/run_reality.py --profile FILE     with a profile that was measured before
    benchmarks/run_reality.py --quick            one round of fewer steps
    benchmarks/run_reality.py --only zero        pairs whose plan or model contains a word

Each pair is predicted by `tessera simulate --cluster local:RANKS` and run by `tessera train --json`. Rounds go over all
pairs in turn, so that what else the machine does falls on all alike; a run gives the median of its steps (the first two
left out), a pair the median of its runs. The spread tells the noise. None of the models is one that `tessera profile`
runs. Every rank has one thread, as in the profile. Bytes sent (of all ranks, a step) and the peak of the arena must be
predicted exactly. `tessera accuracy --reality FILE.json` makes the page.
"""
import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = {  # name: (model, batch)
    "gpt-s": ("gpt:layers=4,hidden=160,heads=4,seq=128,vocab=300", 16),
    "gpt-m": ("gpt:layers=2,hidden=320,heads=8,seq=192,vocab=640", 8),
    "llama": ("llama:layers=4,hidden=192,heads=6,kv_heads=2,seq=128,vocab=1024", 8),
    "bert": ("bert:layers=3,hidden=192,heads=4,seq=96,vocab=768", 16),
    "moe": ("mixtral:layers=2,hidden=160,heads=4,seq=96,vocab=320,ffn=320,experts=4", 8),
}
PAIRS = [  # model, plan, ranks, transport
    ("gpt-s", "serial", 1, "threads"),
    ("gpt-s", "data_parallel(2)", 2, "threads"),
    ("gpt-s", "tensor_parallel(2)", 2, "threads"),
    ("gpt-s", "one_f_one_b(2,4)", 2, "threads"),
    ("gpt-s", "zero(3,4)", 4, "threads"),
    ("gpt-s", "megatron(tp=2,dp=2)", 4, "threads"),
    ("gpt-s", "gpipe(4,8)", 4, "threads"),
    ("gpt-s", "data_parallel(2)", 2, "mpi"),
    ("gpt-s", "tensor_parallel(2)", 2, "mpi"),
    ("gpt-m", "recompute(full)", 1, "threads"),
    ("gpt-m", "zero(2,2,micro_batches=2)", 2, "threads"),
    ("gpt-m", "megatron(tp=2,sequence_shard=true)", 2, "threads"),
    ("gpt-m", "data_parallel(4)", 4, "threads"),
    ("gpt-m", "tensor_parallel(4)", 4, "threads"),
    ("gpt-m", "megatron(tp=2,pp=2,micro_batches=4)", 4, "threads"),
    ("gpt-m", "zero(1,2)", 2, "mpi"),
    ("llama", "serial", 1, "threads"),
    ("llama", "fsdp(2,prefetch=1)", 2, "threads"),
    ("llama", "ring_attention(2)", 2, "threads"),
    ("llama", "tensor_parallel(2)", 2, "threads"),
    ("llama", "megatron(pp=2,micro_batches=4,recompute=full)", 2, "threads"),
    ("llama", "fsdp(4,prefetch=0)", 4, "threads"),
    ("llama", "zero(3,2)", 2, "mpi"),
    ("bert", "serial", 1, "threads"),
    ("bert", "data_parallel(2)", 2, "threads"),
    ("bert", "zero(1,4)", 4, "threads"),
    ("bert", "one_f_one_b(2,4)", 2, "mpi"),
    ("moe", "serial", 1, "threads"),
    ("moe", "data_parallel(2)", 2, "threads"),
    ("moe", "expert_parallel(2)", 2, "threads"),
    ("moe", "expert_parallel(2,dp=2)", 4, "threads"),
]


class Failed(Exception):
    pass


@dataclasses.dataclass
class Pair:
    model: str
    plan: str
    ranks: int
    transport: str
    predicted: dict = dataclasses.field(default_factory=dict)
    runs: list = dataclasses.field(default_factory=list)  # median step of each run, s
    bytes: int = 0   # sent by all ranks, a step
    memory: int = 0  # arena of the rank with the most
    error: str = ""

    def measured(self):
        return statistics.median(self.runs)

    def deviation(self):
        return self.predicted["step_time_s"] / self.measured() - 1

    def spread(self):
        return (max(self.runs) - min(self.runs)) / self.measured()

    def exact(self):
        return self.predicted["bytes"] == self.bytes and self.predicted["memory"] == self.memory


def execute(command, profile):
    environment = {**os.environ, "TESSERA_PROFILE": str(profile)}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=ROOT, env=environment)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-2:]
        raise Failed(f"{shlex.join(map(str, command))}: exit code {done.returncode}: {' | '.join(last)}")
    return done.stdout


class Session:
    def __init__(self, args, folder):
        self.tessera = (ROOT / args.build).resolve() / "tessera"
        self.quick = args.quick
        self.folder = pathlib.Path(folder)
        self.profile = pathlib.Path(args.profile).resolve() if args.profile else self.folder / "profile.json"
        self.text = self.folder / "text.md"  # a copy: sources may change meanwhile
        self.text.write_text("".join(path.read_text() for path in sorted(ROOT.glob("docs/reference/*.md"))))
        if not args.profile:
            execute([self.tessera, "profile", "--out", self.profile] + (["--quick"] if args.quick else []), self.profile)

    def predict(self, pair):
        model, batch = MODELS[pair.model]
        out = json.loads(execute([self.tessera, "simulate", model, "--plan", pair.plan, "--batch", batch, "--cluster",
                                  f"local:{pair.ranks}", "--style", f"tessera,transport={pair.transport}", "--no-fold",
                                  "--json"], self.profile))
        roles = out["roles"]
        return {"step_time_s": out["step_time_s"], "uncertainty": out["uncertainty"],
                "bytes": sum(role["ranks"] * sum(row["bytes"] for row in role["traffic"]) for role in roles),
                "memory": max(role["peak_memory_bytes"] for role in roles)}

    def run(self, pair):
        model, batch = MODELS[pair.model]
        steps = 8 if self.quick else max(12, min(40, int(2 / pair.predicted["step_time_s"])))
        file = self.folder / "run.toml"
        file.write_text(f'model = "{model}"\ndata = ["{self.text}"]\nbatch = {batch}\nsteps = {steps}\n'
                        f'plan = "{pair.plan}"\nthreads = 1\n')
        launcher = []
        if pair.transport == "mpi":
            launcher = ["mpirun", "--oversubscribe", "-n", pair.ranks] + (["--allow-run-as-root"] if os.geteuid() == 0
                                                                         else [])
        out = execute([*launcher, self.tessera, "train", file, "--json"], self.profile)
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        times = [line["step_time_s"] for line in lines if "step" in line]
        summary = next(line["summary"] for line in lines if "summary" in line)
        pair.runs.append(statistics.median(times[2:]))
        pair.bytes = sum(summary["bytes_sent"].values()) // summary["steps"]
        pair.memory = summary["peak_memory_bytes"]


def machine(session):
    name = json.loads(session.profile.read_text().split(",\n", 1)[0] + "}") if session.profile.exists() else {}
    return {"processor": name.get("device", "unknown"), "profile of": name.get("date", "unknown"),
            "library": name.get("version", "unknown"), "system": f"{platform.system()} {platform.machine()}",
            "load when it ended": f"{os.getloadavg()[0]:.1f} (1 minute)"}


def row(pair):
    return (f"| {pair.model} | `{pair.plan}` | {pair.ranks} {pair.transport} | {1e3 * pair.measured():.1f} | "
            f"{1e3 * pair.predicted['step_time_s']:.1f} | {pair.deviation():+.1%} | {pair.spread():.0%} | "
            f"{pair.bytes / 2**20:.2f} | {pair.memory / 2**20:.1f} | {'yes' if pair.exact() else '**no**'} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", help="file of tessera profile; default: measure first")
    parser.add_argument("--quick", action="store_true", help="one round of few steps")
    parser.add_argument("--rounds", type=int, help="default 3, quick 1")
    parser.add_argument("--only", default="", help="pairs whose model or plan contains this")
    parser.add_argument("--build", default="build", help="folder with the program `tessera`")
    parser.add_argument("--out", default="build/results", help="folder of the page")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    args = parser.parse_args()
    rounds = args.rounds or (1 if args.quick else 3)
    pairs = [Pair(*one) for one in PAIRS if args.only in one[0] or args.only in one[1]]
    if not pairs:
        sys.exit(f"run_reality.py: expected --only to match a model or plan, found '{args.only}'")
    with tempfile.TemporaryDirectory() as folder:
        session = Session(args, folder)
        for turn in range(rounds):
            for pair in (one for one in pairs if not one.error):
                try:
                    pair.predicted = pair.predicted or session.predict(pair)
                    session.run(pair)
                except Failed as failure:
                    pair.error = str(failure).replace(f"{ROOT}/", "")
                    print(pair.error, file=sys.stderr)
                    continue
                print(f"{turn + 1}/{rounds}", row(pair), file=sys.stderr, flush=True)
        if all(one.error for one in pairs):
            sys.exit("run_reality.py: no pair could be measured")
        command = shlex.join(["benchmarks/run_reality.py", *sys.argv[1:]])
        about = machine(session)
    out = ROOT / args.out
    out.mkdir(parents=True, exist_ok=True)
    json_file = out / f"{args.date}-reality.json"
    json_file.write_text(json.dumps(
        {"date": args.date, "command": command, "machine": about, "title": "Predicted and measured on one machine",
         "method": "`tessera profile`, then `tessera simulate --cluster local:RANKS` beside `tessera train` of the same model "
                   "and plan.", "target_error": 0.1, "target_tau": 0.8,
         "models": {name: f"{model}, batch {batch}" for name, (model, batch) in MODELS.items()},
         "pairs": [dataclasses.asdict(pair) for pair in pairs]}, indent=1) + "\n")
    scoring = [session.tessera, "accuracy", "--reality", json_file]
    page = execute(scoring, session.profile)
    json_file.with_suffix(".md").write_text(page.removeprefix("#"))  # a heading of the first level
    print(page)
    found = json.loads(execute([*scoring, "--json"], session.profile))
    return 0 if found["failed"] == 0 and found["exact"] == found["pairs"] else 1


if __name__ == "__main__":
    sys.exit(main())
