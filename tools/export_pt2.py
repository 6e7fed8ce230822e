"""Writes a PyTorch module as a .pt2 archive, which `tessera import` reads. In a program of your own it is two lines:

    program = torch.export.export(module, arguments)
    torch.export.save(program, "model.pt2")

The module takes tensors whose first dim is the batch (at least 2) and returns its loss, a scalar; or logits, then import
with `--set loss=cross_entropy`. As a script it calls a function of a file, which returns the module and its arguments:

    .venv/bin/python tools/export_pt2.py my_models.py:make_transformer model.pt2
"""
import importlib.util
import pathlib
import sys

if __name__ == "__main__":
    # As a script, this folder is searched for modules first, and its tokenize.py would hide Python's own.
    sys.path.pop(0)

import torch  # noqa: E402


def export(module, arguments, path):
    torch.export.save(torch.export.export(module, tuple(arguments)), path)


def main():
    if len(sys.argv) != 3 or ":" not in sys.argv[1]:
        print("export_pt2.py: expected FILE.py:FUNCTION OUT.pt2", file=sys.stderr)
        sys.exit(2)
    file, function = sys.argv[1].rsplit(":", 1)
    spec = importlib.util.spec_from_file_location(pathlib.Path(file).stem, file)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    module, arguments = getattr(loaded, function)()
    export(module, arguments, sys.argv[2])


if __name__ == "__main__":
    main()
