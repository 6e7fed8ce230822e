#!/usr/bin/env bash
# One would expect the same arrays and the same metadata to give the same file. safetensors writes
# the entries of __metadata__ in an order that is drawn anew for each file: four entries, saved
# twenty times by one process, give many different files of one length. Checksums of weights, stores
# that keep equal files once, and builds that should be reproducible see other bytes each time. With
# one entry or none all files are equal, so most tests do not show it; one entry that holds JSON
# avoids it.
#
# Needs: bash, python3 (3.10 or newer). Downloads about 20 MB. About ten seconds.
# Seen (how many sorts differs from run to run):
#   20 files with 0 or 1 entries of metadata: 1 sort of bytes
#   20 files with 4 entries of metadata: 14 sorts of bytes, all of 288 bytes
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.2.6 safetensors==0.8.0

cat > "$work/ask.py" <<'PYTHON'
import sys
import numpy
import safetensors
import safetensors.numpy

arrays = {"weight": numpy.arange(6.0).reshape(2, 3), "bias": numpy.zeros(3)}


def files(entries):
    metadata = {f"key{i}": f"value {i}" for i in range(entries)}
    return [safetensors.numpy.save(arrays, metadata=metadata) for _ in range(20)]


print("safetensors", safetensors.__version__)
few, many = files(0), files(4)
kinds = len(set(few)), len(set(files(1))), len(set(many))
sizes = {len(file) for file in many}
print("  20 files with 0 or 1 entries of metadata:", "1 sort of bytes" if kinds[:2] == (1, 1) else f"{kinds[:2]} sorts")
print(f"  20 files with 4 entries of metadata: {kinds[2]} sorts of bytes, all of {max(sizes)} bytes")
# That 20 orders of 24 are all the same happens by chance about once in 10^26 times.
if kinds[:2] != (1, 1) or kinds[2] == 1 or len(sizes) != 1:
    sys.exit("changed: expected different files with four entries alone")
print("as found: what is saved twice is not the same file.")
PYTHON
"$work/venv/bin/python" "$work/ask.py"
