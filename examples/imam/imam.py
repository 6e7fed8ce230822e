#!/usr/bin/env python3
"""ImAM (Luo et al., 2023), small: shapes become 64 tokens and tokens become shapes, and a transformer learns the tokens.

    .venv/bin/python examples/imam/imam.py [--program build/tessera]

A shape is the union of some of {sphere, box, torus} with random sizes and places, turned at random about the vertical axis,
as large as fits into the middle of [-1, 1]^3; which of the three it has is its class, one of 7. The auto-encoder (examples/imam/imam.toml) sees 512 points of each of 4,200 surfaces and learns which of
512 queries are inside; then it is frozen, and a transformer (imam_tokens.toml) learns the tokens that it makes, as a
pipeline of two ranks, and goes on alone on the tokens of the training shapes (imam_sequence.toml). Then it draws shapes of each
class, token by token, which the decoder makes into shapes again. A small residual network (classifier.toml), which has learned
the classes of the training shapes as they are rebuilt, says what it sees. Figures are of 350 shapes that were held back, or of 140 that were drawn. The exit
code is 0 if these hold, else 1:
  - the intersection over union of shapes that are rebuilt is at least 0.85, at queries that are spread evenly;
  - more than 30 % of the codes are used;
  - the transformer's loss of a token is below the entropy of tokens without context, and well below log 256 = 5.545;
  - more than 70 % of the shapes that were drawn are recognised as of the class that was asked for.
"""
import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys

import numpy

CLASSES, KINDS = 7, 3
CODES, SIDE = 256, 8  # of the codebook; of the map of tokens
TRAIN, TEST, TEST_QUERIES = 4200, 350, 2048
DRAWN, GRID = 140, 16  # shapes of the transformer; places along each side of what the classifier sees
POINTS = QUERIES = 512
BOX, TUBE = numpy.array([1, 0.8, 0.6], numpy.float32), 0.4  # halves of a box's sides, radius of a torus's tube, of its size
HERE = pathlib.Path(__file__).resolve().parent


def turns(random, count):
    """Rotations about the vertical axis."""
    angle = random.uniform(0, 2 * numpy.pi, count)
    matrix = numpy.zeros((count, 3, 3), numpy.float32)
    matrix[:, 0, 0] = matrix[:, 1, 1] = numpy.cos(angle)
    matrix[:, 1, 0], matrix[:, 0, 1], matrix[:, 2, 2] = numpy.sin(angle), -numpy.sin(angle), 1
    return matrix


def distance_to(kind, size, p):
    """How far points are outside of a sphere, a box or a torus; negative inside."""
    if kind == 0:
        return numpy.linalg.norm(p, axis=2) - size
    if kind == 1:
        q = abs(p) - size[..., None] * BOX
        return numpy.linalg.norm(numpy.maximum(q, 0), axis=2) + numpy.minimum(q.max(2), 0)
    return numpy.hypot(numpy.linalg.norm(p[..., :2], axis=2) - size, p[..., 2]) - TUBE * size


