#!/usr/bin/env bash
# One would expect that an archive of torch.export.save is self-contained: a program of ATen ops, for
# which no source of the model is needed. An exported mixture of experts of transformers (Mixtral,
# Qwen 3 MoE, gpt-oss) calls an operator that a module of transformers registers when it is imported,
# transformers::grouped_mm_fallback. So torch.export.load of the archive fails in another process, with
# a RuntimeError that does not name the operator, and `import transformers` is not enough, because it
# imports its modules only when they are used: the file loads after
# `import transformers.integrations.moe`, and then has the same loss. A dense model (Llama) loads
# without the library.
#
# Needs: bash, python3 (3.10 or newer), torch 2.13.0 and transformers 5.23.0. FINDINGS_PYTHON names an
# interpreter that has exactly these; otherwise they are downloaded (with PyTorch: up to 3 GB).
# About half a minute without the download.
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

cat > "$work/save.py" <<'PYTHON'
import sys
import torch
import transformers

versions = (torch.__version__.split("+")[0], transformers.__version__)
print("torch %s, transformers %s" % versions)
if versions != ("2.13.0", "5.23.0"):
    sys.exit("expected torch 2.13.0 and transformers 5.23.0")


class Loss(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        return self.model(x, labels=y).loss


sizes = dict(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
             num_key_value_heads=2, max_position_embeddings=16)
tokens = torch.randint(0, 32, (2, 8))
torch.save(tokens, sys.argv[1] + "/tokens")
for name, model in (("dense", transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))),
                    ("experts", transformers.MixtralForCausalLM(transformers.MixtralConfig(**sizes, num_local_experts=4)))):
    module = Loss(model.eval())
    torch.export.save(torch.export.export(module, (tokens, tokens)), f"{sys.argv[1]}/{name}.pt2")
    torch.save(module(tokens, tokens).detach(), f"{sys.argv[1]}/{name}.loss")
PYTHON
cat > "$work/load.py" <<'PYTHON'
import importlib
import sys
import torch

folder, name, library = sys.argv[1:]
if library != "none":
    importlib.import_module(library)
try:
    program = torch.export.load(f"{folder}/{name}.pt2")
except RuntimeError as error:
    print("refused,", "which names the op" if "grouped_mm" in str(error) else "which does not name the op")
    sys.exit()
tokens = torch.load(f"{folder}/tokens")
print("the same loss" if torch.allclose(program.module()(tokens, tokens), torch.load(f"{folder}/{name}.loss")) else "another loss")
PYTHON
"$python" "$work/save.py" "$work" 2>/dev/null
found=
for case in "dense none" "experts none" "experts transformers" "experts transformers.integrations.moe"; do
  read -r name library <<< "$case"
  answer=$("$python" "$work/load.py" "$work" "$name" "$library" 2>/dev/null)
  echo "  $name, imported beside torch: $library: $answer"
  found+="$answer;"
done
refused="refused, which does not name the op"
if [[ $found != "the same loss;$refused;$refused;the same loss;" ]]; then
  echo "changed: expected that only the archive of experts needs a module of the library" >&2
  exit 1
fi
echo "as found: an exported mixture of experts is read only where a module of transformers was imported."
