#!/usr/bin/env python3
"""Networks over images and volumes, Tessera beside PyTorch: writes build/results/<date>-networks.md.

    benchmarks/run_networks.py build/tessera              about 15 minutes on two idle cores
    benchmarks/run_networks.py build/tessera --quick

Forward, backward and update, float32, one thread a rank: convolution layers of these networks, ResNet-50 at 64 pixels and
CosmoFlow at 32^3 on one rank, and on two under data parallelism and cut in space, beside DistributedDataParallel
(benchmarks/peers/pytorch_networks.py). The programs take turns, after one run of each that does not count; a repeat gives
one ratio of two neighbouring runs, of the fastest step of each, because other programs only ever add time. For one rank
there is the ratio of processor time as well: of a long run less a short one.
Then CosmoFlow at 64^3 under a 2-way split of the volume and under 2-way data parallelism, ours both, and the planned memory
of a rank under 1 to 8 parts of the volume.
"""
import argparse
import array
import datetime
import json
import math
import pathlib
import random
import resource
import statistics
import struct
import sys
import tempfile

import run_peers

PEER = run_peers.ROOT / "benchmarks/peers/pytorch_networks.py"
LAYERS = [  # dims, channels in and out, kernel, stride, size, batch
    ("ResNet-50, 3 x 3, 16 x 16", 2, (64, 64, 3, 1), 16, 16),
    ("ResNet-50, 1 x 1, 16 x 16", 2, (64, 256, 1, 1), 16, 16),
    ("ResNet-50, 3 x 3 with stride 2, 16 x 16", 2, (128, 128, 3, 2), 16, 16),
    ("ResNet-50, 3 x 3, 4 x 4", 2, (256, 256, 3, 1), 4, 16),
    ("VGG-16, 3 x 3, 28 x 28", 2, (128, 128, 3, 1), 28, 4),
    ("CosmoFlow, 3^3, 32^3", 3, (4, 16, 3, 1), 32, 4),
    ("CosmoFlow, 3^3, 16^3", 3, (16, 32, 3, 1), 16, 4),
    ("CosmoFlow, 3^3, 8^3", 3, (32, 64, 3, 1), 8, 4),
    ("U-Net, 3^3, 16^3", 3, (32, 64, 3, 1), 16, 2),
]
NETWORKS = {  # spec, the peer's name, size, batch, shapes of a sample's inputs
    "ResNet-50, 64 px": ("resnet:layers=50,image=64,ghost={ghost}", "resnet50", 64, 16, {"images": (3, 64, 64), "targets": ()}),
    "CosmoFlow, 32^3": ("cosmoflow:width=32", "cosmoflow", 32, 16, {"volume": (4, 32, 32, 32), "targets": (4,)}),
}
LARGE, LARGE_BATCH, LARGE_INPUTS = "cosmoflow:width=64", 4, {"volume": (4, 64, 64, 64), "targets": (4,)}


def layer_graph(dims, layer, size, batch):
    inputs, outputs, kernel, stride = layer
    space = ["z", "y", "x"][-dims:]
    side = (size - 1) // stride + 1
    def spelled(name, channels, edge):
        return f"[batch={batch}, {name}={channels}, " + ", ".join(f"{axis}={edge}" for axis in space) + "] float32"
    kernels = ", ".join(f"k{axis}={kernel}" for axis in space)
    into, out = spelled("in", inputs, size), spelled("out", outputs, side)
    return f"""graph "layer"
input %source {into}
parameter %shift.weight [in={inputs}] float32 init=zeros
parameter %conv.weight [out={outputs}, in={inputs}, {kernels}] float32 init=normal(0.05)
activation %x {into}
forward op "x" %x = add(%source, %shift.weight)
activation %conv {out}
forward op "conv" %conv = conv(%x, %conv.weight) {{stride="{stride}", padding="{kernel // 2}"}}
activation %relu {out}
forward op "relu" %relu = relu(%conv)
activation %loss [] float32
forward op "loss" %loss = reduce_sum(%relu) {{dims="batch out {' '.join(space)}", factor=0.5}}
loss %loss
"""


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def samples_of(folder, inputs, batch):
    """The entry `data` of a run file: arrays of random samples, one batch; classes where a sample has one number."""
    parts = []
    for name, shape in inputs.items():
        path = folder / f"{name}_{'x'.join(map(str, shape))}_{batch}.npy"
        if not path.exists():
            count, dims = batch * math.prod(shape), (batch, *shape)
            numbers = array.array("f", (random.gauss(0, 1) for _ in range(count))) if shape else array.array("q", (i % 10 for i in range(count)))
            head = f"{{'descr': '{'<f4' if shape else '<i8'}', 'fortran_order': False, 'shape': ({', '.join(map(str, dims))},), }}"
            path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", 118) + head.ljust(117).encode() + b"\n" + numbers.tobytes())
        parts.append(f'{name} = "{path}"')
    return "{ arrays = { " + ", ".join(parts) + " } }"


