#!/usr/bin/env python3
"""Training on real networks of this machine: writes build/results/<date>-slow-links.md and .json. Needs root and Open MPI.

    benchmarks/run_slow_links.py --part accuracy    predicted beside measured step time of 20 plans, some ten minutes
    benchmarks/run_slow_links.py --part sites       two sites joined by 8 Mbit/s: loss, time and bytes of eight ways to train

The networks are namespaces of this machine (tests/network/namespaces.py), so nothing else should run meanwhile.

accuracy: two racks of two or four hosts with cards of 200 Mbit/s and a way up of 200 Mbit/s each. `tessera profile` measures
the kernels and `tessera probe` the network; the file that the latter writes, with the profile, is the cluster of every
prediction. Copy the .json to data/measured/networks.json to have it on docs/accuracy.md (`make accuracy`).

sites: two racks of two hosts, joined by 8 Mbit/s. Losses are those of a run on threads, which computes what the run on the
network computes to the last bit; times and bytes are those of a few steps on the network, less the same run of one step.
"""
import argparse
import datetime
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "network"))
import namespaces  # noqa: E402  (the folder is known only now)

PROGRAM = os.environ.get("TESSERA_PROGRAM", str(ROOT / "build" / "tessera"))
MODELS = {  # name: text, sequences a step and rank
    "gpt-1m": ("gpt:layers=4,hidden=128,heads=4,seq=32,vocab=256", 1),
    "llama": ("llama:layers=2,hidden=192,heads=4,kv_heads=2,ffn=512,seq=32,vocab=256", 1),
    "gpt-wide": ("gpt:layers=1,hidden=320,heads=4,seq=16,vocab=256", 1),
}
OUTER = 'mesh = {{ site = 2, dp = {half} }}\nouter = {{ axis = "site", every = {every}{more} }}\nsplit = [ {{ ops = "*", dim = "batch", over = "dp" }} ]\n'


def plans(ranks):
    """The plans of the comparison: name, text or call, models."""
    half = ranks // 2
    transformers = ("gpt-1m", "llama")
    return [
        ("data parallel", f"data_parallel({ranks})", tuple(MODELS)),
        ("ZeRO-3", f"zero(3,{ranks})", tuple(MODELS)),
        ("tensor 2 in racks", f"megatron(tp=2,dp={half})", transformers),
        ("pipeline 2", f"megatron(pp=2,dp={half},micro_batches=2)", ("gpt-1m",)),
        ("ring", f"ring_attention({ranks})", ("gpt-1m",)),
        ("outer steps", OUTER.format(half=half, every=4, more=""), ("gpt-1m", "gpt-wide")),
    ]


