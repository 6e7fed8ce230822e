#!/usr/bin/env python3
"""ImAM (Luo et al., 2023), small: what is it worth that three planes share their tokens?

    .venv/bin/python examples/imam/coupled.py [--program build/tessera]

Trains the auto-encoder of imam.py with planes that are joined (64 tokens a shape) and with planes of their own (coupled=0: 192
tokens), for the same number of steps, and a transformer on the tokens of each, for the same time. A step of 192 tokens has three
times the work in products and nine times in the scores of attention. The exit code is 0 if these hold, else 1:
  - a step of the transformer takes at least 2.5 times as long with 192 tokens;
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

from imam import POINTS, QUERIES, TEST, TEST_QUERIES, TRAIN, Workload


class Side:
    """The auto-encoder with planes of one kind, and the transformer of its tokens."""

    def __init__(self, work, name, more):
        self.work, self.name, self.more = work, name, more
        self.tokens = 0

    def train(self, file, model, steps, data, **keys):
        """Returns where the weights are and the median time of a step in seconds."""
        out = self.work.folder / f"{self.name}_{pathlib.Path(file).stem}"
        shutil.rmtree(out, ignore_errors=True)
        keys = {"model": json.dumps(model), "data": data, "steps": steps, "checkpoint.dir": json.dumps(str(out)), **keys}
        times = [one["step_time_s"] for one in self.work.train(file, keys) if "step_time_s" in one]
        return out, statistics.median(times)

    def rebuild(self, steps, test):
        """The intersection over union of held-back shapes; makes the tokens of all shapes."""
        work, model = self.work, self.work.shapes_model + self.more
        weights, self.shapes_step_s = self.train(
            "imam.toml", model, steps, work.data("train", points="points", queries="queries", targets="inside"))
        wide = model.replace(f"queries={QUERIES}", f"queries={TEST_QUERIES}")
        logits, _ = work.evaluate(wide, weights, work.data("test", points="points", queries="queries", targets="inside"))
        found, there = logits >= 0, test["inside"] > 0
        for part in ("train", "test"):
            data = work.data(part, points="points", queries="queries", targets="inside")
            made, _ = work.evaluate(wide if part == "test" else model, weights, data, "quantise.ids")
            work.save(f"{part}_{self.name}", made.reshape(len(made), -1).astype(numpy.int64))
        self.tokens = made[0].size
        return float(((found & there).sum(1) / numpy.maximum(1, (found | there).sum(1))).mean())

    def predict(self, steps):
        """The nats of a held-back shape after so many steps; the time of a step and the multiply-adds of a shape."""
        work, model = self.work, self.work.sequence_model + self.more

        def data(part):
            return work.data(part, tokens=self.name, classes="classes", targets=self.name)

        weights, step_s = self.train("imam_sequence.toml", model, steps, data("train"), weights='""')
        found = work.run("evaluate", model, "--weights", weights, "--data", data("test"), "--batch", 25, "--json")[-1]
        return found["loss"] * self.tokens, step_s, found["multiply_adds_per_sample"]


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
    _, slow_s, _ = apart.predict(20)
    nats, step_s, work_of_one = joined.predict(work.options.token_steps)
    steps = round(work.options.token_steps * step_s / slow_s)
    nats_apart, slow_s, work_of_other = apart.predict(steps)
    print(f"points {POINTS}; {'':24}joined  apart\ntokens of a shape {'':20}{joined.tokens:6} {apart.tokens:6}\n"
          f"intersection over union {'':14}{overlaps[0]:6.3f} {overlaps[1]:6.3f}\n"
          f"auto-encoder, ms a step {'':14}{1e3 * joined.shapes_step_s:6.0f} {1e3 * apart.shapes_step_s:6.0f}\n"
          f"transformer, million multiply-adds a shape {work_of_one / 1e6:6.1f} {work_of_other / 1e6:6.1f}\n"
          f"transformer, ms a step {'':15}{1e3 * step_s:6.0f} {1e3 * slow_s:6.0f}\n"
          f"steps {'':32}{work.options.token_steps:6} {steps:6}\n"
          f"nats a token {'':25}{nats / joined.tokens:6.3f} {nats_apart / apart.tokens:6.3f}\n"
          f"nats a shape {'':25}{nats:6.1f} {nats_apart:6.1f}", flush=True)
    work.check(slow_s >= 2.5 * step_s, f"a step of {apart.tokens} tokens takes {slow_s / step_s:.2f} times as long")
    work.check(nats < nats_apart, f"a shape costs {nats:.1f} nats in {joined.tokens} tokens, {nats_apart:.1f} in {apart.tokens}")
    work.check(overlaps[0] >= overlaps[1] - 0.05, f"joined planes rebuild to {overlaps[0]:.3f}, planes of their own to {overlaps[1]:.3f}")
    sys.exit(1 if work.failed else 0)


if __name__ == "__main__":
    main()
