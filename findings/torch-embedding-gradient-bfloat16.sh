#!/usr/bin/env bash
# One would expect the gradient of an embedding to be summed in float32 and rounded once, as that of
# a bias is, and as the product of one-hot rows with the same table gives it. On a CPU PyTorch adds
# up the gradient of a row in the dtype of the table, one token after the other: in bfloat16 a sum
# of ones stops at 256, in float16 at 2,048. The gradient of frequent tokens is several times too
# small while all others are right, so small tests with few tokens agree to the last digit.
#
# Needs: bash, python3 (3.10 or newer), torch 2.13.0. FINDINGS_PYTHON names an interpreter that has
# exactly this one; otherwise it is downloaded (up to 3 GB). Some seconds without the download.
# Seen, where each of 5,000 tokens has the gradient 1:
#   float32   embedding 5000, indexing 5000, one-hot product 5000, bias 5000
#   bfloat16  embedding 256, indexing 256, one-hot product 4992, bias 4992
#   float16   embedding 2048, indexing 2048, one-hot product 5000, bias 5000
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

F = torch.nn.functional
tokens = torch.zeros(5000, dtype=torch.long)  # one token, 5,000 times
ways = {
    "embedding": lambda table: F.embedding(tokens, table),
    "indexing": lambda table: table[tokens],
    "one-hot product": lambda table: F.one_hot(tokens, 4).to(table.dtype) @ table,
    "bias": lambda table: torch.zeros(5000, 2, dtype=table.dtype) + table[0],
}


def gradient(way, dtype):
    table = torch.zeros(4, 2, dtype=dtype, requires_grad=True)
    way(table).sum().backward()
    return table.grad[0, 0].item()


version = torch.__version__.split("+")[0]
print("torch", version, "on a CPU")
if version != "2.13.0":
    sys.exit("expected torch 2.13.0")
found = {}
for name in ("float32", "bfloat16", "float16"):
    found[name] = [gradient(way, getattr(torch, name)) for way in ways.values()]
    print(f"  {name:9s}", ", ".join(f"{way} {value:.0f}" for way, value in zip(ways, found[name])))
if found != {"float32": [5000.0] * 4, "bfloat16": [256.0, 256.0, 4992.0, 4992.0],
             "float16": [2048.0, 2048.0, 5000.0, 5000.0]}:
    sys.exit("changed: expected 256 and 2,048 for look-ups in 16 bits and 5,000, rounded once, elsewhere")
print("as found: gradients of rows that many tokens look up stop growing.")
PYTHON
"$python" "$work/ask.py"