class Shapes:
    def __init__(self, random, count):
        self.classes = numpy.arange(count) % CLASSES
        self.has = ((self.classes[:, None] + 1) >> numpy.arange(KINDS) & 1).astype(bool)
        self.size = random.uniform(0.4, [0.65, 0.55, 0.55], (count, KINDS)).astype(numpy.float32)
        self.middle = random.uniform(-0.25, 0.25, (count, KINDS, 3)).astype(numpy.float32)
        self.turn = [turns(random, count) for _ in range(KINDS)]
        # The union fills [-0.9, 0.9] along its longest side.
        reach = self.size[..., None] * numpy.stack([numpy.ones((count, 3)), abs(self.turn[1]) @ BOX,
                                                    numpy.tile([1 + TUBE, 1 + TUBE, TUBE], (count, 1))], 1)
        ends = [numpy.where(self.has[..., None], self.middle + sign * reach, -sign * 9) for sign in (-1, 1)]
        low, high = ends[0].min(1), ends[1].max(1)
        scale = (1.8 / (high - low).max(1)).astype(numpy.float32)
        self.size *= scale[:, None]
        self.middle = ((self.middle - ((low + high) / 2)[:, None]) * scale[:, None, None]).astype(numpy.float32)

    def distance(self, p):
        best = numpy.full(p.shape[:2], 9, numpy.float32)
        for kind in range(KINDS):
            some = self.has[:, kind]
            at = numpy.einsum("sij,spj->spi", self.turn[kind][some], p[some] - self.middle[some, None, kind])
            best[some] = numpy.minimum(best[some], distance_to(kind, self.size[some, kind, None], at))
        return best

    def surface(self, random, points):
        """Points that were drawn evenly and moved to the surface along the slope of the distance."""
        p, step = random.uniform(-0.9, 0.9, (len(self.classes), points, 3)).astype(numpy.float32), numpy.float32(1e-3)
        axes = step * numpy.eye(3, dtype=numpy.float32)
        for _ in range(4):
            distance = self.distance(p)
            slope = numpy.stack([self.distance(p + axis) - distance for axis in axes], 2) / step
            p -= distance[..., None] * slope / numpy.maximum(1e-3, (slope * slope).sum(2, keepdims=True))
        return (p + 0.005 * random.normal(size=p.shape)).clip(-1, 1).astype(numpy.float32)


