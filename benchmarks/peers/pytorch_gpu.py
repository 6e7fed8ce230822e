#!/usr/bin/env python3
"""PyTorch's side of benchmarks/run_gpu.py: training steps of five model families on one GPU, the way PyTorch's users do it.

Same shapes as the families of docs/reference/models.md, and the precision of a plan's `compute = "bfloat16"`: the model
computes in bfloat16, and the parameters' masters, gradients and AdamW's state are float32, as frameworks of large models
keep them. Fused attention, fused AdamW, gradient norm clipped to 1, loss in float32. A step has `micro_batches` equal parts
of the batch whose gradients are added; with `recompute` "full" each block is made again in the backward pass
(torch.utils.checkpoint). "compiled" compiles each block (torch.compile), "eager" none.

    pytorch_gpu.py CASES.json OUT.json        CASES is what `benchmarks/run_gpu.py predict` writes

OUT has of each case the seconds of the timed steps and the peak of allocated and of reserved bytes, or "error". It is
written anew after each case, so that an end by force loses one case.
"""
import gc
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from pytorch_gpt import Block as GptBlock
from pytorch_networks import resnet50

WARM_UP, STEPS = 2, 4


class Tokens(nn.Module):
    """Token and position embeddings, blocks, a norm, and a head that is the token embedding, or one of its own."""

    def __init__(self, blocks, norm, hidden, seq, vocab, tied, positions):
        super().__init__()
        self.token = nn.Embedding(vocab, hidden)
        self.position = nn.Parameter(torch.randn(seq, hidden) * 0.02) if positions else None
        self.blocks, self.norm = nn.ModuleList(blocks), norm
        self.head = nn.Linear(hidden, vocab, bias=False)
        nn.init.normal_(self.token.weight, std=0.02)
        if tied:
            self.head.weight = self.token.weight

    def forward(self, x, targets, run_block):
        x = self.token(x)
        if self.position is not None:
            x = x + self.position
        for block in self.blocks:
            x = run_block(block, x)
        return loss_of(self.head(self.norm(x)), targets)


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten())


def rotated(x, cosine, sine):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class LlamaBlock(nn.Module):
    def __init__(self, hidden, heads, kv_heads, ffn, seq):
        super().__init__()
        self.head_dim = hidden // heads
        self.ln_1, self.ln_2 = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
        self.q, self.out = nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.k, self.v = (nn.Linear(hidden, kv_heads * self.head_dim, bias=False) for _ in range(2))
        self.gate, self.up = nn.Linear(hidden, ffn, bias=False), nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)
        rates = 10000.0 ** (-torch.arange(0, self.head_dim, 2) / self.head_dim)
        angles = torch.outer(torch.arange(seq), rates)
        self.register_buffer("cosine", angles.cos().bfloat16(), persistent=False)
        self.register_buffer("sine", angles.sin().bfloat16(), persistent=False)

    def forward(self, x):
        h = self.ln_1(x)
        q, k, v = (f(h).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = (rotated(part, self.cosine, self.sine) for part in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        h = self.ln_2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class EncoderBlock(nn.Module):
    """Attention to both sides; `after`: norms behind the sums (BERT), else before the products (ViT)."""

    def __init__(self, hidden, heads, after):
        super().__init__()
        self.head_dim, self.after = hidden // heads, after
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.q, self.k, self.v, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def attention(self, h):
        q, k, v = (f(h).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    def mlp(self, h):
        return self.down(F.gelu(self.up(h)))

    def forward(self, x):
        if self.after:
            x = self.ln_1(x + self.attention(x))
            return self.ln_2(x + self.mlp(x))
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Bert(nn.Module):
    def __init__(self, layers, hidden, heads, seq, vocab):
        super().__init__()
        self.token, self.position, self.token_type = nn.Embedding(vocab, hidden), nn.Embedding(seq, hidden), nn.Embedding(2, hidden)
        nn.init.normal_(self.token.weight, std=0.02)
        self.norm = nn.LayerNorm(hidden)
        self.blocks = nn.ModuleList(EncoderBlock(hidden, heads, True) for _ in range(layers))
        self.transform, self.head_norm = nn.Linear(hidden, hidden), nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab)
        self.head.weight = self.token.weight

    def forward(self, x, targets, run_block):
        places = torch.arange(x.shape[1], device=x.device)
        x = self.norm(self.token(x) + self.position(places) + self.token_type(torch.zeros_like(places)))
        for block in self.blocks:
            x = run_block(block, x)
        x = self.head_norm(F.gelu(self.transform(x)))
        at_masked = torch.where(places % 7 == 0, targets, -100)  # about 15 %; the others do not count in the loss
        return loss_of(self.head(x), at_masked)


class Vit(nn.Module):
    def __init__(self, layers, hidden, heads, image, patch):
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, hidden))
        self.position = nn.Parameter(torch.randn((image // patch) ** 2 + 1, hidden) * 0.02)
        self.blocks = nn.ModuleList(EncoderBlock(hidden, heads, False) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, 1000)

    def forward(self, x, targets, run_block):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), dim=1) + self.position
        for block in self.blocks:
            x = run_block(block, x)
        return loss_of(self.head(self.norm(x)[:, 0]), targets)


class Resnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = resnet50()
        self.blocks = [layer for layer in self.body if type(layer).__name__ == "Bottleneck"]

    def forward(self, x, targets, run_block):
        for layer in self.body:
            x = run_block(layer, x) if type(layer).__name__ == "Bottleneck" else layer(x)
        return loss_of(x, targets)


def build(family, keys):
    """The model, and a function of a batch that draws inputs and targets."""
    k = dict(keys)
    tokens = ("gpt", "llama", "bert")
    if family == "gpt":
        blocks = [GptBlock(k["hidden"], k["heads"]) for _ in range(k["layers"])]
        model = Tokens(blocks, nn.LayerNorm(k["hidden"]), k["hidden"], k["seq"], k["vocab"], True, True)
    elif family == "llama":
        blocks = [LlamaBlock(k["hidden"], k["heads"], k["kv_heads"], k["ffn"], k["seq"]) for _ in range(k["layers"])]
        model = Tokens(blocks, nn.RMSNorm(k["hidden"], eps=1e-5), k["hidden"], k["seq"], k["vocab"], False, False)
    elif family == "bert":
        model = Bert(k["layers"], k["hidden"], k["heads"], k["seq"], k["vocab"])
    elif family == "vit":
        model = Vit(k["layers"], k["hidden"], k["heads"], 224, 16)
    elif family == "resnet":
        model = Resnet()
    else:
        raise SystemExit(f"pytorch_gpu.py: expected a family that this file has, found '{family}'")

    def draw(batch):
        if family in tokens:
            shape = (batch, k["seq"])
            return (torch.randint(k["vocab"], shape, device="cuda"), torch.randint(k["vocab"], shape, device="cuda"))
        images = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.bfloat16)
        return (images.to(memory_format=torch.channels_last), torch.randint(1000, (batch,), device="cuda"))
    model = model.train().bfloat16()
    return (model.to(memory_format=torch.channels_last) if family == "resnet" else model), draw


