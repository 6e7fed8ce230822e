"""The functions of the package. Each asks the command of its name, with the defaults of that command."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tessera._answers import Exported, Inspection, Report, Search, Sharding, Simulation
from tessera._call import Files, Progress, ask, raise_error
from tessera._errors import InputError
from tessera._table import Table
from tessera._values import Cluster, Model, Plan, Source

# The columns that `tessera predict` demands (docs/reference/predict.md); cells may be empty.
_PREDICTED = ("row_id source model params layers hidden heads kv_heads ffn seq vocab gpu n_gpus gpus_per_node tp pp vpp dp cp ep "
              "zero microbatch global_batch recompute dtype").split()

ModelLike = Model | Source
PlanLike = Plan | Source
ClusterLike = Cluster | Source


def options(**given: object) -> list[str]:
    """Options of a command line: none for None and False; a flag for True; one for each item of a list or mapping."""
    out: list[str] = []
    for name, value in given.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        if value is True:
            out.append(option)
        elif isinstance(value, Mapping):
            out += [f"{option}={key}={item}" for key, item in value.items()]
        elif isinstance(value, list | tuple):
            out += [f"{option}={item}" for item in value]
        elif value is not None and value is not False:
            out.append(f"{option}={value}")
    return out


def model_argument(model: ModelLike, files: Files) -> str:
    return (model if isinstance(model, Model) else Model(model)).argument(files)


def plan_argument(plan: PlanLike) -> str:
    return (plan if isinstance(plan, Plan) else Plan(plan)).text


def cluster_argument(cluster: ClusterLike | None, files: Files) -> str | None:
    if cluster is None:
        return None
    return (cluster if isinstance(cluster, Cluster) else Cluster(cluster)).argument(files)


def size_text(size: str | int | None) -> str | None:
    """A size in bytes as options take it: a number of bytes, or a text such as "40GB" or "90%"."""
    return f"{size} B" if isinstance(size, int) else size


def rows_argument(rows: object, name: str, files: Files, columns: Sequence[str] = ()) -> str:
    """What stands for a table of CSV on a command line: a path, a text of several lines, rows, or a DataFrame.

    Rows get empty cells in those of `columns` that they lack.
    """
    if isinstance(rows, str | os.PathLike):
        text = os.fspath(rows)
        return files.write(name, text) if "\n" in text else text
    if hasattr(rows, "to_dict"):
        rows = rows.to_dict("records")
    if not isinstance(rows, Iterable):
        raise InputError(f"{name}: expected a path, rows or a DataFrame, found {type(rows).__name__}")
    table = Table(rows)
    out = io.StringIO()
    names = dict.fromkeys([*table.columns, *columns])
    writer = csv.DictWriter(out, fieldnames=list(names), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return files.write(name, out.getvalue())


def number_of(text: str) -> Any:
    """A cell of CSV: an int or a float where it is one, None where it is empty."""
    if not text:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def plan(model: ModelLike, cluster: ClusterLike, *, batch: int | None = None, framework: str | None = None,
         planner: str | None = None, memory_limit: str | int | None = None, precision: str | None = None,
         style: str | None = None, constants: Source | None = None, optimizer: str | None = None,
         fixed: Mapping[str, object] | None = None, containing: PlanLike | None = None, lossy: bool = False,
         evaluations: int | None = None, seconds: float | None = None, explain: bool = False,
         objective: str | None = None, price: float | Mapping[str, float] | None = None, within: str | None = None,
         progress: Progress = None) -> Plan:
    """Finds a plan for a model on a machine.

    batch: sequences of a step over all ranks; without it 8 for each device.
    framework: search only what torchtitan, megatron, deepspeed, nemo, fsdp2, accelerate or transformers runs;
        `plan.found.launch` is then what it starts with.
    memory_limit: what a plan may use of a device: bytes, or a text such as "40GB" or "90%".
    precision: what products and activations are in, as "bfloat16"; without it what the devices compute in.
    style, constants: how a framework executes (docs/reference/pricing.md).
    optimizer: by which the model is trained, as "adamw" (the default) or "sgd".
    fixed: settings that are not searched, as {"tp": 8}. containing: a plan whose keys and entries the answer must have.
    lossy: plans may compress what ranks exchange, which changes what a step computes.
    evaluations, seconds: how many programs are simulated at most, and for how long. Ctrl-C gives the best plan so far, with
        `plan.found.interrupted`; if there is none within a second, KeyboardInterrupt goes on.
    objective: what is to be small: time (the default), money, devices or memory; price: USD an hour of a device, or of each
        type as {"dgx-a100": 2.5}; within: what a step may take beside it, as "10%" more than the fastest, or "1.5 s".
    progress: called with a line of text, several times a second at most; True shows the line on standard error.

    Returns the plan; what else the search knows is `plan.found`. Raises InputError, DoesNotFit (no plan fits; the line says
    by how much) and Fault.

    >>> found = plan("gpt:layers=2,hidden=64,heads=4,seq=32,vocab=128", "8xA100", batch=16, evaluations=20)
    >>> found.ranks <= 8, found.found.memory_bytes < 80 * 10**9
    (True, True)
    >>> len(found.found.candidates) <= 20
    True
    """
    with Files() as files, files.named():
        part = files.write("containing.toml", plan_argument(containing)) if containing is not None else None
        arguments = ["plan", model_argument(model, files), "--json", *options(
            cluster=cluster_argument(cluster, files), batch=batch, for_=framework, planner=planner,
            memory_limit=size_text(memory_limit), precision=precision, style=style, constants=constants, optimizer=optimizer,
            fix=fixed, with_=part, allow="lossy" if lossy else None, evaluations=evaluations, seconds=seconds,
            explain=explain, objective=objective, price=price, within=within)]
        answered = ask(arguments, progress=progress, answers_early=True)
        answer = answered.json(files)
    text = answer["plan"] if "for" in answer else answer["text"]
    return Plan(str(text), Search(answer, answered.notes, answered.interrupted))


def simulate(model: ModelLike, plan: PlanLike, cluster: ClusterLike, *, batch: int | None = None, precision: str | None = None,
             style: str | None = None, constants: Source | None = None, optimizer: str | None = None,
             what_if: str | None = None, data: str | None = None, jitter: float | None = None,
             stragglers: Mapping[int, float] | None = None, seed: int | None = None, failures: float | None = None,
             restart_s: float | None = None, evaluations: int | None = None, fold: bool = True, trace: Source | None = None,
             chakra: Source | None = None, progress: Progress = None) -> Simulation:
    """Predicts the step of a plan on a machine, with the program that would run.

    batch: sequences of a step over all ranks; without it one for each replica and micro-batch.
    what_if: a change of the machine, as "link:nic*2"; the answer is about the changed one, `json["before"]` about the other.
    jitter: relative standard deviation of the time of each kernel; stragglers: devices that are slower, {7: 1.5}.
    failures, restart_s: failures a device and year, and seconds that one costs.
    evaluations: of a plan that does not fit, how many changed plans may be simulated to find one that does; 0: none.
    trace, chakra: files to write: a Chrome trace, and the prefix of Chakra traces.
    The other options are those of plan().

    Returns the simulation, also of a plan that does not fit: `fits` is False, and `notes` say what would help.
    Raises InputError, Fault.

    >>> step = simulate("gpt:layers=2,hidden=64,heads=4,seq=32,vocab=128", "megatron(tp=2,dp=2)", "dgx-a100:1", batch=8)
    >>> step.fits, step["ranks"]
    (True, 4)
    >>> sorted({row["kind"] for row in step.transfers})[0]
    'all_reduce'
    """
    with Files() as files, files.named():
        slow = [f"{device}*{times}" for device, times in (stragglers or {}).items()]
        arguments = ["simulate", model_argument(model, files), "--json", *options(
            plan=plan_argument(plan), cluster=cluster_argument(cluster, files), batch=batch, precision=precision, style=style,
            constants=constants, optimizer=optimizer, what_if=what_if, data=data, jitter=jitter, straggler=slow, seed=seed,
            failures=failures, restart=restart_s, evaluations=evaluations, no_fold=not fold, trace=trace, chakra=chakra)]
        answered = ask(arguments, progress=progress, codes=(0, 1))
        answer = answered.json(files)
        if "error" in answer:  # the plan "auto" was not found
            raise_error(answered.code, str(answer["error"]["message"]))
    return Simulation(answer, answered.notes)


def inspect(subject: ModelLike | Plan | Cluster, plan: PlanLike | None = None, *, batch: int | None = None,
            precision: str | None = None, optimizer: str | None = None, cluster: ClusterLike | None = None,
            rank: int | None = None, place: int | None = None, op: str | None = None, decisions: bool = False,
            shape: Sequence[int] | None = None, mesh: str | None = None, what_if: str | None = None) -> Inspection:
    """Shows a model, a plan, a cluster, a model under a plan, or what moves between two layouts ("S0R -> RS0" with mesh).

    With a plan: `roles` are the kinds of ranks, with instructions, bytes sent and memory. Of these, rank: the program of one
    rank; place: what the ranks of a place have in common; op: which entries of the plan decide for the ops of a selector;
    decisions: the layouts of every op. They are texts (`text`).

    Raises InputError.

    >>> shown = inspect("gpt:layers=2,hidden=64,heads=4,seq=32,vocab=128", "ddp(2)")
    >>> [role["ranks"] for role in shown.roles]
    [2]
    >>> [step["what"] for step in inspect("S0R -> RS0", mesh="2x4")["steps"]]
    ['all_to_all']
    """
    with Files() as files, files.named():
        if isinstance(subject, Plan):
            argument = files.write("plan.toml", subject.text) if not subject.is_call else subject.text
        elif isinstance(subject, Model | Cluster):
            argument = subject.argument(files)
        else:
            argument = os.fspath(subject)
        arguments = ["inspect", argument, "--json", *options(
            plan=plan_argument(plan) if plan is not None else None, batch=batch, precision=precision, optimizer=optimizer,
            cluster=cluster_argument(cluster, files), rank=rank, place=place, op=op, decisions=decisions,
            shape=",".join(map(str, shape)) if shape else None, mesh=mesh, what_if=what_if)]
        answered = ask(arguments)
        answer = answered.json(files)
    return Inspection(answer, answered.notes)


def predict(rows: object, *, only: Sequence[str] = (), settings: Sequence[str] = (), constants: Source | None = None,
            threads: int | None = None) -> Table:
    """Prices runs of other frameworks, a row each.

    rows: a CSV file, its text, an iterable of mappings or a pandas.DataFrame, with the columns of docs/reference/predict.md;
        of mappings and of a DataFrame columns may be absent.
    only: the sources whose rows count. settings: constants, as "megatron-lm.plan.dropout=0".

    Returns a table with, for each row, row_id, step_time_s, mem_GB (1e9 bytes), relative_uncertainty, style and reason; a row
    that cannot be priced has no step_time_s, and the reason why. Raises InputError.

    >>> row = {"row_id": "mine", "source": "Megatron-LM", "model": "gpt", "layers": 24, "hidden": 2048, "heads": 16,
    ...        "seq": 2048, "vocab": 51200, "gpu": "A100-80GB", "n_gpus": 8, "tp": 2, "dp": 4, "global_batch": 64}
    >>> priced = predict([row])
    >>> priced.column("row_id"), 0.5 < priced[0]["step_time_s"] < 50
    (['mine'], True)
    """
    with Files() as files, files.named():
        arguments = ["predict", rows_argument(rows, "rows.csv", files, _PREDICTED), *options(
            only=list(only), style_set=list(settings), constants=constants, threads=threads)]
        text = ask(arguments).text
    return Table({key: number_of(value) for key, value in row.items()} for row in csv.DictReader(io.StringIO(text)))


def shard(tables: object, devices: int, memory: str | int, *, cost: Source | None = None, planner: str | None = None,
          splits: Sequence[str] | None = None, beyond_range: bool = False, optimizer: str | None = None,
          seed: int | None = None, budget: int | None = None, progress: Progress = None) -> Sharding:
    """Places embedding tables on devices.

    tables: a CSV file, its text, an iterable of mappings or a pandas.DataFrame, with the columns of docs/reference/tables.md;
        or "random:max_dim=64,seed=7".
    memory: of each device: bytes, or a text such as "32 GiB".
    cost: "closed" (the default), "torchrec", or a JSON file. splits: of columns, rows, replicas and hot, those that are allowed.

    Raises InputError, DoesNotFit.

    >>> placed = shard("random:max_dim=64,seed=7", devices=4, memory="4 GiB")
    >>> len(placed.load), placed.ms > 0
    (4, True)
    """
    with Files() as files, files.named():
        arguments = ["shard", rows_argument(tables, "tables.csv", files), "--json", *options(
            devices=devices, memory=size_text(memory), cost=cost, planner=planner,
            splits=",".join(splits) if splits is not None else None, beyond_range=beyond_range, optimizer=optimizer, seed=seed,
            budget=budget)]
        answered = ask(arguments, progress=progress)
        answer = answered.json(files)
    return Sharding(answer, answered.notes)


def export(model: ModelLike, plan: PlanLike, to: str, *, batch: int | None = None, precision: str | None = None,
           style: str | None = None, constants: Source | None = None, cluster: ClusterLike | None = None,
           progress: Progress = None) -> Exported:
    """Writes a plan as the text that a framework starts with: torchtitan, megatron, deepspeed, nemo, fsdp2, ...

    cluster: the machine, for the devices of a node and the precision; without it dgx-h100.

    Raises InputError: the framework cannot express the plan; the line names the entry.

    >>> text = export("llama:layers=2,hidden=64,heads=4,ffn=128,vocab=128", "fsdp(8)", "torchtitan").text
    >>> "data_parallel_shard_degree = 8" in text
    True
    """
    with Files() as files, files.named():
        arguments = ["export", model_argument(model, files), "--json", *options(
            plan=plan_argument(plan), to=to, batch=batch, precision=precision, style=style, constants=constants,
            cluster=cluster_argument(cluster, files))]
        answered = ask(arguments, progress=progress)
        answer = answered.json(files)
    return Exported(answer, answered.notes)


def to_pytorch(module: object, plan: PlanLike, example: tuple[object, ...] = (), **options: Any) -> Exported:
    """Writes a plan as a file of plain PyTorch for a module (docs/guides/from-pytorch-to-torchrun.md).

    module: a torch.nn.Module with example, the arguments of its forward with the batch of a step; a Model made of one; or the
        path of a `.pt2`. options: batch, precision and cluster, as export() takes them.

    Raises InputError: PyTorch cannot run the plan; the line names the entry, and the nearest plan that it can run.
    """
    model = module if isinstance(module, Model) else Model(module, example)
    return export(model, plan, "pytorch", **options)


def report(model: ModelLike, plans: PlanLike | Sequence[PlanLike], cluster: ClusterLike = "local", *, batch: int | None = None,
           precision: str | None = None, style: str | None = None, constants: Source | None = None,
           optimizer: str | None = None, progress: Progress = None) -> Report:
    """Draws simulated steps as one HTML page: does it fit, memory, timeline, communication; several plans side by side.

    The options are those of simulate(). A notebook shows the page in a frame; save() writes it for a browser.

    Raises InputError, Fault.

    >>> page = report("gpt:layers=2,hidden=64,heads=4,seq=32,vocab=128", ["ddp(2)", "fsdp(2)"], "dgx-a100:1", batch=8)
    >>> page.html.startswith("<!DOCTYPE html>")
    True
    """
    several = [plans] if isinstance(plans, Plan | str | os.PathLike) else list(plans)
    with Files() as files, files.named():
        page = files.path("page.html")
        ask(["report", model_argument(model, files), *options(
            plan=[plan_argument(one) for one in several], cluster=cluster_argument(cluster, files), batch=batch,
            precision=precision, style=style, constants=constants, optimizer=optimizer, out=page)], progress=progress)
        with open(page, encoding="utf-8") as file:
            return Report(file.read())
