"""PyTorch modules as models, where torch is installed. This is the one file that imports torch, and only when asked."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

from tessera import _core
from tessera._call import Files
from tessera._errors import InputError
from tessera._tensors import State


def is_module(source: object) -> bool:
    """Whether this is a torch.nn.Module. Without torch in the process nothing is one."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.nn.Module)


def graph_of_module(module: object, example: tuple[object, ...], kwargs: Mapping[str, object] | None,
                    dynamic_shapes: object, keys: Mapping[str, object] | None, batch: int) -> tuple[str, State]:
    """The text of the graph of a module, and its state: through torch.export to an archive, and from there by the importer."""
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
        graph, parameters, others, constants = _core.read_module(path, settings, batch)
    return graph, State({key: (parameter, tuple(shape)) for key, parameter, shape in parameters}, others, constants)


def as_state_dict(arrays: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors of torch over arrays, by name, and what was given beside them. An array of another dtype than its tensor in
    `given` is converted; all others are not copied."""
    torch = importlib.import_module("torch")
    out: dict[str, Any] = {}
    for name in given or arrays:
        out[name] = given.get(name)
        if name in arrays:
            tensor = torch.from_dlpack(arrays[name])
            out[name] = tensor.to(given[name].dtype) if isinstance(out[name], torch.Tensor) else tensor
    return out
