#!/usr/bin/env python3
"""Self-discipline on multiple channels (SMC, Zhao, Luo and Wang, 2023), small: does learning from one's own soft labels
of the step before curb the late drop of the accuracy when labels are wrong?

    .venv/bin/python examples/smc/smc.py [--program build/tessera] [--seeds 5]

Makes 1,000 images of 16 x 16 pixels (10 smooth random templates, moved, mirrored, with noise), 40 % of whose labels are
replaced by random ones, and 500 with right labels; trains examples/smc/smc.toml for each seed with soft labels
(alpha = 0.9) and without (alpha = 0, all else equal); and prints the late drop of each, the accuracy behind the last pass
minus that behind the best. The exit code is 0 if the mean late drop is smaller with soft labels, and two and four ranks
compute what one computes; else 1.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import numpy

CLASSES, CHANNELS, SIDE = 10, 3, 16
TRAIN, EVAL = 1000, 500
WRONG = 0.4  # share of the training labels
NOISE = 4.0
HERE = pathlib.Path(__file__).resolve().parent


def templates(random):
    """Sums of a few waves: one map of each class and colour."""
    y, x = numpy.mgrid[0:SIDE, 0:SIDE] / SIDE
    maps = numpy.zeros((CLASSES, CHANNELS, SIDE, SIDE))
    for one in maps.reshape(-1, SIDE, SIDE):
        for _ in range(4):
            u, v = random.integers(-3, 4, 2)
            one += random.normal() * numpy.cos(2 * numpy.pi * (u * x + v * y) + random.uniform(0, 2 * numpy.pi))
    return maps / maps.std()


def samples(random, maps, count):
    labels = numpy.arange(count) % CLASSES
    images = maps[labels]
    for i in range(count):
        images[i] = numpy.roll(images[i], random.integers(-2, 3, 2), (1, 2))
        if random.random() < 0.5:
            images[i] = images[i, :, :, ::-1]
    return (images + NOISE * random.normal(size=images.shape)).astype(numpy.float32), labels


def make_data(folder, seed):
    random = numpy.random.default_rng(seed)
    maps = templates(random)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", TRAIN), ("eval", EVAL)):
        images, labels = samples(random, maps, count)
        if name == "train":
            wrong = random.random(count) < WRONG
            labels = numpy.where(wrong, random.integers(0, CLASSES, count), labels)
        numpy.save(folder / f"{name}_images.npy", images)
        numpy.save(folder / f"{name}_labels.npy", labels.astype(numpy.int64))


def arrays(folder, name):
    images, labels = folder / f"{name}_images.npy", folder / f"{name}_labels.npy"
    return f'arrays = {{ images = "{images}", images_ahead = "{images}", targets = "{labels}" }}'


def run(program, *arguments):
    answer = subprocess.run([program, *arguments], capture_output=True, text=True)
    if answer.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: exit code {answer.returncode}: {answer.stderr.strip()}")
    return [json.loads(line) for line in answer.stdout.splitlines()]


def model(alpha, steps):
    return f"smc:width=16,image={SIDE},classes={CLASSES},ghost=50,steps={steps},alpha={alpha}"


def accuracies(options, folder, seed, alpha):
    """Behind each pass over the samples."""
    keys = {
        "model": json.dumps(model(alpha, options.steps)),
        "steps": options.steps,
        "seed": seed,
        "data": "{ " + arrays(folder, "train") + ", ahead = { images_ahead = 1 }, shift = 1, flip = true }",
        "eval.data": "{ " + arrays(folder, "eval") + " }",
    }
    sets = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
    steps = run(options.program, "train", str(HERE / "smc.toml"), *sets, "--json")
    return [step["eval_accuracy"] for step in steps if "step" in step and "eval_accuracy" in step]


def equals_serial(options):
    """Two and four ranks, each with the soft labels of its own samples."""
    for ranks in (2, 4):
        answer = run(options.program, "verify", model(0.9, 8).replace("ghost=50", "ghost=2"), "--plan", f"data_parallel({ranks})",
                     "--batch", "8", "--steps", "4", "--optimizer", "sgd", "--json")[0]
        worst = max(answer["max_rel_error"].values())
        print(f"{ranks} ranks: largest relative difference from one rank in 4 steps {worst:.1e} (float64)")
        if not answer["ok"] or worst > 1e-9:
            return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/tessera")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/smc"))
    options = parser.parse_args()
    drops = {0.9: [], 0: []}
    last = {0.9: [], 0: []}
    print("seed   with soft labels: best, last, drop   without: best, last, drop   (accuracy, %)")
    for seed in range(1, options.seeds + 1):
        folder = (options.folder / f"seed{seed}").resolve()
        make_data(folder, seed)
        line = f"{seed:4}"
        for alpha in drops:
            found = accuracies(options, folder, seed, alpha)
            drops[alpha].append(found[-1] - max(found))
            last[alpha].append(found[-1])
            line += f"{100 * max(found):21.1f}{100 * found[-1]:7.1f}{100 * drops[alpha][-1]:7.1f}"
        print(line, flush=True)
    means = {alpha: 100 * float(numpy.mean(values)) for alpha, values in drops.items()}
    print(f"mean late drop: {means[0.9]:.2f} points with soft labels, {means[0]:.2f} without")
    print(f"mean last accuracy: {100 * numpy.mean(last[0.9]):.2f} % with soft labels, {100 * numpy.mean(last[0]):.2f} % without")
    holds = abs(means[0.9]) < abs(means[0])
    print("the claim holds" if holds else "the claim does not hold")
    sys.exit(0 if equals_serial(options) and holds else 1)


if __name__ == "__main__":
    main()
