#!/usr/bin/env python3
"""Simulated strong scaling of networks that are cut in space, beside the published performance model.

    benchmarks/run_spatial.py build/tessera --out RESULTS.md

Each row is one `tessera simulate` on examples/clusters/lassen.toml (512 to 2,048 V100 with 16 GB) at batch 64. Times are
those of a rank that has neighbours on both sides: computation, halos, all-reduces, and what of the last two the
computation waits for.

The published model (docs/strategies/spatial.md section 10) takes the times of convolutions from measurements and adds
messages and all-reduces by formula. Here the simulator's times of computation take the place of the measurements; so the
comparison tests the formulas of communication, and how computation and communication are laid beside each other. It is
made twice, each time with one network on both sides: the cluster's own, and the one that the published constants describe.
"""
import argparse
import datetime
import json
import math
import pathlib
import subprocess
import sys
import tempfile

CLUSTER = "examples/clusters/lassen.toml"
BATCH = 64
# Of docs/strategies/spatial.md section 10: seconds a message and a byte, between nodes and inside one; seconds a FLOP.
BETWEEN, GAMMA = (1.2e-6, 3.893e-11), 1.075e-13
# The same of the cluster's network: four devices share two cards of 12.5 GB/s.
NETWORK = (12e-6, 4 / 25e9)
# The cluster's lines on its network, and those of the published one: a card for each device.
OWN_CARDS = 'count = 2\nrate = "100 Gb/s"\nlatency = "12 us"'
PUBLISHED_CARDS = 'count = 4\nrate = "25.687 GB/s"\nlatency = "1.2 us"'
COSMOFLOW, UNET = "cosmoflow:width=512", "unet3d:width=256"
CASES = [
    (COSMOFLOW, 512, "spatial(d=8,dp=64{})"),
    (COSMOFLOW, 1024, "spatial(d=16,dp=64{})"),
    (COSMOFLOW, 1024, "spatial(d=8,h=2,dp=64{})"),
    (COSMOFLOW, 2048, "spatial(d=16,h=2,dp=64{})"),
    (COSMOFLOW, 2048, "spatial(d=8,h=2,w=2,dp=64{})"),
    (UNET, 512, "spatial(d=8,dp=64{})"),
    (UNET, 1024, "spatial(d=8,h=2,dp=64{})"),
    (UNET, 2048, "spatial(d=8,h=2,w=2,dp=64{})"),
]


PAGE = """Batch 64, float32, on [Lassen's nodes](../../examples/clusters/lassen.toml); nothing was measured. Computation, halos and
all-reduces are those of a rank with neighbours on both sides, added up; "waited for" is what of halos and all-reduces the computation
waits for, mean over ranks. `tiles=4` computes the interior while the halo arrives ([adr 0058](../adr/0058-steps-that-read-through-windows.md)).

The published model ([spatial](../strategies/spatial.md) section 10) adds messages and all-reduces by formula to times of computation, which
here are the simulator's. It is compared twice, each time with one network on both sides: the cluster's (two cards of 12.5 GB/s for four
devices, 12 us), and the one that the model's constants describe (25.7 GB/s for each device, 1.2 us). It assumes that gradients are summed
entirely beside the backward pass, that an exchange costs its bytes and starts, and that tiles hide it entirely. With one network on both
sides it holds within 10 % in every row. Where ours is longer, the gradients of the first layers come last and are waited for, and
kernels of small tiles and exchanges take time to start; where it is shorter, halos inside a node go over NVLink, which the model
counts at the network's rate.
""".strip()


def simulate(program, model, plan, cards):
    with tempfile.TemporaryDirectory() as folder:
        trace, cluster = pathlib.Path(folder) / "trace.json", pathlib.Path(folder) / "cluster.toml"
        text = pathlib.Path(CLUSTER).read_text()
        if OWN_CARDS not in text:
            raise SystemExit(f"{CLUSTER}: expected the lines of its cards to be {OWN_CARDS!r}")
        cluster.write_text(text.replace(OWN_CARDS, cards))
        answer = subprocess.run(
            [program, "simulate", model, "--plan", plan, "--cluster", str(cluster), "--batch", str(BATCH), "--style", "tessera",
             "--precision", "float32", "--trace", str(trace), "--json"],
            capture_output=True, text=True, check=False)
        if not answer.stdout:
            raise SystemExit(f"{model} {plan}: {answer.stderr}")
        events = json.loads(trace.read_text())["traceEvents"]
    return json.loads(answer.stdout), [event for event in events if event.get("ph") == "X"]


