#!/usr/bin/env python3
"""Our throughput of plans beside the measured rows of Morphling's artifact, and what a policy loses that decides by it:
writes build/results/<date>-cluster-speeds.md and .json, and the predicted tables to build/results/cluster-speeds/.

    benchmarks/run_cluster_speeds.py                     all models and policies, some ten minutes on two cores
    benchmarks/run_cluster_speeds.py --only gpt2,bert    the rows of these models; no policies
    benchmarks/run_cluster_speeds.py --reuse             the tables of an earlier run are taken, not priced anew
    benchmarks/run_cluster_speeds.py --variant one-micro-batch --only gpt2    what another reading of the inputs would give

Nothing is fitted to the rows. What the artifact says of its inputs is taken (sizes, batches, precision, ZeRO's stage and
overlap); what it does not say is the public definition of the name. See docs/results/cluster-speeds.md.
"""
import argparse
import collections
import csv
import dataclasses
import datetime
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLUSTER = os.path.join(ROOT, "benchmarks", "cluster_speeds", "a800.toml")
KINDS = {"ga": "data parallel", "gc": "with recomputation", "zero-dp": "ZeRO-2", "zero-offload": "ZeRO-2, host"}
THREE = "tensor, pipeline"

# Styles: Megatron-DeepSpeed of 2022 for what its scripts run, eager PyTorch and DeepSpeed for the scripts of Hugging Face,
# whose attention was not fused then. Products of float32 tensors are in TF32, as the artifact's containers have it.
# overlap_comm is true in the artifact's configurations of ZeRO.
MEGATRON = "deepspeed-2022,matmul_arithmetic=tf32"
MEGATRON_ZERO = "deepspeed-2022,overlap_gradients=true,matmul_arithmetic=tf32"
EAGER = "eager,fused_attention=false,matmul_arithmetic=tf32"
EAGER_ZERO = "deepspeed,fused_attention=false,matmul_arithmetic=tf32"


@dataclasses.dataclass
class Case:
    """A model of the artifact. offload_recompute: its validation calls the plan ZeRO-Offload+GC."""
    model: str
    batch: int
    plain: str  # style of ga, gc and three digits
    zero: str   # style of zero-dp and zero-offload
    precision: str = "float32"
    offload_recompute: bool = False


CASES = {
    "vit": Case("vit:classes=200", 64, EAGER, EAGER_ZERO),
    "roberta": Case("bert:layers=24,hidden=1024,heads=16,seq=512,vocab=50265,types=1,masked=512", 64, EAGER, EAGER_ZERO),
    "bert": Case("bert:layers=24,hidden=1024,heads=16,seq=512,masked=512", 32, MEGATRON, MEGATRON_ZERO),
    "t5": Case("t5:layers=32,hidden=1024,heads=32,head_dim=64,ffn=3072,source=512,seq=512", 16, MEGATRON, MEGATRON_ZERO,
               offload_recompute=True),
    "gpt2": Case("gpt:layers=48,hidden=1600,heads=25,seq=1024", 16, MEGATRON, MEGATRON_ZERO, offload_recompute=True),
    "llama7": Case("llama-2-7b:seq=2048", 8, "megatron", "deepspeed", "bfloat16", offload_recompute=True),
    "llama30": Case("llama-30b:seq=2048", 4, "megatron", "deepspeed", "bfloat16"),
}


# Readings of the inputs that are not taken, to find out where errors come from: pipelines whose batch is not cut, and Llama
# in the precision of the other models.
VARIANTS = ("", "one-micro-batch", "llama-float32")


def varied(case, variant):
    if variant != "llama-float32" or case.precision == "float32":
        return case
    return dataclasses.replace(case, precision="float32", plain=case.plain + ",matmul_arithmetic=tf32",
                               zero=case.zero + ",matmul_arithmetic=tf32")


def plan_text(name, case, variant):
    """The plan in Tessera's words."""
    if name == "ga":
        return "data_parallel({}, micro_batches={micro})"
    if name == "gc":
        return "megatron(dp={}, recompute=full, micro_batches={micro})"
    if name == "zero-dp":
        return "zero(stage=2, dp={}, micro_batches={micro})"
    if name == "zero-offload":
        recompute = ", recompute=full" if case.offload_recompute else ""
        return "offload(dp={}, zero=2, gradients=true, micro_batches={micro}" + recompute + ")"
    stages, tensor, replicas = name
    micro = "1" if variant == "one-micro-batch" else "{micro}"
    return f"megatron(pp={stages}, tp={tensor}, dp={replicas}, micro_batches={micro})"


