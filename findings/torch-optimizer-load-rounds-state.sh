#!/usr/bin/env bash
# One would expect that an optimizer which keeps float32 moments and masters for bfloat16 parameters
# gets back what it saved. torch.optim.Optimizer.load_state_dict casts every floating-point state to
# the dtype of its parameter, except the one that is called "step", without a warning: the file has
# the exact numbers and the resumed run has them rounded to eight bits. An update that is too small
# for the parameter, which is what the master is there for, is lost on every resume. Whoever writes
# such an optimizer has to put its state back after the call.
#
# Needs: bash, python3 (3.10 or newer), torch 2.13.0. FINDINGS_PYTHON names an interpreter that has
# exactly this one; otherwise it is downloaded (up to 3 GB). Some seconds without the download.
# Seen:
#   saved:    master torch.float32 1.0009765625, moment torch.float32 0.0009765625
#   resumed:  master torch.bfloat16 1.0, moment torch.bfloat16 0.0009765625
#   a state that is named "step": torch.float32 1.0009765625
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


class WithMasters(torch.optim.Optimizer):
    """Momentum in float32 and a float32 copy of each parameter, as mixed precision wants them."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 2.0**-7})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["master"], state["moment"] = p.float(), torch.zeros_like(p, dtype=torch.float32)
                    state["step"] = p.float()
                state["moment"].lerp_(p.grad.float(), 2.0**-10)
                state["master"].add_(p.grad.float(), alpha=group["lr"] / 8)
                state["step"].copy_(state["master"])  # the same number under the name that is spared
                p.copy_(state["master"])


def shown(tensor):
    return f"{tensor.dtype} {tensor.item()}"


version = torch.__version__.split("+")[0]
print("torch", version)
if version != "2.13.0":
    sys.exit("expected torch 2.13.0")
parameter = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
optimizer = WithMasters([parameter])
parameter.grad = torch.ones_like(parameter)
optimizer.step()
file = io.BytesIO()
torch.save(optimizer.state_dict(), file)
file.seek(0)
saved = torch.load(file)["state"][0]
file.seek(0)
resumed = WithMasters([parameter])
resumed.load_state_dict(torch.load(file))
found = resumed.state[parameter]
print(f"  saved:    master {shown(saved['master'])}, moment {shown(saved['moment'])}")
print(f"  resumed:  master {shown(found['master'])}, moment {shown(found['moment'])}")
print(f'  a state that is named "step": {shown(found["step"])}')
if saved["master"].item() != 1 + 2.0**-10 or saved["master"].dtype != torch.float32:
    sys.exit("expected that the file has the exact master")
if (found["master"].dtype, found["master"].item(), found["moment"].dtype) != (torch.bfloat16, 1.0, torch.bfloat16):
    sys.exit("changed: expected a master and a moment in bfloat16")
if (found["step"].dtype, found["step"].item()) != (torch.float32, 1 + 2.0**-10):
    sys.exit('changed: expected that "step" is left as it was saved')
print("as found: float32 states of bfloat16 parameters are rounded when they are loaded.")
PYTHON
"$python" "$work/ask.py"
