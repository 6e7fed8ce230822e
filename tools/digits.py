#!/usr/bin/env python3
"""scikit-learn's handwritten digits (1,797 images of 8 x 8 pixels, from 0 to 16) as NumPy arrays that a run file names.

    .venv/bin/python tools/digits.py --out runs/digits

Writes train_images.npy [1437, 8, 8] and train_labels.npy [1437], and every fifth sample as eval_images.npy [360, 8, 8] and
eval_labels.npy [360]; all of bytes. Nothing is downloaded: the digits come with scikit-learn (scripts/setup installs it).
"""
import argparse
import os
import sys

sys.path.pop(0)  # this folder: its tokenize.py is not the module that scikit-learn asks for
import pathlib  # noqa: E402

HELD_BACK = 5  # one in so many


def fail(message):
    print(f"digits: {message}", file=sys.stderr)
    sys.exit(2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder for what is written")
    folder = pathlib.Path(parser.parse_args().out)
    try:
        import numpy
        import sklearn.datasets
    except ImportError:
        fail("expected the Python package `scikit-learn`; scripts/setup installs it: .venv/bin/python tools/digits.py")
    digits = sklearn.datasets.load_digits()
    held_back = numpy.arange(len(digits.target)) % HELD_BACK == 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, chosen in (("train", ~held_back), ("eval", held_back)):
            for kind, values in (("images", digits.images), ("labels", digits.target)):
                path = folder / f"{name}_{kind}.npy"
                partial = path.with_name(path.name + ".part")
                with open(partial, "wb") as file:
                    numpy.save(file, values[chosen].astype(numpy.uint8))
                os.replace(partial, path)
            print(f"{folder}/{name}_images.npy, {name}_labels.npy: {chosen.sum():,} samples")
    except OSError as error:
        fail(f"cannot write '{error.filename}': {error.strerror}")


if __name__ == "__main__":
    main()