class Bench:
    def __init__(self, args, folder):
        self.program, self.python, self.folder = pathlib.Path(args.tessera).resolve(), args.python, folder
        self.warmup, self.steps, self.repeats = (2, 4, 2) if args.quick else (3, 12, 5)
        self.torch = ""

    def data(self, inputs, batch):
        return samples_of(self.folder, inputs, batch)

    def ours(self, model, plan, batch, steps, inputs):
        """Times of the steps, the summary, processor seconds of the process."""
        run = self.folder / "run.toml"
        run.write_text(f'model = "{model}"\ndata = {self.data(inputs, batch)}\nbatch = {batch}\nsteps = {self.warmup + steps}\nplan = "{plan}"\nthreads = 1\n'
                       "[optimizer]\nkind = \"sgd\"\nlr = 1e-6\nmin_lr = 1e-6\nwarmup = 0\nmomentum = 0.9\nweight_decay = 0\nclip = 0\n")
        before = processor_seconds()
        out, _ = run_peers.execute([self.program, "train", run, "--json"])
        used = processor_seconds() - before
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        times = [line["step_time_s"] for line in lines if "step" in line and "step_time_s" in line]
        return times[self.warmup:], lines[-1]["summary"], used

    def theirs(self, network, size, batch, ranks, steps, layer=""):
        before = processor_seconds()
        out, _ = run_peers.execute([self.python, PEER, "--network", network, "--size", size, "--batch", batch, "--ranks", ranks,
                                    "--steps", steps, "--warmup", self.warmup] + (["--layer", layer] if layer else []))
        used = processor_seconds() - before
        report = json.loads(out.splitlines()[-1])
        self.torch = report["torch"]
        return report["step_time_s"], report["parameters"], used

    def parameters(self, model, batch):
        out, _ = run_peers.execute([self.program, "inspect", model, "--batch", batch, "--json"])
        return json.loads(out)["parameters"]

    def compare(self, name, model, plan, batch, inputs, peer, ranks):
        """A row: the fastest steps, and ratios of theirs to ours."""
        mine, other, ratios, processor = [], [], [], []
        for repeat in range(1 + self.repeats):
            times, _, used = self.ours(model, plan, batch, self.steps, inputs)
            peers, _, peer_used = peer(self.steps)
            if repeat == 0:
                continue
            mine.append(min(times))
            other.append(min(peers))
            ratios.append(other[-1] / mine[-1])
            if ranks == 1:
                short, short_peer = self.ours(model, plan, batch, 0, inputs)[2], peer(0)[2]
                if used - short > 1:  # else the start of the process decides
                    processor.append((peer_used - short_peer) / (used - short))
        spent = f"{statistics.median(processor):.2f}" if processor else "-"
        row = (f"| {name} | {ranks} | `{plan}` | {min(mine) * 1e3:.2f} ms | {min(other) * 1e3:.2f} ms | {statistics.median(ratios):.2f} | "
               f"{min(ratios):.2f} to {max(ratios):.2f} | {spent} |")
        print(row, flush=True)
        return row

    def layers(self):
        for name, dims, layer, size, batch in LAYERS:
            path = self.folder / "layer.graph"
            path.write_text(layer_graph(dims, layer, size, batch))
            text = "-".join(map(str, layer))
            yield self.compare(f"{name}: {layer[0]} to {layer[1]} channels, batch {batch}", path, "serial", batch,
                               {"source": (layer[0],) + (size,) * dims}, lambda steps: self.theirs(f"conv{dims}d", size, batch, 1, steps, text), 1)

    def networks(self):
        for name, (spec, peer, size, batch, inputs) in NETWORKS.items():
            for ranks, plan in ((1, "serial"), (2, "data_parallel(2)"), (2, "spatial(h=2)" if "resnet" in spec else "spatial(d=2)")):
                # Batch norm of a replica is over its own images, as DistributedDataParallel's.
                model = spec.format(ghost=batch // (2 if plan.startswith("data") else 1))
                expected, found = self.theirs(peer, size, batch, 1, 0)[1], self.parameters(model, batch)
                if expected != found:
                    sys.exit(f"{name}: expected as many parameters as PyTorch's network has, {expected:,}, found {found:,}")
                yield self.compare(f"{name}, batch {batch}", model, plan, batch, inputs,
                                   lambda steps: self.theirs(peer, size, batch, ranks, steps), ranks)

    def space_against_samples(self):
        ratios, spatial, samples = [], [], []
        for repeat in range(1 + self.repeats):
            cut, _, _ = self.ours(LARGE, "spatial(d=2)", LARGE_BATCH, self.steps, LARGE_INPUTS)
            data, _, _ = self.ours(LARGE, "data_parallel(2)", LARGE_BATCH, self.steps, LARGE_INPUTS)
            if repeat > 0:
                spatial.append(min(cut))
                samples.append(min(data))
                ratios.append(spatial[-1] / samples[-1])
        return (f"`{LARGE}`, batch {LARGE_BATCH}, two ranks: cut in space {min(spatial) * 1e3:.0f} ms a step, data parallel "
                f"{min(samples) * 1e3:.0f} ms; ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}).")

    def memory(self):
        rows, first = [], None
        for parts in (1, 2, 4, 8):
            plan = f"spatial(d={parts})" if parts > 1 else "serial"
            out, _ = run_peers.execute([self.program, "simulate", LARGE, "--plan", plan, "--cluster", "dgx-a100:1", "--batch", LARGE_BATCH,
                                        "--style", "tessera", "--precision", "float32", "--json"])
            role = max(json.loads(out)["roles"], key=lambda one: one["peak_memory_bytes"])
            whole = ("parameter", "gradient", "optimizer state")  # on every rank
            bytes_held = role["memory"]["buffers_bytes"] - sum(one["bytes"] for one in role["memory"]["at_peak"] if one["what"] in whole)
            first = first or bytes_held
            rows.append(f"| {parts} | {bytes_held / 2**20:.1f} MiB | {first / parts / 2**20:.1f} MiB | {bytes_held * parts / first:.3f} |")
        return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("--python", default=str(run_peers.ROOT / ".venv/bin/python"))
    parser.add_argument("--quick", action="store_true", help="fewer steps and repeats")
    parser.add_argument("-o", "--out", help="the page; default build/results/<date>-networks.md")
    args = parser.parse_args()
    clock = run_peers.Clock()
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(args, pathlib.Path(name))
        memory = bench.memory()
        layers, networks = list(bench.layers()), list(bench.networks())
        space = bench.space_against_samples()
    print(space)
    head = "| case | ranks | plan | Tessera | PyTorch | ratio | from, to | ratio of processor time |\n|---|--:|---|--:|--:|--:|---|--:|\n"
    processor = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    page = pathlib.Path(args.out or run_peers.ROOT / f"build/results/{datetime.date.today()}-networks.md")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(
        f"# Networks over images and volumes, Tessera beside PyTorch\n\n`benchmarks/run_networks.py build/tessera"
        f"{' --quick' if args.quick else ''}`, {datetime.date.today()}, {processor}, 2 cores, one thread a rank, float32; PyTorch "
        f"{bench.torch}; other programs took {clock.share_of_others():.0%} of the processors. Forward, backward and update. Times are those "
        f"of the fastest step; the ratio is PyTorch's time over ours, of neighbouring runs, the median of {bench.repeats}.\n\n"
        "## Layers\n\n" + head + "\n".join(layers) + "\n\n## Networks\n\nPyTorch on two ranks is DistributedDataParallel.\n\n" + head +
        "\n".join(networks) + f"\n\n## Space against samples\n\n{space}\n\n## Memory of a rank\n\nThe peak of `{LARGE}`, batch "
        f"{LARGE_BATCH}, less parameters, gradients and optimizer state, which each rank has whole: maps, their gradients and halos, as planned, "
        "which is what a run counts.\n\n| parts of the volume | a rank | 1 / parts of the whole | over that |\n|--:|--:|--:|--:|\n"
        + "\n".join(memory) + "\n", encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
