#!/usr/bin/env python3
"""A step of a recommender with a cache of rows, beside the same tables without one: writes build/results/<date>-row-cache-plans.md.

    benchmarks/run_row_cache.py build/tessera              about 3 minutes on two idle cores
    benchmarks/run_row_cache.py build/tessera --quick

The same DLRM is trained on the same clicks (generated, ids by Zipf's law), in float32 with row-wise Adagrad on one thread,
under plans that differ in where the tables rest. The plans take turns, after one run of each that does not count; a ratio is
that of two neighbouring runs. On a machine without an accelerator the device's memory and the host's are one: what a cache of
rows costs beside tables on the host is then its bookkeeping and copies, and what it gains shows beside the disk. Steps are
measured once the largest cache is full, so that rows which come push out rows that changed: a run in which none is written back
is an error.
"""
import argparse
import datetime
import json
import pathlib
import statistics
import sys
import tempfile

import run_peers

ROWS, WIDTH, BATCH = [200000, 100000, 50000, 1000], 64, 1024
WARMUP = 15  # steps until the largest cache is full: 10,000 slots, of which a step fills some 1,200
STORE = 'mesh = {{ dp = 1 }}\nstore = [{{ tensors = "{{,optimizer.*.}}tables.*", tier = "{}"{} }}]\n'
PLANS = {
    "device": "mesh = { dp = 1 }\n",
    "host": STORE.format("host", ""),
    "host, cache of 5 %, lookahead": STORE.format("host", ', cache = { slots = 0.05, policy = "lookahead" }'),
    "host, cache of 5 %, lfu": STORE.format("host", ', cache = { slots = 0.05, policy = "lfu" }'),
    "host, cache of 5 %, lfu, no prefetch": STORE.format("host", ', cache = { slots = 0.05, policy = "lfu", prefetch = false }'),
    "disk": STORE.format("disk", ""),
    "disk, cache of 5 %, lookahead": STORE.format("disk", ', cache = { slots = 0.05, policy = "lookahead" }'),
}


def train(program, folder, name, steps, warmup):
    """Seconds of the steps, and the summary."""
    plan = folder / "plan.toml"
    plan.write_text(PLANS[name])
    run = folder / "run.toml"
    run.write_text(f'model = "dlrm:dense=13,rows={"-".join(map(str, ROWS))},bags=4,width={WIDTH},bottom=64-{WIDTH},top=64-1"\n'
                   f'data = {{ clicks = "{folder}/train.clicks" }}\nbatch = {BATCH}\nsteps = {warmup + steps}\n'
                   f'plan = "{plan}"\nthreads = 1\n[optimizer]\nkind = "rowwise_adagrad"\nlr = 0.01\nmin_lr = 0.01\nwarmup = 0\n'
                   "weight_decay = 0\nclip = 0\n")
    out, _ = run_peers.execute([program, "train", run, "--json"])
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    found = [line["step_time_s"] for line in lines if "step_time_s" in line]
    return statistics.median(found[warmup:]), lines[-1]["summary"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("--quick", action="store_true", help="fewer steps and repeats")
    parser.add_argument("-o", "--out", help="the page; default build/results/<date>-row-cache-plans.md")
    args = parser.parse_args()
    program = pathlib.Path(args.tessera).resolve()
    steps, repeats = (10, 2) if args.quick else (40, 5)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run_peers.execute([program, "data", "generate", "--samples", BATCH * (WARMUP + steps + 1), "--rows", ",".join(map(str, ROWS)), "--bags", 4,
                           "--out", folder / "train.clicks"])
        times, losses, caches = {name: [] for name in PLANS}, {}, {}
        for turn in range(repeats + 1):
            for plan in PLANS:
                seconds, summary = train(program, folder, plan, steps, WARMUP)
                losses[plan], caches[plan] = summary["last_loss"], summary.get("row_caches", [])
                if turn > 0:
                    times[plan].append(seconds)
    if len(set(losses.values())) != 1:
        sys.exit(f"losses differ: {losses}")
    for plan, found in caches.items():
        if found and found[0]["rows_out"] == 0:
            sys.exit(f"{plan}: expected rows that are written back, found none: the cache was never full")
    lines = ["# A recommender's step with a cache of rows", "",
             f"{datetime.date.today()}, `benchmarks/run_row_cache.py{' --quick' if args.quick else ''}`: tables of "
             f"{', '.join(f'{rows:,}' for rows in ROWS)} rows of {WIDTH} floats, bags of up to 4 ids, {BATCH:,} samples a step, one "
             f"thread; medians of {repeats} runs of {steps} steps in turn, and the least and the most. All losses are equal to the "
             "bit.", "",
             "| tables | step | over that of the host without a cache | hit rate of the largest | rows in, out a step |",
             "|---|---|---|---|---|"]
    for plan, seconds in times.items():
        ratios = [one / host for one, host in zip(seconds, times["host"], strict=True)]
        cache = caches[plan][0] if caches[plan] else None
        steps_made = steps + WARMUP
        hits = f"{100 * cache['hit_rate']:.1f} %" if cache else "-"
        moved = f"{cache['rows_in'] / steps_made:.0f}, {cache['rows_out'] / steps_made:.0f}" if cache else "-"
        lines.append(f"| {plan} | {1e3 * statistics.median(seconds):.1f} ms | {statistics.median(ratios):.2f} "
                     f"({min(ratios):.2f} to {max(ratios):.2f}) | {hits} | {moved} |")
    out = pathlib.Path(args.out) if args.out else run_peers.ROOT / f"build/results/{datetime.date.today()}-row-cache-plans.md"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
