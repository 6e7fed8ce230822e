#!/usr/bin/env bash
# One would expect PyTorch's ways to add up a tensor over ranks to have one gradient. In tensor
# parallelism every rank computes the same loss of the same sum, so the gradient passes through
# unchanged. A DTensor that goes from Partial to Replicate does that. The functional all_reduce, to
# which PyTorch's deprecated ones refer, takes the loss to be the sum of all ranks' losses and adds
# up the gradients as well: below each such layer that is written by hand, gradients are larger by
# the number of ranks. Adam hides that the weights' gradients are too large; clipping by norm does
# not.
#
# Needs: bash, python3 (3.10 or newer), torch 2.13.0. FINDINGS_PYTHON names an interpreter that has
# exactly this one; otherwise it is downloaded (up to 3 GB). About a quarter of a minute without it.
# Seen, for the loss 3 * sum over two ranks of x, that each rank computes:
#   DTensor, Partial to Replicate:  value 9, gradients 3 and 3
#   functional all_reduce:          value 9, gradients 6 and 6
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${FINDINGS_PYTHON:-}
if [[ -z $python ]]; then
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
  python=$work/venv/bin/python
fi

cat > "$work/ask.py" <<'PYTHON'
import sys
import warnings
import torch
import torch.distributed
import torch.distributed._functional_collectives as functional
from torch.distributed.tensor import DTensor, Partial, Replicate


def rank_main(rank, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    ways = (lambda x: DTensor.from_local(x, mesh, [Partial()]).redistribute(mesh, [Replicate()]).to_local(),
            lambda x: functional.all_reduce(x, "sum", mesh))
    answers = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for way in ways:
            x = torch.full((1,), rank + 1.0, requires_grad=True)
            loss = 3 * way(x).sum()
            loss.backward()
            answers.append([loss.item(), x.grad.item()])
    warned = [str(w.message) for w in caught if "grad" in str(w.message) or "backward" in str(w.message)]
    torch.save([answers, warned], f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    version = torch.__version__.split("+")[0]
    print("torch", version)
    if version != "2.13.0":
        sys.exit("expected torch 2.13.0")
    torch.multiprocessing.spawn(rank_main, (sys.argv[1],), nprocs=2)
    (first, warned), (second, _) = [torch.load(f"{sys.argv[1]}/{rank}.pt") for rank in range(2)]
    names = ("DTensor, Partial to Replicate:", "functional all_reduce:")
    for name, (value, gradient), (_, other) in zip(names, first, second):
        print(f"  {name:31s} value {value:.0f}, gradients {gradient:.0f} and {other:.0f}")
    if first != [[9.0, 3.0], [9.0, 6.0]] or second != first or warned:
        sys.exit("changed: expected gradients of 3 and 6, and no warning")
    print("as found: two ways to the same sum have gradients that differ by the number of ranks.")
PYTHON
"$python" "$work/ask.py" "$work" 2> "$work/warnings" || { cat "$work/warnings" >&2; exit 1; }