class Workload:
    def __init__(self, options):
        self.options, self.folder, self.failed = options, options.folder.resolve(), []
        self.folder.mkdir(parents=True, exist_ok=True)
        self.shapes_model, self.tokens_model, self.sequence_model, self.classifier = (
            self.model_of(name) for name in ("imam.toml", "imam_tokens.toml", "imam_sequence.toml", "classifier.toml"))

    @staticmethod
    def model_of(name):
        line = next(line for line in (HERE / name).read_text().splitlines() if line.startswith("model = "))
        return json.loads(line.split("=", 1)[1])

    def check(self, holds, what):
        print(("holds: " if holds else "DOES NOT HOLD: ") + what, flush=True)
        if not holds:
            self.failed.append(what)

    def make(self, name, seed, count, queries, near):
        """Arrays of shapes; of their queries a share `near` lies around the surface, the others are spread evenly."""
        random = numpy.random.default_rng(seed)
        shapes = Shapes(random, count)
        points = shapes.surface(random, POINTS)
        asked = random.uniform(-1, 1, (count, queries, 3))
        around = int(near * queries)
        asked[:, :around] = points[:, random.integers(0, POINTS, around)] + 0.1 * random.normal(size=(count, around, 3))
        asked = asked.clip(-1, 1).astype(numpy.float32)
        arrays = {"points": points, "queries": asked, "inside": (shapes.distance(asked) <= 0).astype(numpy.float32),
                  "classes": shapes.classes.astype(numpy.int64)}
        for what, array in arrays.items():
            numpy.save(self.folder / f"{name}_{what}.npy", array)
        return arrays

    def save(self, name, array):
        numpy.save(self.folder / f"{name}.npy", array)

    def data(self, name, **inputs):
        return "{ arrays = { " + ", ".join(f'{key} = "{self.folder}/{name}_{what}.npy"' for key, what in inputs.items()) + " } }"

    def run(self, *arguments):
        answer = subprocess.run([self.options.program, *map(str, arguments)], capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            sys.exit(f"{arguments[0]} {arguments[1]}: exit code {answer.returncode}: {answer.stderr.strip()}")
        return [json.loads(line) for line in answer.stdout.splitlines()]

    def train(self, name, keys):
        sets = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
        return self.run("train", HERE / name, *sets, "--json")

    def evaluate(self, model, weights, data, tensor=None, batch=25):
        out = self.folder / "out.npy"
        found = self.run("evaluate", model, "--weights", weights, "--data", data, "--batch", batch, "--out", out, "--json",
                         *(["--tensor", tensor] if tensor else []))[-1]
        return numpy.load(out), found["loss"]

    def rebuild(self, test):
        weights = self.folder / "shapes"
        shutil.rmtree(weights, ignore_errors=True)  # of a run before this one
        self.train("imam.toml", {"data": self.data("train", points="points", queries="queries", targets="inside"),
                                 "steps": self.options.steps, "checkpoint.dir": json.dumps(str(weights))})
        model = self.shapes_model.replace(f"queries={QUERIES}", f"queries={TEST_QUERIES}")
        data = self.data("test", points="points", queries="queries", targets="inside")
        logits, _ = self.evaluate(model, weights, data)
        found, there = logits >= 0, test["inside"] > 0
        overlap = (found & there).sum(1) / numpy.maximum(1, (found | there).sum(1))
        self.check(overlap.mean() >= 0.85, f"shapes are rebuilt with an intersection over union of {overlap.mean():.3f}; "
                   f"half of them at least {numpy.median(overlap):.3f}")
        tokens, _ = self.evaluate(model, weights, data, "quantise.ids")
        tokens = tokens.reshape(len(tokens), -1).astype(numpy.int64)
        self.save("test_tokens", tokens)
        return weights, tokens

    def predict_tokens(self, weights, tokens):
        """The loss of a token, beside the entropy of tokens alone: by their shares in training, of the held-back ones."""
        out = self.folder / "tokens"
        shutil.rmtree(out, ignore_errors=True)
        self.train("imam_tokens.toml", {"data": self.data("train", points="points", classes="classes"), "plan": json.dumps(str(HERE / "frozen_stage.toml")),
                                        "weights": json.dumps(str(weights)), "checkpoint.dir": json.dumps(str(out)),
                                        "steps": self.options.token_steps})
        made, _ = self.evaluate(self.tokens_model, out, self.data("train", points="points", classes="classes"), "quantise.tokens")
        self.save("train_tokens", made.astype(numpy.int64))
        shares = (numpy.bincount(made.astype(int).ravel(), minlength=CODES) + 0.5) / (made.size + 0.5 * CODES)
        alone = -numpy.log(shares[tokens]).mean()
        _, loss = self.evaluate(self.tokens_model, out, self.data("test", points="points", classes="classes"), "quantise.tokens")
        used = (numpy.bincount(made.astype(int).ravel(), minlength=CODES) > 0).mean()
        self.check(used > 0.3, f"{100 * used:.0f} % of {CODES} codes are used")
        self.check(loss < alone and loss < 0.9 * math.log(CODES),
                   f"a token costs {loss:.3f} nats, {alone:.3f} without context, {math.log(CODES):.3f} if all are alike")
        return out

    def go_on(self, weights):
        """The transformer alone, on the tokens of all training shapes: no encoder runs beside it."""
        out = self.folder / "sequence"
        shutil.rmtree(out, ignore_errors=True)
        self.train("imam_sequence.toml", {"data": self.data("train", tokens="tokens", classes="classes", targets="tokens"),
                                          "weights": json.dumps(str(weights)), "checkpoint.dir": json.dumps(str(out)),
                                          "steps": self.options.sequence_steps})
        _, loss = self.evaluate(self.sequence_model, out, self.data("test", tokens="tokens", classes="classes", targets="tokens"))
        print(f"after {self.options.sequence_steps} more steps on tokens alone: {loss:.3f} nats", flush=True)
        return out

    def draw(self, weights, count, seed):
        """Shapes as tokens, equally many of each class: a forward pass of all shapes for each of their tokens."""
        random = numpy.random.default_rng(seed)
        classes = numpy.arange(count) % CLASSES
        tokens = numpy.zeros((count, SIDE * SIDE), numpy.int64)
        self.save("drawn_classes", classes)
        for at in range(tokens.shape[1]):
            self.save("drawn_tokens", tokens)
            logits, _ = self.evaluate(self.sequence_model, weights, self.data("drawn", tokens="tokens", classes="classes", targets="tokens"),
                                      "head.biased", batch=count // 4)
            # The largest of logits with such noise is drawn by their softmax.
            logits = logits.reshape(count, -1, CODES)
            tokens[:, at] = (logits[:, at] / self.options.temperature + random.gumbel(size=(count, CODES))).argmax(1)
        self.save("drawn_tokens", tokens)
        return classes

    def decode(self, weights, tokens, some=350):
        """Which places of a grid are inside of shapes, [shapes, z, y, x], as numbers 0 and 1."""
        if len(tokens) > some:
            return numpy.concatenate([self.decode(weights, tokens[i:i + some]) for i in range(0, len(tokens), some)])
        self.save("made_tokens", tokens)
        self.save("made_queries", numpy.broadcast_to(places(), (len(tokens), GRID ** 3, 3)))
        self.save("made_inside", numpy.zeros((len(tokens), GRID ** 3), numpy.float32))
        model = self.shapes_model.replace("imam:", "imam:part=decoder,").replace(f"queries={QUERIES}", f"queries={GRID ** 3}")
        logits, _ = self.evaluate(model, weights, self.data("made", tokens="tokens", queries="queries", targets="inside"), batch=10)
        return (logits >= 0).reshape(-1, GRID, GRID, GRID).astype(numpy.float32)

    def train_classifier(self, shapes):
        """Of the training shapes as the decoder makes them of their tokens. Its images have a channel for each height."""
        out = self.folder / "classifier"
        shutil.rmtree(out, ignore_errors=True)
        tokens = numpy.load(self.folder / "train_tokens.npy").reshape(TRAIN, -1)
        self.save("train_images", self.decode(shapes, tokens))
        self.train("classifier.toml", {"data": self.data("train", images="images", targets="classes"),
                                       "steps": self.options.classifier_steps, "checkpoint.dir": json.dumps(str(out))})
        return out

    def recognised(self, weights, images, classes):
        """The share of shapes whose class the classifier says."""
        self.save("seen_images", images)
        self.save("seen_classes", classes.astype(numpy.int64))
        logits, _ = self.evaluate(self.classifier, weights, self.data("seen", images="images", targets="classes"), batch=35)
        return float((logits.argmax(1) == classes).mean())

    def recognise(self, shapes, sequence, tokens):
        classifier = self.train_classifier(shapes)
        asked = self.draw(sequence, DRAWN, 5)
        true = Shapes(numpy.random.default_rng(2), TEST)
        grid = true.distance(numpy.broadcast_to(places(), (TEST, GRID ** 3, 3))) <= 0
        of_true = self.recognised(classifier, grid.reshape(-1, GRID, GRID, GRID).astype(numpy.float32), true.classes)
        of_rebuilt = self.recognised(classifier, self.decode(shapes, tokens), true.classes)
        made = self.decode(shapes, numpy.load(self.folder / "drawn_tokens.npy"))
        found = self.recognised(classifier, made, asked)
        self.check(found > 0.7, f"{100 * found:.1f} % of {DRAWN} shapes that were drawn are recognised; of held-back shapes "
                   f"as they are rebuilt {100 * of_rebuilt:.1f} %, as they are {100 * of_true:.1f} %")


def places():
    """Of the grid that the classifier sees, [GRID^3, 3]: z is the slowest of them."""
    along = (numpy.arange(GRID, dtype=numpy.float32) + 0.5) * 2 / GRID - 1
    z, y, x = numpy.meshgrid(along, along, along, indexing="ij")
    return numpy.stack([x, y, z], -1).reshape(-1, 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/tessera")
    parser.add_argument("--steps", type=int, default=1400, help="of the auto-encoder")
    parser.add_argument("--token-steps", type=int, default=250, help="of the transformer behind the frozen encoder")
    parser.add_argument("--sequence-steps", type=int, default=1500, help="of the transformer alone")
    parser.add_argument("--classifier-steps", type=int, default=400)
    parser.add_argument("--temperature", type=float, default=0.8, help="of the tokens that are drawn")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/imam"))
    options = parser.parse_args()
    work = Workload(options)
    work.make("train", 1, TRAIN, QUERIES, 0.5)
    test = work.make("test", 2, TEST, TEST_QUERIES, 0)
    shapes, tokens = work.rebuild(test)
    sequence = work.go_on(work.predict_tokens(shapes, tokens))
    work.recognise(shapes, sequence, tokens)
    sys.exit(1 if work.failed else 0)


if __name__ == "__main__":
    main()
