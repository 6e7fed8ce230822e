#!/usr/bin/env bash
# One would expect `mixed_precision: bf16` of Accelerate to mean the same arithmetic whichever strategy
# shares the work. With DDP the parameters and their gradients stay float32 and are summed between ranks
# in float32; the products alone run in bfloat16. With FSDP, version 1 or 2, the same word makes a policy
# whose reduce_dtype is bfloat16: gradients are summed between ranks with 8 bits of mantissa, so that a
# contribution below 1/512 of the sum is lost. Nothing is said, and the fsdp_config of a YAML has no key
# for it; a policy that is passed in Python, with reduce_dtype float32, is kept.
#
# Needs: bash, python3 (3.10 or newer), accelerate 1.15.0, torch 2.13.0. FINDINGS_PYTHON names an
# interpreter that has exactly these; otherwise they are downloaded (up to 3 GB). A few seconds without it.
# Seen:
#   mixed_precision bf16, FSDP 1: parameters bfloat16, gradients summed in bfloat16
#   mixed_precision bf16, FSDP 2: parameters bfloat16, gradients summed in bfloat16
#   own policy, FSDP 2: gradients summed in float32
#   1 + 1/512 in bfloat16: 1.0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${FINDINGS_PYTHON:-}
if [[ -z $python ]]; then
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check accelerate==1.15.0 torch==2.13.0 numpy
  python=$work/venv/bin/python
fi

cat > "$work/ask.py" <<'PYTHON'
import dataclasses
import sys
import accelerate
import torch
from accelerate.utils import FullyShardedDataParallelPlugin
from torch.distributed.fsdp import MixedPrecisionPolicy

found = accelerate.__version__, torch.__version__.split("+")[0]
print("accelerate", found[0], "torch", found[1])
if found != ("1.15.0", "2.13.0"):
    sys.exit("expected accelerate 1.15.0 and torch 2.13.0")


def name(dtype):
    return str(dtype).removeprefix("torch.")


for version in (1, 2):
    plugin = FullyShardedDataParallelPlugin(fsdp_version=version)
    plugin.set_mixed_precision("bf16")
    policy = plugin.mixed_precision_policy
    print(f"  mixed_precision bf16, FSDP {version}: parameters {name(policy.param_dtype)}, gradients summed in {name(policy.reduce_dtype)}")
    if (policy.param_dtype, policy.reduce_dtype) != (torch.bfloat16, torch.bfloat16):
        sys.exit("changed: expected gradients to be summed in bfloat16")
own = FullyShardedDataParallelPlugin(fsdp_version=2, mixed_precision_policy=MixedPrecisionPolicy(
    param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
own.set_mixed_precision("bf16")
print(f"  own policy, FSDP 2: gradients summed in {name(own.mixed_precision_policy.reduce_dtype)}")
if own.mixed_precision_policy.reduce_dtype != torch.float32:
    sys.exit("changed: expected a policy that was passed to be kept")
lost = (torch.tensor(1.0, dtype=torch.bfloat16) + torch.tensor(1 / 512, dtype=torch.bfloat16)).item()
print(f"  1 + 1/512 in bfloat16: {lost}")
fields = {field.name for field in dataclasses.fields(FullyShardedDataParallelPlugin)}
if lost != 1.0 or any("reduce" in field for field in fields):
    sys.exit("changed: expected the small part to be lost, and no setting of its own for it")
print("as found: bf16 of a YAML sums gradients in bfloat16 under FSDP.")
PYTHON
"$python" "$work/ask.py"
