#!/usr/bin/env bash
# The configuration class of Gemma 3 in transformers has the key attn_logit_softcapping, as that of Gemma 2
# has. One would expect both models to cap the scores of attention by it. In 5.23.0 Gemma 2 does. Gemma 3
# takes the key, keeps it and saves it, but its attention never reads it: any value gives the same logits to
# the bit, without a warning. The other cap of the same configuration, final_logit_softcapping, works. A
# trainer that believes such a config.json computes another model than transformers does.
#
# Needs: bash, python3 (3.10 or newer), transformers 5.23.0 and torch 2.13.0. FINDINGS_PYTHON names an
# interpreter that has exactly these; otherwise they are downloaded (with PyTorch: up to 3 GB).
# Some seconds without the download.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${FINDINGS_PYTHON:-}
if [[ -z $python ]]; then
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.23.0 torch==2.13.0 numpy
  python=$work/venv/bin/python
fi

cat > "$work/ask.py" <<'PYTHON'
import sys

import torch
import transformers

versions = (transformers.__version__, torch.__version__.split("+")[0])
print("transformers %s, torch %s" % versions)
if versions != ("5.23.0", "2.13.0"):
    sys.exit("expected transformers 5.23.0 and torch 2.13.0")

SIZES = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, max_position_embeddings=12, query_pre_attn_scalar=1, final_logit_softcapping=None)
FAMILIES = {"gemma2": (transformers.Gemma2Config, transformers.Gemma2ForCausalLM),
            "gemma3": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM)}
IDS = torch.arange(12)[None] % 40


def logits(family, **keys):
    config, model = FAMILIES[family]
    made = config(**{**SIZES, "attn_logit_softcapping": None, **keys})
    torch.manual_seed(1)
    network = model(made).eval()
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    stored = made.to_dict()["attn_logit_softcapping"]
    with torch.no_grad():
        return network(input_ids=IDS).logits, stored


for family, key, expected in (("gemma2", "attn_logit_softcapping", True), ("gemma3", "attn_logit_softcapping", False),
                              ("gemma3", "final_logit_softcapping", True)):
    plain, _ = logits(family)
    capped, stored = logits(family, **{key: 0.1})
    changed = not torch.equal(plain, capped)
    print(f"{family} with {key}=0.1 (attn_logit_softcapping in its configuration: {stored}): logits "
          + ("change" if changed else "are equal to the bit"))
    if changed != expected:
        sys.exit(f"expected logits that {'change' if expected else 'are equal to the bit'}")
PYTHON
"$python" "$work/ask.py"
