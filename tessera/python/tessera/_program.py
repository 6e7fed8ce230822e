"""The program: the command `tessera`, and what executes models, which needs a program with the runtime."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tessera import _core
from tessera._answers import Training, Verification
from tessera._call import Answered, Files, ask, raise_error
from tessera._commands import ModelLike, PlanLike, options, plan_argument
from tessera._errors import InputError
from tessera._tensors import map_parameters, write_data, write_weights
from tessera._values import Model, Source

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
           state_dict: Mapping[str, Any] | None = None, data: Mapping[str, Any] | None = None) -> Verification:
    """Compares the parallel run of a plan with the serial one on this machine, in float64.

    state_dict: the parameters of both runs, as for train(); without it initial values.
    data: the samples of both runs, tensors [samples, ...] by input; without it random ones.

    Needs a program with the runtime (full_program). Raises InputError, Fault; a run that differs is an answer with `ok` False.
    """
    model = model if isinstance(model, Model) else Model(model)
    with Files() as files, files.named():
        argument = model.argument(files)
        weights = write_weights(model.state(files), argument, state_dict, files) if state_dict is not None else None
        answered = _run(["verify", argument, "--json", *options(
            plan=plan_argument(plan), batch=batch, steps=steps, seed=seed, weights=weights,
            data=write_data(data, files) if data is not None else None)], codes=(0, 1))
        answer = answered.json(files)
        if "error" in answer and "ok" not in answer:
            raise_error(answered.code, str(answer["error"]["message"]))
    return Verification(answer, answered.notes)


def _keys_of(path: str) -> dict[str, Any]:
    """The keys of a run file. One that cannot be read has none here: the program says why."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError):
        return {}


def _checkpoints_of(run: Mapping[str, Any], changes: Mapping[str, object]) -> str:
    """The folder of checkpoints that a run asks for; "": it asks for none."""
    named = run.get("checkpoint", {})
    return str(changes.get("checkpoint.dir", named.get("dir", "") if isinstance(named, Mapping) else ""))


def train(run: Source, *, model: ModelLike | None = None, state_dict: Mapping[str, Any] | None = None,
          data: Mapping[str, Any] | None = None, parameters: bool = False, plan: PlanLike | None = None,
          ranks: int | None = None, steps: int | None = None, changes: Mapping[str, object] | None = None, resume: bool = False,
          progress: Callable[[dict[str, object]], object] | None = None) -> Training:
    """Trains on this machine, as a run file says.

    run: the path of a RUN.toml (docs/reference/run-config.md), or its text. changes: keys of it with other values.
    model: what is trained, instead of the run's model; of a module its Model.
    state_dict: the parameters with which the run begins: tensors by name with __dlpack__ in the memory of the host. Of a module
        the names and shapes are those of its state_dict, of other models those of their graph. The elements are written to a
        file straight from the tensors' memory; a tensor need not be contiguous.
    data: the samples, instead of the run's data: tensors [samples, ...] by input, of dtypes that NumPy has.
    parameters: whether the answer has the trained parameters; with state_dict it always has.
    progress: called with each step: {"step": ..., "loss": ..., "step_time_s": ..., "tokens_per_s": ...}.

    Needs a program with the runtime (full_program). Raises InputError (also: a name in state_dict is missing or foreign, or a
    tensor has another shape than the model's), Fault.

    >>> model = Model(module, (tokens, targets))                                   # doctest: +SKIP
    >>> trained = train("batch = 8\nsteps = 100\n", model=model, state_dict=module.state_dict(),
    ...                 data={"tokens": all_tokens, "targets": all_targets})       # doctest: +SKIP
    >>> module.load_state_dict(trained.state_dict(), assign=True)                  # doctest: +SKIP
    """
    steps_seen: list[dict[str, object]] = []

    def each_line(line: str) -> None:
        record = json.loads(line)
        if "step" in record:
            steps_seen.append(record)
            if progress is not None:
                progress(record)

    wants_parameters = parameters or state_dict is not None
    text = os.fspath(run)
    keys: dict[str, object] = {}
    trained: dict[str, Any] = {}
    with Files() as files, files.named():
        path = files.write("run.toml", text) if "\n" in text else text
        if data is not None:
            keys["data"] = write_data(data, files)
        said = _keys_of(path) if wants_parameters else {}
        if model is None and wants_parameters:
            model = Model(str((changes or {}).get("model", said.get("model", ""))))
        state = None
        if model is not None:
            model = model if isinstance(model, Model) else Model(model)
            argument = model.argument(files)
            state = model.state(files)
            keys["model"] = json.dumps(argument)
            if weights := write_weights(state, argument, state_dict, files):
                keys["weights"] = json.dumps(weights)
                keys |= {} if state_dict is not None else {"weights_of": '"constants"'}
        checkpoints = _checkpoints_of(said, changes or {})
        if wants_parameters and not checkpoints:
            checkpoints = files.path("checkpoints")
            keys |= {"checkpoint.dir": json.dumps(checkpoints), "checkpoint.every": 2**31 - 1, "checkpoint.keep": 1}
        answered = _run(["train", path, "--json", *options(
            plan=plan_argument(plan) if plan is not None else None, ranks=ranks, steps=steps, set={**keys, **(changes or {})},
            resume=resume)], each_line)
        if state is not None and wants_parameters:
            kept = files.path("trained.safetensors")
            ask(["checkpoint", "copy", checkpoints, f"--to={kept}", "--parameters"])
            trained = map_parameters(state, kept)  # the mapping outlives the file
    last = json.loads(answered.text.splitlines()[-1])
    return Training(last.get("summary", last), answered.notes, steps_seen, trained, state_dict)
