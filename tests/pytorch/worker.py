"""A rank of the tests of exports to PyTorch: torchrun starts it with a file of cases. It runs each case and compares it with
the single process; rank 0 appends a line of JSON for each case. A case that fails ends all ranks.
"""
import contextlib
import datetime
import json
import os
import sys
import traceback

import models
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

STEPS, RATE = 3, 0.05
FLOOR = 0.01  # errors of a gradient count against its largest element, or this share of the largest of all


class Sent(TorchDispatchMode):
    """Counts the bytes that this rank sends, by kind, if collectives are rings."""

    def __init__(self):
        super().__init__()
        self.bytes = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if any(kind is DTensor for kind in types):
            return NotImplemented
        space, name = function.namespace, function._schema.name.split("::")[-1].rstrip("_")
        if space in ("c10d", "_c10d_functional"):
            self.count(name, args)
        return function(*args, **(kwargs or {}))

    def count(self, name, args):
        def size(value):
            if isinstance(value, torch.Tensor):
                return value.numel() * value.element_size()
            return sum(size(item) for item in value) if isinstance(value, (list, tuple)) else 0

        group = next((arg for arg in args if isinstance(arg, torch.ScriptObject)), None)
        if group is not None:
            ranks = dist.ProcessGroup.unbox(group).size()
        else:
            ranks = next((arg for arg in args if isinstance(arg, int) and not isinstance(arg, bool)), 0)
            names = [arg for arg in args if isinstance(arg, str)]
            if names and name not in ("wait_tensor",):
                ranks = dist.distributed_c10d._resolve_process_group(names[-1]).size()
        share = (ranks - 1) / ranks if ranks else 0
        tensors = [arg for arg in args if isinstance(arg, (torch.Tensor, list, tuple))]
        if name.startswith(("allreduce", "all_reduce")):
            kind, sent = "all_reduce", 2 * share * size(tensors[0])
        elif name.startswith(("_allgather_base", "allgather", "all_gather")):
            kind, sent = "all_gather", (ranks - 1) * size(tensors[1] if space_of(name) == "c10d" else tensors[0])
        elif name.startswith(("_reduce_scatter_base", "reduce_scatter")):
            kind, sent = "reduce_scatter", share * size(tensors[1] if space_of(name) == "c10d" else tensors[0])
        elif name == "send":
            kind, sent = "send", size(tensors[0])
        elif name in ("recv", "wait_tensor", "_wrap_tensor_autograd", "barrier", "broadcast", "scatter", "recv_any_source"):
            return
        else:
            kind, sent = name, size(tensors)
        self.bytes[kind] = self.bytes.get(kind, 0) + round(sent)


def space_of(name):
    return "c10d" if name.startswith("_") else "_c10d_functional"


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gradients_of(model):
    modules = getattr(model, "modules_of_rank", [model])
    return {name: whole(parameter.grad) for module in modules for name, parameter in module.named_parameters()
            if parameter.grad is not None}


def reference(module, batch):
    """Loss of each step, gradients of the last, on one process."""
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = module(*batch)
        loss.backward()
        losses.append(loss.item())
        if step + 1 < STEPS:
            optimizer.step()
    named = module.named_parameters(remove_duplicate=False)
    return losses, {name: parameter.grad.clone() for name, parameter in named if parameter.grad is not None}


def run(case):
    dtype = getattr(torch, case["dtype"])
    batch = models.batch(case["model"], dtype)
    losses, gradients = reference(models.make(case["model"], dtype), batch)
    planned = models.load("planned", case["file"])
    mesh = planned.make_mesh("cpu")
    local = planned.local_batch(mesh, *batch)
    model = planned.parallelize(models.make(case["model"], dtype), mesh, *(local if case["stages"] else ()))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, foreach=False)
    found, sent = [], Sent()
    for step in range(STEPS):
        optimizer.zero_grad()
        with sent if step == 1 else contextlib.nullcontext():
            found.append(float(planned.train_step(model, mesh, *local)))
        if step + 1 < STEPS:
            optimizer.step()
    own = gradients_of(model)
    largest = max(value.abs().max().item() for value in gradients.values())
    errors, squares = {}, {}
    for name, value in own.items():
        scale = max(gradients[name].abs().max().item(), FLOOR * largest)
        errors[name] = (value - gradients[name]).abs().max().item() / scale
        squares[name] = value.double().square().sum().item()
    all_errors, all_squares, all_sent = ([None] * dist.get_world_size() for _ in range(3))
    dist.all_gather_object(all_errors, errors)
    dist.all_gather_object(all_squares, squares)
    dist.all_gather_object(all_sent, sent.bytes)
    errors = {}
    for part in all_errors:
        for name, error in part.items():
            errors[name] = max(error, errors.get(name, 0))
    values = {name: (value.data_ptr(), value) for name, value in models.make(case["model"], dtype).named_parameters(remove_duplicate=False)}
    missing = {values[name][0] for name in gradients} - {values[name][0] for name in errors}
    norm = sum({values[name][0]: value for part in all_squares for name, value in part.items()}.values()) ** 0.5
    expected = sum({values[name][0]: value.double().square().sum().item() for name, value in gradients.items()}.values()) ** 0.5
    worst = max(errors, key=errors.get)
    return {"loss": max(abs(a - b) / abs(b) for a, b in zip(found, losses, strict=True)), "gradient": errors[worst],
            "worst": worst, "norm": abs(norm - expected) / expected, "missing": len(missing), "arrays": len(errors), "sent": all_sent}


def main():
    cases, out = sys.argv[1], sys.argv[2]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=600))
    for case in json.loads(open(cases, encoding="utf-8").read()):
        try:
            with models.wide() if case["dtype"] == "float64" else contextlib.nullcontext():
                result = run(case)
        except Exception as error:  # the other ranks wait for this one: all of them end
            if not isinstance(error, RuntimeError) or "gloo" not in str(error):
                trace = traceback.format_exc(limit=-4) if "TESSERA_TRACE" in os.environ else ""
                with open(f"{out}.error", "a", encoding="utf-8") as file:
                    file.write(json.dumps([case["name"], f"{type(error).__name__}: {error}"[:600] + trace]) + "\n")
            os._exit(1)
        if dist.get_rank() == 0:
            with open(out, "a", encoding="utf-8") as file:
                file.write(json.dumps({"name": case["name"], **result}) + "\n")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
