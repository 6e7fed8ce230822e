#!/usr/bin/env python3
"""Weighs the constants of the search behind `--plan auto`: what does the answer lose at half and at twice the value of each?

The constants are those of tessera/search/constants.h. The program must be built so that they can be set:
`scripts/configure planning -DTESSERA_TUNABLE_SEARCH=ON`, then `cmake --build build-planning --target program`. Each question is
asked once as it is, and for each constant with its value halved and doubled (TESSERA_SEARCH_CONSTANTS). What is a share or a
factor near 1 is changed in its distance from 1: .9995 becomes .99975 and .999. Whole numbers are rounded up.

Questions are some cases of run_planners.py and small ones. The page has a row for each constant: the geometric mean and the
largest of (step / step with the constant as it is), and the change of the processor seconds of all searches together. --set tries
other values of several constants at once and prints a line for each question. --answers makes a run that was stopped go on.

Usage: run_constants.py PROGRAM [--cases NAME,NAME] [--constants NAME,NAME] [--set NAME=VALUE,NAME=VALUE] [--seconds LIMIT]
                        [--answers FILE] [--out PAGE.md]
Example: benchmarks/run_constants.py build-planning/tessera --answers build/constants.json --out build/constants.md
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import re
import sys

import run_planners

HEADER = pathlib.Path(__file__).resolve().parent.parent / "tessera/search/constants.h"
VARIABLE = "TESSERA_SEARCH_CONSTANTS"
CHANGED = 1e-6  # of the step, or more: the answer changed
CASES = ["resnet-50-8", "gpt-2b-8", "evoformer-8", "mlp-16", "swin-16", "vit-large-16", "mobilenet-8", "alexnet-32x2080ti",
         "bert-large-16", "gpt-2b-4x2080ti", "gpt-10b-64-tight", "two-generations", "mixtral-8x7b-32"]
SMALL = [
    ("small-mlp", "mlp:in=64,hidden=256,out=16,layers=4", "dgx-a100:1", 64, ""),
    ("small-vgg", "vgg:layers=11,form=cifar,width=8,image=32,classes=10,norm=1,ghost=2", "dgx-v100:1", 6, ""),
    ("small-dlrm", "dlrm:dense=3,rows=5000-700-1100,bags=3-1-2,width=16,bottom=32-16,top=16-1", "l4:1", 8, ""),
    ("small-gpt", "gpt:layers=2,hidden=48,heads=6,seq=16,vocab=257", "rtx4090:1", 12, "1495982134 B"),
    ("small-swin", "swin:depths=2-2,hidden=16,heads=2,image=16,patch=2,window=2,classes=5", "l4:1", 8, ""),
]


def constants():
    """Name -> value and sentence, as the header has them."""
    text = HEADER.read_text(encoding="utf-8")
    found = {}
    for comment, name, value in re.findall(r"((?:^// .*\n)+)TESSERA_CONSTANT\(\w+, (k\w+), ([\d.e+-]+)\);", text, re.MULTILINE):
        found[name] = float(value), " ".join(line[3:] for line in comment.splitlines())
    return found


def at(value, times):
    """The value that is tried, so many times as large; of what is near 1 the distance from 1."""
    if .5 <= value < 2 and value != 1:
        return 1 + (value - 1) * times
    return value * times if value < 1 else math.ceil(value * times)


def questions(wanted):
    for case in run_planners.CASES + SMALL:
        if case[0] in (wanted.split(",") if wanted else CASES) or not wanted and case in SMALL:
            yield case


def compared(plain, other):
    """Ratios of steps by question, and the processor seconds of both."""
    ratios = {name: other[name]["step_s"] / plain[name]["step_s"] for name in plain
              if "step_s" in plain[name] and "step_s" in other[name]}
    return ratios, sum(plain[name]["cpu_s"] for name in plain), sum(other[name]["cpu_s"] for name in plain)


def cell(plain, other):
    ratios, before, after = compared(plain, other)
    changed = sum(abs(ratio - 1) > CHANGED for ratio in ratios.values())
    mean = math.exp(sum(math.log(ratio) for ratio in ratios.values()) / len(ratios))
    worst = max(ratios, key=ratios.get)
    most = f"{(ratios[worst] - 1) * 100:+.2f} % ({worst})" if ratios[worst] > 1 + CHANGED else "none"
    lost = [name for name in plain if "step_s" in plain[name] and "step_s" not in other[name]]
    return [f"{changed}", f"{(mean - 1) * 100:+.2f} %", most + (f"; no answer: {', '.join(lost)}" if lost else ""),
            f"{(after / before - 1) * 100:+.0f} %"]


def page(answers, known, names):
    """A table with two rows a constant."""
    plain = {name: answers[f"{name} "] for name in names}
    lines = [f"{datetime.date.today().isoformat()}, `benchmarks/run_constants.py` on {platform.machine()}, {os.cpu_count()} cores, "
             f"{len(names)} questions, {sum(one['cpu_s'] for one in plain.values()):.0f} processor seconds: {', '.join(names)}.", "",
             "| constant | value | tried | changed | step, mean | slower at most | processor seconds |", "|---" * 7 + "|"]
    for constant, (value, _) in known.items():
        for times in (.5, 2):
            tried = f"{constant}={at(value, times):g}"
            if all(f"{name} {tried}" in answers for name in names):
                cells = cell(plain, {name: answers[f"{name} {tried}"] for name in names})
                lines.append(f"| `{constant}` | {value:g} | {at(value, times):g} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--cases", help="names of run_planners.py and of the small questions")
    parser.add_argument("--constants")
    parser.add_argument("--set", dest="values", help="NAME=VALUE,NAME=VALUE: tries these values alone")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--answers", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    program = str(pathlib.Path(options.program).resolve())
    known = constants()
    chosen = options.constants.split(",") if options.constants else list(known)
    if unknown := [name for name in chosen if name not in known]:
        print(f"run_constants.py: expected constants ({', '.join(known)}), found '{unknown[0]}'", file=sys.stderr)
        return 2
    answers = json.loads(options.answers.read_text(encoding="utf-8")) if options.answers and options.answers.exists() else {}
    asked = list(questions(options.cases))
    tried = [f"{name}={at(known[name][0], times):g}" for name in chosen for times in (.5, 2)] if not options.values else [options.values]
    for values in ["", *tried]:
        for case in asked:
            key = f"{case[0]} {values}"
            os.environ[VARIABLE] = values
            run_planners.remembered(answers, key, lambda case=case: run_planners.ask(program, case, "auto", options.seconds), options.answers)
            answer, plain = answers[key], answers[f"{case[0]} "]
            ratio = f"{answer['step_s'] / plain['step_s']:.5f}" if "step_s" in answer and "step_s" in plain else "-"
            print(f"{case[0]:20} {values:32} {answer.get('step_s', answer.get('failed'))} {ratio} ({answer['cpu_s']:.1f} s, "
                  f"{answer['cpu_s'] / max(plain['cpu_s'], .01):.2f})", flush=True)
    names = [case[0] for case in asked]
    if options.values:
        print(" | ".join(cell({name: answers[f"{name} "] for name in names}, {name: answers[f"{name} {options.values}"] for name in names})))
        return 0
    run_planners.give(page(answers, known, names), options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
