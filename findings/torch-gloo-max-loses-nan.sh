#!/usr/bin/env bash
# One would expect the maximum over ranks to be NaN where one of them has NaN, as torch.maximum has
# it, or never. With gloo it depends on the rank that has it and on the element's place: of eight
# elements on two ranks, NaN of rank 0 comes through in the first four and NaN of rank 1 in the last
# four, and elsewhere the other rank's number is the answer, on all ranks alike. Whoever looks for
# overflows by the maximum of a norm over ranks, which is one element, hears of rank 0's and not of
# rank 1's. A sum, or a maximum of isnan(), tells of both.
#
# Needs: bash, python3 (3.10 or newer), torch 2.13.0. FINDINGS_PYTHON names an interpreter that has
# exactly this one; otherwise it is downloaded (up to 3 GB). About half a minute without it.
# Seen, where the other rank has 1:
#   NaN on rank 0, 8 elements: [nan, nan, nan, nan, 1.0, 1.0, 1.0, 1.0], one element: [nan]
#   NaN on rank 1, 8 elements: [1.0, 1.0, 1.0, 1.0, nan, nan, nan, nan], one element: [1.0]
#   torch.maximum gives [nan] and [nan]
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
import torch
import torch.distributed

nan = float("nan")


def rank_main(rank, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    answers = []
    for bad in range(2):
        for size in (8, 1):
            x = torch.full((size,), nan if rank == bad else 1.0)
            torch.distributed.all_reduce(x, op=torch.distributed.ReduceOp.MAX)
            answers.append(x.tolist())
    torch.save(answers, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    version = torch.__version__.split("+")[0]
    print("torch", version, "with gloo, two ranks")
    if version != "2.13.0":
        sys.exit("expected torch 2.13.0")
    torch.multiprocessing.spawn(rank_main, (sys.argv[1],), nprocs=2)
    found, other = [torch.load(f"{sys.argv[1]}/{rank}.pt") for rank in range(2)]
    for bad in range(2):
        print(f"  NaN on rank {bad}, 8 elements: {found[2 * bad]}, one element: {found[2 * bad + 1]}")
    one, odd = torch.ones(1), torch.full((1,), nan)
    print("  torch.maximum gives", torch.maximum(odd, one).tolist(), "and", torch.maximum(one, odd).tolist())
    if str(found) != str(other):
        sys.exit("changed: expected the same answer on both ranks")
    if str(found) != str([[nan] * 4 + [1.0] * 4, [nan], [1.0] * 4 + [nan] * 4, [1.0]]):
        sys.exit("changed: expected NaN in one half only, and of rank 0 alone in one element")
    if not (torch.maximum(odd, one).isnan().all() and torch.maximum(one, odd).isnan().all()):
        sys.exit("changed: expected NaN of torch.maximum")
    print("as found: whether a maximum over ranks keeps NaN depends on rank and place.")
PYTHON
"$python" "$work/ask.py" "$work" 2> "$work/warnings" || { cat "$work/warnings" >&2; exit 1; }
