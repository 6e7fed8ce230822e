#!/usr/bin/env bash
# One would expect a read to fail if the file that holds the data is gone. A virtual dataset of
# HDF5, which makes one array of many files, gives zeros (its fill value) for each file that it does
# not find, without an error or a warning, in the release of HDF5 that h5py 3.16.0 brings. Shapes,
# types and the count of samples stay as they were. A run that is started where one of its shards
# was not copied, or was renamed, trains on zeros. Raw files of a dataset with external storage are
# refused as they should be, and so are external links. Only the list of sources tells what is
# missing.
#
# Needs: bash, python3 (3.10 or newer). Downloads about 25 MB. About a quarter of a minute.
# Seen:
#   all shards there:     [1.0, 2.0, 3.0]
#   the second renamed:   [1.0, 0.0, 3.0]
#   external link to it:  refused, KeyError
#   external raw file:    refused, OSError
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.2.6 h5py==3.16.0

cat > "$work/ask.py" <<'PYTHON'
import os
import sys
import warnings
import h5py
import numpy

os.chdir(sys.argv[1])
print(f"h5py {h5py.__version__} with HDF5 {h5py.version.hdf5_version}")
layout = h5py.VirtualLayout((3,), "f8")
for i in range(3):
    with h5py.File(f"shard{i}.h5", "w") as file:
        file["x"] = numpy.array([i + 1.0])
    layout[i : i + 1] = h5py.VirtualSource(f"shard{i}.h5", "x", (1,))
with h5py.File("whole.h5", "w") as file:
    file.create_virtual_dataset("x", layout)
    file["link"] = h5py.ExternalLink("shard1.h5", "x")
    file.create_dataset("raw", (1,), "f8", external=[("shard1.raw", 0, 8)], data=numpy.array([2.0]))


def read(name):
    with h5py.File("whole.h5") as file:
        try:
            return file[name][:].tolist()
        except (KeyError, OSError) as error:
            return f"refused, {type(error).__name__}"


with warnings.catch_warnings():
    warnings.simplefilter("error")
    before = read("x")
    if [read("link"), read("raw")] != [[2.0], [2.0]]:
        sys.exit("expected that link and raw file are read while they are there")
    os.rename("shard1.h5", "moved.h5")
    os.rename("shard1.raw", "moved.raw")
    found = [read(name) for name in ("x", "link", "raw")]
print("  all shards there:    ", before)
for words, answer in zip(("the second renamed:  ", "external link to it: ", "external raw file:   "), found):
    print(" ", words, answer)
if before != [1.0, 2.0, 3.0] or found != [[1.0, 0.0, 3.0], "refused, KeyError", "refused, OSError"]:
    sys.exit("changed: expected zeros from the virtual dataset alone")
print("as found: a shard that is missing is read as zeros.")
PYTHON
"$work/venv/bin/python" "$work/ask.py" "$work"
