#!/usr/bin/env bash
# One would expect a folder that transformers 5 saves to compute the same in transformers 4, or to be refused. Release 5
# writes the rotary settings as "rope_parameters"; release 4.57 knows "rope_scaling" and "rope_theta" alone, passes over
# the new key without a warning that names it, and turns all positions by its default base, unscaled. Whoever writes
# folders for both has to write both spellings.
#
# Needs: bash, python3 (3.10 to 3.12). Downloads transformers twice and, unless FINDINGS_PYTHON names an interpreter that
# has torch 2.13.0, PyTorch (some gigabytes). A minute or two beside the download.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 HF_HOME="$work/home" TRANSFORMERS_VERBOSITY=error
python="${FINDINGS_PYTHON:-}"
if [[ -z "$python" ]]; then
  python3 -m venv "$work/torch"
  "$work/torch/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
  python="$work/torch/bin/python"
fi
site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
for release in 4.57.6 5.24.0; do
  "$python" -m venv "$work/$release"
  "$work/$release/bin/pip" install --quiet --disable-pip-version-check "transformers==$release"
  # Behind the packages of this environment, so that only torch comes from there.
  echo "$site" > "$("$work/$release/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/torch.pth"
done

cat > "$work/ask.py" <<'PYTHON'
import sys
import torch
import transformers

folder, save = sys.argv[1], len(sys.argv) > 2
tokens = torch.arange(24).reshape(1, 24) % 19
if save:
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=19, max_position_embeddings=64, initializer_range=0.5,
        rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0})
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(folder)
else:
    model = transformers.LlamaForCausalLM.from_pretrained(folder)
with torch.no_grad():
    logits = model.eval()(tokens).logits
if save:
    torch.save(logits, folder + "/logits.pt")
print(transformers.__version__, (logits - torch.load(folder + "/logits.pt")).abs().max().item())
PYTHON
"$work/5.24.0/bin/python" "$work/ask.py" "$work/llama" save > /dev/null
same=$("$work/5.24.0/bin/python" "$work/ask.py" "$work/llama" 2>/dev/null)
other=$("$work/4.57.6/bin/python" "$work/ask.py" "$work/llama" 2>/dev/null)
echo "largest difference of the logits of a Llama with base 500 and linear scaling by 4, saved by 5.24.0"
echo "  read by transformers $same"
echo "  read by transformers $other"
awk -v same="${same#* }" -v other="${other#* }" 'BEGIN { exit !(same < 1e-5 && other > 0.1) }' ||
  { echo "changed: expected no difference in 5.24.0 and a large one in 4.57.6" >&2; exit 1; }
echo "as found: the older release reads the newer one's folder as another model, without an error."
