"""Calls commands: starts them without the GIL, follows their progress, answers Ctrl-C, raises their errors."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from tessera import _core
from tessera._errors import DoesNotFit, Error, Fault, InputError

Progress = Callable[[str], object] | bool | None

# Seconds between two looks at the progress of a command, and seconds that a command has to answer Ctrl-C.
_LOOK_S = 0.05
_PATIENCE_S = 0.8

_ERRORS: dict[int, type[Error]] = {1: DoesNotFit, 2: InputError, 3: Fault}


class Answered:
    """What a command answered: its exit code, its text, the lines beside it, and whether Ctrl-C ended it."""

    def __init__(self, code: int, text: str, notes: list[str], interrupted: bool = False) -> None:
        self.code, self.text, self.notes, self.interrupted = code, text, notes, interrupted

    def json(self, files: Files) -> dict[str, Any]:
        """The answer as the command's --json has it, without the number of the format and the folder of its files."""
        answer: dict[str, Any] = json.loads(files.without_folder(self.text))
        answer.pop("schema", None)
        self.notes = [*answer.pop("notes", []), *map(files.without_folder, self.notes)]
        return answer


def raise_error(code: int, line: str) -> NoReturn:
    raise _ERRORS.get(code, Fault)(line)


def _line_of_error(text: str, notes: list[str]) -> str:
    with contextlib.suppress(ValueError):  # no JSON
        answer = json.loads(text)
        if line := answer.get("error", {}).get("message") or answer.get("reason"):
            return str(line)
    lines = [line.removeprefix("tessera: ") for line in notes if line.startswith("tessera: ")]
    return lines[-1] if lines else "the command ended without a message"


def _follower(progress: Progress) -> Callable[[str], object] | None:
    if progress is True:
        return lambda what: print(f"\r\x1b[K{what[:100]}", end="", file=sys.stderr, flush=True)
    return progress or None


def _end_of_line(progress: Progress) -> None:
    if progress is True:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def ask(arguments: list[str], *, progress: Progress = None, answers_early: bool = False,
        codes: tuple[int, ...] = (0,)) -> Answered:
    """Runs a command and returns its answer.

    progress: called on this thread with what the command does; True shows a line on standard error.
    answers_early: whether the command, asked to stop, has an answer; others are left to themselves on Ctrl-C.
    codes: the exit codes that come with an answer. Others raise the exception of their kind.
    """
    call = _core.Call(arguments)
    ended = threading.Event()
    codes_seen: list[int] = []

    def run() -> None:
        try:
            codes_seen.append(call.run())
        finally:
            ended.set()

    thread = threading.Thread(target=run, name=f"tessera {arguments[0]}")
    follow = _follower(progress)
    interrupted = False
    thread.start()
    try:
        while not ended.wait(_LOOK_S if follow else None):
            if follow and (what := call.take_progress()):
                follow(what)
    except KeyboardInterrupt:
        call.stop()
        interrupted = True
        is_ended = ended.wait(_PATIENCE_S)
        if answers_early and not is_ended and (best := call.best_so_far()):
            return Answered(0, best, [], interrupted)  # the thread ends by itself, as soon as it sees the stop
        if not (answers_early and codes_seen == [0]):
            raise
    except BaseException:  # of `progress`: the search ends before the exception goes on
        call.stop()
        ended.wait()
        raise
    finally:
        _end_of_line(progress)
    code = codes_seen[0] if codes_seen else 3
    notes = call.notes.splitlines()
    if code not in codes or not call.answer:
        raise_error(code, _line_of_error(call.answer, notes))
    return Answered(code, call.answer, notes, interrupted)


class Files:
    """Files that a call needs for values that are texts. Messages name them without their folder."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._folder = ""

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def path(self, name: str) -> str:
        """The path of a file of this name, which need not exist yet."""
        if not self._folder:
            self._folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="tessera-"))
        return os.path.join(self._folder, name)

    def folder(self, name: str) -> str:
        """Makes a folder and returns its path."""
        path = self.path(name)
        os.mkdir(path)
        return path

    def write(self, name: str, text: str) -> str:
        """Writes a file and returns its path."""
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def without_folder(self, text: str) -> str:
        """The text with the names of these files alone."""
        return text.replace(self._folder + os.sep, "") if self._folder else text

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Takes the folder out of the messages of errors."""
        try:
            yield
        except Error as error:
            if self.without_folder(str(error)) != str(error):
                raise type(error)(self.without_folder(str(error))) from None
            raise
