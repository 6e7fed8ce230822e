#!/usr/bin/env bash
# One would expect a module that comes back from torch.export.save and torch.export.load to train as
# the one before. If an embedding and a head share their weight, the exported program has one
# parameter, and the loaded one has two, under both names. The graph reads one of them for both
# uses. The other lies in the same memory until the module moves to another device or dtype, and
# from then on keeps the numbers that it had: after training, the state_dict has the trained weight
# under one name and the untrained one under the other. All outputs are right, so comparing them
# shows nothing.
#
# Needs: bash, python3 (3.10 or newer), torch 2.13.0. FINDINGS_PYTHON names an interpreter that has
# exactly this one; otherwise it is downloaded (up to 3 GB). About ten seconds without the download.
# Seen, after a move to float64 and one step of SGD:
#   exported: parameters ['e.weight'],
#     changed by the step {'e.weight': True, 'h.weight': True}
#   loaded: parameters ['e.weight', 'h.weight'],
#     changed by the step {'e.weight': False, 'h.weight': True}
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
import io
import sys
import torch


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.e = torch.nn.Embedding(8, 4)
        self.h = torch.nn.Linear(4, 8, bias=False)
        self.h.weight = self.e.weight

    def forward(self, tokens):
        return self.h(self.e(tokens))


tokens = torch.arange(8)


def changed(module):
    module.double()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    torch.nn.functional.cross_entropy(module(tokens), tokens.flip(0)).backward()
    optimizer.step()
    return {name: not torch.equal(value, before[name]) for name, value in module.state_dict().items()}


version = torch.__version__.split("+")[0]
print("torch", version)
if version != "2.13.0":
    sys.exit("expected torch 2.13.0")
torch.manual_seed(0)
program = torch.export.export(Tied(), (tokens,))
file = io.BytesIO()
torch.export.save(program, file)
file.seek(0)
exported, loaded = program.module(), torch.export.load(file).module()
if not torch.equal(exported(tokens), loaded(tokens)):
    sys.exit("changed: expected the same outputs")
names = [[name for name, _ in module.named_parameters()] for module in (exported, loaded)]
found = [changed(exported), changed(loaded)]
for word, parameters, moved in zip(("exported:", "loaded:  "), names, found):
    print(f"  {word} parameters {parameters}, changed by the step {moved}")
if not torch.equal(exported(tokens), loaded(tokens)):
    sys.exit("changed: expected the same outputs after the step, too")
if names != [["e.weight"], ["e.weight", "h.weight"]]:
    sys.exit("changed: expected one parameter, then two")
if found != [{"e.weight": True, "h.weight": True}, {"e.weight": False, "h.weight": True}]:
    sys.exit("changed: expected that one of the two loaded parameters is left behind")
print("as found: a tied weight is two parameters after a load, and only one of them is trained.")
PYTHON
"$python" "$work/ask.py"
