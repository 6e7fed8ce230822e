"""PyTorch modules as models, where torch is installed. This is the one file that imports torch, and only when asked."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping

from tessera import _core
from tessera._call import Files
from tessera._errors import InputError


def is_module(source: object) -> bool:
    """Whether this is a torch.nn.Module. Without torch in the process nothing is one."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.nn.Module)


def graph_of_module(module: object, example: tuple[object, ...], kwargs: Mapping[str, object] | None,
                    dynamic_shapes: object, keys: Mapping[str, object] | None, batch: int) -> str:
    """The text of the graph of a module: through torch.export to an archive, and from there by the importer."""
    torch = importlib.import_module("torch")
    name = type(module).__name__
    if not example and not kwargs:
        raise InputError(f"model: expected example, the arguments of {name}.forward, beside the module, found none")
    try:
        program = torch.export.export(module, tuple(example), kwargs=dict(kwargs or {}), dynamic_shapes=dynamic_shapes)
    except Exception as error:  # torch.export raises exceptions of many kinds
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise InputError(f"model: torch.export takes no module {name}: {lines[0] if lines else type(error).__name__}") from error
    settings = ":" + ",".join(f"{key}={value}" for key, value in keys.items()) if keys else ""
    with Files() as files, files.named():
        path = files.path(f"{name}.pt2")
        torch.export.save(program, path)
        return _core.graph_of_archive(path, settings, batch)
