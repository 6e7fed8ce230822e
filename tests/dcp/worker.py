"""Trains a small Llama as PyTorch's users do, on gloo ranks of ranks.py, and saves or loads torch.distributed.checkpoint."""
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.filesystem import SerializationFormat
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 24, "intermediate_size": 40,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 37, "rms_norm_eps": 1e-5,
          "max_position_embeddings": 8, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu",
          "attention_bias": False, "mlp_bias": False, "dtype": "float32"}
HEAD = CONFIG["hidden_size"] // CONFIG["num_attention_heads"]
BATCH, SEQ, STEPS, MORE = 12, 8, 3, 3
ADAMW = {"lr": 1e-2, "betas": (0.9, 0.97), "eps": 1e-7, "weight_decay": 0.0}


def linear(rows, columns):
    return nn.Linear(columns, rows, bias=False)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        hidden, kv = CONFIG["hidden_size"], CONFIG["num_key_value_heads"] * HEAD
        self.q_proj, self.k_proj, self.v_proj = linear(hidden, hidden), linear(kv, hidden), linear(kv, hidden)
        self.o_proj = linear(hidden, hidden)

    def forward(self, x):
        heads = [p(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)]
        q, k = turned(heads[0]), turned(heads[1])
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, 1), heads[2].repeat_interleave(group, 1)
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).flatten(2))


def turned(x):
    """Rotary positions, as transformers turns halves."""
    frequency = CONFIG["rope_theta"] ** (-torch.arange(0, HEAD, 2) / HEAD)
    angle = torch.outer(torch.arange(x.shape[2]), frequency).repeat(1, 2)
    a, b = x.chunk(2, -1)
    return x * angle.cos() + torch.cat([-b, a], -1) * angle.sin()


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        hidden, ffn = CONFIG["hidden_size"], CONFIG["intermediate_size"]
        self.gate_proj, self.up_proj, self.down_proj = linear(ffn, hidden), linear(ffn, hidden), linear(hidden, ffn)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(CONFIG["hidden_size"], CONFIG["rms_norm_eps"])
        self.self_attn = Attention()
        self.post_attention_layernorm = nn.RMSNorm(CONFIG["hidden_size"], CONFIG["rms_norm_eps"])
        self.mlp = Mlp()

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(CONFIG["vocab_size"], CONFIG["hidden_size"])
        self.layers = nn.ModuleList(Layer() for _ in range(CONFIG["num_hidden_layers"]))
        self.norm = nn.RMSNorm(CONFIG["hidden_size"], CONFIG["rms_norm_eps"])


class Llama(nn.Module):
    """With the names of transformers' LlamaForCausalLM."""

    def __init__(self):
        super().__init__()
        self.model = Body()
        self.lm_head = linear(CONFIG["vocab_size"], CONFIG["hidden_size"])

    def forward(self, tokens):
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x)
        return self.lm_head(self.model.norm(x))


def data():
    draw = torch.Generator().manual_seed(7)
    return [torch.randint(0, CONFIG["vocab_size"], (BATCH, SEQ), generator=draw) for _ in range(2)]


def train(model, optimizer, steps, rank=0, ranks=1):
    """All ranks see the whole batch in equal parts; each mean is over as many tokens."""
    tokens, targets = (one.chunk(ranks)[rank] for one in data())
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def save(model, optimizer, folder, layout="torch_save"):
    module, state = get_state_dict(model, optimizer)
    writer = dcp.FileSystemWriter(folder, serialization_format=SerializationFormat(layout))
    dcp.save({"model": module, "optim": state}, storage_writer=writer)


def load(model, optimizer, folder):
    module, state = get_state_dict(model, optimizer)
    dcp.load({"model": module, "optim": state}, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=module, optim_state_dict=state)


def run(mode, folder, layout="torch_save"):
    """What one of the ranks does:
    fsdp       FSDP2 over all ranks: trains STEPS steps and saves
    tp_fsdp    tensor parallelism over two ranks, FSDP2 over the others: likewise
    reload     FSDP2 over all ranks: loads the folder by torch's own loader, saves folder + ".again"
    continue   one rank: loads the folder, trains MORE further steps, saves folder + ".continued"; returns the losses
    """
    ranks, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(3)
    model = Llama()
    replicas, replica = ranks, rank
    if mode == "tp_fsdp":
        mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("dp", "tp"))
        cut = {name: ColwiseParallel() for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                                    "mlp.gate_proj", "mlp.up_proj")}
        cut |= {name: RowwiseParallel() for name in ("self_attn.o_proj", "mlp.down_proj")}
        for layer in model.model.layers:
            parallelize_module(layer, mesh["tp"], cut)
        over, replicas, replica = mesh["dp"], ranks // 2, rank // 2
    else:
        over = init_device_mesh("cpu", (ranks,))
    if mode != "continue":
        for layer in model.model.layers:
            fully_shard(layer, mesh=over)
        fully_shard(model, mesh=over)
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    if mode in ("fsdp", "tp_fsdp"):
        train(model, optimizer, STEPS, replica, replicas)
        save(model, optimizer, folder, layout)
    else:
        load(model, optimizer, folder)
        losses = train(model, optimizer, MORE if mode == "continue" else 0)
        save(model, optimizer, f"{folder}{'.again' if mode == 'reload' else '.continued'}")
        return losses
    return None
