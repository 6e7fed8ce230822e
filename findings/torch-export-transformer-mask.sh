#!/usr/bin/env bash
# One would expect that torch.export takes PyTorch's own nn.Transformer with the causal mask that
# nn.Transformer itself generates. It does not: the module compares the mask with a causal one to
# choose a fast kernel, which is a decision on data, so the export ends in
# GuardOnDataDependentSymNode. Saying tgt_is_causal=True, which is otherwise only a hint, makes the
# same module exportable, with the same numbers.
#
# Needs: bash, python3 (3.10 or newer), torch 2.13.0. FINDINGS_PYTHON names an interpreter that has
# exactly this one; otherwise it is downloaded (up to 3 GB). About half a minute without the download.
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


class Pair(torch.nn.Module):
    def __init__(self, **hint):
        super().__init__()
        self.inner = torch.nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
        self.hint = hint

    def forward(self, x):
        return self.inner(x, x, tgt_mask=torch.nn.Transformer.generate_square_subsequent_mask(5), **self.hint)


def ask(**hint):
    torch.manual_seed(0)
    module, x = Pair(**hint), torch.randn(2, 5, 8)
    try:
        program = torch.export.export(module, (x,))
    except Exception as error:  # the name of its class is what is asked
        return type(error).__name__
    return "exported" if torch.allclose(program.module()(x), module(x), atol=1e-6) else "other numbers"


version = torch.__version__.split("+")[0]
print("torch", version)
if version != "2.13.0":
    sys.exit("expected torch 2.13.0")
found = [ask(), ask(tgt_is_causal=True)]
print("  without a hint:", found[0])
print("  with tgt_is_causal=True:", found[1])
if found != ["GuardOnDataDependentSymNode", "exported"]:
    sys.exit("changed: expected GuardOnDataDependentSymNode, then an export")
print("as found: nn.Transformer with its own causal mask is exported only with the hint.")
PYTHON
"$python" "$work/ask.py" 2>/dev/null
