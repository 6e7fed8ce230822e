"""Ranks of a test: processes forked from one that has imported torch already, joined by gloo.

A fork starts within milliseconds; each rank of torchrun loads torch, which takes seconds of processor time.
"""
import datetime
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import pickle
import tempfile
import traceback

import torch
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
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="tessera_ranks_") as name:
        scratch = pathlib.Path(name)
        ranks = [context.Process(target=_rank, args=(scratch, rank, count, function, arguments)) for rank in range(count)]
        for one in ranks:
            one.start()
        left = list(ranks)
        while left:
            ended = multiprocessing.connection.wait([one.sentinel for one in left])
            for one in [one for one in left if one.sentinel in ended]:
                one.join()
                left.remove(one)
                if one.exitcode != 0:
                    for other in left:
                        other.kill()
                        other.join()
                    raise AssertionError((scratch / f"{ranks.index(one)}.log").read_text()[-3000:])
        return pickle.loads((scratch / "0.result").read_bytes())
