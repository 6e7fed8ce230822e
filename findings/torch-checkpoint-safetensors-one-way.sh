#!/usr/bin/env bash
# torch.distributed.checkpoint's FileSystemWriter has the argument serialization_format with two values.
# One would expect FileSystemReader to read both. A folder that is written with SAFETENSORS is complete,
# and safetensors itself reads its numbers, but FileSystemReader gives every tensor to torch.load and ends
# in an error, although the folder comes from the same release. Who needs such a folder must read the
# files in another way; who wants to go on from a checkpoint must not choose this format.
#
# Needs: bash, python3 (3.10 or newer), torch 2.13.0 and safetensors 0.8.0. FINDINGS_PYTHON names an
# interpreter that has exactly these; otherwise they are downloaded (with PyTorch: up to 3 GB).
# A few seconds without the download.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${FINDINGS_PYTHON:-}
if [[ -z $python ]]; then
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 safetensors==0.8.0 numpy
  python=$work/venv/bin/python
fi

cat > "$work/ask.py" <<'PYTHON'
import pathlib
import sys
import warnings

import safetensors
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter, SerializationFormat

warnings.simplefilter("ignore")
versions = (torch.__version__.split("+")[0], safetensors.__version__)
print("torch %s, safetensors %s" % versions)
if versions != ("2.13.0", "0.8.0"):
    sys.exit("expected torch 2.13.0 and safetensors 0.8.0")

weight = torch.arange(6.0).reshape(2, 3)
for form in (SerializationFormat.TORCH_SAVE, SerializationFormat.SAFETENSORS):
    folder = pathlib.Path(sys.argv[1]) / form.value
    dcp.save({"weight": weight}, storage_writer=FileSystemWriter(folder, serialization_format=form))
    into = {"weight": torch.zeros(2, 3)}
    try:
        dcp.load(into, storage_reader=FileSystemReader(folder))
        answer = "loaded" if torch.equal(into["weight"], weight) else "other numbers"
    except dcp.CheckpointException as error:
        answer = type(error).__name__
    print(f"{form.value}: {answer}")
    if answer != {"torch_save": "loaded", "safetensors": "CheckpointException"}[form.value]:
        sys.exit("expected torch_save to be loaded, and safetensors to end in a CheckpointException")
arrays = [array for file in folder.iterdir() if file.suffix == ".distcp"
          for array in safetensors.torch.load(file.read_bytes()).values()]
print("safetensors reads the same file: %s" % [torch.equal(array, weight) for array in arrays])
if [torch.equal(array, weight) for array in arrays] != [True]:
    sys.exit("expected one array with the numbers that were saved")
PYTHON
"$python" "$work/ask.py" "$work"
