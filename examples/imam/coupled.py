#!/usr/bin/env python3
"""ImAM (Luo et al., 2023), small: what is it worth that three planes share their tokens?

    .venv/bin/python examples/imam/coupled.py [--program build/tessera]

Trains the auto-encoder of imam.py with planes that are joined (64 tokens a shape) and with planes of their own (coupled=0: 192
tokens), for the same number of steps, and a transformer on the tokens of each, for the same time. A step of 192 tokens has three
times the work in products and nine times in the scores of attention. The exit code is 0 if these hold, else 1:
  - a step of the transformer takes at least twice as long with 192 tokens;
  - after training for equal times a shape costs fewer nats with 64 tokens;
  - shapes that are rebuilt from 64 tokens lose at most 0.05 of the intersection over union.
"""
import argparse
import json
import pathlib
import shutil
import statistics
import sys

import numpy

from imam import QUERIES, TEST, TEST_QUERIES, TRAIN, Workload


class Side:
    """The auto-encoder with planes of one kind, and the transformer of its tokens."""

    def __init__(self, work, name, more):
        self.work, self.name, self.more = work, name, more
        self.tokens = 0

    def train(self, file, model, steps, data):
        """Returns where the weights are and the median time of a step in seconds."""
        out = self.work.folder / f"{self.name}_{pathlib.Path(file).stem}"
        shutil.rmtree(out, ignore_errors=True)
        keys = {"model": json.dumps(model), "data": data, "steps": steps, "checkpoint.dir": json.dumps(str(out))}
        times = [one["step_time_s"] for one in self.work.train(file, keys) if "step_time_s" in one]
        return out, statistics.median(times)

    def rebuild(self, steps, test):
        """The intersection over union of held-back shapes; makes the tokens of all shapes."""
        work, model = self.work, self.work.shapes_model + self.more
        weights, _ = self.train("imam.toml", model, steps, work.data("train", points="points", queries="queries", targets="inside"))
        wide = model.replace(f"queries={QUERIES}", f"queries={TEST_QUERIES}")
        logits, _ = work.evaluate(wide, weights, work.data("test", points="points", queries="queries", targets="inside"))
        found, there = logits >= 0, test["inside"] > 0
        for part in ("train", "test"):
            data = work.data(part, points="points", queries="queries", targets="inside")
            made, _ = work.evaluate(wide if part == "test" else model, weights, data, "quantise.ids")
            work.save(f"{part}_{self.name}", made.reshape(len(made), -1).astype(numpy.int64))
        self.tokens = made[0].size
        return float(((found & there).sum(1) / numpy.maximum(1, (found | there).sum(1))).mean())

    def train_tokens(self, steps):
        data = self.work.data("train", tokens=self.name, classes="classes", targets=self.name)
        return self.train("imam_sequence.toml", self.work.sequence_model + self.more, steps, data)

    def predict(self, weights):
        """The nats of a held-back shape, and the multiply-adds that it takes."""
        data = self.work.data("test", tokens=self.name, classes="classes", targets=self.name)
        found = self.work.run("evaluate", self.work.sequence_model + self.more, "--weights", weights, "--data", data, "--batch", 25,
                              "--json")[-1]
        return found["loss"] * self.tokens, found["multiply_adds_per_sample"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/tessera")
    parser.add_argument("--steps", type=int, default=700, help="of each auto-encoder")
    parser.add_argument("--token-steps", type=int, default=800, help="of the transformer of 64 tokens; the other gets as much time")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/imam_coupled"))
    work = Workload(parser.parse_args())
    work.make("train", 1, TRAIN, QUERIES, 0.5)
    test = work.make("test", 2, TEST, TEST_QUERIES, 0)
    joined, apart = Side(work, "joined", ""), Side(work, "apart", ",coupled=0")
    overlaps = [side.rebuild(work.options.steps, test) for side in (joined, apart)]
    # In turns, so that other work on the machine slows both; the fastest counts.
    rounds = [(joined.train_tokens(12)[1], apart.train_tokens(12)[1]) for _ in range(3)]
    step_s, slow_s = min(first for first, _ in rounds), min(second for _, second in rounds)
    steps = [work.options.token_steps, round(work.options.token_steps * step_s / slow_s)]
    (nats, cost), (nats_apart, cost_apart) = (side.predict(side.train_tokens(n)[0]) for side, n in zip((joined, apart), steps))
    for what, form, values in (("tokens of a shape", "d", (joined.tokens, apart.tokens)),
                               ("intersection over union", ".3f", overlaps),
                               ("transformer, million multiply-adds a shape", ".1f", (cost / 1e6, cost_apart / 1e6)),
                               ("transformer, ms a step of 16 shapes", ".0f", (1e3 * step_s, 1e3 * slow_s)),
                               ("steps in equal time", "d", steps),
                               ("nats a token", ".3f", (nats / joined.tokens, nats_apart / apart.tokens)),
                               ("nats a shape", ".1f", (nats, nats_apart))):
        print(f"{what:44}{values[0]:>10{form}}{values[1]:>10{form}}", flush=True)
    work.check(slow_s >= 2 * step_s, f"a step of {apart.tokens} tokens takes {slow_s / step_s:.2f} times as long")
    work.check(nats < nats_apart, f"a shape costs {nats:.1f} nats in {joined.tokens} tokens, {nats_apart:.1f} in {apart.tokens}")
    work.check(overlaps[0] >= overlaps[1] - 0.05, f"joined planes rebuild to {overlaps[0]:.3f}, planes of their own to {overlaps[1]:.3f}")
    sys.exit(1 if work.failed else 0)


if __name__ == "__main__":
    main()
