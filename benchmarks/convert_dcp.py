"""A folder of torch.distributed.checkpoint to Hugging Face, by tessera checkpoint convert and by PyTorch's own converter: seconds, peak
memory, and their ratios in one run.

Usage: convert_dcp.py TESSERA [GiB] [repetitions]; needs the Python environment of scripts/setup, and about four times the size on disk.
PyTorch's converter is torch.distributed.checkpoint.format_utils.dcp_to_torch_save; what it writes is no Hugging Face folder yet, and the
time to write that is not counted. The folder has 8 files, among which one process has divided the arrays.
"""
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

HIDDEN, FFN, VOCAB, FILES = 2048, 5632, 32000, 8


def shapes(layers):
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for i in range(layers):
        layer = f"model.layers.{i}."
        for name in ("q", "k", "v", "o"):
            yield layer + f"self_attn.{name}_proj.weight", (HIDDEN, HIDDEN)
        yield layer + "mlp.gate_proj.weight", (FFN, HIDDEN)
        yield layer + "mlp.up_proj.weight", (FFN, HIDDEN)
        yield layer + "mlp.down_proj.weight", (HIDDEN, FFN)
        yield layer + "input_layernorm.weight", (HIDDEN,)
        yield layer + "post_attention_layernorm.weight", (HIDDEN,)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def make(folder, layers):
    """Writes the folder: the arrays of a Llama of that many layers in float32, and its config.json beside it."""
    draw = torch.Generator().manual_seed(1)
    state = {"model": {name: torch.randn(shape, generator=draw) for name, shape in shapes(layers)}}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(f"{folder}/one", thread_count=FILES))
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN, "intermediate_size": FFN,
              "num_hidden_layers": layers, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": VOCAB,
              "rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "rope_theta": 10000.0, "tie_word_embeddings": False,
              "hidden_act": "silu", "dtype": "float32"}
    pathlib.Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")


def timed(*command):
    """Seconds and the peak memory (bytes) of a command; the page cache is warm for all."""
    pid = os.fork()
    if pid == 0:
        start = time.monotonic()
        done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        seconds, peak = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        pathlib.Path(os.environ["RESULT"]).write_text(json.dumps([done.returncode, seconds, peak]), encoding="utf-8")
        os._exit(0)
    os.waitpid(pid, 0)
    code, seconds, peak = json.loads(pathlib.Path(os.environ["RESULT"]).read_text(encoding="utf-8"))
    if code != 0:
        raise SystemExit(f"{command[0]} failed")
    return seconds, peak


def main(tessera, gib=4, repetitions=3):
    per_layer = 4 * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * FFN)
    layers = max(1, round((float(gib) * 2**30 - 8 * VOCAB * HIDDEN) / per_layer))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RESULT"] = f"{folder}/result.json"
        subprocess.run([sys.executable, __file__, "--make", folder, str(layers)], check=True)
        size = sum(file.stat().st_size for file in pathlib.Path(folder, "one").iterdir())
        best = {}
        for _ in range(int(repetitions)):
            for name, out, command in (
                    ("tessera", "hf", (tessera, "checkpoint", "convert", f"{folder}/one", f"{folder}/hf", "--format", "hf", "--model",
                                       f"{folder}/config.json")),
                    ("PyTorch", "state.pt", (sys.executable, __file__, "--torch", f"{folder}/one", f"{folder}/state.pt"))):
                seconds, peak = timed(*command)
                before = best.get(name, (1e9, 0))
                best[name] = min(before[0], seconds), max(before[1], peak)
                path = pathlib.Path(folder, out)
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name, (seconds, peak) in best.items():
            print(f"{name:8} {seconds:7.2f} s {peak / 2**20:9.1f} MiB")
        (ours, our_peak), (theirs, their_peak) = best["tessera"], best["PyTorch"]
        print(f"{size / 2**30:.2f} GiB in {FILES} files: {theirs / ours:.2f} times as fast, {our_peak / their_peak:.4f} of the memory")


if __name__ == "__main__":
    if sys.argv[1] == "--make":
        make(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1] == "--torch":
        dcp_to_torch_save(sys.argv[2], sys.argv[3])
    else:
        main(*sys.argv[1:])