def run(words, **more):
    done = subprocess.run(words, capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Folder:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        texts = sorted((ROOT / "docs").rglob("*.md"))
        self.write("text.txt", "\n".join(text.read_text() for text in texts))

    def write(self, name, text):
        (self.path / name).write_text(text)
        return str(self.path / name)

    def run_file(self, model, batch, steps, **keys):
        values = {"model": model, "data": "text.txt", "batch": batch, "steps": steps, "threads": 1, **keys}
        return self.write("run.toml", "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))

    def plan(self, text):
        return self.write("plan.toml", text) if "\n" in text else text


def lines_of(done):
    if done.code != 0:
        raise RuntimeError(done.err.strip() or done.out.strip())
    return [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]


def step_times(lines):
    """Of all steps but the first two, in which kernels are made ready."""
    return [line["step_time_s"] for line in lines if "step" in line][2:]


def predicted_of(spec, plan, cluster, batch, environment):
    """Step time, bytes that all ranks send in a step, and the peak of the arena of the rank with the most."""
    out = json.loads(run([PROGRAM, "simulate", spec, "--plan", plan, "--cluster", cluster, "--batch", str(batch), "--precision",
                          "float32", "--style", "tessera,transport=mpi", "--no-fold", "--json"], env=environment))
    outer = out.get("outer_steps", {"bytes_of_a_rank": [], "every": 1})
    return {"step_time_s": out["step_time_s"],
            "bytes": sum(role["ranks"] * sum(row["bytes"] for row in role["traffic"]) for role in out["roles"]) +
            out["ranks"] * sum(outer["bytes_of_a_rank"]) // outer["every"],
            "memory": max(role["peak_memory_bytes"] for role in out["roles"])}


def accuracy(folder, steps, rounds, profile):
    """The file that `tessera accuracy --reality` reads."""
    if not profile:
        profile = str(folder.path / "profile.json")
        run([PROGRAM, "profile", "--out", profile])
    environment = {**os.environ, "TESSERA_PROFILE": profile}
    pairs = []
    for ranks in (4, 8):
        racks = [namespaces.Rack(ranks // 2, nic="200mbit", uplink="200mbit") for _ in range(2)]
        with namespaces.Network(racks) as network:
            net = str(folder.path / f"net{ranks}.toml")
            probed = network.mpirun([PROGRAM, "probe", "-o", net], timeout=300, env=environment)
            if probed.code != 0:
                raise RuntimeError(probed.err)
            text = pathlib.Path(net).read_text()
            cluster = folder.write(f"cluster{ranks}.toml", re.sub(r"(?m)^(name = .*)$", rf'\1\nprofile = "{profile}"', text, count=1))
            here = []
            for name, text, models in plans(ranks):
                for model in models:
                    spec, each = MODELS[model]
                    here.append({"model": model, "plan": name, "ranks": ranks, "transport": "namespaces", "batch": each * ranks,
                                 "runs": [], "bytes": 0, "memory": 0, "error": "", "spec": spec, "text": text})
            # Rounds go over all pairs in turn, so that what else the machine does falls on all alike.
            for turn, pair in itertools.product(range(rounds), here):
                plan = folder.plan(pair["text"])
                outer = "outer" in pair["text"]
                try:
                    if turn == 0:
                        pair["predicted"] = predicted_of(pair["spec"], plan, cluster, pair["batch"], environment)
                    file = folder.run_file(pair["spec"], pair["batch"], steps)
                    done = network.mpirun([PROGRAM, "train", file, "--plan", plan, "--json"], timeout=400, cwd=str(folder.path))
                    lines = lines_of(done)
                except RuntimeError as error:
                    pair["error"] = str(error).replace(str(folder.path), "")
                    print(f"{pair['plan']}, {pair['model']}, {ranks} ranks: {error}", file=sys.stderr)
                    continue
                times = step_times(lines)
                # One step in four is followed by an outer step: the figure is the mean of whole cycles. Of alike steps it is
                # the median.
                pair["runs"].append(statistics.mean(times[-(len(times) // 4) * 4:]) if outer else statistics.median(times))
                summary = lines[-1]["summary"]
                pair["bytes"] = sum(summary["bytes_sent"].values()) // summary["steps"]
                pair["memory"] = summary["peak_memory_bytes"]
                print(f"{turn + 1}/{rounds} {ranks} {pair['plan']:18} {pair['model']:8} predicted "
                      f"{pair['predicted']['step_time_s']:.3f} measured {pair['runs'][-1]:.3f} bytes {pair['predicted']['bytes']} "
                      f"{pair['bytes']} memory {pair['predicted']['memory']} {pair['memory']}", file=sys.stderr)
            for pair in here:
                del pair["spec"], pair["text"]
            pairs += here
    processor = json.loads(pathlib.Path(profile).read_text()).get("device", "unknown")
    return {"date": datetime.date.today().isoformat(), "command": "benchmarks/run_slow_links.py --part accuracy",
            "title": "Predicted and measured on emulated networks",
            "method": "`tessera profile` measured the kernels, and under Open MPI `tessera probe` the network: two racks of two or "
                      "four network namespaces of one machine, with cards and ways up of 200 Mbit/s. The file that `probe` wrote is "
                      "the cluster of `tessera simulate`, beside `tessera train` of the same model and plan on that network.",
            "target_error": 0.15, "target_tau": 0.85,
            "machine": {"processor": processor, "system": f"Linux {os.uname().release}, Open MPI over TCP between namespaces",
                        "load when it ended": f"{os.getloadavg()[0]:.1f} (1 minute)"},
            "models": {name: f"{spec}, batch {each} a rank" for name, (spec, each) in MODELS.items()}, "pairs": pairs}


GPT, BATCH, SEQ = "gpt:layers=4,hidden=128,heads=4,seq=64,vocab=256", 16, 64
ADAM = {"kind": "adamw", "lr": 0.001}
DEMO = {"kind": "lion", "beta1": 0.0, "beta2": 0.0, "lr": 0.0003, "weight_decay": 0.0}


def ways():
    """Name, plan, optimizer, inner steps that the network run needs beside the first two."""
    return [
        ("data parallel", "data_parallel(4)", ADAM, 3),
        ("int8", "compressed(4, with=int8)", ADAM, 4),
        ("Top-K 1 %", "compressed(4, with=topk:0.01)", ADAM, 10),
        ("DeMo, 32 of 4096", 'mesh = { dp = 4 }\nsplit = [ { ops = "*", dim = "batch", over = "dp" } ]\n'
         'compress = [ { tensors = "role:gradient", with = "dct:32,decay=0.999", error_feedback = true } ]\n', DEMO, 10),
        ("DiLoCo, H = 50", OUTER.format(half=2, every=50, more=""), ADAM, 50),
        ("DiLoCo, H = 200", OUTER.format(half=2, every=200, more=""), ADAM, 200),
        ("Streaming, 4 fragments, delay 1, 4 bit",
         OUTER.format(half=2, every=48, more=', fragments = 4, delay = 1, mix = 0.5, with = "int4", error_feedback = true'), ADAM, 48),
    ]


def toml_table(values):
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in values.items()) + " }"


def sites(folder, steps, extra, only):
    rows = []
    for name, text, optimizer, on_network in ways() + extra:
        if only not in name:
            continue
        plan = folder.plan(text)
        kept = folder.write("run_here.toml", run_text(GPT, BATCH, steps, optimizer))
        lines = [json.loads(line) for line in run([PROGRAM, "train", kept, "--plan", plan, "--json"], cwd=folder.path).splitlines()]
        losses = [line["loss"] for line in lines if "step" in line]
        with namespaces.Network([namespaces.Rack(2, nic="1gbit", uplink="8mbit") for _ in range(2)]) as network:
            def of(count):
                file = folder.write("run_there.toml", run_text(GPT, BATCH, count, optimizer))
                done = network.mpirun([PROGRAM, "train", file, "--plan", plan, "--json"], timeout=900, cwd=str(folder.path))
                return lines_of(done), done
            short, before = of(2)
            long, after = of(2 + on_network)
        seconds = sum(line["step_time_s"] for line in long if "step" in line and line["step"] > 2) / on_network
        wire = sum(after.sent.values()) - sum(before.sent.values())
        counted = sum(sum(one[-1]["summary"]["bytes_sent"].values()) * sign for one, sign in ((long, 1), (short, -1)))
        row = {"way": name, "loss_first": losses[0], "loss": statistics.mean(losses[-20:]), "steps": len(losses), "step_s": seconds,
               "wire_bytes_a_step": wire / on_network, "predicted_bytes_a_step": counted / on_network,
               "uplink_bytes_a_step": (sum(after.uplink_sent.values()) - sum(before.uplink_sent.values())) / on_network,
               # After ten steps the learning rate depends on how many steps there are.
               "same_losses": [a["loss"] for a in long if "step" in a][:10] == losses[:min(10, 2 + on_network)]}
        rows.append(row)
        print(json.dumps(row), file=sys.stderr)
    dense = rows[0]
    for row in rows:
        row["speed"] = dense["step_s"] / row["step_s"]
        row["loss_over_dense"] = row["loss"] / dense["loss"] - 1
    return rows


def run_text(model, batch, steps, optimizer):
    return (f'model = "{model}"\ndata = "text.txt"\nbatch = {batch}\nsteps = {steps}\nthreads = 1\ntimeout_s = 600\n'
            f"optimizer = {toml_table(optimizer)}\n")


def table(rows, columns):
    head = [name for name, _ in columns]
    body = [[form(row) for _, form in columns] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *body])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("accuracy", "sites"), required=True)
    parser.add_argument("--rounds", type=int, default=3, help="accuracy: runs of each pair")
    parser.add_argument("--profile", help="accuracy: file of tessera profile; default: measure first")
    parser.add_argument("--steps", type=int, help="accuracy: steps on the network, 16; sites: steps of the losses, 400")
    parser.add_argument("--only", default="", metavar="TEXT", help="sites: only the ways whose names have this")
    parser.add_argument("--extra", action="append", default=[], metavar="NAME=PLAN.toml", help="sites: one more plan of four ranks")
    options = parser.parse_args()
    why = namespaces.why_not()
    if why:
        sys.exit(f"run_slow_links.py: {why}")
    results = ROOT / "build" / "results"
    results.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tessera_slow_links_") as path:
        folder = Folder(path)
        if options.part == "accuracy":
            rows = accuracy(folder, options.steps or 16, options.rounds, options.profile)
            measured = folder.write("measured.json", json.dumps(rows))
            text = run([PROGRAM, "accuracy", "--reality", measured])
        else:
            extra = [(name, pathlib.Path(file).read_text(), ADAM, 5) for name, file in (one.split("=", 1) for one in options.extra)]
            rows = sites(folder, options.steps or 400, extra, options.only)
            text = table(rows, [("way", lambda r: r["way"]), ("loss", lambda r: f"{r['loss']:.3f}"),
                                ("against dense", lambda r: f"{r['loss_over_dense']:+.1%}"), ("step s", lambda r: f"{r['step_s']:.3f}"),
                                ("times as fast", lambda r: f"{r['speed']:.1f}"),
                                ("bytes a step", lambda r: f"{r['predicted_bytes_a_step']:,.0f}"),
                                ("on the wire", lambda r: f"{r['wire_bytes_a_step'] / max(1, r['predicted_bytes_a_step']) - 1:+.1%}")])
    stem = results / f"{datetime.date.today()}-slow-links-{options.part}"
    stem.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    stem.with_suffix(".md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
