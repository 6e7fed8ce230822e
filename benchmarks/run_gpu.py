#!/usr/bin/env python3
"""Predicted and measured training steps on one GPU: writes build/results/<date>-gpu.md and .json.

Three steps, since the machine with the GPU is often another one:

    benchmarks/run_gpu.py predict --gpu dgx-h100 --out cases.json        where Tessera is built
    benchmarks/peers/pytorch_gpu.py cases.json measured.json            on the GPU, needs PyTorch alone
    benchmarks/run_gpu.py page cases.json measured.json                 the page, anywhere

A case is a model, a batch, a number of micro-batches, a recompute and a style: `eager` PyTorch, or `compiled` blocks.
The prediction is `tessera simulate` on one device of the named machine, from its data sheet's figures and the style's, none
of which was fitted to these measurements: `predict` is run before `pytorch_gpu.py`, and the page tells both dates. Tessera
has no kernels for GPUs, so what runs is the same model written in PyTorch.

The page also asks what a user of `tessera plan` asks: of a model's micro-batches and recomputes, is the one that is predicted
to be the fastest of those that fit the fastest when measured, and do those run that were predicted to fit?
"""
import argparse
import concurrent.futures
import datetime
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from run_peers import ROOT

TOKENS = ("gpt", "llama", "bert")
# (name, family, keys, batch)
MODELS = [
    ("GPT 124M", "gpt", {"layers": 12, "hidden": 768, "heads": 12, "seq": 1024, "vocab": 50304}, 64),
    ("GPT 355M", "gpt", {"layers": 24, "hidden": 1024, "heads": 16, "seq": 1024, "vocab": 50304}, 32),
    ("GPT 1.3B", "gpt", {"layers": 24, "hidden": 2048, "heads": 16, "seq": 2048, "vocab": 50304}, 16),
    ("GPT 2.7B", "gpt", {"layers": 32, "hidden": 2560, "heads": 20, "seq": 2048, "vocab": 50304}, 8),
    ("Llama 1.5B", "llama", {"layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "ffn": 8192, "seq": 4096,
                             "vocab": 128256}, 8),
    ("Llama 3B", "llama", {"layers": 28, "hidden": 3072, "heads": 24, "kv_heads": 8, "ffn": 8192, "seq": 4096,
                           "vocab": 32000}, 4),
    ("BERT large", "bert", {"layers": 24, "hidden": 1024, "heads": 16, "seq": 512, "vocab": 30522}, 64),
    ("ViT large", "vit", {"layers": 24, "hidden": 1024, "heads": 16}, 256),
    ("ResNet-50", "resnet", {}, 512),
]
PARTS = (1, 2, 4, 8)
LONG_PASS_S = 0.1  # of a micro-batch: below it the host, which issues the kernels one by one, may be the slower
LIMITS_GIB = (24, 40, 60)
MEMORY_OF_NOTE = 20 * 2**30
COMPILED = {"GPT 355M": (1, "none"), "GPT 1.3B": (2, "none"), "Llama 1.5B": (2, "none"), "BERT large": (1, "none")}


def cases():
    for name, family, keys, batch in MODELS:
        model = family + (":" + ",".join(f"{key}={value}" for key, value in keys.items()) if keys else "")
        ghost = family == "resnet"
        for recompute in ("none",) if ghost else ("none", "full"):
            for parts in PARTS:
                if batch % parts == 0:
                    text = f"{model}:ghost={batch // parts}" if ghost else model
                    yield {"name": f"{name}, {parts} x {batch // parts}, recompute {recompute}, eager", "model": name,
                           "text": text, "family": family, "keys": keys, "batch": batch, "micro_batches": parts,
                           "recompute": recompute, "style": "eager"}
        if name in COMPILED:
            parts, recompute = COMPILED[name]
            yield {"name": f"{name}, {parts} x {batch // parts}, recompute {recompute}, compiled", "model": name, "text": model,
                   "family": family, "keys": keys, "batch": batch, "micro_batches": parts, "recompute": recompute,
                   "style": "compiled"}


