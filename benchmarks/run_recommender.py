#!/usr/bin/env python3
"""A step of a recommender, Tessera beside PyTorch: writes build/results/<date>-recommender.md.

    benchmarks/run_recommender.py build/tessera              about 3 minutes on two idle cores
    benchmarks/run_recommender.py build/tessera --quick

Both train the same DLRM on the same clicks (generated, Zipf's law), in float32, with one thread a rank: Tessera under
`serial` and `tables(2)` with Adagrad by rows, PyTorch with DistributedDataParallel for the dense layers and tables on
both ranks by all-to-all, with sparse Adagrad (benchmarks/peers/pytorch_dlrm.py). The programs take turns, after one run
of each that does not count; a repeat gives one ratio of two neighbouring runs.
"""
import argparse
import datetime
import json
import pathlib
import statistics
import sys
import tempfile

import run_peers

PEER = run_peers.ROOT / "benchmarks/peers/pytorch_dlrm.py"
CASES = {  # rows of the tables, ids a bag, width, layers, batch
    "26 small tables": ([10000, 3000, 10000, 10000, 300, 24, 8000, 600, 3, 10000, 5000, 10000, 3000, 26, 8000, 10000, 10,
                         4000, 2000, 4, 10000, 18, 15, 10000, 100, 10000], 1, 16, "64-16", "64-32-1", 512),
    "8 large tables": ([500000, 400000, 300000, 200000, 200000, 100000, 100000, 50000], 10, 64, "512-256-64", "512-256-1",
                       2048),
}
SIMILAR_LOSS = 0.02  # nats: other initial values


def tessera_steps(program, folder, case, ranks, steps, warmup):
    rows, bag, width, bottom, top, batch = CASES[case]
    model = (f"dlrm:dense=13,rows={'-'.join(map(str, rows))},bags={bag},width={width},bottom={bottom},top={top}")
    plan = "serial" if ranks == 1 else f"tables({ranks})"
    run = folder / "run.toml"
    run.write_text(f'model = "{model}"\ndata = {{ clicks = "{folder}/{case}.clicks" }}\nbatch = {batch}\n'
                   f'steps = {warmup + steps}\nplan = "{plan}"\nthreads = 1\n[optimizer]\nkind = "adagrad"\nlr = 0.01\n'
                   "min_lr = 0.01\nwarmup = 0\nweight_decay = 0\nclip = 0\n")
    out, _ = run_peers.execute([program, "train", run, "--json"])
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    found = [line for line in lines if "step" in line and "step_time_s" in line]
    return [line["step_time_s"] for line in found][warmup:], found[-1]["loss"]


def peer_steps(python, folder, case, ranks, steps, warmup):
    rows, _, width, bottom, top, batch = CASES[case]
    out, _ = run_peers.execute([python, PEER, "--arrays", folder / case, "--rows", "-".join(map(str, rows)), "--width", width,
                                "--bottom", bottom, "--top", top, "--batch", batch, "--ranks", ranks, "--steps", steps,
                                "--warmup", warmup])
    report = json.loads(out.splitlines()[-1])
    return report["step_time_s"], report["loss"], report["torch"]


def make_data(program, folder, case, samples):
    rows, bag, *_ = CASES[case]
    clicks = folder / f"{case}.clicks"
    run_peers.execute([program, "data", "generate", "--samples", samples, "--rows", ",".join(map(str, rows)), "--bags",
                       bag, "--out", clicks])
    run_peers.execute([program, "data", "arrays", clicks, "--out", folder / case])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("--python", default=str(run_peers.ROOT / ".venv/bin/python"))
    parser.add_argument("--quick", action="store_true", help="fewer steps and repeats")
    parser.add_argument("-o", "--out", help="the page; default build/results/<date>-recommender.md")
    args = parser.parse_args()
    program = pathlib.Path(args.tessera).resolve()
    warmup, steps, repeats = (3, 10, 2) if args.quick else (5, 40, 5)
    table, torch, clock = [], "", run_peers.Clock()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for case, (_, _, _, _, _, batch) in CASES.items():
            make_data(program, folder, case, (warmup + steps) * batch)
            for ranks in (1, 2):
                ours, theirs, ratios = [], [], []
                for repeat in range(1 + repeats):
                    mine, loss = tessera_steps(program, folder, case, ranks, steps, warmup)
                    peer, peer_loss, torch = peer_steps(args.python, folder, case, ranks, steps, warmup)
                    if abs(loss - peer_loss) > SIMILAR_LOSS:
                        sys.exit(f"{case}, {ranks} ranks: expected like losses, found {loss:.4f} and {peer_loss:.4f}")
                    if repeat > 0:
                        ours.append(statistics.median(mine))
                        theirs.append(statistics.median(peer))
                        ratios.append(theirs[-1] / ours[-1])
                row = (f"| {case} | {ranks} | {statistics.median(ours) * 1e3:.2f} ms | {statistics.median(theirs) * 1e3:.2f} ms | "
                       f"{statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} |")
                print(row, flush=True)
                table.append(row)
    cases = "\n".join(f"- {case}: {len(rows)} tables of {sum(rows):,} rows by {width}, {bag} id(s) a bag, "
                      f"layers {bottom} and {top}, batch {batch:,}" for case, (rows, bag, width, bottom, top, batch) in CASES.items())
    page = pathlib.Path(args.out or run_peers.ROOT / f"build/results/{datetime.date.today()}-recommender.md")
    processor = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f"# A step of a recommender, Tessera beside PyTorch\n\n`benchmarks/run_recommender.py build/tessera"
                    f"{' --quick' if args.quick else ''}`, {datetime.date.today()}, {processor}, 2 cores; PyTorch {torch}; other "
                    f"programs took {clock.share_of_others():.0%} of the processors. Medians of {repeats} runs of {steps} steps each; "
                    "the ratio is PyTorch's time over ours, of neighbouring runs. Losses agree to "
                    f"{SIMILAR_LOSS} nats.\n\n{cases}\n\n| case | ranks | Tessera | PyTorch | ratio | from, to |\n"
                    "|---|--:|--:|--:|--:|---|\n" + "\n".join(table) + "\n", encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
