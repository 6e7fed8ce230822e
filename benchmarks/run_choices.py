#!/usr/bin/env python3
"""Plans that `auto` chooses for this machine, measured beside the recipes: writes build/results/<date>-choices.md.

Ten models of five families on two ranks and on four (--cluster local:2 and local:4; some under mpirun, some under a memory
limit). For each case `tessera plan --planner auto` gives a plan and `--planner recipes` the best call of every recipe by
simulation. The fastest of these by simulation are measured, and the plan of `auto` with them; plans whose programs are equal
are one plan and are measured once. They are measured in rounds that go over all of them in turn, so that what else the machine
does falls on all alike; a plan counts with the median of the steps of its best run, the first two left out. The fastest of many
recipes is in part the luckiest, so the recipe that was the fastest and the plan of `auto` are measured in more rounds of their own,
in turn, and these alone decide (--confirm). Each plan of `auto` is also verified against the serial run, and its counted peak is
compared with the limit.

A plan is asked for as the guide docs/guides/choose-a-plan.md says: `tessera plan` answers, `tessera profile --model ... --plan ...`
measures the kernels of this answer and of the recipes' best calls in their very sizes, and the question is asked again, until the
answer stays; after --refine times the fastest answer whose kernels were measured counts. Cases under mpirun are priced with what
moves between processes (--style tessera,transport=mpi). The given profile is copied, not changed.

    benchmarks/run_choices.py build/tessera --profile machine.json      about an hour on two idle cores
    benchmarks/run_choices.py build/tessera --only gpt --rounds 1

The profile is one that `tessera profile` wrote; without --profile the machine is measured first (some minutes).
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import run_networks

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = [  # name, model, batch, and of two and of four ranks: transport, memory limit
    ("gpt", "gpt:layers=4,hidden=192,heads=6,seq=128,vocab=512", 16, ("threads", ""), ("threads", "")),
    ("gpt, wide", "gpt:layers=2,hidden=384,heads=8,seq=128,vocab=640", 8, ("mpi", ""), ("threads", "60 MB")),
    ("gpt, large table", "gpt:layers=2,hidden=128,heads=4,seq=64,vocab=8192", 16, ("threads", ""), ("threads", "")),
    ("llama", "llama:layers=4,hidden=192,heads=6,kv_heads=2,seq=128,vocab=1024", 8, ("threads", ""), ("mpi", "")),
    ("llama, long", "llama:layers=2,hidden=128,heads=4,kv_heads=2,seq=512,vocab=512", 4, ("threads", ""), ("threads", "40 MB")),
    ("bert", "bert:layers=3,hidden=192,heads=4,seq=96,vocab=768", 16, ("mpi", ""), ("threads", "")),
    ("experts", "mixtral:layers=2,hidden=160,heads=4,seq=96,vocab=320,ffn=320,experts=4", 8, ("threads", ""), ("threads", "")),
    ("experts, more", "mixtral:layers=2,hidden=128,heads=4,seq=64,vocab=320,ffn=256,experts=8", 16, ("threads", ""), ("mpi", "")),
    ("resnet", "resnet:layers=18,image=32,width=16,ghost=4,classes=10", 32, ("threads", ""), ("threads", "")),
    ("mlp", "mlp:in=256,hidden=1024,out=10,layers=4", 256, ("threads", "30 MB"), ("threads", "")),
]
CASES = [(name, model, batch, ranks, *how) for name, model, batch, *both in MODELS for ranks, how in zip((2, 4), both)]
WITHIN = 1.03


class Failure(Exception):
    pass


def execute(command, profile):
    environment = dict(os.environ, TESSERA_PROFILE=str(profile))
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment, cwd=ROOT)
    if done.returncode != 0:
        raise Failure(f"{' '.join(str(word) for word in command)}: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


class Session:
    def __init__(self, args, folder):
        self.tessera, self.measured, self.folder = pathlib.Path(args.tessera).resolve(), args.profile, folder
        self.profile = folder / "refined.json"
        self.rounds, self.most, self.confirm, self.refine = args.rounds, args.most, args.confirm, args.refine
        self.text = folder / "text.txt"
        self.text.write_text(" ".join(str(i * 7919 % 100003) for i in range(60000)))

    def question(self, model, batch, ranks, transport, limit):
        command = [self.tessera, "plan", model, "--cluster", f"local:{ranks}", "--batch", batch, "--json"]
        command += ["--style", f"tessera,transport={transport}"]
        return command + (["--memory-limit", limit] if limit else [])

    def kernels(self, model, batch, plans):
        plans = [word for plan in plans for word in ("--plan", plan)]
        execute([self.tessera, "profile", "--model", model, "--batch", batch, *plans], self.profile)

    def choose(self, question, model, batch, file):
        """The name of auto's answer, its seconds by simulation and how often kernels were measured; its plan is in the file."""
        ask = lambda planner: json.loads(execute(question + ["--planner", planner], self.profile))
        answers = {}  # by the plan without its comments
        while True:
            chosen = ask("auto")
            file.write_text(chosen["text"])
            plan = "\n".join(line for line in chosen["text"].splitlines() if not line.startswith("#"))
            if plan in answers or self.refine == 0:
                return chosen["best"]["choice"], chosen["best"]["step_time_s"], len(answers)
            if len(answers) == self.refine:
                break
            recipes = {}  # by their steps: equal ones are one plan
            for one in [] if answers else ask("recipes")["simulated"]:
                if one.get("fits"):
                    recipes.setdefault(one["step_time_s"], one["choice"])
            self.kernels(model, batch, [file, *list(recipes.values())[:self.most]])
            answers[plan] = chosen
        # Of the answers whose kernels are known, the fastest: the others are priced by what was fitted.
        simulate = [self.tessera, "simulate", model, "--plan", file, "--batch", batch, "--json"]
        simulate += [word for name in ("--cluster", "--style") for word in (name, question[question.index(name) + 1])]
        for answer in answers.values():
            file.write_text(answer["text"])
            answer["known_s"] = json.loads(execute(simulate, self.profile))["step_time_s"]
        best = min(answers.values(), key=lambda answer: answer["known_s"])
        file.write_text(best["text"])
        return best["best"]["choice"], best["known_s"], len(answers)

    def data(self, model, batch):
        """Tokens of a text, or random samples where the model reads images or rows."""
        inputs = {"resnet": {"images": (3, 32, 32), "targets": ()}, "mlp": {"x": (256,), "targets": ()}}
        family = model.split(":")[0]
        return run_networks.samples_of(self.folder, inputs[family], batch) if family in inputs else f'["{self.text}"]'

    def measure(self, model, batch, plan, ranks, transport, step_s):
        """Median seconds of the steps, and the counted peak of a rank in bytes."""
        file = self.folder / "run.toml"
        steps = max(12, min(60, int(1.5 / step_s)))
        file.write_text(f'model = "{model}"\ndata = {self.data(model, batch)}\nbatch = {batch}\nsteps = {steps}\nplan = "{plan}"\nthreads = 1\n')
        launcher = []
        if transport == "mpi":
            root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
            launcher = ["mpirun", "--oversubscribe", "-n", ranks] + root
        out = execute([*launcher, self.tessera, "train", file, "--json"], self.profile)
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        times = [line["step_time_s"] for line in lines if "step" in line]
        summary = next(line["summary"] for line in lines if "summary" in line)
        return statistics.median(times[2:]), summary["peak_memory_bytes"]

    def case(self, case):
        """A row: what was chosen and measured, and whether it is within 3 % of the fastest recipe."""
        name, model, batch, ranks, transport, limit = case
        plans = {}
        shutil.copy(self.measured, self.profile)
        question = self.question(model, batch, ranks, transport, limit)
        file = self.folder / "auto.toml"
        choice, seconds, refined = self.choose(question, model, batch, file)
        plans["auto"] = (str(file), seconds)
        known = json.loads(execute(question + ["--planner", "recipes"], self.profile))
        recipes = [one for one in known["simulated"] if one.get("fits")]
        ranks_of = {"auto": self.ranks(model, batch, str(file))}
        programs = {self.programs(model, batch, str(file), ranks_of["auto"]): "auto"}
        alike = 0
        for one in recipes:
            if len(plans) > self.most:
                break
            count = self.ranks(model, batch, one["choice"])
            known_as = programs.setdefault(self.programs(model, batch, one["choice"], count), one["choice"])
            alike += known_as == "auto"
            if known_as == one["choice"]:
                plans[one["choice"]] = (one["choice"], one["step_time_s"])
                ranks_of[one["choice"]] = count
        verified = self.verify(model, batch, file)
        peak = 0

        def measured(keys, rounds):
            nonlocal peak
            best = {}
            for _ in range(rounds):
                for key in keys:
                    plan, predicted = plans[key]
                    seconds, memory = self.measure(model, batch, plan, ranks_of[key], transport, predicted)
                    best[key] = min(best.get(key, seconds), seconds)
                    peak = max(peak, memory) if key == "auto" else peak
            return best

        first = measured(plans, self.rounds)
        fastest = min((key for key in first if key != "auto"), key=first.get)
        best = measured(("auto", fastest), self.confirm) if self.confirm else first
        return {"name": name, "model": model, "batch": batch, "ranks": ranks, "transport": transport, "limit": limit, "peak": peak,
                "auto": choice, "auto_s": best["auto"], "predicted_s": plans["auto"][1], "recipe": fastest,
                "alike": alike, "recipe_s": best[fastest], "recipe_predicted_s": plans[fastest][1], "measured": len(first),
                "known": len(recipes), "refined": refined, "first": first["auto"] / first[fastest],
                "verified": verified, "fits": not limit or peak <= float(limit.split()[0]) * 1e6}

    def programs(self, model, batch, plan, ranks):
        """The programs of all ranks, without the names of the axes: plans with equal ones run alike."""
        texts = []
        for rank in range(ranks):
            command = [self.tessera, "inspect", model, "--plan", plan, "--batch", batch, "--rank", rank]
            texts.append(re.sub(r"(?m)^(group .*) axes \[.*?\]", r"\1", execute(command, self.profile)))
        return tuple(texts)

    def ranks(self, model, batch, plan):
        out = json.loads(execute([self.tessera, "simulate", model, "--plan", plan, "--batch", batch, "--cluster", "local:8", "--json"],
                                 self.profile))
        return sum(role["ranks"] for role in out["roles"])

    def verify(self, model, batch, plan):
        try:
            execute([self.tessera, "verify", model, "--plan", plan, "--batch", batch], self.profile)
            return True
        except Failure:
            return False