def one_device(program, machine):
    """The text of the machine with one device a node."""
    done = subprocess.run([program, "inspect", machine, "--text"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip())
    return re.sub(r"(?m)^devices = \d+", "devices = 1", done.stdout)


def predicted(program, cluster, case):
    recipe = f"megatron(micro_batches={case['micro_batches']},recompute={case['recompute']})"
    command = [program, "simulate", case["text"], "--batch", str(case["batch"]), "--cluster", cluster, "--plan", recipe,
               "--precision", "bfloat16", "--style", case["style"], "--evaluations", "0", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout.strip():
        sys.exit(f"{case['name']}: {done.stderr.strip()}")
    answer = json.loads(done.stdout)
    memory = answer["roles"][0]["memory"]
    return {**case, "plan": recipe, "predicted_s": answer["step_time_s"], "predicted_bytes": answer["peak_memory_bytes"],
            "high_bytes": memory["high_bytes"], "fits": answer["fits"], "model_flops": answer["model_flops"]}


def predict(options):
    program = str(pathlib.Path(options.program).resolve())
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as cluster:
        cluster.write(one_device(program, options.gpu))
        cluster.flush()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda case: predicted(program, cluster.name, case), cases()))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    pathlib.Path(options.out).write_text(json.dumps(
        {"machine": options.gpu, "predicted_on": datetime.datetime.now().isoformat(timespec="minutes"), "commit": commit,
         "cases": found}, indent=1))
    print(f"{len(found)} predictions in {options.out}")


def time_text(seconds):
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def short(row):
    return f"{row['micro_batches']} x {row['batch'] // row['micro_batches']}, {row['recompute']}"


def choices(rows, limit):
    """Of each model, in eager style and within `limit` bytes (None: those of the device): the predicted choice, the fastest
    measured, and the number of cases."""
    for name in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == name and row["style"] == "eager"]
        ran = [row for row in mine if "seconds" in row and (limit is None or row["used_on_device"] <= limit)]
        fitting = [row for row in mine if (row["fits"] if limit is None else row["high_bytes"] <= limit)]
        if ran and fitting:
            yield name, min(fitting, key=lambda row: row["predicted_s"]), min(ran, key=lambda row: row["measured_s"]), len(mine)


def choice_lines(rows, limit):
    lines, ratios, over = [], [], 0
    for name, chosen, best, count in choices(rows, limit):
        ran = "seconds" in chosen
        exceeds = not ran or (limit is not None and chosen["used_on_device"] > limit)
        over += exceeds
        own = time_text(chosen["measured_s"]) if ran else "out of memory"
        ratios += [] if exceeds else [chosen["measured_s"] / best["measured_s"]]
        lines.append(f"| {name} | {count if limit is None else f'{limit / 2**30:.0f} GiB'} | {short(chosen)} | {own}"
                     f"{' (over the limit)' if ran and exceeds else ''} | {short(best)} | {time_text(best['measured_s'])} | "
                     f"{'-' if exceeds else f'{ratios[-1]:.3f}'} |")
    return lines, ratios, over


def error_text(rows):
    errors = [abs(row["ratio"] - 1) for row in rows]
    return (f"{100 * statistics.fmean(errors):.1f} % in the mean, {100 * statistics.median(errors):.1f} % in the median, "
            f"{100 * max(errors):.1f} % at the most; geometric mean of predicted / measured "
            f"{statistics.geometric_mean(row['ratio'] for row in rows):.3f}")


def read(path, key):
    """The JSON object of a file that has the key."""
    try:
        found = json.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"run_gpu.py: {path}: expected a JSON file with '{key}', found {error}")
    if not isinstance(found, dict) or key not in found:
        sys.exit(f"run_gpu.py: {path}: expected a JSON file with '{key}', found none")
    return found


def joined(cases_file, measured_file):
    given, measured = read(cases_file, "cases"), read(measured_file, "measured")
    by_name = {result["name"]: result for result in measured["measured"]}
    rows = [{**case, **by_name[case["name"]]} for case in given["cases"] if case["name"] in by_name]
    for row in rows:
        if "seconds" in row:
            row["measured_s"] = statistics.median(row["seconds"])
            row["ratio"] = row["predicted_s"] / row["measured_s"]
    return {**{key: measured[key] for key in ("device", "torch")},
            **{key: given[key] for key in ("machine", "predicted_on", "commit")}, "cases": rows}


