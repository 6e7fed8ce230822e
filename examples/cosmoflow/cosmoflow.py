#!/usr/bin/env python3
"""A small CosmoFlow on synthetic universes (after Oyama et al., 2021): is its error the one that the universes allow, and do
larger volumes give a smaller error than pieces of them?

    .venv/bin/python examples/cosmoflow/cosmoflow.py [--program build/tessera]

Trains cosmoflow.toml on whole universes of 16^3 places, and the same network on pieces of 8^3 of such universes, each with its
universe's parameter, and compares the errors on universes of another seed with the smallest ones that are possible: those of
the mean of the parameter given the volume (Bayes), by the Gaussian law that the volumes were drawn by. Errors are roots of mean
squares, of a parameter that is uniform in [-1, 1]. The exit code is 0 if these hold, else 1:
  - the network's error on whole universes is at most 1.25 times the smallest possible one;
  - so is its error on pieces, of theirs;
  - its error on whole universes is at most half of that on pieces, and smaller than that of the mean of what it says of all
    pieces of a universe.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys

import numpy

HERE = pathlib.Path(__file__).resolve().parent
WIDTH, CUT, MEAN_EXPONENT = 16, 2, 2
PIECES, SIDE = CUT ** 3, WIDTH // CUT
TEST, TEST_SEED = 256, 2
ALLOWED, SMALLER = 1.25, 0.5


def power(parameter):
    """At each wave number of a universe (tessera/data/universes.h)."""
    number = numpy.fft.fftfreq(WIDTH) * WIDTH
    square = number[:, None, None] ** 2 + number[:, None] ** 2 + number ** 2
    square[0, 0, 0] = 1
    found = square ** (-(MEAN_EXPONENT + parameter) / 2)
    found[0, 0, 0] = 0
    return found / found.mean()


def mean_of(parameters, likelihoods):
    """The means of parameters that were equally likely before, by the logarithms of likelihoods [volumes, parameters]."""
    weights = numpy.exp(likelihoods - likelihoods.max(1, keepdims=True))
    return weights @ parameters / weights.sum(1)


def estimate_whole(volumes):
    """Different wave numbers of a periodic field are independent, each with the variance that its power says."""
    parameters = numpy.linspace(-1, 1, 401)
    found = abs(numpy.fft.fftn(volumes, axes=(1, 2, 3))).reshape(len(volumes), -1)[:, 1:] ** 2 / WIDTH ** 3
    expected = numpy.stack([power(t).reshape(-1)[1:] for t in parameters])
    return mean_of(parameters, -(found @ (1 / expected).T + numpy.log(expected).sum(1)) / 2)


def estimate_pieces(pieces):
    """Of a piece all places depend on one another: the covariance of two places is that of their distance."""
    parameters = numpy.linspace(-1, 1, 81)
    places = numpy.stack(numpy.meshgrid(*[numpy.arange(SIDE)] * 3, indexing="ij"), -1).reshape(-1, 3)
    z, y, x = numpy.moveaxis((places[:, None] - places) % WIDTH, -1, 0)
    columns, likelihoods = pieces.reshape(len(pieces), -1).T.astype(float), []
    for t in parameters:
        root = numpy.linalg.cholesky(numpy.fft.ifftn(power(t)).real[z, y, x] + 1e-9 * numpy.eye(len(places)))
        likelihoods.append(-(numpy.linalg.solve(root, columns) ** 2).sum(0) / 2 - numpy.log(numpy.diag(root)).sum())
    return mean_of(parameters, numpy.stack(likelihoods, 1))


class Workload:
    def __init__(self, options):
        self.options, self.folder, self.failed = options, options.folder.resolve(), []
        self.folder.mkdir(parents=True, exist_ok=True)

    def check(self, holds, what):
        print(("holds: " if holds else "DOES NOT HOLD: ") + what, flush=True)
        if not holds:
            self.failed.append(what)

    def run(self, *arguments):
        answer = subprocess.run([self.options.program, *map(str, arguments)], capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            sys.exit(f"{' '.join(map(str, arguments))}: exit code {answer.returncode}: {answer.stderr.strip()}")
        return [json.loads(line) for line in answer.stdout.splitlines()]

    @staticmethod
    def data(samples, seed, cut):
        call = f"universes(width={WIDTH},samples={samples},seed={seed},cut={cut})"
        return f'{{ arrays = {{ volume = "{call}:volumes", targets = "{call}:parameters" }} }}'

    def train(self, cut):
        """Returns the volumes of the test, or their pieces, their parameters, and what the network says of them."""
        model = f"cosmoflow:width={WIDTH // cut},channels=1,outputs=1,filters=4,dropout=0"
        weights = self.folder / f"checkpoints_cut{cut}"
        shutil.rmtree(weights, ignore_errors=True)
        held_back = self.data(TEST * cut ** 3, TEST_SEED, cut)
        keys = {"model": json.dumps(model), "data": self.data(10 ** 6, self.options.seed, cut), "eval.data": held_back,
                "eval.every": 10 ** 6, "steps": self.options.steps, "seed": self.options.seed,
                "checkpoint.dir": json.dumps(str(weights)), "checkpoint.every": 10 ** 6}
        sets = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
        self.run("train", HERE / "cosmoflow.toml", *sets, "--json")

        def look_at(*tensor):
            out = self.folder / "out.npy"
            self.run("evaluate", model, "--weights", weights, "--data", held_back, "--batch", 32, "--out", out, "--json", *tensor)
            return numpy.load(out)

        return look_at("--tensor", "volume"), look_at("--tensor", "targets")[:, 0], look_at()[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/tessera")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/cosmoflow"))
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=1, help="of the universes to learn from, and of the network")
    options = parser.parse_args()
    work = Workload(options)

    def error(estimates, truth):
        return float(numpy.sqrt(((estimates - truth) ** 2).mean()))

    volumes, truth, said = work.train(1)
    possible = error(estimate_whole(volumes.reshape(-1, WIDTH, WIDTH, WIDTH)), truth)
    whole = error(said, truth)
    print(f"without looking: {error(0, truth):.4f}")
    work.check(whole <= ALLOWED * possible, f"the error on whole universes is {whole:.4f}, the smallest possible one {possible:.4f}: "
               f"{whole / possible:.2f} times")
    pieces, truth_of_pieces, said = work.train(CUT)
    estimates = estimate_pieces(pieces.reshape(-1, SIDE, SIDE, SIDE))
    possible_of_pieces, of_pieces = error(estimates, truth_of_pieces), error(said, truth_of_pieces)
    work.check(of_pieces <= ALLOWED * possible_of_pieces, f"the error on pieces is {of_pieces:.4f}, the smallest possible one "
               f"{possible_of_pieces:.4f}: {of_pieces / possible_of_pieces:.2f} times")
    mean = error(said.reshape(-1, PIECES).mean(1), truth)
    print(f"the mean over the {PIECES} pieces of a universe has the error {mean:.4f}, that of the best estimates "
          f"{error(estimates.reshape(-1, PIECES).mean(1), truth):.4f}")
    work.check(whole <= SMALLER * of_pieces and whole < mean, f"whole universes give {whole / of_pieces:.2f} of the error of pieces "
               f"(the best estimates {possible / possible_of_pieces:.2f}), and {whole / mean:.2f} of that of the mean over pieces")
    sys.exit(1 if work.failed else 0)


if __name__ == "__main__":
    main()
