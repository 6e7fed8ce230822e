#!/usr/bin/env bash
# One would expect that h5py's libver="latest" costs readers one release of HDF5 at most, and costs
# the same for all datasets. h5py 3.16.0 brings HDF5 2.0.0, and what it writes so can be read by
# HDF5 1.14.6 (h5py 3.15.1, one release before) unless the dataset is compressed: then it cannot be
# opened at all, and the message speaks of a "layout message". libver="v114" keeps both readable.
# Training data are often compressed, and the file looks healthy wherever it was made.
#
# Needs: bash, python3 (3.10 or newer). Downloads about 30 MB. About a quarter of a minute.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
pip=("$work/venv/bin/pip" install --quiet --disable-pip-version-check)
"${pip[@]}" numpy==2.2.6
"${pip[@]}" --no-deps --target "$work/new" h5py==3.16.0
"${pip[@]}" --no-deps --target "$work/old" h5py==3.15.1

cat > "$work/write.py" <<'PYTHON'
import sys
import h5py
import numpy

print(f"h5py {h5py.__version__} writes with HDF5 {h5py.version.hdf5_version}")
for version in ("v114", "latest"):
    for compression in (None, "gzip"):
        with h5py.File(f"{sys.argv[1]}/{version}-{compression}.h5", "w", libver=version) as file:
            file.create_dataset("x", data=numpy.arange(60.0).reshape(12, 5), chunks=(5, 4), compression=compression)
PYTHON
cat > "$work/read.py" <<'PYTHON'
import sys
import h5py

print(f"h5py {h5py.__version__} reads with HDF5 {h5py.version.hdf5_version}")
found = {}
for name in ("v114-None", "v114-gzip", "latest-None", "latest-gzip"):
    with h5py.File(f"{sys.argv[1]}/{name}.h5") as file:
        try:
            found[name] = float(file["x"][11, 4])
        except KeyError as error:
            found[name] = "refused"
            print(f"  {name}: {error}")
print(" ", found)
if found != {"v114-None": 59.0, "v114-gzip": 59.0, "latest-None": 59.0, "latest-gzip": "refused"}:
    sys.exit("changed: only latest-gzip was refused")
print('as found: only libver="latest" together with compression cannot be read one release back.')
PYTHON
PYTHONPATH="$work/new" "$work/venv/bin/python" "$work/write.py" "$work"
PYTHONPATH="$work/old" "$work/venv/bin/python" "$work/read.py" "$work"
