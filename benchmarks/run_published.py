#!/usr/bin/env python3
"""Compares what `tessera plan` finds with the plans that publications ran, under one simulator.

A group is a model, a cluster and a batch, as `tessera predict` expresses the rows of a CSV of published runs. Of each
group the fastest of its rows' plans (simulated) stands against the answer of `auto` in the same style, for which that
row's dtypes and buckets are given (`--with`), as these are not searched. Groups are taken in steps through the table, so that the first of them
are a sample of all. The page is written after each group.

Usage: run_published.py PROGRAM ROWS.csv [--out PAGE.md] [--skip N] [--groups N] [--seconds LIMIT] [--minutes TOTAL]
Example: benchmarks/run_published.py build/tessera data/published-throughput.csv --groups 40 --out page.md
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time

DEGREES = ("tp", "pp", "dp", "global_batch", "n_gpus")
COLUMNS = ("model", "params", "layers", "hidden", "heads", "kv_heads", "ffn", "seq", "vocab", "gpu", "n_gpus",
           "gpus_per_node", "global_batch", "dtype", "source")


def run(command, seconds):
    """Exit code, output and processor seconds; the code is None where these were more than `seconds`."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds)))
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        text, message = out.read(), errors.read().strip()
    code = process.returncode if process.returncode >= 0 else None
    return code, text, message, used.ru_utime + used.ru_stime


def groups_of(path):
    """Rows with stated degrees by model, machine and batch, in the order of the table."""
    groups = {}
    with open(path, newline="") as table:
        for row in csv.DictReader(table):
            if all(row[key] for key in DEGREES):
                groups.setdefault(tuple(row[key] for key in COLUMNS), []).append(row)
    return list(groups.values())


def spread(items):
    """All items, every 89th first: a prefix is a sample of the whole."""
    step = 89
    while len(items) % step == 0:
        step += 2
    return [items[i * step % len(items)] for i in range(len(items))]


def expressed(program, rows_file, row, seconds):
    """How a row runs here: model, batch, recipe, cluster, style, seconds a step, what is given; None if it cannot."""
    code, text, _, _ = run([program, "predict", rows_file, "--explain", row["row_id"]], seconds)
    if code != 0:
        return None
    found = dict(re.findall(r"^(model|batch|recipe|cluster|style|step)\s+(.*)$", text, re.MULTILINE))
    if len(found) < 6:
        return None
    found["step"] = float(found["step"].split()[0])
    found["cluster"], _, a_node = found["cluster"].partition(" ")
    own = re.search(r"\((\d+) GPUs a node\)", a_node)
    found["a_node"] = int(own.group(1)) if own else 0
    found["given"] = "\n".join(re.findall(r"^(?:precision|bucket_bytes) = .*$", text, re.MULTILINE))
    found["row"] = row
    return found


def ask(program, best, seconds):
    """The answer of `auto` to a row's question, as {"step_s", "plan", "cpu_s"} or {"failed", "cpu_s"}."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as part:
        part.write(best["given"] + "\n")
        part.flush()
        command = [program, "plan", best["model"], "--cluster", best["cluster"], "--batch", best["batch"], "--style",
                   best["style"], "--json", "--with", part.name]
        compute = re.search(r'compute = "(\w+)"', best["given"])
        command += ["--precision", compute.group(1) if compute else "float32"]
        code, text, message, cpu_s = run(command, seconds)
    if code is None:
        return {"failed": f"more than {seconds} s", "cpu_s": cpu_s}
    if code not in (0, 1):
        return {"failed": message.removeprefix("tessera: "), "cpu_s": cpu_s}
    answer = json.loads(text) if text.strip() else {}
    if not answer.get("found"):
        return {"failed": "nothing fits by the upper bound of its memory", "cpu_s": cpu_s}
    return {"step_s": answer["best"]["step_time_s"], "plan": answer["best"]["choice"], "cpu_s": cpu_s}


def time_text(seconds):
    return f"{seconds:.4g} s" if seconds >= 1 else f"{seconds * 1e3:.4g} ms"


def page(rows, groups, skipped, asked):
    """`asked`: the options that say which groups were asked, and how."""
    ratios = sorted(best["step"] / answer["step_s"] for best, answer in rows if "step_s" in answer)
    slower = sum(ratio < 0.9995 for ratio in ratios)
    lines = ["# Plans that publications ran, and what `auto` finds", "",
             f"{datetime.date.today().isoformat()}, `benchmarks/run_published.py build/tessera data/published-throughput.csv{asked}` on "
             f"{platform.machine()}, {os.cpu_count()} cores. Both columns of seconds are simulated, in the style of the "
             "published run and with its dtypes and buckets. A group is a model, a cluster and a batch; of its rows the one whose plan "
             "is the fastest in simulation is shown.", "",
             f"- {len(rows)} of {groups} groups were compared" +
             (f"; {skipped} more cannot be expressed." if skipped else "."),
             f"- `auto` is slower than the published plan in {slower} of the {len(ratios)} groups in which it has an answer."]
    if ratios:
        mean = sum(ratios) / len(ratios)
        lines.append(f"- Published / auto: mean {mean:.3f}, median {ratios[len(ratios) // 2]:.3f}, from {ratios[0]:.3f} to {ratios[-1]:.3f}.")
    lines += ["", "| row | model | cluster | batch | published plan | its step | auto's step | published / auto | auto's plan | search |",
              "|---" * 10 + "|"]
    for best, answer in rows:
        ratio = f"{best['step'] / answer['step_s']:.3f}" if "step_s" in answer else "-"
        own = time_text(answer["step_s"]) if "step_s" in answer else answer["failed"].replace("|", " ")[:90]
        lines.append(f"| {best['row']['row_id']} | `{best['model']}` | `{best['cluster']}` | {best['batch']} | `{best['recipe']}` | "
                     f"{time_text(best['step'])} | {own} | {ratio} | `{answer.get('plan', '-')}` | {answer['cpu_s']:.1f} s |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("rows")
    parser.add_argument("--out")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first groups, which an earlier run has asked")
    parser.add_argument("--groups", type=int, default=10**9)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--minutes", type=float, default=1e9)
    options = parser.parse_args()
    for path in (options.program, options.rows):
        if not pathlib.Path(path).is_file():
            parser.error(f"expected a file, found none at '{path}'")
    program = str(pathlib.Path(options.program).resolve())
    groups = groups_of(options.rows)
    asked = f" --skip {options.skip}" * (options.skip > 0) + f" --seconds {options.seconds}"
    start = time.monotonic()
    rows, skipped = [], 0
    for group in spread(groups)[options.skip:]:
        if len(rows) == options.groups or time.monotonic() - start > 60 * options.minutes:
            break
        found = [one for row in group if (one := expressed(program, options.rows, row, options.seconds))]
        if not found:
            skipped += 1
            continue
        best = min(found, key=lambda one: one["step"])
        answer = ask(program, best, options.seconds)
        rows.append((best, answer))
        ratio = f"{best['step'] / answer['step_s']:.3f}" if "step_s" in answer else answer["failed"]
        print(f"{best['row']['row_id']} {best['model']} {best['cluster']} {best['batch']}: {ratio} ({answer['cpu_s']:.1f} s) "
              f"{best['recipe']} / {answer.get('plan', '')}", flush=True)
        if options.out:
            pathlib.Path(options.out).write_text(page(rows, len(groups), skipped, asked))
    return 0


if __name__ == "__main__":
    sys.exit(main())
