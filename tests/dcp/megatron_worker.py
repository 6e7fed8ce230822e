"""Trains, saves and loads small GPTs of Megatron Core with the shape of worker.py's Llama, on gloo ranks of ranks.py.

Megatron Core expects a GPU in places where none is needed (it waits for its copies, keeps the state of dropout that is not used, asks
for small tensors on the device, and asks for tensors of the types that a GPU has): here these are on the processor.
"""
import contextlib
import multiprocessing
import os

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.overrides import TorchFunctionMode

import worker


class OnProcessor(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.cuda:
            return args[0]
        kwargs = {key: "cpu" if key == "device" and "cuda" in str(value) else value for key, value in (kwargs or {}).items()}
        result = func(*args, **kwargs)
        return result.replace("torch.", "torch.cuda.") if func is torch.Tensor.type and len(args) == 1 else result


class Run:
    """A model and its optimizer: "adam", "masters" (of bfloat16 parameters), or "distributed". `more`: of the configuration."""

    def __init__(self, tensor_parallel, vocabulary, optimizer="adam", seed=4, **more):
        torch.cuda.synchronize = lambda *_: None
        torch.cuda.current_device = lambda: "cpu"
        torch.cuda.FloatTensor, torch.cuda.IntTensor = torch.FloatTensor, torch.IntTensor
        torch.multiprocessing.get_context = lambda *_: multiprocessing.get_context("fork")  # a spawned writer loads torch anew
        CudaRNGStatesTracker.fork = lambda *_: contextlib.nullcontext()
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=tensor_parallel)
        self.groups = parallel_state
        c, narrow = worker.CONFIG, optimizer == "masters"
        dtype = torch.bfloat16 if narrow else torch.float32
        config = TransformerConfig(
            num_layers=c["num_hidden_layers"], hidden_size=c["hidden_size"], num_attention_heads=c["num_attention_heads"],
            num_query_groups=c["num_key_value_heads"], ffn_hidden_size=c["intermediate_size"], layernorm_epsilon=c["rms_norm_eps"],
            normalization="RMSNorm", gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False,
            bias_activation_fusion=False, hidden_dropout=0.0, attention_dropout=0.0, use_cpu_initialization=True,
            gradient_accumulation_fusion=False, masked_softmax_fusion=False, apply_rope_fusion=False, pipeline_dtype=dtype,
            params_dtype=dtype, bf16=narrow, tensor_model_parallel_size=tensor_parallel, **more)
        torch.manual_seed(seed)
        self.vocabulary = vocabulary
        spec = get_gpt_layer_local_spec(normalization="RMSNorm", qk_layernorm=config.qk_layernorm)
        self.model = GPTModel(config, spec, vocab_size=vocabulary, max_sequence_length=worker.SEQ, position_embedding_type="rope",
                              rotary_base=int(c["rope_theta"]), share_embeddings_and_output_weights=False)
        if narrow:
            self.model.bfloat16()
        distributed = optimizer == "distributed"
        self.ddp = DistributedDataParallel(config, DistributedDataParallelConfig(use_distributed_optimizer=distributed), self.model)
        adam = worker.ADAMW
        self.optimizer = get_megatron_optimizer(OptimizerConfig(
            optimizer="adam", lr=adam["lr"], adam_beta1=adam["betas"][0], adam_beta2=adam["betas"][1], adam_eps=adam["eps"],
            weight_decay=adam["weight_decay"], clip_grad=0.0, bf16=narrow, params_dtype=dtype,
            use_distributed_optimizer=distributed), [self.ddp])

    def inputs(self, part=slice(None)):
        tokens, targets = (one[part] for one in worker.data())
        mask = torch.ones(worker.SEQ, worker.SEQ).triu(1).bool()[None, None]
        return (tokens, torch.arange(worker.SEQ).expand(tokens.shape), mask), targets

    def train(self, steps):
        """Data-parallel ranks have equal parts of the batch."""
        rank, ranks = self.groups.get_data_parallel_rank(), self.groups.get_data_parallel_world_size()
        inputs, targets = self.inputs(slice(rank * worker.BATCH // ranks, (rank + 1) * worker.BATCH // ranks))
        losses = []
        for _ in range(steps):
            self.ddp.zero_grad_buffer()
            self.optimizer.zero_grad()
            loss = self.ddp(*inputs, labels=targets).mean()
            loss.backward()
            self.ddp.finish_grad_sync()
            self.optimizer.step()
            whole = loss.detach().clone()
            dist.all_reduce(whole, group=self.groups.get_data_parallel_group())
            losses.append(whole.item() / ranks)
        return losses

    def logits(self):
        """Of all tokens, with the columns of all tensor ranks."""
        with torch.no_grad():
            part = self.model(*self.inputs()[0])
        group = self.groups.get_tensor_model_parallel_group()
        shards = [torch.empty_like(part) for _ in range(group.size())]
        dist.all_gather(shards, part, group=group)
        return torch.cat(shards, -1)

    def sharded_state(self, form, loading):
        metadata = {"distrib_optim_sharding_type": form} if form else {}
        state = self.model.sharded_state_dict(prefix="")
        return {"model": state, "optimizer": self.optimizer.sharded_state_dict(state, is_loading=loading, metadata=metadata)}


def keep_steps():
    """Lets the distributed optimizer load: without Transformer Engine it asks its checkpoints for steps by parameter, which they do
    not have, after it has set all steps from its groups."""
    original = DistributedOptimizer._set_main_param_and_optimizer_states

    def with_step(self, parameter, tensors):
        group, order = self.model_param_group_index_map[parameter]
        state = self.optimizer.state[self.optimizer.param_groups[group]["params"][order]]
        original(self, parameter, {"step": state["step"].clone(), **tensors})
    DistributedOptimizer._set_main_param_and_optimizer_states = with_step


def save(folder, tensor_parallel, vocabulary, optimizer="adam", form=None, more=0):
    """Trains and saves. Returns the logits, and the losses of further steps."""
    with OnProcessor():
        run = Run(tensor_parallel, vocabulary, optimizer)
        run.train(worker.STEPS)
        logits = run.logits()
        if dist.get_rank() == 0:
            os.makedirs(folder)
        dist.barrier()
        dist_checkpointing.save(run.sharded_state(form, False), str(folder))
        return logits, run.train(more)


def load(folder, tensor_parallel, vocabulary, optimizer="adam", form=None, more=0):
    """Loads what is at a folder into another model by Megatron Core's loader, which must find each key that it wants and nothing
    else. Returns the logits, and the losses of further steps."""
    with OnProcessor():
        run = Run(tensor_parallel, vocabulary, optimizer, seed=5)
        run.train(1)  # so that the optimizer has a state, without which the distributed one cannot load
        state = dist_checkpointing.load(run.sharded_state(form, True), str(folder))
        keep_steps()
        with torch.no_grad():
            run.model.load_state_dict(state["model"])
            run.optimizer.load_state_dict(state["optimizer"])
        return run.logits(), run.train(more)


def logits_of(folder, tensor_parallel, vocabulary, more):
    """Loads weights into a model whose configuration has `more`."""
    with OnProcessor():
        run = Run(tensor_parallel, vocabulary, seed=5, **more)
        run.model.load_state_dict(dist_checkpointing.load({"model": run.model.sharded_state_dict(prefix="")}, str(folder))["model"])
        return run.logits()
