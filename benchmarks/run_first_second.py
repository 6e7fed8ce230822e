#!/usr/bin/env python3
"""How near the best plan after one processor second (plan --seconds 1) is to the answer of the whole search.

The program's steady clock is made to count the processor time of its process, by a small library that is loaded before
all others, so that what else the machine does changes no answer. Needs a C compiler. Prints a table of Markdown.

With --answers, what was answered before is read from a file and not asked again.

Usage: run_first_second.py PROGRAM [--cases NAME,NAME] [--answers FILE] [--seconds S] [--out PAGE.md]
Example: benchmarks/run_first_second.py build/tessera --out build/first_second.md
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

from run_planners import CASES, ROOT, give, remembered, time_text

CLOCK = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec* time) {
  return (int)syscall(SYS_clock_gettime, id == CLOCK_MONOTONIC ? CLOCK_PROCESS_CPUTIME_ID : id, time);
}
"""
NEAR = 1.03


def ask(program, case, clock, seconds):
    """The answer after so many processor seconds (None: of the whole search)."""
    _, model, cluster, batch, limit = case
    command = [program, "plan", model, "--cluster", cluster, "--batch", str(batch), "--precision", "bfloat16",
               "--style", "tessera", "--constants", "none", "--json"]
    command += ["--memory-limit", limit] if limit else []
    command += ["--seconds", str(seconds)] if seconds else []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False,
                          env=os.environ | ({"LD_PRELOAD": clock} if seconds else {}))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    answer = json.loads(done.stdout) if done.stdout.strip() else {}
    if not answer.get("found"):
        return {"cpu_s": used, "failed": answer.get("reason", done.stderr.strip()[-200:])}
    programs = sum("step_time_s" in one for one in answer["simulated"])
    return {"cpu_s": used, "step_s": answer["best"]["step_time_s"], "plan": answer["best"]["choice"],
            "programs": programs, "ended": answer["ended"]}


def row(case, first, whole):
    cells = [case[0]]
    for one in (first, whole):
        cells.append(time_text(one["step_s"]) if "step_s" in one else "none")
        cells += [f"{one['cpu_s']:.1f} s", str(one.get("programs", 0))]
    cells.append(f"{first['step_s'] / whole['step_s']:.3f}" if "step_s" in first and "step_s" in whole else "-")
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--cases")
    parser.add_argument("--answers", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    program = str(pathlib.Path(options.program).resolve())
    answers = json.loads(options.answers.read_text()) if options.answers and options.answers.exists() else {}
    wanted = options.cases.split(",") if options.cases else [case[0] for case in CASES]
    with tempfile.TemporaryDirectory() as folder:
        source, clock = pathlib.Path(folder, "clock.c"), str(pathlib.Path(folder, "clock.so"))
        source.write_text(CLOCK, encoding="utf-8")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", clock, str(source)], check=True)
        rows, near = [], 0
        for case in CASES:
            if case[0] not in wanted:
                continue
            first, whole = (remembered(answers, f"{case[0]} {name}", lambda s=s: ask(program, case, clock, s),
                                       options.answers)
                            for name, s in ((f"first {options.seconds:g} s", options.seconds), ("whole", None)))
            near += "step_s" in first and "step_s" in whole and first["step_s"] <= NEAR * whole["step_s"]
            rows.append(row(case, first, whole))
            print(rows[-1], flush=True)
    head = [f"| case | after {options.seconds:g} s | took | programs | whole search | took | programs | first / whole |",
            "|---|--:|--:|--:|--:|--:|--:|--:|"]
    give("\n".join(head + rows + ["", f"{near} of {len(rows)} are within 3 %."]) + "\n", options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
