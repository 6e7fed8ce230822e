#!/usr/bin/env bash
# One would expect that an integer program does not depend on the unit of its costs. CBC takes an
# answer that is better by less than 1e-5 for no better, whatever the costs are, and says "Optimal",
# which gaps of zero (gapAbs, gapRel) do not change. Kernels take microseconds, so a planner that
# counts in seconds is all below that: of 14 tensors of which half may stay in memory, CBC chooses
# ones that cost 49 microseconds, and the optimum costs 45. In microseconds, or with its setting
# "increment" at 1e-9, CBC finds it, and HiGHS does in either unit.
#
# Needs: Linux, bash, python3 (3.10 or newer). Downloads about 50 MB, CBC with PuLP among them.
# About a quarter of a minute.
# Seen:
#   every choice tried:            45 us
#   CBC, in seconds:               49 us, Optimal
#   CBC, in seconds, gaps of 0:    49 us, Optimal
#   CBC, in seconds, increment:    45 us, Optimal
#   CBC, in microseconds:          45 us, Optimal
#   HiGHS, in seconds:             45 us, Optimal
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.2.6 pulp==3.3.2 highspy==1.15.1

cat > "$work/ask.py" <<'PYTHON'
import os
import subprocess
import sys
import warnings
import highspy
import pulp

warnings.simplefilter("ignore")
os.chdir(sys.argv[1])  # where CBC writes its files
sizes = [28, 56, 24, 36, 27, 51, 48, 50, 44, 33, 26, 51, 21, 44]
microseconds = [14, 1, 22, 28, 2, 17, 12, 13, 7, 15, 8, 14, 2, 17]
room, seconds, n = sum(sizes) // 2, 1e-6, len(sizes)


def cost(kept):
    if sum(size for size, keep in zip(sizes, kept) if keep) > room:
        sys.exit("expected an answer that fits")
    return sum(time for time, keep in zip(microseconds, kept) if not keep)


def cbc(unit, **settings):
    program = pulp.LpProblem("memory", pulp.LpMinimize)
    kept = [pulp.LpVariable(f"keep{i}", cat="Binary") for i in range(n)]
    program += pulp.lpSum(unit * microseconds[i] * (1 - kept[i]) for i in range(n))
    program += pulp.lpSum(sizes[i] * kept[i] for i in range(n)) <= room
    program.solve(pulp.PULP_CBC_CMD(msg=False, **settings))
    return cost([round(x.value()) for x in kept]), pulp.LpStatus[program.status]


def highs(unit):
    program = highspy.Highs()
    program.setOptionValue("output_flag", False)
    kept = [program.addBinary(obj=-unit * microseconds[i]) for i in range(n)]
    program.addConstr(sum(sizes[i] * kept[i] for i in range(n)) <= room)
    program.run()
    return (cost([round(x) for x in program.getSolution().col_value]),
            program.modelStatusToString(program.getModelStatus()))


banner = subprocess.run([pulp.PULP_CBC_CMD().path, "-quit"], capture_output=True, text=True).stdout.splitlines()
print(f"PuLP {pulp.__version__},", next(line for line in banner if line.startswith("Version")).strip() + " of CBC,",
      "HiGHS", highspy.Highs().version())
best = min(sum(time for i, time in enumerate(microseconds) if not chosen >> i & 1) for chosen in range(1 << n)
           if sum(size for i, size in enumerate(sizes) if chosen >> i & 1) <= room)
print(f"  every choice tried:            {best} us")
found = {
    "CBC, in seconds:": cbc(seconds),
    "CBC, in seconds, gaps of 0:": cbc(seconds, gapAbs=0, gapRel=0),
    "CBC, in seconds, increment:": cbc(seconds, options=["increment 1e-9"]),
    "CBC, in microseconds:": cbc(1),
    "HiGHS, in seconds:": highs(seconds),
}
for name, (answer, status) in found.items():
    print(f"  {name:30s} {answer} us, {status}")
if best != 45 or [answer for answer, _ in found.values()] != [49, 49, 45, 45, 45]:
    sys.exit("changed: expected 49 of CBC in seconds and 45 elsewhere")
if any(status != "Optimal" for _, status in found.values()):
    sys.exit('changed: expected "Optimal" of each')
print("as found: what CBC calls optimal depends on the unit of the costs.")
PYTHON
"$work/venv/bin/python" "$work/ask.py" "$work"
