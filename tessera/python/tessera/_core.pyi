"""The extension module (tessera/python/core.cc): commands in this process."""

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

def graph_of_archive(path: str, keys: str, batch: int) -> str:
    """Returns the text of the graph of a .pt2 archive; `keys` as ":loss=cross_entropy", `batch` 0: that of its example."""
