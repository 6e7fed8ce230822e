#!/usr/bin/env bash
# One would expect that a model which torch.export takes without labels is taken with labels too, since
# only a loss is added. Wav2Vec2ForCTC is not: with labels it compares their largest value with the size
# of the vocabulary to raise an error, which is a decision on data, so the export ends in
# GuardOnDataDependentSymNode. Without labels the same model is exported, with the same logits. The loss
# of Wav2Vec2ForSequenceClassification, which has no such check, is exported.
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


class Output(torch.nn.Module):
    def __init__(self, model, name):
        super().__init__()
        self.model, self.name = model, name

    def forward(self, waves, labels=None):
        return getattr(self.model(waves, labels=labels), self.name)


config = transformers.Wav2Vec2Config(
    vocab_size=16, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4, conv_dim=(16,) * 7,
    num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, num_labels=5, classifier_proj_size=16)


def ask(model, name, *labels):
    torch.manual_seed(0)
    module, arguments = Output(model(config).eval(), name), (torch.randn(2, 3200), *labels)
    try:
        program = torch.export.export(module, arguments)
    except Exception as error:  # the name of its class is what is asked
        return type(error).__name__
    return "exported" if torch.allclose(program.module()(*arguments), module(*arguments), atol=1e-5) else "other numbers"


words, classes = torch.randint(1, 16, (2, 4)), torch.randint(5, (2,))
found = [ask(transformers.Wav2Vec2ForCTC, "logits"), ask(transformers.Wav2Vec2ForCTC, "loss", words),
         ask(transformers.Wav2Vec2ForSequenceClassification, "loss", classes)]
for what, answer in zip(("logits of Wav2Vec2ForCTC", "loss of Wav2Vec2ForCTC", "loss of Wav2Vec2ForSequenceClassification"), found):
    print(f"  {what}: {answer}")
if found != ["exported", "GuardOnDataDependentSymNode", "exported"]:
    sys.exit("changed: expected that only the loss of Wav2Vec2ForCTC is not exported")
print("as found: Wav2Vec2ForCTC is exported without labels only.")
PYTHON
"$python" "$work/ask.py" 2>/dev/null | grep -v '^$' > "$work/said" || { cat "$work/said"; exit 1; }
grep -E '^(torch |  logits|  loss|as found)' "$work/said"
