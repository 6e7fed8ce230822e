#!/usr/bin/env python3
"""Resolution chosen for each image (Yan, Luo and Ceze, 2021), small: several programs over one set of weights.

    .venv/bin/python examples/resolution/resolution.py [--program build/tessera]

Shapes of 6 to 28 pixels lie on noise of 64 x 64. A residual network is trained at 32 x 32 with random-resized crops, on
four folds and on all images. Then
  - it is evaluated at six resolutions and four crops: the same weights, a program for each shape;
  - a scale model of three convolutions at 16 x 16 learns, from what the networks of the folds get right on images that they
    were not trained on, at which resolutions an image will be read right;
  - each image of the test set goes to the program of the least resolution that the scale model trusts.
Prints accuracies, multiply-adds, times and the bytes of a two-level pyramid. The exit code is 0 if all of these hold, else 1:
  (1) accuracy over resolution has one peak, and it is at a smaller resolution when objects appear larger;
  (2) resolution chosen by image is within half a point of the best fixed one or above it, at 80 % of its multiply-adds;
  (3) no choice beats the oracle, which is right wherever some resolution is;
  (5) the time of an image grows with its multiply-adds.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import numpy

SIDE, CLASSES, FOLDS = 64, 8, 4
RESOLUTIONS = (16, 24, 32, 48, 64, 80)
CROPS = {25: 32, 56: 48, 75: 56, 100: 64}  # share of the area in %: side in pixels
TRAINED_AT, SCALE_AT = 32, 16
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

    def train(self, name, run_file, data, **keys):
        checkpoints = self.folder / f"{name}_checkpoints"
        subprocess.run(["rm", "-rf", str(checkpoints)], check=True)
        keys = {"data": data, "checkpoint.dir": json.dumps(str(checkpoints)), "checkpoint.every": 1000000, "checkpoint.keep": 1, **keys}
        sets = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
        self.run("train", run_file, *sets, "--json")
        return checkpoints

    def train_backbone(self, name, images, labels):
        random = numpy.random.default_rng(11)
        crops = numpy.concatenate([random_crops(random, images) for _ in range(3)])
        data = self.data(name, crops[:, None], numpy.tile(labels, 3))
        return self.train(name, HERE / "backbone.toml", data[:-1] + ", flip = true }", steps=self.steps)

    def outputs(self, model, weights, data, count):
        out = self.folder / "outputs.npy"
        found = self.run("evaluate", model, "--weights", weights, "--data", data, "--batch", BATCH, "--out", out, "--json")
        assert found["samples"] == count
        return numpy.load(out), found

    def right(self, weights, images, labels, crop, resolution):
        """Which of the images the network reads right, and what that took."""
        model = f"resnet:layers=18,width=8,image={resolution},channels=1,classes={CLASSES},ghost={BATCH},running=0.9"
        data = self.data("look", resized(images, crop, resolution)[:, None], labels)
        logits, found = self.outputs(model, weights, data, len(images))
        return logits.argmax(1) == labels, found


def scale_graph(channels):
    """Three convolutions with stride 2, a mean over the map, a number for each resolution, binary cross entropy."""
    lines = ['graph "scale"', f"input %images [batch={BATCH}, channels=1, height={SCALE_AT}, width={SCALE_AT}] float32",
             f"input %targets [batch={BATCH}, resolutions={len(RESOLUTIONS)}] float32"]

    def op(name, dims, kind, inputs, attributes=""):
        size = ", ".join(f"{dim}={n}" for dim, n in dims)
        lines.append(f"activation %{name} [{size}] float32")
        lines.append(f'forward op "{name}" %{name} = {kind}({", ".join("%" + one for one in inputs)}) {{{attributes}}}')
        return name

    x, inner, from_size, side = "images", "channels", 1, SCALE_AT
    batch = ("batch", BATCH)
    for i, size in enumerate(channels):
        outer, side = f"channels_{i}", (side + 1) // 2
        deviation = (2 / (from_size * 9)) ** 0.5
        source = "source" if i == 0 else inner
        lines.append(f"parameter %conv_{i}.weight [{outer}={size}, {source}={from_size}, kernel_height=3, kernel_width=3] float32 init=normal({deviation})")
        lines.append(f"parameter %conv_{i}.bias [{outer}={size}] float32 init=zeros")
        maps = [batch, (outer, size), ("height", side), ("width", side)]
        x = op(f"conv_{i}", maps, "conv", [x, f"conv_{i}.weight"], 'stride="2", padding="1"')
        x = op(f"act_{i}", maps, "relu", [op(f"biased_{i}", maps, "add", [x, f"conv_{i}.bias"])])
        inner, from_size = outer, size
    x = op("pool", [batch, (inner, from_size)], "reduce_sum", [x], f'dims="height width", factor={1 / side**2}')
    n = len(RESOLUTIONS)
    lines.append(f"parameter %head.weight [{inner}={from_size}, resolutions={n}] float32 init=normal({from_size ** -0.5})")
    lines.append(f"parameter %head.bias [resolutions={n}] float32 init=zeros")
    rows = [batch, ("resolutions", n)]
    logits = op("head", rows, "einsum", [x, "head.weight", "head.bias"],
                f'spec="batch {inner}+, {inner} resolutions, resolutions -> batch resolutions"')
    each = op("each", rows, "sub", [op("softplus", rows, "softplus", [logits]), op("product", rows, "mul", [logits, "targets"])])
    op("loss", [], "reduce_sum", [each], f'dims="batch resolutions", factor={1 / (BATCH * n)}')
    return "\n".join(lines + ["loss %loss", ""])


def one_peak(accuracies, tolerance):
    """Up to the largest one it does not fall, and behind it it does not rise, by more than the tolerance."""
    top = int(numpy.argmax(accuracies))
    rises = numpy.diff(accuracies)
    return bool((rises[:top] > -tolerance).all() and (rises[top:] < tolerance).all())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/tessera")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/resolution"))
    parser.add_argument("--steps", type=int, default=400)
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

    # Labels of the scale model: what networks get right on images that they have not seen.
    right = numpy.zeros((TRAIN, len(RESOLUTIONS)), bool)
    for fold in range(FOLDS):
        out = (numpy.arange(TRAIN) // CLASSES) % FOLDS == fold  # as many of each class
        weights = work.train_backbone(f"fold{fold}", images[~out], labels[~out])
        for i, resolution in enumerate(RESOLUTIONS):
            right[out, i], _ = work.right(weights, images[out], labels[out], 64, resolution)
        print(f"fold {fold}: right at {RESOLUTIONS}: {numpy.round(100 * right[out].mean(0), 1)} %", flush=True)
    weights = work.train_backbone("all", images, labels)

    # (1) Accuracy by resolution and crop, one set of weights.
    peaks, multiply_adds, seconds = {}, [], []
    print("crop  " + "".join(f"{r:8}" for r in RESOLUTIONS) + "   accuracy by resolution, %")
    for share, crop in CROPS.items():
        found = [work.right(weights, test_images, test_labels, crop, r) for r in RESOLUTIONS]
        accuracies = numpy.array([100 * one[0].mean() for one in found])
        print(f"{share:3} % " + "".join(f"{a:8.1f}" for a in accuracies), flush=True)
        check(one_peak(accuracies, 1.5), f"(1) one peak at a crop of {share} % (tolerance 1.5 points)")
        peaks[share] = RESOLUTIONS[int(numpy.argmax(accuracies))]
        if share == 100:
            whole = numpy.stack([one[0] for one in found], 1)
            multiply_adds = numpy.array([one[1]["multiply_adds_per_sample"] for one in found])
            seconds = numpy.array([one[1]["seconds_per_sample"] for one in found])
    check(peaks[25] < peaks[100] and peaks[25] <= peaks[56] <= peaks[100],
          f"(1) the peak is at a smaller resolution when objects appear larger: {peaks}")

    # (5) Time against multiply-adds.
    print("resolution, million multiply-adds, microseconds an image, time over multiply-adds relative to 32 pixels:")
    base = seconds[2] / multiply_adds[2]
    for r, adds, time in zip(RESOLUTIONS, multiply_adds, seconds):
        print(f"  {r:3}{adds / 1e6:8.3f}{1e6 * time:9.0f}{time / adds / base:7.2f}")
    check(seconds[-1] > 2 * seconds[0], "(5) 80 pixels take more than twice the time of 16")

    # (2) The scale model chooses.
    graph = work.folder / "scale.graph"
    graph.write_text(scale_graph((16, 32, 64)))
    small = resized(images, 64, SCALE_AT)[:, None]
    run_file = work.folder / "scale.toml"
    run_file.write_text(f'model = {json.dumps(str(graph))}\nsteps = {options.steps}\noptimizer = {{ kind = "adamw", lr = 3e-3, min_lr = 0.0 }}\n')
    scale = work.train("scale", run_file, work.data("scale", small, right.astype(numpy.float32)))

    def trust(of):
        data = work.data("scale_look", resized(of, 64, SCALE_AT)[:, None], numpy.zeros((len(of), len(RESOLUTIONS)), numpy.float32))
        logits, found = work.outputs(str(graph), scale, data, len(of))
        return 1 / (1 + numpy.exp(-logits)), found["multiply_adds_per_sample"]

    def choose(trusted, least):
        """The least resolution that is trusted so much; else the most trusted one."""
        enough = trusted > least
        return numpy.where(enough.any(1), enough.argmax(1), trusted.argmax(1))

    rows = numpy.arange(TRAIN)
    trusted, own_adds = trust(images)
    best_on_train = right.mean(0).max()
    # The least trust at which the training images, as the folds read them, lose nothing.
    levels = [level for level in numpy.arange(0.5, 1, 0.01) if right[rows, choose(trusted, level)].mean() >= best_on_train]
    level = levels[0] if levels else 0.99
    trusted, _ = trust(test_images)
    chosen = choose(trusted, level)
    dynamic = 100 * whole[numpy.arange(TEST), chosen].mean()
    dynamic_adds = multiply_adds[chosen].mean() + own_adds
    fixed = 100 * whole.mean(0)
    best = int(numpy.argmax(fixed))
    oracle = 100 * whole.any(1).mean()
    shares = numpy.bincount(chosen, minlength=len(RESOLUTIONS)) / TEST
    print(f"chosen at a trust of {level:.2f}: " + ", ".join(f"{r} px {100 * s:.0f} %" for r, s in zip(RESOLUTIONS, shares)))
    print(f"accuracy {dynamic:.1f} % at {dynamic_adds / 1e6:.3f} million multiply-adds (with the scale model's {own_adds / 1e6:.3f}); "
          f"best fixed resolution {RESOLUTIONS[best]}: {fixed[best]:.1f} % at {multiply_adds[best] / 1e6:.3f}")
    check(dynamic >= fixed[best] - 0.5 and dynamic_adds <= 0.8 * multiply_adds[best],
          f"(2) {dynamic - fixed[best]:+.1f} points at {100 * dynamic_adds / multiply_adds[best]:.0f} % of the multiply-adds")
    check(oracle >= dynamic and (oracle >= fixed).all(), f"(3) the oracle is right on {oracle:.1f} %")

    # Storage: a byte a pixel; a level of 32 x 32, and what 64 x 64 adds to it.
    small_level, both = 32 * 32, 32 * 32 + SIDE * SIDE
    needed = numpy.array([small_level if r <= 32 else both for r in RESOLUTIONS])
    print(f"bytes of a two-level pyramid: {needed[chosen].mean():.0f} an image by choice, {needed[best]} at the best fixed "
          f"resolution, {SIDE * SIDE} of the plain image")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