def page(rows, args, session):
    good = sum(row["auto_s"] <= WITHIN * row["recipe_s"] for row in rows)
    processor = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    lines = [f"# Chosen plans, measured beside the recipes, {datetime.date.today()}", "",
             f"`benchmarks/run_choices.py build/tessera --rounds {session.rounds} --most {session.most}` on {processor}, {os.cpu_count()} cores, "
             f"{platform.system()}; load when it ended {os.getloadavg()[0]:.1f}. Each case: the plan that `auto` chose, and the "
             f"{session.most} fastest recipes by simulation whose programs differ, each with its best arguments (`--planner recipes`). A recipe "
             "whose program is that of `auto` is not measured a second time. A plan counts with the median step of its best run. "
             "The kernels of auto's answer and of the recipes' best calls are measured and the question is asked again, then the same with "
             f"the kernels of the new answer, until the answer stays; after {session.refine} times the fastest answer so far counts. The fastest recipe of {session.rounds} rounds and the plan of `auto` were then measured in {session.confirm} more "
             "rounds, which alone decide; the last column has both ratios.", "",
             f"- within 3 % of the fastest recipe that was measured, or faster: **{good} of {len(rows)}** (asked: 18 of 20)",
             f"- the same by the rounds of all plans alone, as in runs before: {sum(row['first'] <= WITHIN for row in rows)} of {len(rows)}",
             f"- verified against the serial run: {sum(row['verified'] for row in rows)} of {len(rows)}",
             f"- counted peak within the limit, where there is one: {sum(row['fits'] for row in rows if row['limit'])} of "
             f"{sum(bool(row['limit']) for row in rows)}", "",
             "| model | ranks | limit | auto's plan | measured, ms | predicted, ms | fastest recipe | measured, ms | predicted, ms | "
             "recipes measured, with auto's program, of those that fit | auto / recipe (in the rounds before) |", "|---" * 11 + "|"]
    for row in rows:
        lines.append(f"| {row['name']} | {row['ranks']} {row['transport']} | {row['limit'] or '-'} | `{row['auto']}` | {1e3 * row['auto_s']:.1f} | "
                     f"{1e3 * row['predicted_s']:.1f} | `{row['recipe']}` | {1e3 * row['recipe_s']:.1f} | {1e3 * row['recipe_predicted_s']:.1f} | "
                     f"{row['measured'] - 1}, {row['alike']} of {row['known']} | {row['auto_s'] / row['recipe_s']:.3f} ({row['first']:.3f}) |")
    lines += ["", "## Models", ""]
    lines += sorted({f"- {row['name']}: `{row['model']}`, batch {row['batch']}" for row in rows})
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("--profile", type=pathlib.Path)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=8, help="recipes that are measured in each case")
    parser.add_argument("--confirm", type=int, default=5, help="rounds of auto and the fastest recipe that decide; 0: those before do")
    parser.add_argument("--refine", type=int, default=3, help="times that the kernels of a chosen plan may be measured")
    parser.add_argument("-o", "--out", type=pathlib.Path)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if args.profile is None:
            args.profile = folder / "profile.json"
            execute([pathlib.Path(args.tessera).resolve(), "profile", "--out", args.profile], args.profile)
        args.profile = args.profile.resolve()
        session = Session(args, folder)
        for case in CASES:
            if args.only not in case[0]:
                continue
            row = session.case(case)
            rows.append(row)
            print(f"{row['name']:18} {row['ranks']} {row['transport']:8} auto {1e3 * row['auto_s']:8.2f} ms ({1e3 * row['predicted_s']:.2f})  "
                  f"{row['recipe']} {1e3 * row['recipe_s']:.2f} ms ({1e3 * row['recipe_predicted_s']:.2f})  "
                  f"{row['auto_s'] / row['recipe_s']:.3f}  {row['auto']}", flush=True)
            out = args.out or ROOT / f"build/results/{datetime.date.today()}-choices.md"
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(page(rows, args, session), encoding="utf-8")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(str(failure))
