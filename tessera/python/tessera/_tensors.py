"""Parameters and data by DLPack: from tensors to files that a run reads, and back as arrays that lie in a mapped file."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tessera import _core
from tessera._call import Files
from tessera._errors import InputError

# Names of arrays, with the parameter of the graph whose elements each has, and the shape that it has in a state_dict.
Places = Mapping[str, tuple[str, tuple[int, ...]]]


class State:
    """What the state_dict of a model is to its graph.

    parameters: the arrays that are parameters of the graph; of tied names each. others: the names of buffers and of parameters
    that no op reads. constants: a safetensors file of parameters that the import has computed; b"" if there are none.
    """

    def __init__(self, parameters: Places, others: Iterable[str] = (), constants: bytes = b"") -> None:
        self.parameters, self.others, self.constants = dict(parameters), frozenset(others), constants


def state_of_graph(argument: str) -> State:
    """The state of a model that is no module: the parameters of its graph by their names there."""
    return State({name: (name, tuple(shape)) for name, shape in _core.parameters_of(argument)})


def _shape_text(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _view(tensor: Any, where: str) -> _core.View:
    """A tensor's elements where they lie."""
    try:
        return _core.View(tensor.detach() if hasattr(tensor, "detach") else tensor)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _check_names(state: State, state_dict: Mapping[str, Any]) -> None:
    known = {*state.parameters, *state.others}
    for name in state_dict:
        if name not in known:
            near = difflib.get_close_matches(str(name), sorted(known), 1)
            raise InputError(f"state_dict: expected names of the model, found '{name}'"
                             + (f"; the nearest is '{near[0]}'" if near else ""))
    given = {state.parameters[name][0] for name in state_dict if name in state.parameters}
    for name, (parameter, shape) in state.parameters.items():
        if parameter not in given:
            raise InputError(f"state_dict: expected '{name}' {_shape_text(shape)}, found none")


def write_weights(state: State, argument: str, state_dict: Mapping[str, Any] | None, files: Files) -> str | None:
    """Writes a folder of weights, straight from the memory of the tensors, and returns its path; None: nothing to write.

    argument: what stands for the model on a command line. Raises InputError: a name is missing or foreign, or a tensor has another shape than the model's.
    """
    if state_dict is None and not state.constants:
        return None
    folder = files.folder("weights")
    if state.constants:
        with open(f"{folder}/constants.safetensors", "wb") as file:
            file.write(state.constants)
    if state_dict is None:
        return folder
    _check_names(state, state_dict)
    graph = dict(_core.parameters_of(argument))
    arrays: dict[str, tuple[str, list[int], _core.View]] = {}
    for name, (parameter, shape) in state.parameters.items():
        if name not in state_dict:
            continue
        view = _view(state_dict[name], f"state_dict: '{name}'")
        if tuple(view.shape) != shape:
            raise InputError(f"state_dict: '{name}': expected {_shape_text(shape)}, found {_shape_text(view.shape)}")
        arrays.setdefault(parameter, (parameter, graph[parameter], view))  # tied names: the first
    _core.write_arrays(f"{folder}/parameters.safetensors", list(arrays.values()))
    return folder


def write_data(data: Mapping[str, Any], files: Files) -> str:
    """Writes the samples of each input as a file of NumPy and returns the value of the key `data` of a run file."""
    written = []
    for name, tensor in data.items():
        path = files.path(f"{name}.npy")
        try:
            _core.write_npy(path, _view(tensor, f"data: '{name}'"))
        except InputError as error:
            raise error if str(error).startswith("data: ") else InputError(f"data: '{name}': {error}") from None
        written.append(f'"{name}" = "{path}"')
    return f"{{ arrays = {{ {', '.join(written)} }} }}"


def map_parameters(state: State, path: str) -> dict[str, Any]:
    """The parameters in a file, by the names and in the shapes of a state_dict, as arrays that lie in the mapped file."""
    return _core.map_arrays(path, [(name, parameter, list(shape)) for name, (parameter, shape) in state.parameters.items()])
