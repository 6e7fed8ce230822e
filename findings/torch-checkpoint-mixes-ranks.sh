#!/usr/bin/env bash
# One would expect torch.distributed.checkpoint either to keep what each rank saves under a name, or
# to keep one rank's word for all. What is no DTensor is taken to be alike on all ranks, each entry
# is written by one of them, and which one is chosen entry by entry so that files have equal sizes.
# So the position of a data loader, which each rank has for itself, comes back on all ranks as the
# epoch of one and the sample of another: a state that no rank had. Neither save nor load says
# anything. Names have to hold the rank.
#
# Needs: bash, python3 (3.10 or newer), torch 2.13.0. FINDINGS_PYTHON names an interpreter that has
# exactly this one; otherwise it is downloaded (up to 3 GB). About half a minute without it.
# Seen:
#   rank 0 saved {'epoch': 1, 'sample': 10} and read {'epoch': 1, 'sample': 20}
#   rank 1 saved {'epoch': 2, 'sample': 20} and read {'epoch': 1, 'sample': 20}
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
import json
import sys
import torch
import torch.distributed
import torch.distributed.checkpoint


def rank_main(rank, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    saved = {"loader": {"epoch": rank + 1, "sample": 10 * (rank + 1)}}
    torch.distributed.checkpoint.save(saved, checkpoint_id=folder + "/checkpoint")
    read = {"loader": {"epoch": 0, "sample": 0}}
    torch.distributed.checkpoint.load(read, checkpoint_id=folder + "/checkpoint")
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump([saved["loader"], read["loader"]], file)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    version = torch.__version__.split("+")[0]
    print("torch", version)
    if version != "2.13.0":
        sys.exit("expected torch 2.13.0")
    torch.multiprocessing.spawn(rank_main, (sys.argv[1],), nprocs=2)
    answers = []
    for rank in range(2):
        with open(f"{sys.argv[1]}/{rank}.json") as file:
            answers.append(json.load(file))
        print(f"  rank {rank} saved {answers[-1][0]} and read {answers[-1][1]}")
    read = answers[0][1]
    if answers[1][1] != read or read in (answers[0][0], answers[1][0]):
        sys.exit("changed: expected that both ranks read the same mixture of both")
    print("as found: all ranks read a state that is made of entries of several ranks.")
PYTHON
"$python" "$work/ask.py" "$work" 2> "$work/warnings" || { cat "$work/warnings" >&2; exit 1; }
