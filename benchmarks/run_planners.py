#!/usr/bin/env python3
"""Compares all planners under the simulator, on models of all families and clusters of 8 to 16,384 devices.

For each case and planner: the simulated step of the answer, its memory, the processor seconds and the memory that the
search took. Writes a page of results with the date and the machine.

Usage: run_planners.py PROGRAM [--out PAGE.md] [--cases NAME,NAME] [--planners NAME,NAME] [--seconds LIMIT]
Example: benchmarks/run_planners.py build/tessera --out docs/results/2026-11-23-planners.md
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
GPT_175B = "gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=51200"
GPT_10B = "gpt:layers=48,hidden=4096,heads=32,seq=2048,vocab=51200"
GPT_2B = "gpt:layers=32,hidden=2560,heads=32,seq=1024,vocab=51200"
LLAMA_405B = "llama:layers=126,hidden=16384,heads=128,kv_heads=8,ffn=53248,seq=8192,vocab=128256"
LLAMA_8B = "llama:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,seq=8192,vocab=128256"
LLAMA_70B = "llama:layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672,seq=8192,vocab=128256"
MIXTRAL = "mixtral:layers=56,hidden=6144,heads=48,kv_heads=8,ffn=16384,experts=8,seq=4096,vocab=32768"
MIXTRAL_SMALL = "mixtral:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,experts=8,seq=4096,vocab=32000"
T5_11B = "t5:layers=24,hidden=1024,heads=128,head_dim=128,ffn=65536,seq=512,vocab=32128"
BERT = "bert:layers=24,hidden=1024,heads=16,seq=512,vocab=30522"
# name, model, cluster, batch, memory limit of a device ("": the device's own)
CASES = [
    ("gpt-175b-1024", GPT_175B, "dgx-a100:128", 1536, ""),
    ("gpt-175b-512", GPT_175B, "dgx-a100:64", 768, ""),
    ("gpt-10b-64", GPT_10B, "dgx-a100:8", 256, ""),
    ("gpt-10b-64-tight", GPT_10B, "dgx-a100:8", 256, "24 GB"),
    ("gpt-2b-8", GPT_2B, "dgx-a100:1", 64, ""),
    ("gpt-2b-16-v100", GPT_2B, "dgx-v100-16:2", 64, ""),
    ("llama-405b-16384", LLAMA_405B, "dgx-h100:2048", 2048, ""),
    ("llama-70b-256", LLAMA_70B, "dgx-h100:32", 256, ""),
    ("llama-8b-8", LLAMA_8B, "dgx-h100:1", 32, ""),
    ("llama-8b-8-tight", LLAMA_8B, "dgx-h100:1", 32, "40 GB"),
    ("mixtral-8x22b-256", MIXTRAL, "dgx-h100:32", 256, ""),
    ("mixtral-8x7b-32", MIXTRAL_SMALL, "dgx-h100:4", 64, ""),
    ("t5-11b-64", T5_11B, "dgx-a100:8", 512, ""),
    ("bert-large-16", BERT, "dgx-v100:2", 256, ""),
    ("swin-16", "swin", "dgx-a100:2", 256, ""),
    ("resnet-50-8", "resnet:layers=50", "dgx-a100:1", 256, ""),
    ("evoformer-8", "evoformer:layers=12", "dgx-a100:1", 16, ""),
    ("two-generations", GPT_10B, "examples/clusters/two_generations.toml", 192, ""),
    ("two-sites", GPT_10B, "examples/clusters/two_sites.toml", 512, ""),
    ("gpt-2b-4x2080ti", "gpt:layers=24,hidden=1024,heads=16,seq=1024,vocab=51200", "2080ti:4", 32, ""),
]


def planners(program):
    listing = subprocess.run([program, "plan", "--help"], capture_output=True, text=True, check=True).stdout
    known = ["auto", "megatron_grid", "alpa", "galvatron", "rannc", "terapipe"]
    return [name for name in known if name in listing]


def ask(program, case, planner, seconds):
    """The answer as {"step_s", "plan", "cpu_s", "peak_bytes"} or {"failed": one line}."""
    _, model, cluster, batch, limit = case
    command = [program, "plan", model, "--cluster", cluster, "--batch", str(batch), "--precision", "bfloat16",
               "--planner", planner, "--json"]
    if limit:
        command += ["--memory-limit", limit]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, cwd=ROOT,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds)))
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        text, message = out.read(), errors.read().strip().splitlines()
    row = {"cpu_s": used.ru_utime + used.ru_stime, "peak_bytes": used.ru_maxrss * 1024}
    if process.returncode < 0:
        return row | {"failed": f"more than {seconds} s"}
    if process.returncode not in (0, 1):
        return row | {"failed": message[-1] if message else f"exit code {process.returncode}"}
    answer = json.loads(text) if text.strip() else {}
    if not answer.get("found"):
        return row | {"failed": "nothing fits"}
    return row | {"step_s": answer["best"]["step_time_s"], "plan": answer["best"]["choice"]}


def time_text(seconds):
    return f"{seconds:.4g} s" if seconds >= 1 else f"{seconds * 1e3:.4g} ms"


def page(rows, names, command):
    lines = ["# Planners compared under the simulator", "",
             f"{datetime.date.today().isoformat()}, `{command}` on {platform.machine()}, {os.cpu_count()} cores; "
             "bfloat16. Steps are simulated; processor seconds and memory are those of the search itself.", "",
             "| case | devices' memory | " + " | ".join(names) + " | best of the others / auto |",
             "|---" * (len(names) + 3) + "|"]
    for case, answers in rows:
        cells = []
        for name in names:
            answer = answers[name]
            what = time_text(answer["step_s"]) if "step_s" in answer else answer["failed"].split(":")[-1].strip()[:40]
            cells.append(f"{what} ({answer['cpu_s']:.1f} s)")
        others = [answers[name]["step_s"] for name in names if name != "auto" and "step_s" in answers[name]]
        own = answers.get("auto", {}).get("step_s")
        ratio = f"{min(others) / own:.3f}" if others and own else "-"
        lines.append(f"| {case[0]} | {case[4] or 'own'} | " + " | ".join(cells) + f" | {ratio} |")
    lines += ["", "What the cases are:", "", "| case | model | cluster | batch |", "|---|---|---|---|"]
    lines += [f"| {name} | `{model}` | `{cluster}` | {batch} |" for (name, model, cluster, batch, _), _ in rows]
    lines += ["", "The answers of `auto`:", ""]
    lines += [f"- {case[0]}: `{answers['auto'].get('plan', '')}`" for case, answers in rows if "auto" in answers]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--out")
    parser.add_argument("--cases")
    parser.add_argument("--planners")
    parser.add_argument("--seconds", type=int, default=120)
    options = parser.parse_args()
    program = str(pathlib.Path(options.program).resolve())
    names = options.planners.split(",") if options.planners else planners(program)
    wanted = options.cases.split(",") if options.cases else [case[0] for case in CASES]
    rows = []
    for case in CASES:
        if case[0] not in wanted:
            continue
        answers = {}
        for name in names:
            answers[name] = ask(program, case, name, options.seconds)
            answer = answers[name]
            what = time_text(answer["step_s"]) if "step_s" in answer else answer["failed"]
            print(f"{case[0]:18} {name:14} {what}  ({answer['cpu_s']:.1f} s, {answer['peak_bytes'] / 1e6:.0f} MB) "
                  f"{answer.get('plan', '')}", flush=True)
        rows.append((case, answers))
        if options.out:
            command = "benchmarks/run_planners.py build/tessera"
            pathlib.Path(options.out).write_text(page(rows, names, command))
    return 0


if __name__ == "__main__":
    sys.exit(main())
