#!/usr/bin/env python3
"""Compares `tessera shard`'s own planner with NeuroShard's search on generated tasks, under the same cost model.

600 tasks by default: 50 for each largest dim (4 to 128) and number of devices (4, 8), 10 to 59 tables each, 4 GiB a device,
all tables together at most 15/16 of that (docs/strategies/planning-tables.md section 12). Each task is asked three times: NeuroShard's
search, ours with the splits that NeuroShard has (columns), ours with all. Writes a page of results.

Usage: run_tables.py PROGRAM [--cost MODEL]... [--tasks N] [--jobs N] [--out PAGE.md]
Example: benchmarks/run_tables.py build/tessera --cost closed --out build/tables.md
"""
import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import platform
import resource
import subprocess
import sys

MAX_DIMS = (4, 8, 16, 32, 64, 128)
WAYS = {"neuroshard": ["--planner", "neuroshard"],
        "columns": ["--planner", "auto", "--splits", "columns"],
        "all": ["--planner", "auto"]}


def ask(program, cost, devices, max_dim, seed, way):
    """ms, bound and processor seconds of the process; no ms where nothing was found."""
    tables = f"random:max_dim={max_dim},seed={seed},most_bytes={15 * devices // 4} GiB"
    command = [program, "shard", tables, "--devices", str(devices), "--memory", "4 GiB", "--cost", cost, "--json", *WAYS[way]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (120, 120)))
    out, err = process.stdout.read(), process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)}: exit code {process.returncode}: {err.strip()}")
    answer = json.loads(out)
    return {"ms": answer.get("ms"), "bound": answer.get("bound_ms"), "seconds": used.ru_utime + used.ru_stime}


def one_task(job):
    return [ask(*job, way) for way in WAYS]


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else float("nan")


def row(devices, max_dim, tasks):
    both = [(theirs, columns, full) for theirs, columns, full in tasks if theirs["ms"] and columns["ms"] and full["ms"]]
    better = [1 - full["ms"] / theirs["ms"] for theirs, _, full in both]
    bounds = [1 - full["bound"] / theirs["ms"] for theirs, _, full in both if full["bound"]]
    lost = sum(1 for theirs, _, full in tasks if theirs["ms"] and not full["ms"])
    unsolved = [sum(1 for task in tasks if not task[i]["ms"]) for i in (0, 2)]
    at_most = f"{100 * mean(bounds):.1f} %" if len(bounds) == len(both) else "-"
    return (f"| {devices} | {max_dim} | {len(tasks)} | {100 * mean(better):.1f} % | {100 * min(better):.1f} % | "
            f"{100 * mean(1 - columns['ms'] / theirs['ms'] for theirs, columns, _ in both):.1f} % | {at_most} | "
            f"{unsolved[0]} / {unsolved[1]} / {lost} | {mean(task[0]['seconds'] for task in tasks):.2f} | "
            f"{mean(task[2]['seconds'] for task in tasks):.2f} | {max(task[2]['seconds'] for task in tasks):.2f} |")


HEAD = """| devices | largest dim | tasks | ours faster by, mean | worst task | with columns alone | at most possible | no answer: theirs / ours / ours where theirs has one | theirs, s | ours, s | ours, longest, s |
|---|---|---|---|---|---|---|---|---|---|---|"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--cost", action="append")
    parser.add_argument("--tasks", type=int, default=600)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out")
    options = parser.parse_args()
    program = str(pathlib.Path(options.program).resolve())
    each = max(1, options.tasks // (2 * len(MAX_DIMS)))
    lines = ["# Embedding tables: ours beside NeuroShard's search", "",
             f"{datetime.date.today().isoformat()}, `benchmarks/run_tables.py build/tessera {' '.join(sys.argv[2:])}` on {platform.machine()}, "
             f"{os.cpu_count()} cores, {options.jobs} at a time. Costs are those of the cost model; seconds are processor seconds of a "
             "whole process. Answers are the same in each run. \"At most possible\" is by how much a placement at the lower bound would "
             "be faster than NeuroShard's.", ""]
    for cost in options.cost or ["closed"]:
        lines += [f"## Cost model {pathlib.Path(cost).name}", "", HEAD]
        for devices in (4, 8):
            for max_dim in MAX_DIMS:
                jobs = [(program, cost, devices, max_dim, seed) for seed in range(1, each + 1)]
                with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
                    tasks = list(pool.map(one_task, jobs))
                lines.append(row(devices, max_dim, tasks))
                print(lines[-1], flush=True)
                if options.out:
                    pathlib.Path(options.out).write_text("\n".join(lines) + "\n", encoding="utf-8")
        lines.append("")
    return 0


if __name__ == "__main__":
    sys.exit(main())
