#!/usr/bin/env bash
# One would expect that a key which a config.json leaves out has one default for all decoders of the
# Llama kind. Each model type has its own: Mistral attends within 4,096 tokens unless the file says
# null, Mixtral does not; Mixtral turns positions with base 1e6 and Mistral with 1e4; the norms add
# 1e-6 or 1e-5; Qwen 3 has heads of 128 whatever the width. A reader with one default for all computes
# something else without any error, and a writer that leaves out what equals its own default does too.
#
# Needs: bash, python3 (3.10 or newer). Downloads about 30 MB (no PyTorch). About half a minute.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 HF_HOME="$work/home"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.24.0

cat > "$work/ask.py" <<'PYTHON'
import sys
import transformers

def absent(name):
    config = getattr(transformers, name)(hidden_size=64, num_attention_heads=4, num_hidden_layers=1)
    return {"window": getattr(config, "sliding_window", None), "theta": config.rope_parameters["rope_theta"],
            "eps": config.rms_norm_eps, "head_dim": getattr(config, "head_dim", None) or 16}

expected = {
    "LlamaConfig": {"window": None, "theta": 1e4, "eps": 1e-6, "head_dim": 16},
    "MistralConfig": {"window": 4096, "theta": 1e4, "eps": 1e-6, "head_dim": 16},
    "MixtralConfig": {"window": None, "theta": 1e6, "eps": 1e-5, "head_dim": 16},
    "Qwen3Config": {"window": None, "theta": 1e4, "eps": 1e-6, "head_dim": 128},
}
print("transformers", transformers.__version__, "- 64 wide, 4 heads, other keys absent:")
found = {name: absent(name) for name in expected}
for name, values in found.items():
    print(f"  {name:14s} {values}")
null = transformers.MistralConfig(sliding_window=None).sliding_window
print("  MistralConfig with sliding_window=null:", null)
if found != expected or null is not None:
    sys.exit(f"changed: expected {expected} and None")
print("as found: the same absent keys mean four different models.")
PYTHON
"$work/venv/bin/python" "$work/ask.py" 2>&1 | grep -v "PyTorch was not found"
