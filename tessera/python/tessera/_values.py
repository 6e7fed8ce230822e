"""What is asked about: models, plans and clusters. They are values: texts that are compared, pickled and printed."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tessera import _core
from tessera._call import Files, ask
from tessera._errors import InputError
from tessera._tensors import State, state_of_graph
from tessera._torch import graph_of_module, is_module

if TYPE_CHECKING:
    from tessera._answers import Search

# A path or a text that the program reads as one.
Source = str | os.PathLike[str]


class Value:
    """A value that is made of one text."""

    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def text(self) -> str:
        """The text itself, as the command line or a file has it."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._text == getattr(other, "_text", None)

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._text))

    def __str__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._text)}</pre>"


class Model(Value):
    """What is trained.

    source: a published name, a family with keys, a Hugging Face folder or its config.json, a `.graph` or `.pt2` file, the
        text of a graph (several lines), or a torch.nn.Module.
    example: of a module, the arguments that its forward takes, with the batch of a step: tensors of [batch, ...].
    kwargs, dynamic_shapes: of a module, as torch.export.export takes them.
    keys: of a module, keys of the importer: {"loss": "cross_entropy"} if the module returns logits [batch, ..., classes].
    batch: of a module whose dynamic_shapes leave the batch open, the sequences of a step.

    Raises InputError if the source names no model, or if a module has an op without a counterpart.

    >>> model = Model("gpt:layers=2,hidden=64,heads=4,seq=32,vocab=128")
    >>> model.parameters
    110336
    >>> Model("gpd:layers=2")
    Traceback (most recent call last):
      ...
    tessera._errors.InputError: unknown model 'gpd', did you mean 'gpt'? (a model is family:key=value, ...
    """

    def __init__(self, source: object, example: tuple[object, ...] = (), *,
                 kwargs: Mapping[str, object] | None = None, dynamic_shapes: object = None,
                 keys: Mapping[str, object] | None = None, batch: int = 0) -> None:
        self._facts: dict[str, Any] = {}
        self._state: State | None = None
        if is_module(source):
            text, self._state = graph_of_module(source, example, kwargs, dynamic_shapes, keys, batch)
            super().__init__(text)
            return
        if not isinstance(source, str | os.PathLike):
            raise InputError(f"model: expected a text, a path or a torch.nn.Module, found {type(source).__name__}")
        if example or kwargs or dynamic_shapes is not None or keys or batch:
            raise InputError("model: expected a torch.nn.Module with example, kwargs, dynamic_shapes, keys or batch")
        super().__init__(os.fspath(source))
        if not self.is_graph:
            _core.check_model(self._text)

    @property
    def is_graph(self) -> bool:
        """Whether the text is that of a graph, which fixes the batch."""
        return "\n" in self._text

    def argument(self, files: Files) -> str:
        """What stands for the model on a command line."""
        return files.write("model.graph", self._text) if self.is_graph else self._text

    @property
    def facts(self) -> dict[str, Any]:
        """What `tessera inspect MODEL --json` says: title, parameters, ops and flops by phase, tokens."""
        if not self._facts:
            with Files() as files, files.named():
                self._facts = ask(["inspect", self.argument(files), "--json"]).json(files)
        return self._facts

    def state(self, files: Files) -> State:
        """What a state_dict of the model is to its graph."""
        return self._state or state_of_graph(self.argument(files))

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return int(self.facts["parameters"])

    @property
    def title(self) -> str:
        """The name, as a person would say it."""
        return str(self.facts["title"])

    def __reduce__(self) -> tuple[object, ...]:
        return _model_of_text, (self._text, self._state)

    def __repr__(self) -> str:
        return f"<Model of a graph, {len(self._text):,} characters>" if self.is_graph else f"Model({self._text!r})"

    def _repr_html_(self) -> str:
        facts = self.facts
        return (f"<p><b>{html.escape(self.title)}</b>, {self.parameters:,} parameters, "
                f"{facts['seq']:,} tokens a sequence</p>")


def _model_of_text(text: str, state: State | None) -> Model:
    """Makes a model of a text that was checked before."""
    model = Model.__new__(Model)
    Value.__init__(model, text)
    model._facts, model._state = {}, state
    return model


