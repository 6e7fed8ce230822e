"""Ranks of a test: processes forked from one that has imported torch already, joined by gloo.

A fork starts within milliseconds; each rank of torchrun loads torch, which takes seconds of processor time.
"""
import contextlib
import datetime
import os
import pathlib
import pickle
import select
import signal
import tempfile
import traceback

import torch
import torch._dynamo  # which optimizers import: once here rather than on each rank
import torch.distributed as dist

torch.set_num_threads(1)  # a fork does not have the threads of its parent


def _rank(scratch, rank, count, function, arguments):
    log = os.open(scratch / f"{rank}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        dist.init_process_group("gloo", init_method=f"file://{scratch}/store", rank=rank, world_size=count,
                                timeout=datetime.timedelta(seconds=300))
        result = function(*arguments)
        dist.barrier()
        (scratch / f"{rank}.result").write_bytes(pickle.dumps(result))
        dist.destroy_process_group()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def run(count, function, *arguments):
    """Calls the function on so many ranks. Returns what rank 0 returns."""
    with tempfile.TemporaryDirectory(prefix="tessera_ranks_") as name:
        scratch = pathlib.Path(name)
        left = {}
        for rank in range(count):
            process = os.fork()
            if process == 0:
                os.setsid()
                _rank(scratch, rank, count, function, arguments)
            left[os.pidfd_open(process)] = rank, process
        failed = []
        while left:
            for descriptor in select.select(list(left), [], [])[0]:
                rank, process = left.pop(descriptor)
                os.close(descriptor)
                if os.waitpid(process, 0)[1] != 0:
                    failed.append(rank)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process, signal.SIGKILL)  # what it has started and left
            for _, process in left.values() if failed else ():
                os.kill(process, signal.SIGKILL)  # it waits for the one that failed
        if failed:
            raise AssertionError((scratch / f"{failed[0]}.log").read_text()[-3000:])
        return pickle.loads((scratch / "0.result").read_bytes())
