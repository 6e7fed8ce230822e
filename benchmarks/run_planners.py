#!/usr/bin/env python3
"""Compares all planners under the simulator, on models of all families and clusters of 8 to 16,384 devices.

For each case and planner: the simulated step of the answer, its memory, the processor seconds and the memory that the
search took. Writes a page of results with the date and the machine.

With --answers, what was answered before is read from a file and not asked again, so that a long run may be stopped and
planners may be asked one after the other; the page has what the file has.

Usage: run_planners.py PROGRAM [--out PAGE.md] [--cases NAME,NAME] [--planners NAME,NAME] [--seconds LIMIT] [--answers FILE]
Example: benchmarks/run_planners.py build/tessera --out build/planners.md
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time

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
    ("gpt-125m-8x2080ti", "gpt:layers=12,hidden=768,heads=12,seq=1024,vocab=50304", "2080ti:1", 32, ""),
    ("gpt-350m-1-tight", "gpt:layers=24,hidden=1024,heads=16,seq=1024,vocab=50304", "gh200:1", 16, "8 GB"),
    ("llama-70b-long-64", LLAMA_70B.replace("seq=8192", "seq=65536"), "dgx-h100:8", 16, ""),
    ("llama-8b-512", LLAMA_8B, "dgx-h100:64", 1024, ""),
    ("gpt-1t-3072", "gpt:layers=128,hidden=25600,heads=160,seq=2048,vocab=51200", "dgx-a100:384", 3072, ""),
    ("nemotron-h-32", "nemotron_h:pattern=M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", "dgx-h100:4", 64, ""),
    ("vit-large-16", "vit:layers=24,hidden=1024,heads=16", "dgx-a100:2", 512, ""),
    ("swin-8-tight", "swin", "dgx-a100:1", 256, "6 GB"),
    ("evoformer-64", "evoformer:layers=48,hidden=256,pair=128,heads=8,pair_heads=4,sequences=128,residues=256", "dgx-a100:8", 64, ""),
    ("t5-3b-16-tight", "t5:layers=24,hidden=1024,heads=32,head_dim=128,ffn=16384,seq=512,vocab=32128", "dgx-a100:2", 128, "16 GB"),
    ("resnet-152-64", "resnet:layers=152", "dgx-a100:8", 2048, ""),
    ("wide-resnet-8", "resnet:layers=50,width=256", "dgx-v100:1", 128, ""),
    ("vgg-16-64x2080ti", "vgg:layers=16", "2080ti:8", 64, ""),
    ("alexnet-32x2080ti", "alexnet", "2080ti:4", 512, ""),
    ("mobilenet-8", "mobilenet_v2", "dgx-a100:1", 1024, ""),
    ("cosmoflow-512-32", "cosmoflow:width=512", "dgx-v100-16:4", 8, ""),
    ("unet3d-256-16", "unet3d:width=256", "dgx-v100-16:2", 8, ""),
    ("bert-base-two-sites", "bert:layers=12,hidden=768,heads=12,seq=512,vocab=30522", "examples/clusters/two_sites.toml", 512, ""),
    ("mixtral-two-generations", MIXTRAL_SMALL, "examples/clusters/two_generations.toml", 128, ""),
    ("mlp-16", "mlp:in=4096,hidden=16384,out=1024,layers=12", "dgx-a100:2", 4096, ""),
]


def planners(program):
    listing = subprocess.run([program, "plan", "--help"], capture_output=True, text=True, check=True).stdout
    known = ["auto", "megatron_grid", "recipes", "alpa", "galvatron", "rannc", "terapipe"]
    return [name for name in known if name in listing]


def processor_seconds(pid):
    """Of the process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(program, case, planner, seconds):
    """The answer as {"step_s", "plan", "cpu_s", "peak_bytes"} or {"failed": one line}."""
    _, model, cluster, batch, limit = case
    command = [program, "plan", model, "--cluster", cluster, "--batch", str(batch), "--precision", "bfloat16",
               "--style", "tessera", "--constants", "none", "--planner", planner, "--json"]
    if limit:
        command += ["--memory-limit", limit]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, cwd=ROOT,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (2 * seconds, 2 * seconds)))
        stopped = False
        while True:
            done, status, used = os.wait4(process.pid, os.WNOHANG)
            if done:
                break
            if not stopped and processor_seconds(process.pid) > seconds:
                process.send_signal(signal.SIGINT)  # it answers with the best so far
                stopped = True
            time.sleep(0.2)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        text, message = out.read(), errors.read().strip().splitlines()
    row = {"stopped": stopped} if stopped else {}
    row |= {"cpu_s": used.ru_utime + used.ru_stime, "peak_bytes": used.ru_maxrss * 1024}
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
             "bfloat16. Steps are simulated; processor seconds and memory are those of the search itself. Stopped: it was "
             "interrupted after its time, and what stands there is the best so far.", "",
             "| case | devices' memory | " + " | ".join(names) + " | best of the others / auto |",
             "|---" * (len(names) + 3) + "|"]
    for case, answers in rows:
        cells = []
        for name in names:
            answer = answers[name]
            what = time_text(answer["step_s"]) if "step_s" in answer else answer["failed"].split(":")[-1].strip()[:40]
            cells.append(f"{what} ({answer['cpu_s']:.1f} s{', stopped' if answer.get('stopped') else ''})")
        others = [answers[name]["step_s"] for name in names if name != "auto" and "step_s" in answers[name]]
        own = answers.get("auto", {}).get("step_s")
        ratio = f"{min(others) / own:.3f}" if others and own else "-"
        lines.append(f"| {case[0]} | {case[4] or 'own'} | " + " | ".join(cells) + f" | {ratio} |")
    lines += ["", "What the cases are:", "", "| case | model | cluster | batch |", "|---|---|---|---|"]
    lines += [f"| {name} | `{model}` | `{cluster}` | {batch} |" for (name, model, cluster, batch, _), _ in rows]
    lines += ["", "The answers of `auto`:", ""]
    lines += [f"- {case[0]}: `{answers['auto'].get('plan', '')}`" for case, answers in rows if "auto" in answers]
    return "\n".join(lines) + "\n"


def remembered(answers, key, ask, file):
    """The answer to a question: from `answers`, or by ask(), and then written to the file too (None: to none)."""
    if key not in answers:
        answers[key] = ask()
        if file:
            file.write_text(json.dumps(answers, indent=1), encoding="utf-8")
    return answers[key]


def give(text, out):
    """Prints a page, and writes it to the file `out` (None: to none)."""
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    print(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--out")
    parser.add_argument("--cases")
    parser.add_argument("--planners")
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--answers", type=pathlib.Path, help="JSON file of answers: read, and added to")
    options = parser.parse_args()
    known = json.loads(options.answers.read_text()) if options.answers and options.answers.exists() else {}
    program = str(pathlib.Path(options.program).resolve())
    names = options.planners.split(",") if options.planners else planners(program)
    wanted = options.cases.split(",") if options.cases else [case[0] for case in CASES]
    rows = []
    for case in CASES:
        if case[0] not in wanted:
            continue
        answers = {}
        for name in names:
            key = f"{case[0]} {name}"
            answer = answers[name] = known[key] if key in known else ask(program, case, name, options.seconds)
            known[key] = answer
            if options.answers:
                options.answers.write_text(json.dumps(known, indent=1))
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