class Plan(Value):
    """Where and when a model is computed: the text of a plan, or a call of a recipe.

    source: the text of a plan (several lines), the path of a plan file, which is read at once, or a call of a recipe, as
        "megatron(tp=2,pp=2,dp=2)". "auto" stands for the plan that plan() finds.

    Raises InputError if a text is no plan; what a call of a recipe lacks is found when it is used with a model.

    >>> plan = Plan('mesh = { dp = 2 }\\nsplit = [ { ops = "*", dim = "batch", over = "dp" } ]\\n')
    >>> plan.ranks, plan.mesh
    (2, {'dp': 2})
    >>> print(Plan("ddp(2)").written("gpt:layers=1,hidden=16,heads=2,seq=8,vocab=32").text.splitlines()[0])
    # ddp(2)
    """

    def __init__(self, source: Source, found: Search | None = None) -> None:
        text = os.fspath(source)
        is_path = not isinstance(source, str) or text.endswith(".toml")
        if is_path and "\n" not in text:
            try:
                with open(text, encoding="utf-8") as file:
                    text = file.read()
            except OSError as error:
                raise InputError(f"plan: cannot read '{text}': {error.strerror}") from None
        super().__init__(text)
        self._facts: dict[str, Any] = {}
        self.found = found
        """Of a plan that plan() found, what else the search knows; else None."""
        if not self.is_call:
            with Files() as files, files.named():
                self._facts = ask(["inspect", files.write("plan.toml", text), "--json"]).json(files)

    @property
    def is_call(self) -> bool:
        """Whether this is a call of a recipe, which gets its text from a model."""
        return "\n" not in self._text

    @property
    def ranks(self) -> int | None:
        """The number of ranks; None for a call of a recipe."""
        return self._facts.get("ranks")

    @property
    def mesh(self) -> dict[str, int] | None:
        """The sizes of the mesh's axes, the outermost first; None for a call of a recipe."""
        return self._facts.get("mesh")

    @property
    def micro_batches(self) -> int | None:
        """The number of micro-batches of a step; None for a call of a recipe."""
        return self._facts.get("micro_batches")

    def written(self, model: Model | str) -> Plan:
        """The plan that a call of a recipe gives for a model; a plan that is a text already is returned as it is.

        Raises InputError: an argument that the recipe does not have, or that does not go with the model.
        """
        if not self.is_call:
            return self
        model = model if isinstance(model, Model) else Model(model)
        with Files() as files, files.named():
            answer = ask(["plan", self._text, "--model", model.argument(files), "--json"]).json(files)
        return Plan(str(answer["text"]))

    def save(self, path: Source) -> None:
        """Writes the text to a file, from which Plan(path) reads it. Raises OSError if it cannot be written."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._text)

    def __repr__(self) -> str:
        if self.is_call:
            return f"Plan({self._text!r})"
        mesh = " ".join(f"{axis}={size}" for axis, size in (self.mesh or {}).items())
        return f"<Plan of {self.ranks} ranks: {mesh or 'one rank'}>"

    def _repr_html_(self) -> str:
        head = self.found._repr_html_() if self.found is not None else f"<p>{html.escape(repr(self))}</p>"
        return head + super()._repr_html_()


class Cluster(Value):
    """The machines: a preset and its nodes ("dgx-a100:8"), devices ("8xH100"), "local", a file, or a file's text.

    Raises InputError if there is no such machine, or if the file does not describe one.

    >>> cluster = Cluster("8xA100")
    >>> cluster.devices, cluster.nodes
    (8, 1)
    >>> cluster.memory_bytes == 80 * 2**30
    True
    """

    def __init__(self, source: Source) -> None:
        text = os.fspath(source)
        if not isinstance(source, str):
            with open(source, encoding="utf-8") as file:
                text = file.read()
        super().__init__(text)
        with Files() as files, files.named():
            self._facts = ask(["inspect", self.argument(files), "--json"]).json(files)
        if "devices" not in self._facts:
            raise InputError(f"cluster: expected a machine, found '{text}', which is something else")

    def argument(self, files: Files) -> str:
        """What stands for the machine on a command line."""
        return files.write("cluster.toml", self._text) if "\n" in self._text else self._text

    @property
    def facts(self) -> dict[str, Any]:
        """What `tessera inspect CLUSTER --json` says: parts, devices, links, switches."""
        return self._facts

    @property
    def devices(self) -> int:
        """The number of devices."""
        return int(self._facts["devices"])

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return int(self._facts["nodes"])

    @property
    def memory_bytes(self) -> int:
        """The memory of the smallest device, in bytes."""
        return min(int(part["device"]["memory_bytes"]) for part in self._facts["parts"])

    def __repr__(self) -> str:
        return f"<Cluster of {self.devices} devices>" if "\n" in self._text else f"Cluster({self._text!r})"

    def _repr_html_(self) -> str:
        kinds = ", ".join(str(part["device"]["name"]) for part in self._facts["parts"])
        return f"<p><b>{html.escape(repr(self))}</b>: {self.nodes:,} nodes, {self.devices:,} devices ({html.escape(kinds)})</p>"
