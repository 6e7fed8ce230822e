#!/usr/bin/env python3
"""GA-Planes in the plane: a low-rank matrix plus one of low resolution, beside other ways to spend a budget of numbers.

    .venv/bin/python examples/ga_planes/plane.py [--program build/tessera] [--budgets 1024 2048 4096] [--steps 1500]

An image of 128 x 128 pixels (1/f noise and six discs, seed 1, values from 0 to 1) is approximated by so many numbers, and the
peak signal-to-noise ratio in dB is printed:
- low rank: the truncated singular value decomposition, 256 numbers a rank;
- low rank + low resolution, U V^T + upsample(L): the best split by alternating projection;
- low rank + sparse, three numbers an entry (value, row, column), and with indices free: alternating projection;
- the same model as the second, trained by `tessera train` as `ga_planes:space=2,training=linear,combine=product`.
Exit code 1 unless low rank + low resolution is best where indices count, and the trained model is at most 0.1 dB behind
alternating projection at each budget.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SIDE = 128
DISCS = 6
ALLOWED_DB = 0.1


def make_image(seed):
    random = numpy.random.default_rng(seed)
    frequency = numpy.fft.fftfreq(SIDE)
    radius = numpy.hypot(frequency[:, None], frequency[None])
    radius[0, 0] = 1
    spectrum = (random.normal(size=(SIDE, SIDE)) + 1j * random.normal(size=(SIDE, SIDE))) / radius
    spectrum[0, 0] = 0
    image = numpy.fft.ifft2(spectrum).real
    image /= image.std()
    rows, columns = numpy.mgrid[0:SIDE, 0:SIDE]
    for _ in range(DISCS):
        column, row = random.uniform(0, SIDE, 2)
        size = random.uniform(6, 24)
        image[(columns - column) ** 2 + (rows - row) ** 2 < size * size] += 1.5 * random.normal()
    image -= image.min()
    return image / image.max()


def psnr(approximation, image):
    return -10 * numpy.log10(((approximation - image) ** 2).mean())


def low_rank(matrix, rank):
    left, values, right = numpy.linalg.svd(matrix, full_matrices=False)
    return (left[:, :rank] * values[:rank]) @ right[:rank]


def upsampling(places):
    """The matrix of linear interpolation from so many places to the pixels, corners aligned."""
    at = numpy.arange(SIDE) * (places - 1) / (SIDE - 1)
    low = numpy.minimum(at.astype(int), places - 2)
    matrix = numpy.zeros((SIDE, places))
    matrix[numpy.arange(SIDE), low] = 1 - (at - low)
    matrix[numpy.arange(SIDE), low + 1] += at - low
    return matrix


def with_low_resolution(image, rank, places, rounds):
    up = upsampling(places)
    down = numpy.linalg.pinv(up)
    smooth = numpy.zeros_like(image)
    for _ in range(rounds):
        product = low_rank(image - smooth, rank)
        smooth = up @ (down @ (image - product) @ down.T) @ up.T
    return product + smooth


def with_entries(image, rank, entries, rounds):
    sparse = numpy.zeros_like(image)
    for _ in range(rounds):
        product = low_rank(image - sparse, rank)
        rest = image - product
        least = numpy.partition(numpy.abs(rest).ravel(), -entries)[-entries] if entries else numpy.inf
        sparse = numpy.where(numpy.abs(rest) >= least, rest, 0)
    return product + sparse


def train(program, folder, rank, places, steps):
    """The signal-to-noise ratio of the trained model over all pixels."""
    model = f"ga_planes:space=2,training=linear,combine=product,lines={rank},line_size={SIDE},planes=1,plane_size={places}," \
            "samples=0,init=0.3"
    arrays = f'{{ arrays = {{ points = "{folder}/points.npy", targets = "{folder}/targets.npy" }} }}'
    command = [program, "train", "--json", str(ROOT / "examples" / "ga_planes" / "plane.toml"), "--steps", str(steps)]
    for setting in (f"model={model}", f"data={arrays}", f"eval.data={arrays}", f"eval.every={steps}"):
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        raise SystemExit(f"plane: {done.stderr.strip()}")
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    loss = [report["eval_loss"] for report in reports if report.get("eval_loss") is not None][-1]
    return -10 * numpy.log10(loss)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build" / "tessera"))
    parser.add_argument("--budgets", type=int, nargs="+", default=[1024, 2048, 4096])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=30, help="of alternating projection")
    options = parser.parse_args()
    image = make_image(seed=1)
    line = 2 * SIDE  # numbers of a rank
    failures = []
    with tempfile.TemporaryDirectory(prefix="tessera_plane_") as folder:
        across = numpy.linspace(-1, 1, SIDE)
        points = numpy.stack(numpy.meshgrid(across, across, indexing="ij"), -1).reshape(-1, 2)
        numpy.save(f"{folder}/points.npy", points.astype(numpy.float32))
        numpy.save(f"{folder}/targets.npy", image.reshape(-1).astype(numpy.float32))
        print("| budget (numbers) | low rank | low rank + low resolution | trained | + sparse, 3 numbers an entry | "
              "+ sparse, indices free |\n|---|---|---|---|---|---|")
        for budget in options.budgets:
            ranks = budget // line
            only = psnr(low_rank(image, ranks), image)
            both, rank, places = max(
                (psnr(with_low_resolution(image, r, places, options.rounds), image), r, places)
                for r in range(1, ranks) for places in [int((budget - line * r) ** 0.5)])
            paid, free = (max(psnr(with_entries(image, r, (budget - line * r) // cost, options.rounds), image)
                              for r in range(ranks + 1)) for cost in (3, 1))
            trained = train(os.path.abspath(options.program), folder, rank, places, options.steps)
            print(f"| {budget} | {only:.2f} | {both:.2f} (rank {rank}, {places} x {places}) | {trained:.2f} | {paid:.2f} | "
                  f"{free:.2f} |", flush=True)
            if both < max(only, paid):
                failures.append(f"{budget} numbers: expected low rank + low resolution to be best, found {both:.2f} dB")
            if trained < both - ALLOWED_DB:
                failures.append(f"{budget} numbers: expected the trained model within {ALLOWED_DB} dB of {both:.2f} dB, "
                                f"found {trained:.2f} dB")
    for failure in failures:
        print(f"plane: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
