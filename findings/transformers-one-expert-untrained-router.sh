#!/usr/bin/env bash
# One would expect that a Mixtral with num_experts_per_tok=1 weighs its expert by the router's
# probability, as Switch does, so that the loss trains the router. transformers normalises the
# weights of the chosen experts to a sum of one, also if one is chosen: its weight is 1 whatever
# the router says, and the router has no gradient beyond rounding. It stays as it began unless the
# balance loss is on, which is off by default (output_router_logits).
#
# Needs: bash, python3 (3.10 or newer), torch 2.13.0 and transformers 5.23.0. FINDINGS_PYTHON names an
# interpreter that has exactly these; otherwise they are downloaded (with PyTorch: up to 3 GB).
# About a quarter of a minute without the download.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 HF_HOME="$work/home"
python=${FINDINGS_PYTHON:-}
if [[ -z $python ]]; then
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0
  python=$work/venv/bin/python
fi

cat > "$work/ask.py" <<'PYTHON'
import sys
import torch
import transformers

versions = (torch.__version__.split("+")[0], transformers.__version__)
print("torch %s, transformers %s" % versions)
if versions != ("2.13.0", "5.23.0"):
    sys.exit("expected torch 2.13.0 and transformers 5.23.0")
largest = {}
for chosen in (1, 2):
    torch.manual_seed(0)
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=chosen, max_position_embeddings=16))
    tokens = torch.randint(0, 32, (2, 8))
    model(tokens, labels=tokens).loss.backward()
    gradient = next(p.grad for name, p in model.named_parameters() if name.endswith("mlp.gate.weight"))
    largest[chosen] = gradient.abs().max().item()
    print(f"  {chosen} of 4 experts: largest gradient of the router {largest[chosen]:.1e}")
if not (largest[1] < 1e-9 and largest[2] > 1e-5):
    sys.exit("changed: expected no gradient with one expert and one with two")
print("as found: with one expert a token the loss does not train the router.")
PYTHON
"$python" "$work/ask.py"
