#!/usr/bin/env python3
"""Images of any resolution by one set of weights (after Yan, Luo and Ceze, 2021), small: a program for each shape.

    .venv/bin/python examples/resolution/resolution.py [--program build/tessera]

Shapes of 6 to 28 pixels lie on noise of 64 x 64. A convolutional network of four stages is trained at 32 x 32 with
random-resized crops. `tessera evaluate` then takes its weights at six resolutions and four crops, and this prints accuracy,
multiply-adds, time of an image, and what an image reads of a two-level pyramid. The exit code is 0 if these hold, else 1:
  - the network reads most images right at the resolution that it was trained at, and fewer at the smallest and the largest;
  - an oracle, which is right wherever some resolution is, beats every fixed resolution;
  - the time of an image grows with its multiply-adds.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys

import numpy

SIDE, CLASSES = 64, 8
RESOLUTIONS = (16, 24, 32, 48, 64, 80)
CROPS = {25: 32, 56: 48, 75: 56, 100: 64}  # share of the area in %: side in pixels
TRAINED_AT = 32
TRAIN, TEST = 1200, 600
BATCH = 60
NOISE = 0.5
HERE = pathlib.Path(__file__).resolve().parent


def shape_mask(kind, u, v):
    """Points of the square [-1, 1]^2 that belong to the shape."""
    radius, angle = numpy.hypot(u, v), numpy.arctan2(v, u)
    return (
        radius <= 1,  # disc
        (radius <= 1) & (radius >= 0.6),  # ring
        (abs(u) <= 0.8) & (abs(v) <= 0.8),  # square
        (v <= 0.8) & (v >= 1.6 * abs(u) - 0.8),  # triangle
        ((abs(u) <= 0.3) | (abs(v) <= 0.3)) & (radius <= 1),  # cross
        (abs(v) <= 0.9) & (abs(u) <= 0.9) & (numpy.floor((u + 0.9) / 0.36) % 2 == 0),  # bars
        radius <= 0.55 + 0.45 * numpy.cos(5 * angle),  # star
        ((u <= -0.3) & (abs(v) <= 0.9) & (u >= -0.9)) | ((v >= 0.3) & (v <= 0.9) & (abs(u) <= 0.9)),  # L
    )[kind]


def make_images(random, count):
    labels = numpy.arange(count) % CLASSES
    images = NOISE * random.normal(size=(count, SIDE, SIDE))
    for image, label in zip(images, labels):
        half = random.uniform(3, 14)
        # Inside the smallest crop, the 32 pixels in the middle.
        x, y = SIDE / 2 + random.uniform(-1, 1, 2) * (16 - half)
        v, u = numpy.mgrid[0:SIDE, 0:SIDE] + 0.5
        image += 2 * shape_mask(label, (u - x) / half, (v - y) / half)
    return images.astype(numpy.float32), labels.astype(numpy.int64)


def resize_matrix(begin, size, to):
    """Bilinear resize of `size` pixels from `begin` to `to`; a triangle as wide as a new pixel where it shrinks."""
    step = size / to
    centres = begin + (numpy.arange(to) + 0.5) * step - 0.5
    weights = numpy.maximum(0, 1 - abs(numpy.arange(SIDE) - centres[:, None]) / max(1, step))
    return weights / weights.sum(1, keepdims=True)


def resized(images, crop, to):
    matrix = resize_matrix((SIDE - crop) / 2, crop, to)
    return (matrix @ images @ matrix.T).astype(numpy.float32)


def random_crops(random, images):
    made = numpy.empty((len(images), TRAINED_AT, TRAINED_AT), numpy.float32)
    for one, image in zip(made, images):
        crop = SIDE * random.uniform(0.25, 1) ** 0.5
        middle = (SIDE - crop) / 2
        y, x = middle + random.uniform(-1, 1, 2) * middle / 4
        one[:] = resize_matrix(y, crop, TRAINED_AT) @ image @ resize_matrix(x, crop, TRAINED_AT).T
    return made


class Workload:
    """Runs of the program in a folder of their own."""

    def __init__(self, options):
        self.program, self.folder, self.steps = options.program, options.folder.resolve(), options.steps
        self.folder.mkdir(parents=True, exist_ok=True)

    def save(self, name, array):
        path = self.folder / f"{name}.npy"
        numpy.save(path, array)
        return path

    def run(self, *arguments):
        answer = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True)
        if answer.returncode != 0:
            sys.exit(f"{arguments[0]} {arguments[1]}: exit code {answer.returncode}: {answer.stderr.strip()}")
        return json.loads(answer.stdout.splitlines()[-1])

    def data(self, name, images, targets):
        return f'{{ arrays = {{ images = "{self.save(name + "_images", images)}", targets = "{self.save(name + "_labels", targets)}" }} }}'

    def train(self, name, model, data):
        checkpoints = self.folder / f"{name}_checkpoints"
        shutil.rmtree(checkpoints, ignore_errors=True)
        keys = {"model": json.dumps(model), "data": data, "steps": self.steps, "checkpoint.dir": json.dumps(str(checkpoints))}
        sets = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
        self.run("train", HERE / "resolution.toml", *sets, "--json")
        return checkpoints

    def model(self, name, *network_arguments):
        path = self.folder / f"{name}.graph"
        path.write_text(network(*network_arguments))
        return str(path)

    def backbone(self, side):
        return self.model(f"backbone{side}", (16, 32, 64, 128), side)

    def train_backbone(self, name, images, labels):
        random = numpy.random.default_rng(11)
        crops = numpy.concatenate([random_crops(random, images) for _ in range(4)])
        data = self.data(name, crops[:, None], numpy.tile(labels, 4))
        return self.train(name, self.backbone(TRAINED_AT), data)

    def outputs(self, model, weights, data, count):
        out = self.folder / "outputs.npy"
        found = self.run("evaluate", model, "--weights", weights, "--data", data, "--batch", BATCH, "--out", out, "--json")
        assert found["samples"] == count
        return numpy.load(out), found

    def right(self, weights, images, labels, crop, resolution):
        """Which of the images the network reads right, and what that took."""
        data = self.data("look", resized(images, crop, resolution)[:, None], labels)
        logits, found = self.outputs(self.backbone(resolution), weights, data, len(images))
        return logits.argmax(1) == labels, found


def network(channels, side):
    """The text of a graph: 3 x 3 convolutions with stride 2, a mean over the map, a linear layer, cross entropy."""
    outputs = ("classes", CLASSES)
    batch, rows = ("batch", BATCH), [("batch", BATCH), outputs]
    lines = [f'graph "at{side}"', f"input %images [batch={BATCH}, channels=1, height={side}, width={side}] float32",
             f"input %targets [batch={BATCH}] int64"]

    def op(name, dims, kind, inputs, attributes="", made=None):
        for one in made or [name]:
            lines.append(f"activation %{one} [{', '.join(f'{dim}={n}' for dim, n in dims)}] float32")
        left, right = (", ".join("%" + one for one in some) for some in (made or [name], inputs))
        lines.append(f'forward op "{name}" {left} = {kind}({right})' + (f" {{{attributes}}}" if attributes else ""))
        return name

    def parameter(name, dims, init):
        lines.append(f"parameter %{name} [{', '.join(f'{dim}={n}' for dim, n in dims)}] float32 init={init}")
        return name

    x, inner, size = "images", "source", 1
    for i, width in enumerate(channels):
        outer, side = f"channels_{i}", (side + 1) // 2
        kernel = [(outer, width), (inner, size), ("kernel_height", 3), ("kernel_width", 3)]
        weight = parameter(f"conv_{i}.weight", kernel, f"normal({(2 / (9 * size)) ** 0.5})")
        bias = parameter(f"conv_{i}.bias", [(outer, width)], "zeros")
        maps = [batch, (outer, width), ("height", side), ("width", side)]
        x = op(f"conv_{i}", maps, "conv", [x, weight], 'stride="2", padding="1"')
        x = op(f"act_{i}", maps, "relu", [op(f"biased_{i}", maps, "add", [x, bias])])
        inner, size = outer, width
    x = op("pool", [batch, (inner, size)], "reduce_sum", [x], f'dims="height width", factor={1 / side**2}')
    head = [parameter("head.weight", [(inner, size), outputs], f"normal({size ** -0.5})"), parameter("head.bias", [outputs], "zeros")]
    logits = op("head", rows, "einsum", [x, *head], f'spec="batch {inner}+, {inner} {outputs[0]}, {outputs[0]} -> batch {outputs[0]}"')
    op("loss.cross_entropy", [batch], "cross_entropy", [logits, "targets"], made=["loss.lse", "loss.picked"])
    op("loss.each", [batch], "sub", ["loss.lse", "loss.picked"])
    op("loss", [], "reduce_sum", ["loss.each"], f'dims="batch", factor={1 / BATCH}')
    return "\n".join(lines + ["loss %loss", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/tessera")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/resolution"))
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    work = Workload(options)
    random = numpy.random.default_rng(5)
    images, labels = make_images(random, TRAIN)
    test_images, test_labels = make_images(random, TEST)
    failed = []

    def check(holds, what):
        print(("holds: " if holds else "DOES NOT HOLD: ") + what, flush=True)
        if not holds:
            failed.append(what)

    weights = work.train_backbone("all", images, labels)
    by_crop = {}
    print("crop  " + "".join(f"{r:8}" for r in RESOLUTIONS) + "   accuracy by resolution, %")
    for share, crop in CROPS.items():
        found = [work.right(weights, test_images, test_labels, crop, r) for r in RESOLUTIONS]
        by_crop[share] = numpy.stack([one[0] for one in found], 1)
        print(f"{share:3} % " + "".join(f"{100 * a:8.1f}" for a in by_crop[share].mean(0)), flush=True)
    right = by_crop[56]  # objects appear as large as in training
    fixed, oracle = 100 * right.mean(0), 100 * right.any(1).mean()
    at = RESOLUTIONS.index(TRAINED_AT)
    check(fixed[at] > 60 and fixed[at] > max(fixed[0], fixed[-1]) + 10,
          f"{fixed[at]:.1f} % are read right at {TRAINED_AT} pixels, {fixed[0]:.1f} % at {RESOLUTIONS[0]} and {fixed[-1]:.1f} % at {RESOLUTIONS[-1]}")
    check((oracle >= fixed).all(), f"the oracle is right on {oracle:.1f} %")
    multiply_adds = numpy.array([one[1]["multiply_adds_per_sample"] for one in found])
    seconds = numpy.array([one[1]["seconds_per_sample"] for one in found])
    small_level, both = 32 * 32, 32 * 32 + SIDE * SIDE  # a byte a pixel; what 64 x 64 adds to a level of 32 x 32
    print("resolution, million multiply-adds, microseconds an image, time over multiply-adds (1 at 32 pixels), bytes read")
    for r, adds, time in zip(RESOLUTIONS, multiply_adds, seconds):
        ratio = time / adds / (seconds[at] / multiply_adds[at])
        print(f"  {r:8}{adds / 1e6:12.3f}{1e6 * time:12.0f}{ratio:12.2f}{small_level if r <= 32 else both:12}")
    check(seconds[-1] > 2 * seconds[0], f"80 pixels take {seconds[-1] / seconds[0]:.1f} times the time of 16")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
