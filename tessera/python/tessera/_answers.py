"""What is answered: each answer is the JSON of a command (`.json`), with names for its figures and tables for its lists."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping
from typing import Any

from tessera._errors import InputError
from tessera._table import Table, cell_text
from tessera._torch import as_state_dict


def bytes_text(count: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            break
        count /= 1024
    else:
        unit = "TiB"
    return f"{count:.1f} {unit}" if unit != "B" else f"{count:.0f} B"


def seconds_text(seconds: float) -> str:
    """Seconds as people read them."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


class Answer:
    """What a command answers.

    json: the object that the command prints with --json (docs/reference/command-line.md names its keys).
    notes: lines beside it, such as what a default was.
    """

    def __init__(self, json: Mapping[str, Any], notes: Iterable[str] = ()) -> None:
        self.json: dict[str, Any] = dict(json)
        self.notes = list(notes)

    def __getitem__(self, key: str) -> Any:
        return self.json[key]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.json == getattr(other, "json", None)

    def __hash__(self) -> int:
        return hash((type(self).__name__, repr(self.json)))

    def _figures(self) -> dict[str, str]:
        """The figures that a person wants to see first."""
        return {key: cell_text(value) for key, value in self.json.items() if not isinstance(value, list | dict)}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(f'{name} {value}' for name, value in self._figures().items())}>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
                       for name, value in self._figures().items())
        notes = "".join(f"<p>{html.escape(line)}</p>" for line in self.notes)
        return f"<table>{rows}</table>{notes}"


class Search(Answer):
    """What plan() knows besides the plan: `Plan.found`."""

    def __init__(self, json: Mapping[str, Any], notes: Iterable[str] = (), interrupted: bool = False) -> None:
        super().__init__(json, notes)
        self.interrupted = interrupted
        """Whether Ctrl-C ended the search, so that this is the best plan so far."""

    @property
    def _best(self) -> dict[str, Any]:
        best: dict[str, Any] = self.json["best"]
        return best

    @property
    def step_time_s(self) -> float:
        """The predicted time of a step, in seconds."""
        return float(self._best["step_time_s"])

    @property
    def memory_bytes(self) -> int:
        """The predicted memory of the device that needs the most, in bytes."""
        return int(self._best["memory_bytes"])

    @property
    def memory_limit_bytes(self) -> int:
        """The memory of a device that the plan may use, in bytes; 0: all of it."""
        return int(self.json["memory_limit_bytes"])

    @property
    def gap(self) -> float | None:
        """The step time over a lower bound of all plans' step times; None where a framework was named."""
        return self.json.get("gap")

    @property
    def launch(self) -> str | None:
        """With plan(framework=...): the text that the framework starts with; else None."""
        return self.json["text"] if "for" in self.json else None

    @property
    def candidates(self) -> Table:
        """The plans that were simulated, with step_time_s and memory_bytes, or why they were refused."""
        simulated = self.json["simulated"]  # of a framework's search their number
        return Table(simulated if isinstance(simulated, list) else [self._best, *self.json["others"]])

    def _figures(self) -> dict[str, str]:
        name = self._best.get("words") or self._best.get("choice") or ""
        figures = {"plan": str(name), "step": seconds_text(self.step_time_s), "memory": bytes_text(self.memory_bytes),
                   "priced with": str(self.json["priced_with"])}
        if self.interrupted:
            figures["ended"] = "by Ctrl-C: the best so far"
        return figures


class Simulation(Answer):
    """The step of a plan on a machine, as simulate() predicts it."""

    @property
    def step_time_s(self) -> float:
        """The time of a step, in seconds."""
        return float(self.json["step_time_s"])

    @property
    def uncertainty(self) -> float:
        """By how much of itself the time may err: 0.1 is 10 %."""
        return float(self.json["uncertainty"])

    @property
    def tokens_per_s(self) -> float:
        """Tokens (images, rows) a second over all ranks."""
        return float(self.json["tokens_per_s"])

    @property
    def mfu(self) -> float:
        """The share of the devices' peak that the model's own operations use."""
        return float(self.json["mfu"])

    @property
    def peak_memory_bytes(self) -> int:
        """The memory of the device that needs the most, in bytes."""
        return int(self.json["peak_memory_bytes"])

    @property
    def fits(self) -> bool:
        """Whether every rank fits into the memory of its device. If not, `notes` say what would help."""
        return bool(self.json["fits"])

    @property
    def roles(self) -> Table:
        """Kinds of ranks: stages, ranks, seconds by what they are spent on, memory."""
        return Table({key: value for key, value in role.items() if key not in ("memory", "traffic")}
                     for role in self.json["roles"])

    @property
    def transfers(self) -> Table:
        """What each kind of rank sends in a step: kind, axes, count, bytes, seconds, exposed seconds."""
        return Table({"stages": role["stages"], **row} for role in self.json["roles"] for row in role["traffic"])

    @property
    def memory(self) -> Table:
        """The largest buffers at the peak of each kind of rank, in bytes."""
        return Table({"stages": role["stages"], **row} for role in self.json["roles"] for row in role["memory"]["at_peak"])

    @property
    def critical_path(self) -> Table:
        """The chain of instructions that takes the whole step: rank, what, label, start_s, end_s.

        Steps that repeat from round to round of micro-batches are listed once, with `times` and `period_s`.
        """
        return Table(self.json["critical_path"])

    def _figures(self) -> dict[str, str]:
        return {"model": str(self.json["title"]), "plan": str(self.json["plan"]), "cluster": str(self.json["cluster"]),
                "step": f"{seconds_text(self.step_time_s)} (uncertainty {self.uncertainty:.0%})",
                "MFU": f"{self.mfu:.1%}", "memory": bytes_text(self.peak_memory_bytes), "fits": cell_text(self.fits),
                "priced with": str(self.json["priced_with"])}

    def _repr_html_(self) -> str:
        return super()._repr_html_() + self.roles._repr_html_()