def device_lines(found):
    rows = found["cases"]
    ran = [row for row in rows if "seconds" in row]
    long = [row for row in ran if row["predicted_s"] / row["micro_batches"] >= LONG_PASS_S]
    brief = [row for row in ran if row not in long]
    memory = [row["predicted_bytes"] / row["used_on_device"] for row in ran if row["used_on_device"] >= MEMORY_OF_NOTE]
    wrong = [row for row in rows if row["fits"] != ("seconds" in row)]
    chosen, ratios, over = choice_lines(rows, None)
    limited = [choice_lines(rows, gib * 2**30) for gib in LIMITS_GIB]
    tight_ratios = [ratio for _, found_ratios, _ in limited for ratio in found_ratios]
    lines = [f"## {found['device']}", "",
             f"PyTorch {found['torch']}; predictions for one device of `{found['machine']}`.", "",
             f"- {len(long)} steps whose micro-batches take {LONG_PASS_S * 1e3:.0f} ms or more by the prediction: |predicted / measured "
             f"- 1| is {error_text(long)}.",
             f"- {len(brief)} steps of shorter micro-batches: {error_text(brief)}.",
             f"- Memory, predicted / measured, of the {len(memory)} steps that take {MEMORY_OF_NOTE / 2**30:.0f} GiB or more: from "
             f"{min(memory):.2f} to {max(memory):.2f}, geometric mean {statistics.geometric_mean(memory):.3f}.",
             f"- Whether it fits was predicted right in {len(rows) - len(wrong)} of {len(rows)} cases"
             + (": " + "; ".join(f"{row['name']} was predicted {'to fit' if row['fits'] else 'not to fit'}" for row in wrong)
                if wrong else "") + ".",
             f"- The choice is within 3 % of the fastest measured in {sum(ratio <= 1.03 for ratio in ratios)} of "
             f"{len(chosen)} models on the whole device"
             f" and in {sum(ratio <= 1.03 for ratio in tight_ratios)} of {sum(len(part[0]) for part in limited)} under limits, "
             f"the worst {max(ratios + tight_ratios):.3f} times; {over + sum(part[2] for part in limited)} choices took more memory than the limit.",
             "", "| model | cases, or limit | chosen | measured | fastest measured | its time | chosen / fastest |",
             "|---|--:|---|--:|---|--:|--:|", *chosen, *[line for part in limited for line in part[0]], "",
             "| case | predicted | measured | ratio | spread | model TFLOP/s | GiB predicted | measured |",
             "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for row in rows:
        sizes = " | ".join("" if size is None else f"{size / 2**30:.1f}"
                           for size in (row["predicted_bytes"], row.get("used_on_device")))
        start = f"| {row['name']} | {time_text(row['predicted_s'])} | "
        if "seconds" in row:
            spread = (max(row["seconds"]) - min(row["seconds"])) / row["measured_s"]
            lines.append(start + f"{time_text(row['measured_s'])} | {row['ratio']:.2f} | {100 * spread:.1f} % | "
                         f"{row['model_flops'] / row['measured_s'] / 1e12:.0f} | {sizes} |")
        else:
            told = "out of memory" if row["error"].startswith("out of memory") else row["error"]
            lines.append(start + f"{told} | | | | {sizes} |")
    return lines


def json_text(found):
    """A line a case, so that changes can be read."""
    rest = [{key: value for key, value in one.items() if key != "cases"} for one in found]
    return "[" + ",\n".join(json.dumps(head)[:-1] + ', "cases": [\n' + ",\n".join(json.dumps(row) for row in one["cases"]) + "\n]}"
                            for head, one in zip(rest, found)) + "]\n"


def page(options):
    if len(options.files) % 2:
        sys.exit(f"run_gpu.py page: expected pairs of CASES.json and MEASURED.json, found {len(options.files)} files")
    found = [joined(*options.files[i:i + 2]) for i in range(0, len(options.files), 2)]
    lines = ["# Predicted and measured on one GPU", "",
             f"{options.date}, `benchmarks/run_gpu.py` and `benchmarks/peers/pytorch_gpu.py`: what runs, and how it is measured, is said "
             f"in these files. Predictions by commit {found[0]['commit']}, from the machine's data sheet and the style's constants, made "
             "before the measurement; nothing is fitted to it. Times are medians of 4 steps.", "",
             "Micro-batches x samples, recompute: of a model's eager cases that are predicted to fit, \"chosen\" is the one that is "
             "predicted to be the fastest; \"fastest measured\" is that of all that ran. Under a limit of memory only cases whose upper "
             "bound is within it may be chosen, and only those that took no more may be the fastest. Memory is all that is taken on the "
             "device; PyTorch's allocator keeps up to 15 GiB there that earlier cases of the process have left in pieces, so small "
             "figures are not compared.", ""]
    for one in found:
        lines += [*device_lines(one), ""]
    out = pathlib.Path(options.out or ROOT / f"build/results/{options.date}-gpu.md")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines[:-1]) + "\n")
    out.with_suffix(".json").write_text(json_text(found))
    print("\n".join(line for line in lines if line.startswith(("##", "- "))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    first = steps.add_parser("predict", help="predictions of all cases, as JSON")
    first.add_argument("--program", default=str(ROOT / "build/tessera"))
    first.add_argument("--gpu", default="dgx-h100", help="a preset or a cluster file; one device of it is taken")
    first.add_argument("--out", required=True)
    last = steps.add_parser("page", help="predictions beside measurements")
    last.add_argument("files", nargs="+", metavar="CASES.json MEASURED.json", help="one pair a device")
    last.add_argument("--date", default=datetime.date.today().isoformat(), help="of the measurement")
    last.add_argument("--out")
    options = parser.parse_args()
    (predict if options.step == "predict" else page)(options)


if __name__ == "__main__":
    main()
