#!/usr/bin/env bash
# One would expect that an added token has the id that tokenizer.json gives it. tokenizers 0.23.3 gives
# it the next free id behind the vocabulary instead, if there is a gap, without an error or a warning.
# Vocabularies are often padded to a multiple for tensor parallelism, and a token that is placed behind
# the padding then reads another row of the embedding than the one that was trained for it.
#
# Needs: bash, python3 (3.10 or newer). Downloads about 5 MB. About ten seconds.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 HF_HOME="$work/home"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps tokenizers==0.23.3

"$work/venv/bin/python" - "$work/tokenizer.json" <<'PYTHON'
import json
import sys
import tokenizers

path, stated = sys.argv[1], 128
vocabulary = {letter: i for i, letter in enumerate("abcdefgh")}
model = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
model.add_special_tokens(["<end>"])
text = json.loads(model.to_str())
text["added_tokens"][0]["id"] = stated  # behind rows that pad the embedding to a multiple of 128
json.dump(text, open(path, "w"))

read = tokenizers.Tokenizer.from_file(path)
found = read.encode("ab<end>").ids
print(f"tokenizers {tokenizers.__version__}: the file says <end> = {stated}, encode('ab<end>') gives {found}")
print("  size of the vocabulary:", read.get_vocab_size(with_added_tokens=True))
if found != [0, 1, 8]:
    sys.exit("changed: expected [0, 1, 8]")
print("as found: the stated id is replaced by the next free one, in silence.")
PYTHON
