"""The program: the command `tessera`, and what executes models, which needs a program with the runtime."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tessera import _core
from tessera._answers import Training, Verification
from tessera._call import Answered, Files, raise_error
from tessera._commands import ModelLike, PlanLike, model_argument, options, plan_argument
from tessera._errors import InputError
from tessera._values import Source

_RUNTIME = "libtessera_runtime.so"
_VARIABLE = "TESSERA_PROGRAM"


def main() -> int:
    """The command `tessera`: the program of the planning half, in this process."""
    return _core.run_on_terminal(sys.argv[1:])


def full_program() -> Path:
    """The program that executes models: what TESSERA_PROGRAM names, else the first `tessera` on PATH with a runtime beside it.

    Raises InputError if there is none.
    """
    if named := os.environ.get(_VARIABLE):
        if not (Path(named).parent / _RUNTIME).exists():
            raise InputError(f"{_VARIABLE}: expected a program with {_RUNTIME} beside it, found '{named}'")
        return Path(named)
    for folder in os.get_exec_path():
        found = shutil.which("tessera", path=folder)
        if found and (Path(found).resolve().parent / _RUNTIME).exists():
            return Path(found).resolve()
    raise InputError(f"expected a program with the runtime, named by {_VARIABLE} or on PATH, found none; to get it: make build, "
                     f"then {_VARIABLE}=build/tessera")


def _run(arguments: list[str], each_line: Callable[[str], None] | None = None, codes: tuple[int, ...] = (0,)) -> Answered:
    """Runs the full program. Ctrl-C ends it, too, as it gets the same signal."""
    program = full_program()
    lines: list[str] = []
    # Notes go to a file: nobody reads them before the end, and a pipe that is full would stop the program.
    with (tempfile.TemporaryFile("w+", encoding="utf-8") as beside,
          subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, stderr=beside, text=True) as process):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                if each_line is not None:
                    each_line(line)
            process.wait()
        except BaseException:
            process.terminate()
            raise
        beside.seek(0)
        notes = beside.read().splitlines()
    if process.returncode not in codes:
        errors = [line.removeprefix("tessera: ") for line in notes if line.startswith("tessera: ")]
        raise_error(process.returncode, errors[-1] if errors else f"the program ended with {process.returncode}")
    return Answered(process.returncode, "".join(lines), notes)


def verify(model: ModelLike, plan: PlanLike, *, batch: int | None = None, steps: int | None = None, seed: int | None = None,
           precision: str | None = None) -> Verification:
    """Compares the parallel run of a plan with the serial one on this machine, in float64.

    Needs a program with the runtime (full_program). Raises InputError, Fault; a run that differs is an answer with `ok` False.
    """
    with Files() as files, files.named():
        answered = _run(["verify", model_argument(model, files), "--json", *options(
            plan=plan_argument(plan), batch=batch, steps=steps, seed=seed, precision=precision)], codes=(0, 1))
    return Verification(answered.json(files), answered.notes)


def train(run: Source, *, plan: PlanLike | None = None, ranks: int | None = None, steps: int | None = None,
          changes: Mapping[str, object] | None = None, resume: bool = False,
          progress: Callable[[dict[str, object]], object] | None = None) -> Training:
    """Trains on this machine, as a run file says.

    run: the path of a RUN.toml (docs/reference/run-config.md), or its text. changes: keys of it with other values.
    progress: called with each step: {"step": ..., "loss": ..., "step_time_s": ..., "tokens_per_s": ...}.

    Needs a program with the runtime (full_program). Raises InputError, Fault.
    """
    steps_seen: list[dict[str, object]] = []

    def each_line(line: str) -> None:
        record = json.loads(line)
        if "step" in record:
            steps_seen.append(record)
            if progress is not None:
                progress(record)

    text = os.fspath(run)
    with Files() as files, files.named():
        path = files.write("run.toml", text) if "\n" in text else text
        answered = _run(["train", path, "--json", *options(
            plan=plan_argument(plan) if plan is not None else None, ranks=ranks, steps=steps, set=changes, resume=resume)],
            each_line)
    last = json.loads(answered.text.splitlines()[-1])
    return Training(last.get("summary", last), answered.notes, steps_seen)
