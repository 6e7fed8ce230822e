#!/usr/bin/env bash
# One would expect a reduce-scatter to send half of what an all-reduce sends, which is why ZeRO and
# FSDP are built on it. PyTorch's gloo reduces the whole tensor on all ranks and keeps a slice: over
# four ranks it sends 6 times the tensor's size in all, as the all-reduce does, where 3 times are
# enough, and an all-gather takes 3. Traffic or time that is measured on gloo says nothing about
# sharded gradients elsewhere: ZeRO-2 and FSDP look worse beside plain data parallelism than they
# are.
#
# Counts the bytes of the loopback interface, so other traffic on it must be small beside 200 MB.
# Needs: Linux, bash, python3 (3.10 or newer), torch 2.13.0. FINDINGS_PYTHON names an interpreter
# that has exactly this one; otherwise it is downloaded (up to 3 GB). About half a minute without
# it.
# Seen, over four ranks and a tensor of 32 MiB:
#   all_reduce sends 6.01 times the tensor, reduce_scatter 6.01, all_gather 3.00
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GLOO_SOCKET_IFNAME=lo
python=${FINDINGS_PYTHON:-}
if [[ -z $python ]]; then
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
  python=$work/venv/bin/python
fi

cat > "$work/ask.py" <<'PYTHON'
import sys
import torch
import torch.distributed as dist

ranks, elements = 4, 8 << 20


def bytes_sent():
    with open("/proc/net/dev") as file:
        for line in file:
            name, _, counts = line.partition(":")
            if name.strip() == "lo":
                return int(counts.split()[8])
    raise OSError("no loopback interface is counted")


def rank_main(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    whole, part = torch.ones(elements), torch.ones(elements // ranks)
    sent = []
    for call in (lambda: dist.all_reduce(whole), lambda: dist.reduce_scatter_tensor(part, whole),
                 lambda: dist.all_gather_into_tensor(whole, part)):
        dist.barrier()
        before = bytes_sent()
        dist.barrier()
        call()
        dist.barrier()
        sent.append((bytes_sent() - before) / (4 * elements))
        dist.barrier()
    if rank == 0:
        torch.save(sent, folder + "/sent.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    version = torch.__version__.split("+")[0]
    print("torch", version, "with gloo, four ranks")
    if version != "2.13.0":
        sys.exit("expected torch 2.13.0")
    torch.multiprocessing.spawn(rank_main, (sys.argv[1],), nprocs=ranks)
    sent = torch.load(sys.argv[1] + "/sent.pt")
    print("  all_reduce sends %.2f times the tensor, reduce_scatter %.2f, all_gather %.2f" % tuple(sent))
    if not all(abs(found - expected) < 0.3 for found, expected in zip(sent, (6, 6, 3))):
        sys.exit("changed: expected 6, 6 and 3")
    print("as found: a reduce-scatter of gloo sends as much as an all-reduce.")
PYTHON
"$python" "$work/ask.py" "$work" 2> "$work/warnings" || { cat "$work/warnings" >&2; exit 1; }
