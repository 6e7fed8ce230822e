#!/usr/bin/env bash
# One would expect T5Config(tie_word_embeddings=False) to give a head of its own, as it did. In transformers 5.24 it gives a
# head that is tied to the embeddings and does not scale the decoder's output; the saved config.json says
# "tie_word_embeddings": true beside "scale_decoder_outputs": false. Release 4.57 knows only the first key and scales
# what it takes for a tied head, so it computes other logits from the same folder without an error.
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
import json
import sys
import torch
import transformers

folder, save = sys.argv[1], len(sys.argv) > 2
if save:
    torch.manual_seed(1)
    config = transformers.T5Config(d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4, vocab_size=19,
                                   tie_word_embeddings=False, decoder_start_token_id=0, pad_token_id=0)
    model = transformers.T5ForConditionalGeneration(config)
    model.save_pretrained(folder)
else:
    model = transformers.T5ForConditionalGeneration.from_pretrained(folder)
tied = model.lm_head.weight.data_ptr() == model.shared.weight.data_ptr()
tokens = torch.arange(2, 14).reshape(1, 12)
with torch.no_grad():
    logits = model.eval()(input_ids=tokens, decoder_input_ids=tokens).logits
if save:
    torch.save(logits, folder + "/logits.pt")
    written = json.load(open(folder + "/config.json"))
    print(tied, written.get("tie_word_embeddings"), written.get("scale_decoder_outputs"))
else:
    before = torch.load(folder + "/logits.pt")
    print(((logits - before).abs().max() / before.abs().max()).item())
PYTHON
made=$("$work/5.24.0/bin/python" "$work/ask.py" "$work/t5" save 2>/dev/null)
same=$("$work/5.24.0/bin/python" "$work/ask.py" "$work/t5" 2>/dev/null)
other=$("$work/4.57.6/bin/python" "$work/ask.py" "$work/t5" 2>/dev/null)
echo "T5Config(tie_word_embeddings=False) in transformers 5.24.0: head tied, tie_word_embeddings and"
echo "scale_decoder_outputs as saved: $made"
echo "difference of the logits read by 5.24.0: $same of the largest, by 4.57.6: $other"
[[ "$made" == "True True False" ]] && awk -v same="$same" -v other="$other" 'BEGIN { exit !(same < 1e-5 && other > 0.1) }' ||
  { echo "changed: expected a tied head that 4.57.6 scales" >&2; exit 1; }
echo "as found: a head that was asked to be untied is tied, and the older release scales it."
