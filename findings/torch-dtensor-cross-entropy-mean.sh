#!/usr/bin/env bash
# One would expect a DTensor to compute what the whole tensor would, wherever it is cut. Of
# cross_entropy over a batch that is cut in equal parts, DTensor averages the means of the parts.
# That is the mean over all tokens only if each part has as many targets that count, so it is
# another number as soon as padding (ignore_index) or weights of classes are not spread evenly, and
# NaN if one part is padding alone. A batch of uneven parts is refused because its mean would be
# biased, so one trusts that a biased mean is refused.
#
# Needs: bash, python3 (3.10 or newer), torch 2.13.0. FINDINGS_PYTHON names an interpreter that has
# exactly this one; otherwise it is downloaded (up to 3 GB). About a minute without it.
# Seen, over two ranks:
#   targets [1, 2, 3, 4]: whole 1.4639, cut in halves 1.4639
#   targets [1, 2, 3, -100]: whole 1.4498, cut in halves 1.5192
#   targets [1, 2, -100, -100]: whole 1.3111, cut in halves nan
#   targets [1, 2, 3, 4, 0]: whole 1.3769, cut: refused, "resulting in biased mean result"
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
from torch.distributed.tensor import Shard, distribute_tensor

cross_entropy = torch.nn.functional.cross_entropy
cases = [[1, 2, 3, 4], [1, 2, 3, -100], [1, 2, -100, -100], [1, 2, 3, 4, 0]]
logits = torch.tensor([[0.1, 0.9, 0.3, -0.4, 0.2], [1.2, -0.3, 0.5, 0.4, 0.0], [0.6, 0.8, -0.7, 0.2, 0.1],
                       [0.3, -0.5, 0.9, -0.2, 0.4], [1.0, 0.2, 0.1, 0.7, -0.6]])


def rank_main(rank, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    answers = []
    for case in cases:
        targets = torch.tensor(case)
        cut = [distribute_tensor(x, mesh, [Shard(0)]) for x in (logits[: len(case)], targets)]
        try:
            answers.append(cross_entropy(*cut).full_tensor().item())
        except RuntimeError as error:
            answers.append(" ".join(str(error).split()))
    torch.save(answers, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    version = torch.__version__.split("+")[0]
    print("torch", version)
    if version != "2.13.0":
        sys.exit("expected torch 2.13.0")
    torch.multiprocessing.spawn(rank_main, (sys.argv[1],), nprocs=2)
    found = torch.load(f"{sys.argv[1]}/0.pt")
    if str(found) != str(torch.load(f"{sys.argv[1]}/1.pt")):
        sys.exit("changed: expected the same answers on both ranks")
    whole = [cross_entropy(logits[: len(case)], torch.tensor(case)).item() for case in cases]
    for case, right, answer in zip(cases, whole, found):
        words = "resulting in biased mean result"
        refusal = f': refused, "{words}"' if words in str(answer) else f": {answer}"
        said = refusal if isinstance(answer, str) else f" in halves {answer:.4f}"
        print(f"  targets {case}: whole {right:.4f}, cut{said}")
    if isinstance(found[0], str) or abs(found[0] - whole[0]) > 1e-6:
        sys.exit("changed: expected the right mean where all targets count")
    if isinstance(found[1], str) or abs(found[1] - whole[1]) < 1e-3:
        sys.exit("changed: expected another mean where one target does not count")
    if found[2] == found[2]:
        sys.exit("changed: expected NaN where all targets of a part do not count")
    if not isinstance(found[3], str) or "biased" not in found[3]:
        sys.exit("changed: expected that uneven parts are refused")
    print("as found: the mean of the means is taken for the mean, without an error.")
PYTHON
"$python" "$work/ask.py" "$work" 2> "$work/warnings" || { cat "$work/warnings" >&2; exit 1; }
