#!/usr/bin/env python3
"""A small CosmoFlow on synthetic universes: how near does it come to the error that the universes allow, and what is lost
where volumes are cut?

    .venv/bin/python examples/universes/universes.py [--program build/tessera]

A universe is a Gaussian random field on 16^3 places, periodic, of mean 0 and variance 1, whose power at the wave number k is
proportional to k^n; n is drawn evenly from [-2, 0]. The network is to say n. No unbiased estimate has a smaller standard
deviation than 1 / sqrt(I), where I is half of the sum over all waves of (d log power / d n)^2 (Cramer and Rao): what the
generator allows. One network is trained on whole universes, and one on the same universes cut into eight cubes of 8^3, with
as many places a step. The exit code is 0 if these hold, else 1:
  - on 400 universes that were held back, the error of the first is at most 1.5 times the least one;
  - it is smaller than the error of the second on its cubes.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import numpy

SIDE, CUT = 16, 8
TRAIN, TEST = 3000, 400
LOW, HIGH = -2.0, 0.0  # of the exponent
BATCH = 20
HERE = pathlib.Path(__file__).resolve().parent


def log_wave_numbers():
    """Of the waves of the field, in units of the longest one; the constant wave, which has no power, is left at 0."""
    k = numpy.fft.fftfreq(SIDE) * SIDE
    squares = k[:, None, None] ** 2 + k[None, :, None] ** 2 + k[None, None, :] ** 2
    squares[0, 0, 0] = 1
    return 0.5 * numpy.log(squares)


def powers(exponent, logs):
    power = numpy.exp(exponent * logs)
    power[0, 0, 0] = 0
    return power / power.sum() * power.size


def make(random, count):
    logs = log_wave_numbers()
    exponents = random.uniform(LOW, HIGH, count)
    volumes = numpy.empty((count, 1, SIDE, SIDE, SIDE), numpy.float32)
    for volume, exponent in zip(volumes, exponents):
        waves = numpy.fft.fftn(random.normal(size=logs.shape))
        volume[0] = numpy.fft.ifftn(waves * numpy.sqrt(powers(exponent, logs))).real
    return volumes, exponents


def least_error(exponents):
    """The root of the mean over the exponents of the least variance of an estimate."""
    logs, variances = log_wave_numbers(), []
    there = numpy.ones(logs.shape, bool)
    there[0, 0, 0] = False
    for exponent in exponents:
        power = powers(exponent, logs)
        slope = logs[there] - (power * logs).sum() / power.sum()  # of the logarithm of the power
        variances.append(2 / (slope**2).sum())
    return float(numpy.mean(variances)) ** 0.5


def cut(volumes, targets):
    n = SIDE // CUT
    cubes = volumes.reshape(len(volumes), n, CUT, n, CUT, n, CUT).transpose(0, 1, 3, 5, 2, 4, 6)
    return cubes.reshape(-1, 1, CUT, CUT, CUT), numpy.repeat(targets, n**3)


class Workload:
    def __init__(self, options):
        self.options, self.folder = options, options.folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)

    def run(self, *arguments):
        answer = subprocess.run([self.options.program, *map(str, arguments)], capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            sys.exit(f"{arguments[0]}: exit code {answer.returncode}: {answer.stderr.strip()}")
        return json.loads(answer.stdout.splitlines()[-1])

    def data(self, name, volumes, targets):
        for what, array in (("volumes", volumes), ("targets", targets[:, None].astype(numpy.float32))):
            numpy.save(self.folder / f"{name}_{what}.npy", numpy.ascontiguousarray(array))
        return f'{{ arrays = {{ volume = "{self.folder}/{name}_volumes.npy", targets = "{self.folder}/{name}_targets.npy" }} }}'

    def error(self, name, side, batch, train, test):
        """Trains on (volumes, targets); what the network says of the test volumes, and its root mean square error."""
        model = f"cosmoflow:width={side},channels=1,outputs=1,filters=4,dropout=0"
        keys = {"model": json.dumps(model), "data": self.data(name, *train), "batch": batch, "steps": self.options.steps,
                "checkpoint.dir": json.dumps(f"{self.folder}/{name}")}
        self.run("train", HERE / "universes.toml", *[part for key, value in keys.items() for part in ("--set", f"{key}={value}")],
                 "--plan", self.options.plan, "--json")
        out = self.folder / "out.npy"
        self.run("evaluate", model, "--weights", f"{self.folder}/{name}", "--data", self.data(f"{name}_test", *test), "--batch", batch,
                 "--out", out, "--json")
        made = numpy.load(out)[:, 0]
        return made, float(numpy.mean((made - test[1]) ** 2)) ** 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/tessera")
    parser.add_argument("--plan", default="serial", help="of both trainings, for example spatial(d=2)")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/universes"))
    options = parser.parse_args()
    work, random = Workload(options), numpy.random.default_rng(7)
    volumes, exponents = make(random, TRAIN)
    test_volumes, test_exponents = make(random, TEST)
    targets, test_targets = exponents - (LOW + HIGH) / 2, test_exponents - (LOW + HIGH) / 2  # around 0
    least = least_error(test_exponents)
    made, whole = work.error("whole", SIDE, BATCH, (volumes, targets), (test_volumes, test_targets))
    cubes = (SIDE // CUT) ** 3
    _, parts = work.error("cut", CUT, BATCH * cubes, cut(volumes, targets), cut(test_volumes, test_targets))
    spread = float(test_targets.std())
    print(f"error of the exponent, which spreads by {spread:.3f}: the generator allows {least:.4f}; whole universes {whole:.4f} "
          f"({whole / least:.2f} times that), cubes of {CUT}^3 {parts:.4f}")
    near, larger_is_better = whole <= 1.5 * least, whole < parts
    print(("holds" if near else "DOES NOT HOLD") + ": at most 1.5 times the error that the generator allows")
    print(("holds" if larger_is_better else "DOES NOT HOLD") + ": whole volumes give a smaller error than cut ones")
    sys.exit(0 if near and larger_is_better else 1)


if __name__ == "__main__":
    main()
