#!/usr/bin/env python3
"""Images of any resolution by one set of weights (after Yan, Luo and Ceze, 2021), small: a program for each shape.

    .venv/bin/python examples/resolution/resolution.py [--program build/tessera]

Shapes of 6 to 28 pixels lie on noise of 64 x 64. A convolutional network of four stages is trained with random-resized
crops, once at 32 x 32 pixels and once at five resolutions in turn, a program for each of them over one set of weights.
`tessera evaluate` then takes the weights at six resolutions, and this prints accuracy, multiply-adds, time of an image, and
what an image reads of a two-level pyramid. Last, a small scale model says for each image which resolutions will read it
right; its labels are those of four networks, each on the quarter of the images that it was not trained on. The exit code is
0 if these hold, else 1:
  - trained at 32 pixels, the network reads most images right there, and fewer at the smallest and the largest resolution;
    the best one is smaller where shapes appear larger;
  - an oracle, which is right wherever some resolution is, beats every fixed resolution;
  - choosing by the scale model costs half a point of the best fixed resolution or less, and at most 80 % of its
    multiply-adds, those of the scale model counted;
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
IN_TURN, ROUNDS, FOLDS = (32, 16, 48, 24), 2, 4
SCALE_SIDE = 16  # of what the scale model looks at
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


def random_crops(random, images, side=TRAINED_AT):
    made = numpy.empty((len(images), side, side), numpy.float32)
    for one, image in zip(made, images):
        crop = SIDE * random.uniform(0.25, 1) ** 0.5
        middle = (SIDE - crop) / 2
        y, x = middle + random.uniform(-1, 1, 2) * middle / 4
        one[:] = resize_matrix(y, crop, side) @ image @ resize_matrix(x, crop, side).T
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
        return self.model(f"backbone{side}", (16, 32, 64, 128), side)

    def train_backbone(self, name, images, labels):
        random = numpy.random.default_rng(11)
        crops = numpy.concatenate([random_crops(random, images) for _ in range(4)])
        data = self.data(name, crops[:, None], numpy.tile(labels, 4))
        return self.train(name, self.backbone(TRAINED_AT), data)

    def train_in_turn(self, name, images, labels):
        """One set of weights at several resolutions, some steps at each in turn, with a rate that falls."""
        random = numpy.random.default_rng(11)
        turns = [side for _ in range(ROUNDS) for side in IN_TURN]
        weights = None
        for turn, side in enumerate(turns):
            crops = numpy.concatenate([random_crops(random, images, side) for _ in range(2)])
            data = self.data("turn", crops[:, None], numpy.tile(labels, 2))
            left = 1 - turn / len(turns)
            more = {"optimizer.lr": 3e-3 * left, "optimizer.min_lr": 3e-3 * max(0, left - 1 / len(turns)), "optimizer.warmup": 5,
                    "steps": max(1, self.steps // 8), "threads": 1}
            if weights is not None:
                more["weights"] = json.dumps(str(weights))
            weights = self.train(f"{name}_{turn % 2}", self.backbone(side), data, **more)
        return weights

    def right_at_all(self, weights, images, labels, crop):
        """[images, resolutions]: which are read right, and the last answer of each resolution."""
        found = [self.right(weights, images, labels, crop, side) for side in RESOLUTIONS]
        return numpy.stack([one[0] for one in found], 1), [one[1] for one in found]

    def scale_model(self, images, right, crop):
        """Trained to say which resolutions read an image right; returns a function that does."""
        model = self.model("scale", (16, 32, 64), SCALE_SIDE, ("resolutions", len(RESOLUTIONS)))
        looks = resized(images, crop, SCALE_SIDE)
        both = numpy.concatenate([looks, looks[:, :, ::-1]])[:, None]  # and mirrored
        labels = numpy.concatenate([right, right]).astype(numpy.float32)
        weights = self.train("scale", model, self.data("scale", both, labels), **{"optimizer.lr": 2e-3})

        def chances(some):
            data = self.data("look", resized(some, crop, SCALE_SIDE)[:, None], numpy.zeros((len(some), len(RESOLUTIONS)), numpy.float32))
            logits, found = self.outputs(model, weights, data, len(some))
            return 1 / (1 + numpy.exp(-logits)), found["multiply_adds_per_sample"]

        return chances

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


def network(channels, side, outputs=("classes", CLASSES)):
    """The text of a graph: 3 x 3 convolutions with stride 2, a mean over the map, a linear layer, and of classes cross
    entropy, of other outputs binary cross entropy."""
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
    if not classes:
        op("loss.softplus", rows, "softplus", [logits])
        op("loss.product", rows, "mul", [logits, "targets"])
        op("loss.each", rows, "sub", ["loss.softplus", "loss.product"])
        op("loss", [], "reduce_sum", ["loss.each"], f'dims="batch {outputs[0]}", factor={1 / BATCH}')
        return "\n".join(lines + ["loss %loss", ""])
    op("loss.cross_entropy", [batch], "cross_entropy", [logits, "targets"], made=["loss.lse", "loss.picked"])
    op("loss.each", [batch], "sub", ["loss.lse", "loss.picked"])
    op("loss", [], "reduce_sum", ["loss.each"], f'dims="batch", factor={1 / BATCH}')
    return "\n".join(lines + ["loss %loss", ""])


def choose(chances, tie):
    """Of each image the smallest resolution whose chance is within `tie` of the best one's."""
    return (chances >= chances.max(1, keepdims=True) - tie).argmax(1)


