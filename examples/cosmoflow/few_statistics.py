#!/usr/bin/env python3
"""Why a small network misses the error that universes allow (docs/workloads/cosmoflow.md): what estimates by a few numbers of a
universe reach.

    .venv/bin/python examples/cosmoflow/few_statistics.py [--width 8] [--exponent 1] [--universes 3000]

The numbers are means of absolute values of the field behind filters of 3^3, as the first convolution with its rectifiers and
averages makes them: one for each two filters. A polynomial of their logarithms is fitted to the parameter on two thirds of the
universes and measured on the others. Means are taken evenly, or as the averages of the model do: over windows of 3 places, 2
apart, which count every other place twice in each dim.
"""
import argparse

import allowed_error
import numpy

# Weights of places by their distance from the middle of the filter: 0, 1, 2 or 3 steps along axes.
FILTERS = ((6, -1, 0, 0), (1, 0, 0, 0), (1, 1, 1, 1), (0, -2, 1, 0))
STEPS = [(z, y, x) for z in (-1, 0, 1) for y in (-1, 0, 1) for x in (-1, 0, 1)]


def maps(field):
    """Behind each filter, with zeros outside as convolutions have them."""
    width, padded = len(field), numpy.pad(field, 1)
    rings = numpy.zeros((4, *field.shape))
    for step in STEPS:
        rings[sum(map(abs, step))] += padded[tuple(slice(1 + at, 1 + at + width) for at in step)]
    return numpy.tensordot(FILTERS, rings, 1)


def windows(width):
    """How often averages over 3 places, 2 apart, count each place; the sum is 1."""
    along = numpy.ones(width)
    along[1:-1:2] = 2
    counts = along[:, None, None] * along[:, None] * along
    return counts / counts.sum()


def error_of(numbers, truth):
    logarithms = numpy.log(numbers)
    logarithms = (logarithms - logarithms.mean(0)) / logarithms.std(0)
    columns = [numpy.ones(len(truth)), *logarithms.T, *(logarithms ** 3).T]
    columns += [logarithms[:, i] * logarithms[:, j] for i in range(logarithms.shape[1]) for j in range(i + 1)]
    terms, fitted = numpy.stack(columns, 1), len(truth) * 2 // 3
    factors = numpy.linalg.lstsq(terms[:fitted], truth[:fitted], rcond=None)[0]
    return numpy.sqrt(((terms[fitted:] @ factors - truth[fitted:]) ** 2).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--exponent", type=int, default=1)
    parser.add_argument("--universes", type=int, default=3000)
    options = parser.parse_args()
    random, truth, found = numpy.random.default_rng(0), [], {"evenly": [], "as the model does": []}
    for _ in range(options.universes):
        truth.append(random.uniform(-1, 1))
        root = numpy.sqrt(allowed_error.power(truth[-1], options.width, options.exponent))
        noise = numpy.fft.fftn(random.normal(size=(options.width,) * 3))
        sizes = abs(maps(numpy.fft.ifftn(noise * root).real))
        for how, weights in (("evenly", 1 / options.width ** 3), ("as the model does", windows(options.width))):
            found[how].append((sizes * weights).sum((1, 2, 3)))
    truth = numpy.array(truth)
    bound = numpy.sqrt(numpy.mean([allowed_error.bound_of_whole(t, options.width, options.exponent) ** 2 for t in numpy.linspace(-1, 1, 21)]))
    print(f"root of the mean square of the bound: {bound:.4f}")
    for how, numbers in found.items():
        for count in (2, 4):
            print(f"{count} numbers, averaged {how}: {error_of(numpy.array(numbers)[:, :count], truth):.4f}", flush=True)


if __name__ == "__main__":
    main()
