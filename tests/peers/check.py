"""Gives exported texts to the parser of their framework. Prints for each what it understood, as "understood {JSON}".

Usage: check.py TARGET FILE RANKS [FILE RANKS ...]. It runs in the environment that has the frameworks (peers_test.py makes one).
"""
import ast
import functools
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import types


def torchtitan(path, _ranks):
    """Parses as `python -m torchtitan.train --module planned --config planned` does."""
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    from torchtitan.config import ConfigManager  # pylint: disable=import-outside-toplevel
    config = ConfigManager().parse_args(["--module", path.stem, "--config", "planned"])
    p, t = config.parallelism, config.training
    again = type(config.activation_checkpoint).__qualname__.split(".")[0]
    return {"tp": p.tensor_parallel_degree, "pp": p.pipeline_parallel_degree, "cp": p.context_parallel_degree,
            "ep": p.expert_parallel_degree, "replicas": p.data_parallel_replicate_degree, "shards": p.data_parallel_shard_degree,
            "batch": t.global_batch_size, "recompute": {"FullAC": "full", "SelectiveAC": "selective"}.get(again, "none")}


def shell_words(path):
    """The words that the script passes to torchrun, without those of the launcher."""
    command = f'torchrun() {{ printf "%s\\0" "$@"; }}; RECIPE=r; source {path}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def megatron(path, ranks):
    """Parses and validates as pretrain_gpt.py does."""
    words = shell_words(path)
    start = next(i for i, word in enumerate(words) if word.endswith(".py"))
    queues = re.search(r"^export CUDA_DEVICE_MAX_CONNECTIONS=(\d+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    if queues:
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = queues.group(1)
    os.environ.update(RANK="0", WORLD_SIZE=str(ranks))
    from megatron.training import arguments  # pylint: disable=import-outside-toplevel
    arguments.get_device_arch_version = lambda: 9  # Hopper, for a machine without a GPU
    sys.argv = ["pretrain_gpt.py", *words[start + 1:], "--mock-data", "--tokenizer-type", "NullTokenizer", "--lr", "1e-4",
                "--train-iters", "10", "--transformer-impl", "local"]
    args = arguments.validate_args(arguments.parse_args())
    return {"tp": args.tensor_model_parallel_size, "pp": args.pipeline_model_parallel_size, "cp": args.context_parallel_size,
            "ep": args.expert_model_parallel_size, "batch": args.global_batch_size, "micro": args.micro_batch_size}


@functools.lru_cache(maxsize=1)
def fields_of_bridge():
    """By class of Megatron Bridge's configuration, and of those of the same names that they extend: the names of its fields."""
    megatron_lm = pathlib.Path(importlib.util.find_spec("megatron.core").submodule_search_locations[0]).parent
    bases = ["core/model_parallel_config.py", "core/transformer/transformer_config.py", "core/optimizer/optimizer_config.py",
             "core/distributed/distributed_data_parallel_config.py"]
    fields = {}
    for source in [*pathlib.Path(os.environ["PEERS_BRIDGE"]).rglob("*.py"), *(megatron_lm / name for name in bases),
                   *sorted((megatron_lm / "training" / "config").glob("*.py"))]:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                names = {b.target.id for b in node.body if isinstance(b, ast.AnnAssign) and isinstance(b.target, ast.Name)}
                fields.setdefault(node.name, set()).update(names)
    return fields


def nemo(path, _ranks):
    """Looks each override up in the classes of Megatron Bridge's configuration, whose imports need a GPU's libraries."""
    fields = fields_of_bridge()
    classes = {"model": ("GPTModelProvider", "TransformerConfig", "ModelParallelConfig"), "train": ("TrainingConfig",),
               "ddp": ("DistributedDataParallelConfig",), "dist": ("DistributedInitConfig",),
               "checkpoint": ("CheckpointConfig",), "optimizer": ("OptimizerConfig",)}
    out = {}
    for word in shell_words(path):
        key, equals, value = word.partition("=")
        if not equals or key.startswith("--"):
            continue
        section, dot, field = key.partition(".")
        if dot and not any(field in fields.get(name, ()) for name in classes[section]):
            raise ValueError(f"Megatron Bridge has no {key}")
        if not dot and key not in fields["ConfigContainer"]:
            raise ValueError(f"Megatron Bridge has no {key}")
        out[key] = value
    number = lambda key: int(out.get(key, 1))  # noqa: E731
    return {"tp": number("model.tensor_model_parallel_size"), "pp": number("model.pipeline_model_parallel_size"),
            "cp": number("model.context_parallel_size"), "ep": number("model.expert_model_parallel_size"),
            "batch": number("train.global_batch_size"), "micro": number("train.micro_batch_size")}


def deepspeed(path, ranks):
    """Parses as deepspeed.initialize does."""
    from deepspeed import comm  # pylint: disable=import-outside-toplevel
    from deepspeed.runtime.config import DeepSpeedConfig  # pylint: disable=import-outside-toplevel
    given = json.loads(path.read_text(encoding="utf-8"))
    replicas = ranks // given.get("pipeline", {}).get("stages", 1)
    comm.is_initialized = lambda: True
    comm.get_world_size = lambda group=None: replicas
    comm.get_rank = lambda group=None: 0
    config = DeepSpeedConfig(given)
    return {"batch": config.train_batch_size, "micro": config.train_micro_batch_size_per_gpu, "zero": int(config.zero_optimization_stage)}


def accelerate(path, _ranks):
    """Parses as `accelerate launch --config_file` does."""
    from accelerate.commands.config.config_args import load_config_from_file  # pylint: disable=import-outside-toplevel
    config = load_config_from_file(str(path))
    sizes = config.parallelism_config
    return {"ranks": int(config.num_processes), "zero": 3 if config.fsdp_config["fsdp_reshard_after_forward"] else 2,
            "replicas": int(sizes.get("parallelism_config_dp_replicate_size", 1)),
            "cp": int(sizes.get("parallelism_config_cp_size", 1))}


def transformers(path, _ranks):
    """Parses as examples of the Trainer do."""
    import transformers as hf  # pylint: disable=import-outside-toplevel
    given = json.loads(path.read_text(encoding="utf-8"))
    given["bf16"] = False  # asks for a GPU
    (args,) = hf.HfArgumentParser(hf.TrainingArguments).parse_dict(given)
    plugin = args.fsdp_plugin_args
    return {"micro": args.per_device_train_batch_size, "steps": args.gradient_accumulation_steps,
            "zero": 3 if plugin["reshard_after_forward"] else 2}


def fsdp2(path, ranks):
    """Shards a model of two blocks on fake devices."""
    import torch  # pylint: disable=import-outside-toplevel
    from torch.testing._internal.distributed.fake_pg import FakeStore  # pylint: disable=import-outside-toplevel
    torch.distributed.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    module = types.ModuleType("planned")
    exec(compile(path.read_text(encoding="utf-8").replace('"cuda"', '"cpu"'), str(path), "exec"), module.__dict__)  # pylint: disable=exec-used
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    module.shard(model, list(model))
    shard = model[0].weight.to_local()
    torch.distributed.destroy_process_group()
    return {"shards": 64 // shard.shape[0], "replicas": module.plan.replicate_degree,
            "batch": module.plan.local_batch_size * module.plan.accumulation_steps * ranks}


if __name__ == "__main__":
    parser, given = globals()[sys.argv[1]], sys.argv[2:]  # parsers set sys.argv
    for file, count in zip(given[::2], given[1::2]):
        print("understood " + json.dumps(parser(pathlib.Path(file), int(count))), flush=True)