def tie_for(chances, right, adds, budget):
    """The tie with the most right answers within the budget, by images that the scale model was not trained on."""
    def rated(tie):
        chosen = choose(chances, tie)
        cost = adds[chosen].mean()
        return (cost <= budget, right[numpy.arange(len(right)), chosen].mean() if cost <= budget else -cost, -tie)
    return max(numpy.arange(0, 1, 0.01), key=rated)


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
    print("crop  " + "".join(f"{r:8}" for r in RESOLUTIONS) + "   accuracy by resolution, %; trained at 32 pixels")
    for share, crop in CROPS.items():
        by_crop[share] = work.right_at_all(weights, test_images, test_labels, crop)[0]
        print(f"{share:3} % " + "".join(f"{100 * a:8.1f}" for a in by_crop[share].mean(0)), flush=True)
    right = by_crop[56]  # objects appear as large as in training
    fixed = 100 * right.mean(0)
    at = RESOLUTIONS.index(TRAINED_AT)
    check(fixed[at] > 60 and fixed[at] > max(fixed[0], fixed[-1]) + 10,
          f"{fixed[at]:.1f} % are read right at {TRAINED_AT} pixels, {fixed[0]:.1f} % at {RESOLUTIONS[0]} and {fixed[-1]:.1f} % at {RESOLUTIONS[-1]}")
    best = {share: RESOLUTIONS[right.mean(0).argmax()] for share, right in by_crop.items()}
    check(best[25] < best[100], f"the best resolution is {best[25]} pixels where shapes appear twice as large as where it is {best[100]}")

    crop = CROPS[56]
    labels_of = numpy.empty((TRAIN, len(RESOLUTIONS)), bool)
    for fold in range(FOLDS):
        held_back = numpy.arange(TRAIN) // CLASSES % FOLDS == fold
        weights = work.train_in_turn("fold", images[~held_back], labels[~held_back])
        labels_of[held_back] = work.right_at_all(weights, images[held_back], labels[held_back], crop)[0]
    weights = work.train_in_turn("in_turn", images, labels)
    right, found = work.right_at_all(weights, test_images, test_labels, crop)
    multiply_adds = numpy.array([one["multiply_adds_per_sample"] for one in found])
    seconds = numpy.array([one["seconds_per_sample"] for one in found])
    fixed, oracle = 100 * right.mean(0), 100 * right.any(1).mean()
    print("crop  " + "".join(f"{r:8}" for r in RESOLUTIONS) + "   accuracy by resolution, %; trained at " + ", ".join(map(str, sorted(IN_TURN))))
    print(" 56 % " + "".join(f"{a:8.1f}" for a in fixed))
    check((oracle >= fixed).all(), f"the oracle is right on {oracle:.1f} %")
    kept = numpy.arange(TRAIN) // CLASSES % 4 == 3  # says where to draw the line, and nothing else
    chances = work.scale_model(images[~kept], labels_of[~kept], crop)
    guesses, own_adds = chances(images[kept])
    best = fixed.argmax()
    tie = tie_for(guesses, labels_of[kept], multiply_adds + own_adds, 0.78 * multiply_adds[labels_of[kept].mean(0).argmax()])
    chosen = choose(chances(test_images)[0], tie)
    accuracy = 100 * right[numpy.arange(TEST), chosen].mean()
    share = (multiply_adds[chosen].mean() + own_adds) / multiply_adds[best]
    print(f"chosen (within {tie:.2f} of the best chance): " + ", ".join(f"{100 * (chosen == i).mean():.0f} % at {r}" for i, r in enumerate(RESOLUTIONS)))
    check(accuracy >= fixed[best] - 0.5 and share <= 0.8,
          f"choosing for each image is right on {accuracy:.1f} %, {RESOLUTIONS[best]} pixels for all on {fixed[best]:.1f} %, "
          f"at {100 * share:.1f} % of the multiply-adds ({own_adds / 1e6:.3f} million of the scale model)")
    print("resolution, million multiply-adds, microseconds an image, time over multiply-adds (1 at 32 pixels), bytes read")
    for r, adds, time in zip(RESOLUTIONS, multiply_adds, seconds):
        ratio = time / adds / (seconds[at] / multiply_adds[at])
        print(f"  {r:8}{adds / 1e6:12.3f}{1e6 * time:12.0f}{ratio:12.2f}{small_level if r <= 32 else both:12}")
    check(seconds[-1] > 2 * seconds[0], f"80 pixels take {seconds[-1] / seconds[0]:.1f} times the time of 16")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