class Inspection(Answer):
    """What inspect() shows. `text` is the text of a program, a graph or an explanation, where the answer has one."""

    @property
    def text(self) -> str | None:
        return self.json.get("text")

    @property
    def roles(self) -> Table:
        """Of a model under a plan: the kinds of ranks, with what they do, keep and send."""
        return Table(self.json.get("roles", []))

    def _repr_html_(self) -> str:
        text = f"<pre>{html.escape(self.text)}</pre>" if self.text else ""
        return super()._repr_html_() + (self.roles._repr_html_() if self.roles else "") + text


class Exported(Answer):
    """A plan in the words of a framework: `text` is what to start it with."""

    @property
    def text(self) -> str:
        return str(self.json["text"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the text to a file. Raises OSError if it cannot be written."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)

    def __str__(self) -> str:
        return self.text

    def _figures(self) -> dict[str, str]:
        return {key: cell_text(self.json[key]) for key in ("model", "plan", "to", "version", "ranks", "batch")}

    def _repr_html_(self) -> str:
        return super()._repr_html_() + f"<pre>{html.escape(self.text)}</pre>"


class Sharding(Answer):
    """Embedding tables on devices."""

    @property
    def ms(self) -> float:
        """The predicted time of a step of all tables, in milliseconds."""
        return float(self.json["ms"])

    @property
    def placement(self) -> Table:
        """The pieces of tables: table, kind, kernel, device, first_row, rows, first_column, columns."""
        return Table(self.json["placement"])

    @property
    def load(self) -> Table:
        """What each device has: pieces, columns, bytes, and milliseconds by part of the step."""
        return Table(self.json["load"])

    def _repr_html_(self) -> str:
        return super()._repr_html_() + self.load._repr_html_()


class Verification(Answer):
    """The parallel run beside the serial one, in float64."""

    @property
    def ok(self) -> bool:
        """Whether loss, gradients and parameters agree, and bytes and memory are those predicted."""
        return bool(self.json["ok"])

    @property
    def max_rel_error(self) -> dict[str, float]:
        """The largest relative errors: of `loss`, `gradients` and `parameters`."""
        errors: dict[str, float] = self.json["max_rel_error"]
        return errors


class Training(Answer):
    """A run: its steps, and at the end its summary, which is `json`."""

    def __init__(self, json: Mapping[str, Any], notes: Iterable[str] = (), steps: Iterable[Mapping[str, Any]] = (),
                 parameters: Mapping[str, Any] | None = None, given: Mapping[str, Any] | None = None) -> None:
        super().__init__(json, notes)
        self.steps = Table(steps)
        """Each step: step, loss, step_time_s, tokens_per_s."""
        self.parameters: dict[str, Any] = dict(parameters or {})
        """With train(state_dict=...) or train(parameters=True): the trained parameters by name, as arrays with __dlpack__ that
        lie in a mapped file. Whoever writes to one changes a copy of the page."""
        self._given = dict(given or {})

    def state_dict(self) -> dict[str, Any]:
        """The trained parameters as tensors of torch over the same memory, and the other entries of the state_dict that
        train() got (buffers), as they are. Raises InputError if train() was not asked for parameters.

        `module.load_state_dict(training.state_dict(), assign=True)` copies nothing where the dtypes agree.
        """
        if not self.parameters:
            raise InputError("state_dict: expected a run of train(state_dict=...) or train(parameters=True), found another")
        return as_state_dict(self.parameters, self._given)

    def _repr_html_(self) -> str:
        return super()._repr_html_() + self.steps._repr_html_()


class Report:
    """One HTML page, complete in itself. A notebook shows it in a frame."""

    def __init__(self, page: str) -> None:
        self.html = page

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file, for a browser. Raises OSError if it cannot be written."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Report) and self.html == other.html

    def __hash__(self) -> int:
        return hash(self.html)

    def __repr__(self) -> str:
        return f"<Report of {bytes_text(len(self.html))}>"

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.html)}" style="width: 100%; height: 720px; border: 0"></iframe>'