class Optimizer:
    """AdamW on float32 masters. A gradient is added to its master's as soon as the backward pass has made it."""

    def __init__(self, model):
        self.parameters = list(model.parameters())
        self.masters = [parameter.detach().float() for parameter in self.parameters]
        self.adamw = torch.optim.AdamW(self.masters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        for parameter, master in zip(self.parameters, self.masters):
            parameter.register_post_accumulate_grad_hook(self.adder(master))

    def adder(self, master):
        def add(parameter):
            if master.grad is None:
                master.grad = parameter.grad.float()
            else:
                master.grad.add_(parameter.grad)
            parameter.grad = None
        return add

    def step(self):
        nn.utils.clip_grad_norm_(self.masters, 1.0, foreach=True)
        self.adamw.step()
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, self.masters)
        self.drop()

    def drop(self):
        for tensor in (*self.parameters, *self.masters):
            tensor.grad = None


def measure(model, draw, optimizer, case):
    recompute = case["recompute"] == "full"
    parts = case["micro_batches"]
    inputs = [draw(case["batch"] // parts) for _ in range(parts)]
    if case["style"] == "compiled":
        runs = {id(block): torch.compile(block) for block in model.blocks}
    else:
        runs = {id(block): block for block in model.blocks}

    def run_block(block, x):
        return checkpoint(runs[id(block)], x, use_reentrant=False) if recompute else runs[id(block)](x)

    def step():
        total = 0
        for x, targets in inputs:
            loss = model(x, targets, run_block) / parts
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        return total.item()

    for _ in range(WARM_UP):
        step()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    free, total = torch.cuda.mem_get_info()
    return {"seconds": times, "loss": loss, "allocated": torch.cuda.max_memory_allocated(),
            "reserved": torch.cuda.max_memory_reserved(), "used_on_device": total - free}


def clean():
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def main():
    if len(sys.argv) != 3:
        sys.exit(f"pytorch_gpu.py: expected CASES.json OUT.json, found {len(sys.argv) - 1} arguments")
    if not torch.cuda.is_available():
        sys.exit("pytorch_gpu.py: expected a CUDA device, found none")
    cases, out = json.load(open(sys.argv[1]))["cases"], sys.argv[2]
    torch.set_float32_matmul_precision("high")
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "measured": []}
    held = None
    for case in cases:
        start = time.perf_counter()
        if held is None or held[0] != case["model"]:
            held = model = optimizer = draw = None
            clean()
            torch.manual_seed(1)
            with torch.device("cuda"):
                model, draw = build(case["family"], case["keys"])
            optimizer = Optimizer(model)
            held = (case["model"], model, draw, optimizer)
        clean()
        try:
            result = measure(*held[1:], case)
        except torch.OutOfMemoryError as error:
            result = {"error": "out of memory: " + str(error).split(". ")[0]}
            held[3].drop()
        except Exception as error:  # one case must not end the others: the reason is in the report
            result = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
            held[3].drop()
        result["name"] = case["name"]
        report["measured"].append(result)
        with open(out, "w") as file:
            json.dump(report, file, indent=1)
        told = result.get("error") or f"{sorted(result['seconds'])[STEPS // 2] * 1e3:.1f} ms, {result['reserved'] / 2**30:.1f} GiB"
        print(f"{case['name']}: {told} ({time.perf_counter() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
