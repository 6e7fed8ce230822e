#!/usr/bin/env python3
"""Trains a tokenizer on text files and writes their tokens for `tessera train`.

  tools/tokenize.py --vocab 4096 --eval 0.1 --out data/docs docs tessera/models/*.cc

The tokenizer is a byte-level BPE (as GPT-2's), so every text has tokens, and tokens give back the text exactly. Each file is a
document and ends with the token <|endoftext|>, which has number 0. Written into the folder:

  tokenizer.json   the tokenizer, for Hugging Face `tokenizers`
  train.bin        tokens one after the other, uint16 (uint32 for more than 65,536 of them), without a head, as nanoGPT's
  eval.bin         the same of the documents that are held back, with --eval

Needs the Python of .venv (scripts/setup): .venv/bin/python tools/tokenize.py. Exit code 2: wrong input.
"""
import sys

# This folder must not be searched for modules: `tokenize` is also the name of one of Python's own.
sys.path.pop(0)

import argparse  # noqa: E402
import array  # noqa: E402
import hashlib  # noqa: E402
import os  # noqa: E402
import pathlib  # noqa: E402

END = "<|endoftext|>"


def fail(message):
    print(f"tokenize: {message}", file=sys.stderr)
    sys.exit(2)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="text files, or folders, of which all files are read")
    parser.add_argument("--vocab", type=int, default=4096, help="tokens of the vocabulary, at least 257 (default 4096)")
    parser.add_argument("--tokenizer", help="a tokenizer.json to use, in place of training one")
    parser.add_argument("--eval", type=float, default=0.0, help="share of the documents that are held back (default 0)")
    parser.add_argument("--out", required=True, help="folder for what is written")
    options = parser.parse_args()
    if options.vocab < 257:
        fail(f"expected --vocab of at least 257 (256 bytes and {END}), found {options.vocab}")
    if not 0 <= options.eval < 1:
        fail(f"expected --eval from 0 to below 1, found {options.eval:g}")
    return options


def text_files(names):
    """Sorted, each once; folders stand for the files below them whose names do not begin with a dot."""
    found = set()
    for name in names:
        path = pathlib.Path(name)
        if path.is_dir():
            found.update(file for file in path.rglob("*")
                         if file.is_file() and not any(part.startswith(".") for part in file.relative_to(path).parts))
        elif path.is_file():
            found.add(path)
        else:
            fail(f"no file or folder '{name}'")
    if not found:
        fail(f"expected text files, found none in {', '.join(names)}")
    return sorted(found)


def read(path):
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        fail(f"'{path}': expected text in UTF-8, found byte {error.start} to be of something else")
    except OSError as error:
        fail(f"cannot read '{path}': {error.strerror}")


def held_back(path, share):
    """Whether a document is: by its path alone, so that one more file changes nothing for the others."""
    digest = hashlib.sha256(str(path).encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2.0**64


def train(tokenizers, texts, vocab):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=vocab, special_tokens=[END], show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def replace_file(path, content):
    """Never half-written: a reader sees the old file or the new one."""
    partial = path.with_name(path.name + ".part")
    partial.write_bytes(content)
    os.replace(partial, path)


def main():
    options = arguments()
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError:
        fail("expected the Python package `tokenizers`; scripts/setup installs it: .venv/bin/python tools/tokenize.py")
    documents = {path: read(path) for path in text_files(options.files)}
    eval_paths = {path for path in documents if held_back(path, options.eval)}
    training = [text for path, text in documents.items() if path not in eval_paths]
    if not training:
        fail(f"expected documents to train on, found all {len(documents)} held back by --eval {options.eval:g}")
    if options.tokenizer:
        try:
            tokenizer = tokenizers.Tokenizer.from_file(options.tokenizer)
        except Exception as error:  # the package raises nothing narrower
            fail(f"cannot read the tokenizer '{options.tokenizer}': {error}")
    else:
        tokenizer = train(tokenizers, training, options.vocab)
    end = tokenizer.token_to_id(END)
    if end is None:
        fail(f"'{options.tokenizer}': expected the token {END}, found none")
    # Numbers may have gaps: the largest one says how many there are, not the count of tokens.
    vocab = max(tokenizer.get_vocab().values()) + 1
    folder = pathlib.Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "tokenizer.json", tokenizer.to_str().encode())
    kind, code = ("uint16", "H") if vocab <= 65536 else ("uint32", "I")
    for name, texts in (("train", training), ("eval", [documents[path] for path in documents if path in eval_paths])):
        if not texts:
            continue
        tokens = array.array(code)
        for encoded in tokenizer.encode_batch(texts, add_special_tokens=False):
            tokens.extend(encoded.ids)
            tokens.append(end)
        if sys.byteorder == "big":
            tokens.byteswap()
        replace_file(folder / f"{name}.bin", tokens.tobytes())
        size = sum(len(text.encode()) for text in texts)
        print(f"{folder / name}.bin: {len(tokens):,} tokens of {len(texts):,} documents, {size / len(tokens):.2f} bytes a token")
    print(f'vocab = {vocab}; in a run file: data = {{ files = "{folder}/train.bin", format = "{kind}" }}, '
          f"with documents kept apart by eod={end} of the model")


if __name__ == "__main__":
    main()
