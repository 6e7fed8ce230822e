#!/usr/bin/env bash
# One would expect a step under fully_shard (FSDP2) to gather a parameter for its backward pass only if some
# backward op reads it. The gradient of a look-up reads the indices and the gradient of the output, not the
# table. Still an embedding that is a unit of its own is gathered again before its backward op with
# reshard_after_forward=True: the largest table of a model moves once more than needed in every step. With
# reshard_after_forward=False for that unit there is one gather, and the table stays whole meanwhile.
#
# Needs: bash, python3 (3.10 or newer), torch 2.13.0. FINDINGS_PYTHON names an interpreter that has it;
# otherwise it is downloaded (up to 3 GB). A few seconds without that.
# Seen:
#   reshard_after_forward=True: 2 gathers of the table, 2048 elements each
#   reshard_after_forward=False: 1 gathers of the table, 2048 elements each
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${FINDINGS_PYTHON:-}
if [[ -z $python ]]; then
  python3 -m venv "$folder/env"
  "$folder/env/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
  python=$folder/env/bin/python
fi

cat >"$folder/count.py" <<'PY'
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode

ROWS, WIDTH = 256, 8


class Gathers(TorchDispatchMode):
    """Keeps the sizes of the results of all gathers."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "allgather_base" in str(func) or "all_gather_into_tensor" in str(func):
            self.sizes.append(args[0].numel())
        return func(*args, **(kwargs or {}))


def run(rank, reshard, meeting, results):
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=2)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(ROWS, WIDTH), torch.nn.Linear(WIDTH, 4))
    for layer in model:
        fully_shard(layer, reshard_after_forward=reshard, mesh=dist.init_device_mesh("cpu", (2,)))
    ids = torch.arange(16).reshape(2, 8)
    with Gathers() as gathers:
        model(ids).sum().backward()
    if rank == 0:
        results.put([size for size in gathers.sizes if size == ROWS * WIDTH])
    dist.destroy_process_group()


if __name__ == "__main__":
    if torch.__version__.split("+")[0] != "2.13.0":
        sys.exit(f"expected torch 2.13.0, found {torch.__version__}")
    found = {}
    for reshard in (True, False):
        results = mp.get_context("spawn").SimpleQueue()
        mp.spawn(run, args=(reshard, os.path.join(sys.argv[1], f"meeting-{reshard}"), results), nprocs=2)
        found[reshard] = results.get()
        print(f"reshard_after_forward={reshard}: {len(found[reshard])} gathers of the table, {ROWS * WIDTH} elements each")
    sys.exit(0 if (len(found[True]), len(found[False])) == (2, 1) else 1)
PY
"$python" -W ignore "$folder/count.py" "$folder"
