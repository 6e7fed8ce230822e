#!/usr/bin/env python3
"""Images of any resolution by one set of weights (after Yan, Luo and Ceze, 2021), small: a program for each shape, and a
model that chooses the resolution of each image.

    .venv/bin/python examples/resolution/resolution.py [--program build/tessera] [--seeds 3]

Shapes of 6 to 28 pixels lie on noise of 64 x 64. For each seed a convolutional network of four stages is trained at 32 x 32 with
random-resized crops of a quarter to a half of the area, in which shapes appear larger than in whole images. `tessera evaluate` takes its weights at six resolutions and four crops, and this prints accuracy,
multiply-adds, time of an image, and what an image reads of a two-level pyramid. Then a scale model, a network of three stages,
looks at 16 x 16 pixels of an image and says for each resolution how likely the first network is to read the image right there.
It learns this from images that the first network was not trained on. Of an image the resolution is taken whose chance, less a
price of its multiply-adds, is the largest. The price and the best fixed resolution are chosen on further images that neither
network was trained on, and everything is measured on others again. The exit code is 0 if these hold, else 1:
  - accuracy over resolutions has one peak, which is at a smaller resolution where shapes appear larger (mean of all seeds);
  - an oracle, which is right wherever some resolution is, beats every fixed resolution (each seed);
  - choosing for each image is at most half a point behind the best fixed resolution (mean of all seeds), at no more than 80 %
    of its multiply-adds (each seed), those of the scale model included;
  - it is right more often than any fixed resolution that takes no more than it does (mean of all seeds);
  - the time of an image grows with its multiply-adds.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys

import numpy

SIDE = 64
RESOLUTIONS = (16, 24, 32, 48, 64, 80)
CROPS = {25: 32, 56: 48, 75: 56, 100: 64}  # share of the area in %: side in pixels
TRAINED_AT, TRAINED_ON = 32, (0.25, 0.5)  # pixels; crops by their shares of the area
# Images. LABELLED: by what the network reads right, for the scale model to learn; KEPT: for the choice of the price; CROPPED: of
# those to test, at the smaller crops.
TRAIN, LABELLED, KEPT, TEST, CROPPED = 9000, 9000, 2400, 3000, 900
BACKBONE, SCALE = ((8, 16, 32, 64), (1, 2, 2, 2)), ((8, 16, 32), (1, 2, 2))  # channels and strides
SCALE_SIDE = 16  # pixels that the scale model looks at
HALF = 0.5  # a pixel
AIM, SHARE = 0.75, 0.8  # of the multiply-adds of the best fixed resolution: what the price aims at, what is allowed
ALLOWED = 0.5  # points of accuracy behind it
WOBBLE = 1.5  # points that accuracy may rise again behind a peak
BATCH = 60
NOISE = 0.5
HERE = pathlib.Path(__file__).resolve().parent


# Points (u, v) of the square [-1, 1]^2 that belong to each shape.
SHAPES = (
    lambda u, v: numpy.hypot(u, v) <= 1,  # disc
    lambda u, v: abs(numpy.hypot(u, v) - 0.8) <= 0.2,  # ring
    lambda u, v: (abs(u) <= 0.8) & (abs(v) <= 0.8),  # square
    lambda u, v: (v <= 0.8) & (v >= 1.6 * abs(u) - 0.8),  # triangle
    lambda u, v: ((abs(u) <= 0.3) | (abs(v) <= 0.3)) & (numpy.hypot(u, v) <= 1),  # cross
    lambda u, v: (abs(v) <= 0.9) & (abs(u) <= 0.9) & (numpy.floor((u + 0.9) / 0.36) % 2 == 0),  # bars
    lambda u, v: numpy.hypot(u, v) <= 0.55 + 0.45 * numpy.cos(5 * numpy.arctan2(v, u)),  # star
    lambda u, v: ((u <= -0.3) & (abs(v) <= 0.9) & (u >= -0.9)) | ((v >= 0.3) & (v <= 0.9) & (abs(u) <= 0.9)),  # L
)


def make_images(random, count):
    labels = numpy.arange(count) % len(SHAPES)
    images = NOISE * random.standard_normal((count, SIDE, SIDE), numpy.float32)
    v, u = numpy.mgrid[0:SIDE, 0:SIDE] + 0.5
    for image, label in zip(images, labels):
        half = random.uniform(3, 14)
        # Inside the smallest crop, the 32 pixels in the middle.
        x, y = SIDE / 2 + random.uniform(-1, 1, 2) * (16 - half)
        image += 2 * SHAPES[label]((u - x) / half, (v - y) / half)
    return images, labels


def resize_matrix(begin, size, to):
    """Bilinear resize of `size` pixels from `begin` to `to`; a triangle as wide as a new pixel where it shrinks."""
    step = size / to
    centres = begin + (numpy.arange(to) + 0.5) * step - 0.5
    weights = numpy.maximum(0, 1 - abs(numpy.arange(SIDE) - centres[:, None]) / max(1, step))
    return weights / weights.sum(1, keepdims=True)


def resized(images, crop, to):
    """The middle of the images, half a pixel aside, so that noise is smoothed where a crop keeps its size, too."""
    matrix = resize_matrix((SIDE - crop) / 2 + HALF, crop, to)
    return (matrix @ images @ matrix.T).astype(numpy.float32)


def random_crops(random, images):
    made = numpy.empty((len(images), TRAINED_AT, TRAINED_AT), numpy.float32)
    for one, image in zip(made, images):
        crop = SIDE * random.uniform(*TRAINED_ON) ** 0.5
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

    def train(self, name, model, data, **more):
        checkpoints = self.folder / f"{name}_checkpoints"
        shutil.rmtree(checkpoints, ignore_errors=True)
        keys = {"model": json.dumps(model), "data": data, "steps": self.steps, "checkpoint.dir": json.dumps(str(checkpoints)), **more}
        sets = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
        self.run("train", HERE / "resolution.toml", *sets, "--json")
        return checkpoints

    def model(self, name, *network_arguments):
        path = self.folder / f"{name}.graph"
        path.write_text(network(*network_arguments))
        return str(path)

    def backbone(self, side):
        return self.model(f"backbone{side}", *BACKBONE, side)

    def train_backbone(self, seed, images, labels):
        random = numpy.random.default_rng(seed)
        crops = numpy.concatenate([random_crops(random, images) for _ in range(2)])
        return self.train("backbone", self.backbone(TRAINED_AT), self.data("crops", crops[:, None], numpy.tile(labels, 2)), seed=seed)

    def train_scale_model(self, seed, images, right, crop):
        """Returns a function that says of images how likely each resolution is to read them right, and its multiply-adds."""
        model = self.model("scale", *SCALE, SCALE_SIDE, ("resolutions", len(RESOLUTIONS)))
        looks = resized(images, crop, SCALE_SIDE)
        turned = numpy.concatenate([looks, looks[:, :, ::-1], looks[:, ::-1], looks[:, ::-1, ::-1]])[:, None]
        data = self.data("scale", turned, numpy.tile(right, (4, 1)).astype(numpy.float32))
        weights = self.train("scale", model, data, seed=seed)

        def chances(some):
            nothing = numpy.zeros((len(some), len(RESOLUTIONS)), numpy.float32)
            logits, found = self.outputs(model, weights, self.data("look", resized(some, crop, SCALE_SIDE)[:, None], nothing), len(some))
            return 1 / (1 + numpy.exp(-logits)), found["multiply_adds_per_sample"]

        return chances

    def outputs(self, model, weights, data, count):
        out = self.folder / "outputs.npy"
        found = self.run("evaluate", model, "--weights", weights, "--data", data, "--batch", BATCH, "--out", out, "--json")
        assert found["samples"] == count
        return numpy.load(out), found

    def right_at_all(self, weights, images, labels, crop):
        """[images, resolutions]: which are read right; and what each resolution took."""
        right, taken = [], []
        for resolution in RESOLUTIONS:
            data = self.data("look", resized(images, crop, resolution)[:, None], labels)
            logits, found = self.outputs(self.backbone(resolution), weights, data, len(images))
            right.append(logits.argmax(1) == labels)
            taken.append(found)
        return numpy.stack(right, 1), taken


def network(channels, strides, side, outputs=("classes", len(SHAPES))):
    """The text of a graph: 3 x 3 convolutions, a mean over the map, a linear layer; of classes the cross entropy, of other outputs
    the binary one of each."""
    classes = outputs[0] == "classes"
    batch, rows = ("batch", BATCH), [("batch", BATCH), outputs]
    lines = [f'graph "at{side}"', f"input %images [batch={BATCH}, channels=1, height={side}, width={side}] float32",
             f"input %targets [batch={BATCH}] int64" if classes else f"input %targets [batch={BATCH}, {outputs[0]}={outputs[1]}] float32"]

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
    for i, (width, stride) in enumerate(zip(channels, strides)):
        outer, side = f"channels_{i}", (side + stride - 1) // stride
        kernel = [(outer, width), (inner, size), ("kernel_height", 3), ("kernel_width", 3)]
        weight = parameter(f"conv_{i}.weight", kernel, f"normal({(2 / (9 * size)) ** 0.5})")
        bias = parameter(f"conv_{i}.bias", [(outer, width)], "zeros")
        maps = [batch, (outer, width), ("height", side), ("width", side)]
        x = op(f"conv_{i}", maps, "conv", [x, weight], f'stride="{stride}", padding="1"')
        x = op(f"act_{i}", maps, "relu", [op(f"biased_{i}", maps, "add", [x, bias])])
        inner, size = outer, width
    x = op("pool", [batch, (inner, size)], "reduce_sum", [x], f'dims="height width", factor={1 / side**2}')
    head = [parameter("head.weight", [(inner, size), outputs], f"normal({size ** -0.5})"), parameter("head.bias", [outputs], "zeros")]
    logits = op("head", rows, "einsum", [x, *head], f'spec="batch {inner}+, {inner} {outputs[0]}, {outputs[0]} -> batch {outputs[0]}"')
    if classes:
        op("loss.cross_entropy", [batch], "cross_entropy", [logits, "targets"], made=["loss.lse", "loss.picked"])
        op("loss.each", [batch], "sub", ["loss.lse", "loss.picked"])
        op("loss", [], "reduce_sum", ["loss.each"], f'dims="batch", factor={1 / BATCH}')
    else:
        op("loss.softplus", rows, "softplus", [logits])
        op("loss.product", rows, "mul", [logits, "targets"])
        op("loss.each", rows, "sub", ["loss.softplus", "loss.product"])
        op("loss", [], "reduce_sum", ["loss.each"], f'dims="batch {outputs[0]}", factor={1 / BATCH}')
    return "\n".join(lines + ["loss %loss", ""])


def choose(chances, costs, price):
    """Of each image the resolution with the largest chance less the price of its multiply-adds."""
    return (chances - price * costs / costs.max()).argmax(1)


def price_of(chances, right, costs, budget):
    """What makes the most right within the budget."""
    def rated(price):
        chosen = choose(chances, costs, price)
        cost = costs[chosen].mean()
        return (True, right[numpy.arange(len(right)), chosen].mean()) if cost <= budget else (False, -cost)
    return max(numpy.geomspace(1e-3, 10, 200), key=rated)


def peaks(accuracy):
    """Does it rise, but for `WOBBLE`, up to its peak, and fall behind it?"""
    top = accuracy.argmax()
    left, right = accuracy[:top + 1], accuracy[top:]
    return (left >= numpy.maximum.accumulate(left) - WOBBLE).all() and (right <= numpy.minimum.accumulate(right) + WOBBLE).all()


class Seed:
    """The figures of a seed."""

    def __init__(self, work, seed):
        random, crop = numpy.random.default_rng(seed), CROPS[100]
        (images, labels), labelled, kept, (test, test_labels) = (make_images(random, n) for n in (TRAIN, LABELLED, KEPT, TEST))
        weights = work.train_backbone(seed, images, labels)
        right, found = work.right_at_all(weights, test, test_labels, crop)
        self.by_crop = {share: 100 * work.right_at_all(weights, test[:CROPPED], test_labels[:CROPPED], side)[0].mean(0)
                        for share, side in CROPS.items() if side != crop} | {100: 100 * right.mean(0)}
        self.multiply_adds = numpy.array([one["multiply_adds_per_sample"] for one in found])
        self.seconds = numpy.array([one["seconds_per_sample"] for one in found])
        self.fixed, self.oracle = 100 * right.mean(0), 100 * right.any(1).mean()
        chances = work.train_scale_model(seed, labelled[0], work.right_at_all(weights, *labelled, crop)[0], crop)
        # Chosen: the best fixed resolution, and the price.
        right_of_kept = work.right_at_all(weights, *kept, crop)[0]
        self.best = right_of_kept.mean(0).argmax()
        guesses, self.own = chances(kept[0])
        costs = self.multiply_adds + self.own
        self.price = price_of(guesses, right_of_kept, costs, AIM * self.multiply_adds[self.best])
        # Measured.
        chosen = choose(chances(test)[0], costs, self.price)
        cost = costs[chosen].mean()
        self.accuracy = 100 * right[numpy.arange(TEST), chosen].mean()
        self.share = cost / self.multiply_adds[self.best]
        self.cheaper = self.fixed[self.multiply_adds <= cost].max()
        print(f"seed {seed}: chosen, at a price of {self.price:.3f}: "
              + ", ".join(f"{100 * (chosen == i).mean():.0f} % at {r}" for i, r in enumerate(RESOLUTIONS))
              + f"; right {self.accuracy:.1f} %, {RESOLUTIONS[self.best]} pixels for all {self.fixed[self.best]:.1f} %, "
              f"the best of all that take no more {self.cheaper:.1f} %, "
              f"oracle {self.oracle:.1f} %; {100 * self.share:.1f} % of the multiply-adds", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/tessera")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/resolution"))
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    work = Workload(options)
    seeds = [Seed(work, seed) for seed in range(1, options.seeds + 1)]
    failed = []

    def check(holds, what):
        print(("holds: " if holds else "DOES NOT HOLD: ") + what, flush=True)
        if not holds:
            failed.append(what)

    print("crop  " + "".join(f"{r:8}" for r in RESOLUTIONS) + "   accuracy by resolution, %, mean of the seeds")
    by_crop = {share: numpy.mean([one.by_crop[share] for one in seeds], 0) for share in CROPS}
    for share, accuracy in by_crop.items():
        print(f"{share:3} % " + "".join(f"{a:8.1f}" for a in accuracy))
    best = {share: RESOLUTIONS[accuracy.argmax()] for share, accuracy in by_crop.items()}
    check(best[25] < best[100], f"the best resolution is {best[25]} pixels where shapes appear twice as large as where it is {best[100]}")
    check(all(peaks(accuracy) for accuracy in by_crop.values()), f"accuracy has one peak at each crop, but for {WOBBLE} points")
    check(all((one.oracle >= one.fixed).all() for one in seeds), "the oracle beats every fixed resolution")
    behind = numpy.mean([one.fixed[one.best] - one.accuracy for one in seeds])
    dearest = max(one.share for one in seeds)
    check(behind <= ALLOWED and dearest <= SHARE, f"choosing for each image is {behind:.2f} points behind the best fixed resolution "
          f"in the mean of the seeds, at up to {100 * dearest:.1f} % of its multiply-adds ({seeds[0].own / 1e6:.3f} million of the scale model)")
    ahead = numpy.mean([one.accuracy - one.cheaper for one in seeds])
    check(ahead > 0, f"it is {ahead:.2f} points ahead of fixed resolutions that take no more")
    one, at = seeds[0], RESOLUTIONS.index(TRAINED_AT)
    small_level, both = 32 * 32, 32 * 32 + SIDE * SIDE  # a byte a pixel; what 64 x 64 adds to a level of 32 x 32
    print("resolution, million multiply-adds, microseconds an image, time over multiply-adds (1 at 32 pixels), bytes read")
    for r, adds, time in zip(RESOLUTIONS, one.multiply_adds, one.seconds):
        ratio = time / adds / (one.seconds[at] / one.multiply_adds[at])
        print(f"  {r:8}{adds / 1e6:12.3f}{1e6 * time:12.0f}{ratio:12.2f}{small_level if r <= 32 else both:12}")
    check(one.seconds[-1] > 2 * one.seconds[0], f"80 pixels take {one.seconds[-1] / one.seconds[0]:.1f} times the time of 16")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