def read_rows(path):
    """The seconds of a step by (plan, GPUs of each node, the most first)."""
    with open(path, encoding="utf-8", newline="") as file:
        return {(row["exec_plan"], "".join(sorted(row["placement"], reverse=True))): float(row["iter_time"])
                for row in csv.DictReader(file)}


def kind_of(plan):
    return KINDS.get(plan, THREE)


def price(program, name, case, measured, folder, variant):
    """Writes the predicted rows of a model, those that were measured, to folder/NAME.csv. Returns what was left out."""
    left_out, rows = [], []
    for style, plans in ((case.plain, {plan for plan, _ in measured if not plan.startswith("zero")}),
                         (case.zero, {plan for plan, _ in measured if plan.startswith("zero")})):
        if not plans:
            continue
        placements = sorted({where for plan, where in measured if plan in plans}, key=lambda where: (sum(map(int, where)), where))
        command = [program, "cluster", "speeds", case.model, "--cluster", CLUSTER, "--batch", str(case.batch), "--json",
                   "--precision", case.precision, "--style", style, "--placements", ",".join(placements),
                   "-o", os.path.join(folder, "part.csv")]
        for plan in sorted(plans):
            command += ["--plan", f"{plan}={plan_text(plan, case, variant)}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{name}: {done.stdout}")
        left_out += json.loads(done.stdout)["left_out"]
        with open(os.path.join(folder, "part.csv"), encoding="utf-8", newline="") as file:
            rows += [row for row in csv.DictReader(file) if (row["exec_plan"], row["placement"]) in measured]
    os.remove(os.path.join(folder, "part.csv"))
    with open(os.path.join(folder, name + ".csv"), "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["exec_plan", "placement", "iter_time", "memory_bytes", "plan"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return [line for line in left_out if tuple(line.split(":")[0].split(" on ")) in measured]


def share_below(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def figures(pairs):
    """Of pairs (predicted, measured): how many, median and 90 % error, median of the ratio."""
    errors = [abs(ours / theirs - 1) for ours, theirs in pairs]
    return {"rows": len(pairs), "median": statistics.median(errors), "p90": share_below(errors, .9),
            "ratio": statistics.median(ours / theirs for ours, theirs in pairs)}


def best_plans(measured, predicted, key):
    """By what `key` makes of a row: whether the predicted best is the measured best, and what its measured time is over that
    of the measured best."""
    groups = collections.defaultdict(list)
    for row, step_s in measured.items():
        groups[key(row)].append((step_s, row))
    hits, losses = 0, []
    for rows in groups.values():
        priced = [(predicted[row], row) for _, row in rows if row in predicted]
        if len(rows) < 2 or not priced:
            continue
        best_s = min(rows)[0]
        chosen_s = measured[min(priced)[1]]
        hits += chosen_s == best_s
        losses.append(chosen_s / best_s - 1)
    return {"groups": len(losses), "hits": hits, "mean_loss": statistics.fmean(losses) if losses else 0,
            "worst_loss": max(losses, default=0)}


def compare(measured_of, predicted_of):
    out = {"models": {}, "kinds": {}, "cells": {}, "best": {}}
    every, by_kind = [], collections.defaultdict(list)
    for name, measured in measured_of.items():
        predicted = predicted_of[name]
        pairs = {row: (predicted[row], step_s) for row, step_s in measured.items() if row in predicted}
        out["models"][name] = figures(list(pairs.values())) | {"measured": len(measured)}
        cells = collections.defaultdict(list)
        for (plan, _), pair in pairs.items():
            cells[kind_of(plan)].append(pair)
            by_kind[kind_of(plan)].append(pair)
        out["cells"][name] = {kind: figures(list_) for kind, list_ in cells.items()}
        out["best"][name] = {
            "size": best_plans(measured, predicted, lambda row: sum(map(int, row[1]))),
            "placement": best_plans(measured, predicted, lambda row: row[1])}
        every += pairs.values()
    out["kinds"] = {kind: figures(pairs) for kind, pairs in by_kind.items()}
    out["all"] = figures(every) | {"measured": sum(len(rows) for rows in measured_of.values())}
    return out


def simulate(program, data, folder):
    """Morphling's base workload with measured rows, with decisions by predicted ones, and in the predicted world."""
    out = {}
    worlds = {"measured": [], "predicted": ["--predicted", folder], "world": ["--throughputs", folder]}
    for policy in ("fifo", "tiresias", "default"):
        for world, more in worlds.items():
            command = [program, "cluster", "simulate", os.path.join(data, "workload-base.csv"), "--cluster", "8x8", "--policy",
                       policy, "--json", *more]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode != 0:
                out[f"{policy} {world}"] = {"error": (done.stdout + done.stderr).strip()}
                continue
            answer = json.loads(done.stdout)
            out[f"{policy} {world}"] = {key: answer[key] for key in ("mean_jct_s", "p99_jct_s", "makespan_s")}
    return out


def percent(value):
    return f"{100 * value:.0f} %"


def page(found):
    lines = ["| model | rows | median error | 90 % error | predicted / measured | " + " | ".join([*KINDS.values(), THREE]) + " |",
             "|---|--:|--:|--:|--:|" + "--:|" * (len(KINDS) + 1)]
    for name, row in found["models"].items():
        cells = [found["cells"][name].get(kind) for kind in [*KINDS.values(), THREE]]
        texts = [f"{percent(cell['median'])}, {percent(cell['p90'])}" if cell else "" for cell in cells]
        lines.append(f"| {name} | {row['rows']} of {row['measured']} | {percent(row['median'])} | {percent(row['p90'])} | "
                     f"{row['ratio']:.2f} | " + " | ".join(texts) + " |")
    total = found["all"]
    cells = [found["kinds"].get(kind) for kind in [*KINDS.values(), THREE]]
    lines.append(f"| all | {total['rows']} of {total['measured']} | {percent(total['median'])} | {percent(total['p90'])} | "
                 f"{total['ratio']:.2f} | " + " | ".join(f"{percent(c['median'])}, {percent(c['p90'])}" if c else "" for c in cells) + " |")
    lines += ["", "| model | sizes with the measured best | mean, worst loss | placements with the measured best | mean, worst loss |",
              "|---|--:|--:|--:|--:|"]
    for name, best in found["best"].items():
        cells = []
        for what in ("size", "placement"):
            one = best[what]
            cells += [f"{one['hits']} of {one['groups']}", f"{percent(one['mean_loss'])}, {percent(one['worst_loss'])}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    if found.get("policies"):
        lines += ["", "| policy, decides by | mean JCT | p99 | makespan |", "|---|--:|--:|--:|"]
        for name, row in found["policies"].items():
            lines.append(f"| {name} | " + (row["error"] if "error" in row else
                         f"{row['mean_jct_s']:.3f} | {row['p99_jct_s']:.0f} | {row['makespan_s']:.0f}") + " |")
    lines += ["", *(f"- {name}: {line}" for name, left_out in found["left_out"].items() for line in left_out)]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "tessera"))
    parser.add_argument("--data", default=os.path.join(ROOT, "..", "shared", "data", "morphling"))
    parser.add_argument("--only", default="")
    parser.add_argument("--reuse", action="store_true")
    parser.add_argument("--variant", choices=VARIANTS, default="")
    options = parser.parse_args()
    if not os.path.isdir(options.data):
        sys.exit(f"expected the artifact's files in {options.data}, found none")
    folder = os.path.join(ROOT, "build", "results", "cluster-speeds" + options.variant)
    os.makedirs(folder, exist_ok=True)
    names = options.only.split(",") if options.only else list(CASES)
    measured_of, predicted_of, left_out = {}, {}, {}
    for name in names:
        measured_of[name] = read_rows(os.path.join(options.data, "throughput", name + ".csv"))
        own = os.path.join(folder, name + ".csv")
        if not (options.reuse and os.path.exists(own)):
            left_out[name] = price(options.program, name, varied(CASES[name], options.variant), measured_of[name], folder,
                                   options.variant)
        predicted_of[name] = read_rows(own)
    found = compare(measured_of, predicted_of) | {"left_out": left_out}
    if not options.only and not options.variant:
        found["policies"] = simulate(options.program, options.data, folder)
    stem = os.path.join(ROOT, "build", "results", f"{datetime.date.today()}-cluster-speeds{options.variant}")
    with open(stem + ".json", "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
    with open(stem + ".md", "w", encoding="utf-8") as file:
        file.write(page(found))
    print(page(found))


if __name__ == "__main__":
    main()