def inner_rank(events):
    """The process of the trace that computes and sends the most halo bytes: one with neighbours on both sides."""
    sent = {}
    for event in events:
        if event["cat"].startswith("exchange"):
            sent[event["pid"]] = sent.get(event["pid"], 0) + event["args"].get("bytes", 0)
    return max(sorted(sent), key=sent.get)


def message(bytes_, link):
    return link[0] + bytes_ * link[1]


def all_reduce(bytes_, ranks, link):
    share = (ranks - 1) / ranks
    return 2 * math.log2(ranks) * link[0] + share * (2 * bytes_ * link[1] + bytes_ / 4 * GAMMA)


def published(events, ranks, sides, parameters, link, tiles):
    """Seconds of a step by the published formulas, from the computation of one rank. `sides`: neighbours of an inner
    rank, each of which gets a message. With tiles halos are hidden: none is longer than the interior that it waits for."""
    forward = backward = halos_forward = halos_backward = 0
    for event in events:
        phase = event["args"]["id"].split(":")[0]
        seconds = event["dur"] / 1e6
        if event["cat"].startswith("exchange"):
            # Messages of equal size to either side of each dim; all over the slower link, that between nodes.
            time = 0 if tiles > 1 else sides * message(event["args"].get("bytes", 0) / sides, link)
            if phase == "forward":
                halos_forward += time
            else:
                halos_backward += time
        elif event["tid"] < 2000:
            if phase == "forward":
                forward += seconds
            else:
                backward += seconds
    return forward + halos_forward + max(backward + halos_backward,
                                              all_reduce(4 * parameters, ranks, link))


def total(events, what):
    return sum(event["dur"] for event in events if event["cat"].startswith(what)) / 1e3


def row(program, model, ranks, plan, tiles):
    call = plan.format(f",tiles={tiles}" if tiles > 1 else "")
    sides = 2 * sum(f"{axis}=" in call for axis in ("(d", ",h", ",w"))
    parameters = 9_437_636 if model == COSMOFLOW else 19_070_560
    pairs = []  # ours and the model's, by network
    for cards, link in ((PUBLISHED_CARDS, BETWEEN), (OWN_CARDS, NETWORK)):
        answer, events = simulate(program, model, call, cards)
        events = [event for event in events if event["pid"] == inner_rank(events)]
        step = 1e3 * answer["step_time_s"]
        pairs.append((step, 1e3 * published(events, ranks, sides, parameters, link, tiles)))
    computed = [event for event in events if event["tid"] < 2000]
    halo, reduced = total(events, "exchange"), total(events, "all_reduce")
    return {"plan": call, "ranks": ranks, "step": step, "compute": sum(e["dur"] for e in computed) / 1e3, "halo": halo,
            "all_reduce": reduced, "exposed": answer["exposed_communication"] * step,
            "memory": answer["peak_memory_bytes"] / 2**30, "fits": answer["fits"], "own": pairs[1], "published": pairs[0]}


def table(rows, first):
    lines = ["| GPUs | plan | step, ms | speed-up | computation | halos | all-reduces | waited for | GiB a rank | "
             "published model, ms | of ours | step with the published network, ms | published model, ms | of ours |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for one in rows:
        own, other = one["own"], one["published"]
        lines.append(
            f"| {one['ranks']:,} | `{one['plan']}` | {one['step']:.1f} | {first / one['step']:.2f} | {one['compute']:.1f} | "
            f"{one['halo']:.2f} | {one['all_reduce']:.2f} | {one['exposed']:.2f} | {one['memory']:.2f} | {own[1]:.1f} | "
            f"{100 * own[1] / own[0]:.1f} % | {other[0]:.1f} | {other[1]:.1f} | {100 * other[1] / other[0]:.1f} % |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--out")
    options = parser.parse_args()
    lines = ["# Simulated: volumes cut in space, 512 to 2,048 V100", "",
             f"{datetime.date.today()}, `benchmarks/run_spatial.py {' '.join(sys.argv[1:])}`. " + PAGE, ""]
    for model, title in ((COSMOFLOW, "CosmoFlow, 4 x 512^3"), (UNET, "3-D U-Net, 256^3")):
        rows = [row(options.program, *case, tiles) for case in CASES if case[0] == model
                for tiles in ((1, 4) if case[2].count("=") == 2 else (1,))]
        lines += [f"## {title}: `{model}`", "", *table(rows, rows[0]["step"]), ""]
    text = "\n".join(lines)
    if options.out:
        pathlib.Path(options.out).write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
