#!/usr/bin/env python3
"""Weighs the mechanisms of the search behind `--plan auto`: what does the answer lose, and what does the search save, without one?

Each question is asked once as it is and once for each mechanism without it (TESSERA_SEARCH_WITHOUT, tessera/search/choices/mechanisms.h).
Questions are the cases of run_planners.py and, with --published, groups of published runs as run_published.py samples them. The
page has a row for each mechanism: the geometric mean and the extremes of (step without it / step with it), in how many questions
the answer changed, and the processor seconds that its absence saves. --answers makes a run that was stopped go on.

Usage: run_mechanisms.py PROGRAM [--cases NAME,NAME] [--published ROWS.csv --groups N] [--mechanisms NAME,NAME]
                         [--seconds LIMIT] [--answers FILE] [--out PAGE.md]
Example: benchmarks/run_mechanisms.py build/tessera --answers build/mechanisms.json --out build/results/mechanisms.md
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
import run_published

TABLE = pathlib.Path(__file__).resolve().parent.parent / "tessera/search/choices/mechanisms.cc"
CHANGED = 1e-6  # of the step, or more: the answer changed


def mechanisms():
    """Name -> what it does, as the program's table has them."""
    return dict(re.findall(r'\{Mechanism::k\w+,\s*"(\w+)",\s*"([^"]+)"\}', TABLE.read_text(encoding="utf-8")))


def questions(options):
    """Name and a function that asks the question."""
    wanted = options.cases.split(",") if options.cases else None
    for case in [] if options.cases == "none" else run_planners.CASES:
        if wanted is None or case[0] in wanted:
            yield case[0], lambda case=case: run_planners.ask(options.program, case, "auto", options.seconds)
    if not options.published:
        return
    found = 0
    for group in run_published.spread(run_published.groups_of(options.published)):
        if found == options.groups:
            return
        rows = [run_published.expressed(options.program, options.published, row, options.seconds) for row in group]
        rows = [row for row in rows if row]
        if rows:
            best = min(rows, key=lambda row: row["step"])
            found += 1
            yield best["row"]["row_id"], lambda best=best: run_published.ask(options.program, best, options.seconds)


def row_of(name, does, answers, names):
    """The cells of a mechanism; answers by "question mechanism"."""
    ratios, saved, base = {}, 0, 0
    lost = []
    for question in names:
        plain, without = answers.get(f"{question} "), answers.get(f"{question} {name}")
        if not plain or not without or "step_s" not in plain:
            continue
        base += plain["cpu_s"]
        saved += plain["cpu_s"] - without["cpu_s"]
        if "step_s" in without:
            ratios[question] = without["step_s"] / plain["step_s"]
        else:
            lost.append(question)
    if not ratios:
        return None
    mean = math.exp(sum(math.log(ratio) for ratio in ratios.values()) / len(ratios))
    changed = [question for question, ratio in ratios.items() if abs(ratio - 1) > CHANGED]
    worst, best = max(ratios, key=ratios.get), min(ratios, key=ratios.get)
    cells = [f"`{name}`", does, str(len(ratios) + len(lost)), str(len(changed)), f"{(mean - 1) * 100:+.2f} %",
             f"{(ratios[worst] - 1) * 100:+.2f} % ({worst})" if ratios[worst] > 1 + CHANGED else "none",
             f"{(ratios[best] - 1) * 100:+.2f} % ({best})" if ratios[best] < 1 - CHANGED else "none",
             f"{saved:.0f} of {base:.0f} s" + (f"; no answer: {', '.join(lost)}" if lost else "")]
    return mean, "| " + " | ".join(cells) + " |"


def page(answers, names, known):
    rows = [row for row in (row_of(name, does, answers, names) for name, does in known.items()) if row]
    rows.sort(key=lambda row: -row[0])
    return "\n".join([
        f"{datetime.date.today().isoformat()}, `benchmarks/run_mechanisms.py build/tessera` on {platform.machine()}, {os.cpu_count()} cores.", "",
        "| without | which does | questions | changed | step, mean | slower at most | faster at most | processor seconds saved |",
        "|---" * 8 + "|", *(row for _, row in rows)]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--cases", help="names of run_planners.py, or none")
    parser.add_argument("--published", help="CSV of published runs")
    parser.add_argument("--groups", type=int, default=60)
    parser.add_argument("--mechanisms")
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--answers", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    options.program = str(pathlib.Path(options.program).resolve())
    known = mechanisms()
    chosen = options.mechanisms.split(",") if options.mechanisms else list(known)
    if unknown := [name for name in chosen if name not in known]:
        print(f"run_mechanisms.py: expected mechanisms ({', '.join(known)}), found '{unknown[0]}'", file=sys.stderr)
        return 2
    answers = json.loads(options.answers.read_text(encoding="utf-8")) if options.answers and options.answers.exists() else {}
    names = []
    for question, ask in questions(options):
        names.append(question)
        for name in ["", *chosen]:
            key = f"{question} {name}"
            os.environ["TESSERA_SEARCH_WITHOUT"] = name
            answer = run_planners.remembered(answers, key, ask, options.answers)
            print(f"{question:22} {name:16} {answer.get('step_s', answer.get('failed'))} ({answer['cpu_s']:.1f} s)", flush=True)
    run_planners.give(page(answers, names, known), options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
