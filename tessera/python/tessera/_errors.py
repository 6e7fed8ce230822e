"""What goes wrong: one exception for each exit code of the program, each with the program's one line."""


class Error(Exception):
    """Any error of this package. Its text is one line: what was expected, what was found, and where."""


class InputError(Error, ValueError):
    """What was given is wrong: a model, a plan, a cluster or an option. The program's exit code 2."""


class DoesNotFit(Error):
    """No plan fits into the memory of the devices, or tables do not. The program's exit code 1."""


class Fault(Error, RuntimeError):
    """Something went wrong at run time: a full disk, a lost rank, a broken invariant. The program's exit code 3."""
