"""Plans, predicts and prices the training of large neural networks on many devices.

A model and a cluster become a plan, and a plan becomes a predicted step:

>>> import tessera
>>> model = tessera.Model("gpt:layers=2,hidden=64,heads=4,seq=32,vocab=128")
>>> plan = tessera.plan(model, "8xA100", batch=16, evaluations=20)
>>> step = tessera.simulate(model, plan, "8xA100", batch=16)
>>> step.fits
True

Figures are in the units that their names end in: `_s` seconds, `_bytes` bytes, `ms` milliseconds. Nothing is kept between
calls, calls may run on several threads, and models, plans, clusters and answers are values: equal by their contents, and
pickled. docs/reference/python.md is the manual.
"""

from tessera import _core
from tessera._answers import (Answer, Exported, Inspection, Report, Search, Sharding, Simulation, Training, Verification)
from tessera._commands import export, inspect, plan, predict, report, shard, simulate, to_pytorch
from tessera._errors import DoesNotFit, Error, Fault, InputError
from tessera._program import full_program, train, verify
from tessera._table import Table
from tessera._values import Cluster, Model, Plan

__version__ = _core.version

__all__ = [
    "Answer", "Cluster", "DoesNotFit", "Error", "Exported", "Fault", "InputError", "Inspection", "Model", "Plan", "Report",
    "Search", "Sharding", "Simulation", "Table", "Training", "Verification", "export", "full_program", "inspect", "plan",
    "predict", "report", "shard", "simulate", "to_pytorch", "train", "verify",
]
