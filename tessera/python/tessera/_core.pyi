"""The extension module (tessera/python/core.cc): commands in this process, and tensors in and out of files."""

from typing import Any

version: str

class Call:
    """One call of a command, with the arguments of the command line."""

    def __init__(self, arguments: list[str]) -> None: ...
    def run(self) -> int:
        """Runs the command without the GIL and returns its exit code."""
    def stop(self) -> None:
        """Asks a search to end with the best answer so far; may be called on another thread than run()."""
    def take_progress(self) -> str:
        """Returns what the command said last about its work, once; "" if nothing is new."""
    def best_so_far(self) -> str:
        """Returns the best answer so far of a search that goes on; "" if there is none."""
    @property
    def answer(self) -> str:
        """What the command printed, after run()."""
    @property
    def notes(self) -> str:
        """What the command wrote beside the answer: notes, and the line of an error."""

def run_on_terminal(arguments: list[str]) -> int:
    """Runs the program on the terminal and returns its exit code."""

def check_model(text: str) -> None:
    """Raises InputError unless the text names a model."""

def read_module(path: str, keys: str, batch: int) -> tuple[str, list[tuple[str, str, list[int]]], list[str], bytes]:
    """Returns the text of the graph of a .pt2 archive, the arrays of its state_dict that are parameters of the graph (name,
    parameter, shape), the names of its other arrays, and a safetensors file of what the import computed. `keys` as
    ":loss=cross_entropy", `batch` 0: that of its example."""

class View:
    """The elements of a tensor with __dlpack__ in the memory of the host, where they lie."""

    def __init__(self, tensor: object) -> None: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> list[int]: ...

def write_arrays(path: str, arrays: list[tuple[str, list[int], View]]) -> None:
    """Writes a safetensors file: each array with its name, and with a shape of as many elements."""

def write_npy(path: str, view: View) -> None:
    """Writes a file of NumPy."""

def map_arrays(path: str, wanted: list[tuple[str, str, list[int]]]) -> dict[str, Any]:
    """Maps a safetensors file. wanted: key of the answer, name in the file, shape of the answer. The arrays have __dlpack__."""

def parameters_of(model: str) -> list[tuple[str, list[int]]]:
    """Returns the parameters of a model's graph, with their shapes."""
