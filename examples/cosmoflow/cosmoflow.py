#!/usr/bin/env python3
"""A small CosmoFlow on synthetic universes (after Oyama et al., 2021): is its error the one that the universes allow, and do
larger volumes give a smaller error than pieces of them?

    .venv/bin/python examples/cosmoflow/cosmoflow.py [--program build/tessera] [--seeds 3]

Trains cosmoflow.toml on whole universes of 8^3 places, and the same network on pieces of 4^3 of such universes, each with its
universe's parameter, and compares the errors on universes of another seed with the smallest ones that are possible: those of
the mean of the parameter given the volume (Bayes), by the Gaussian law that the volumes were drawn by. Errors are roots of mean
squares, of a parameter that is uniform in [-1, 1]. The exit code is 0 if these hold for each seed, else 1:
  - the network's error on whole universes is at most 1.25 times the smallest possible one;
  - so is its error on pieces, of theirs;
  - its error on whole universes is at most half of that on pieces.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys

import numpy

HERE = pathlib.Path(__file__).resolve().parent
WIDTH, CUT, EXPONENT = 8, 2, 1
SIDE = WIDTH // CUT
TEST, TEST_SEED = 2048, 1000003
ALLOWED, SMALLER = 1.25, 0.5


def power(parameter):
    """At each wave number of a universe (tessera/data/universes.h)."""
    number = numpy.fft.fftfreq(WIDTH) * WIDTH
    square = number[:, None, None] ** 2 + number[:, None] ** 2 + number ** 2
    square[0, 0, 0] = 1
    found = square ** (-(EXPONENT + parameter) / 2)
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
        covariance = numpy.fft.ifftn(power(t)).real[z, y, x]
        logarithm = numpy.linalg.slogdet(covariance)[1]
        likelihoods.append(-((columns * numpy.linalg.solve(covariance, columns)).sum(0) + logarithm) / 2)
    return mean_of(parameters, numpy.stack(likelihoods, 1))


def error(estimates, truth):
    return float(numpy.sqrt(((estimates - truth) ** 2).mean()))


class Workload:
    """Runs of the program in a folder of their own."""

    def __init__(self, options):
        self.program, self.folder, self.more = options.program, options.folder.resolve(), options.set
        self.folder.mkdir(parents=True, exist_ok=True)

    def run(self, *arguments):
        answer = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            sys.exit(f"{' '.join(map(str, arguments))}: exit code {answer.returncode}: {answer.stderr.strip()}")

    @staticmethod
    def model(cut):
        return f"cosmoflow:width={WIDTH // cut},channels=1,outputs=1,filters=16,widest=32,dropout=0"

    @staticmethod
    def data(samples, seed, cut):
        call = f"universes(width={WIDTH},samples={samples},seed={seed},cut={cut},exponent={EXPONENT})"
        return f'{{ arrays = {{ volume = "{call}:volumes", targets = "{call}:parameters" }} }}'

    def train(self, cut, seed):
        """Returns where the weights are."""
        weights = self.folder / f"cut{cut}_seed{seed}"
        shutil.rmtree(weights, ignore_errors=True)
        keys = {"model": json.dumps(self.model(cut)), "data": self.data(10 ** 6, seed, cut), "seed": seed,
                "eval.data": self.data(TEST, TEST_SEED, cut), "eval.every": 10 ** 6,
                "checkpoint.dir": json.dumps(str(weights)), "checkpoint.every": 10 ** 6}
        sets = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
        more = [part for setting in self.more for part in ("--set", setting)]
        self.run("train", HERE / "cosmoflow.toml", *sets, *more, "--json")
        return weights

    def look(self, cut, weights, *tensor):
        """At the volumes that nothing was trained on: what the network says of them, or the tensor itself."""
        out, held_back = self.folder / "look.npy", self.data(TEST * cut ** 3, TEST_SEED, cut)
        self.run("evaluate", self.model(cut), "--weights", weights, "--data", held_back, "--batch", 32, "--out", out, "--json", *tensor)
        return numpy.load(out)


class Compared:
    """The test volumes of whole universes, or of pieces, and the errors of the best estimates and of networks on them."""

    def __init__(self, work, cut, estimate, weights):
        self.work, self.cut = work, cut
        self.truth = work.look(cut, weights, "--tensor", "targets")[:, 0]
        side = WIDTH // cut
        volumes = work.look(cut, weights, "--tensor", "volume").reshape(-1, side, side, side)
        self.best = estimate(volumes)
        self.possible = error(self.best, self.truth)

    def of_universes(self, estimates):
        """The error of the means over all pieces of a universe."""
        return error(estimates.reshape(TEST, -1).mean(1), self.truth.reshape(TEST, -1)[:, 0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/tessera")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/cosmoflow"))
    parser.add_argument("--seeds", type=int, default=1, help="of the universes to learn from, and of the network: 1, 2, ...")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the run file")
    options = parser.parse_args()
    work, compared, errors, means, failed = Workload(options), {}, {1: [], CUT: []}, [], []

    def check(holds, what):
        print(("holds: " if holds else "DOES NOT HOLD: ") + what, flush=True)
        if not holds:
            failed.append(what)

    for seed in range(1, options.seeds + 1):
        for cut, estimate, name in ((1, estimate_whole, "whole universes"), (CUT, estimate_pieces, "pieces")):
            weights = work.train(cut, seed)
            if cut not in compared:
                compared[cut] = Compared(work, cut, estimate, weights)
            one, said = compared[cut], work.look(cut, weights)[:, 0]
            errors[cut].append(error(said, one.truth))
            ratio = errors[cut][-1] / one.possible
            check(ratio <= ALLOWED, f"seed {seed}: the error on {name} is {errors[cut][-1]:.4f}, {ratio:.2f} times the smallest "
                  f"possible one, {one.possible:.4f}")
        means.append(one.of_universes(said))
        share = errors[1][-1] / errors[CUT][-1]
        check(share <= SMALLER, f"seed {seed}: whole universes give {share:.2f} of the error of pieces (the best estimates "
              f"{compared[1].possible / compared[CUT].possible:.2f})")
    print(f"without looking: {error(0, compared[1].truth):.4f}")
    for name, some in (("whole universes", errors[1]), ("pieces", errors[CUT]), ("the mean over the pieces of a universe", means)):
        print(f"{name}: {numpy.mean(some):.4f}, from {min(some):.4f} to {max(some):.4f} over {len(some)} seeds")
    print(f"the mean of the best estimates of the pieces of a universe: {compared[CUT].of_universes(compared[CUT].best):.4f}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
