#!/usr/bin/env python3
"""The error that synthetic universes allow (docs/workloads/cosmoflow.md): how well their parameter can be estimated at best.

    .venv/bin/python examples/cosmoflow/allowed_error.py [--width 8] [--cut 2] [--exponent 1]

For some parameters it prints the bound of Cramer and Rao, which no unbiased estimate beats: the inverse root of the Fisher
information of a Gaussian field, tr((C^-1 C')^2) / 2 of its covariance C and the derivative C'. For whole universes C is diagonal
in wave numbers, for pieces it is the matrix over their places.
"""
import argparse

import numpy

STEP = 1e-4


def power(parameter, width, exponent):
    """At each wave number of a universe (tessera/data/universes.h)."""
    number = numpy.fft.fftfreq(width) * width
    square = number[:, None, None] ** 2 + number[:, None] ** 2 + number ** 2
    square[0, 0, 0] = 1
    found = square ** (-(exponent + parameter) / 2)
    found[0, 0, 0] = 0
    return found / found.mean()


def covariance(parameter, width, exponent, side):
    """Of the places of a piece: that of two places depends on their distance alone."""
    places = numpy.stack(numpy.meshgrid(*[numpy.arange(side)] * 3, indexing="ij"), -1).reshape(-1, 3)
    z, y, x = numpy.moveaxis((places[:, None] - places) % width, -1, 0)
    return numpy.fft.ifftn(power(parameter, width, exponent)).real[z, y, x]


def bound_of_whole(parameter, *universe):
    below, above = (numpy.log(power(parameter + sign * STEP, *universe).reshape(-1)[1:]) for sign in (-1, 1))
    return (((above - below) / (2 * STEP)) ** 2).sum() ** -0.5 * 2 ** 0.5


def bound_of_piece(parameter, *piece):
    below, above = (covariance(parameter + sign * STEP, *piece) for sign in (-1, 1))
    product = numpy.linalg.solve(covariance(parameter, *piece), (above - below) / (2 * STEP))
    return (product * product.T).sum() ** -0.5 * 2 ** 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--cut", type=int, default=2)
    parser.add_argument("--exponent", type=int, default=1)
    options = parser.parse_args()
    side = options.width // options.cut
    print(f"parameter, error allowed by a whole universe of {options.width}^3, by a piece of {side}^3, their ratio")
    for parameter in (-0.9, -0.5, 0, 0.5, 0.9):
        whole, piece = bound_of_whole(parameter, options.width, options.exponent), bound_of_piece(parameter, options.width, options.exponent, side)
        print(f"{parameter:5.1f} {whole:8.4f} {piece:8.4f} {piece / whole:6.2f}", flush=True)


if __name__ == "__main__":
    main()
