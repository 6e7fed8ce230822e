"""Five steps of every optimizer on imported models compute what PyTorch's optimizer computes on the models of `transformers`, or,
where torch has none, what the published formula says.

Usage: optimizers_test.py TESSERA STEP [unittest options]; STEP is tests/support/steps_on_weights.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is looked up
import safetensors.torch
import torch
import transformers
from transformers.pytorch_utils import Conv1D

import models

TESSERA, STEP = "", ""
STEPS, TOLERANCE = 5, 1e-10
# The quick tests run every optimizer on one model under a parallel plan.
CASES = [case for case in models.CASES if case.name in ("gpt2", "bert", "vit", "qwen2")][:4 if models.ALL_CASES else 1]
PLANS = {"parallel": "megatron(tp=2,dp=2,zero=1)", **({"serial": "serial"} if models.ALL_CASES else {})}


class Thirds(torch.nn.Module):
    """GPT-2's c_attn as three parameters, as queries, keys and values are elsewhere: an optimizer that looks at a whole parameter (its
    norm, its rows, its singular values) then looks at each of them."""

    def forward(self, q, k, v):
        return torch.cat([q, k, v], -1)

    def right_inverse(self, whole):
        return tuple(part.contiguous() for part in whole.chunk(3, -1))


def separate(model):
    for module in model.modules():
        if isinstance(module, Conv1D) and module.nf == 3 * module.nx:
            for name in ("weight", "bias"):
                torch.nn.utils.parametrize.register_parametrization(module, name, Thirds())


def join(model):
    """c_attn as it was."""
    for module in model.modules():
        for name in ("weight", "bias"):
            if torch.nn.utils.parametrize.is_parametrized(module, name):
                torch.nn.utils.parametrize.remove_parametrizations(module, name, leave_parametrized=True)


def arrays_of(folder):
    arrays = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        arrays.update(safetensors.torch.load_file(file))
    return arrays


def is_multiplied(model):
    """The parameters that products and convolutions multiply, by identity: neither tables nor vectors."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    layers = [m for m in model.modules() if isinstance(m, (torch.nn.Linear, torch.nn.Conv2d, Conv1D))]
    found = set()
    for layer in layers:
        if hasattr(layer, "parametrizations"):
            found |= {id(p) for p in layer.parametrizations.weight.parameters()}
        else:
            found.add(id(layer.weight))
    return found - tables


class Formula(torch.optim.Optimizer):
    """An optimizer that torch does not have: `update(p, g, state, group)` changes p in place."""

    def __init__(self, groups, update):
        super().__init__(groups, {})
        self.update = update

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, p.grad, self.state[p], group)


def lion(p, g, state, group, lr=1e-3, beta1=0.9, beta2=0.97):
    """Chen et al., 2023, algorithm 2."""
    m = state.setdefault("m", torch.zeros_like(p))
    direction = torch.sign(beta1 * m + (1 - beta1) * g)
    p.sub_(lr * (direction + group["weight_decay"] * p))
    m.copy_(beta2 * m + (1 - beta2) * g)


def lamb(p, g, state, group, lr=1e-2, beta1=0.9, beta2=0.95, eps=1e-6):
    """You et al., 2020, algorithm 2, phi the identity; vectors have no trust ratio."""
    m, v = state.setdefault("m", torch.zeros_like(p)), state.setdefault("v", torch.zeros_like(p))
    state["step"] = state.get("step", 0) + 1
    m.copy_(beta1 * m + (1 - beta1) * g)
    v.copy_(beta2 * v + (1 - beta2) * g * g)
    u = (m / (1 - beta1 ** state["step"])) / ((v / (1 - beta2 ** state["step"])).sqrt() + eps) + group["weight_decay"] * p
    w, length = p.norm(), u.norm()
    ratio = w / length if p.dim() >= 2 and w > 0 and length > 0 else 1
    p.sub_(lr * ratio * u)


def lars(p, g, state, group, lr=0.5, momentum=0.8, trust=1e-3):
    """You et al., 2017, section 5; vectors by SGD with the same rate and momentum."""
    v = state.setdefault("v", torch.zeros_like(p))
    decay = group["weight_decay"]
    if p.dim() < 2:
        v.copy_(momentum * v + g)
        p.sub_(lr * v)
        return
    w, length = p.norm(), g.norm()
    ratio = trust * w / (length + decay * w) if w > 0 and length > 0 else 1
    v.copy_(momentum * v + lr * ratio * (g + decay * p))
    p.sub_(v)


def wide_orthogonalisation(grad, coefficients, steps, eps):
    """As torch.optim.Muon's, which computes in bfloat16, in the gradient's own dtype."""
    a, b, c = coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if grad.size(0) > grad.size(1) else x


class Muon:
    """torch.optim.Muon for matrices, AdamW for the rest. A kernel is the matrix of its output channels and all the rest."""

    def __init__(self, model, groups):
        multiplied = is_multiplied(model)
        matrices, self.kernels, others = [], [], []
        for group in groups:
            for p in group["params"]:
                if id(p) not in multiplied or p.dim() < 2:
                    others.append({**group, "params": [p]})
                elif p.dim() == 2:
                    matrices.append({**group, "params": [p]})
                else:
                    flat = torch.nn.Parameter(p.detach().reshape(p.shape[0], -1).clone())
                    self.kernels.append((p, flat))
                    matrices.append({**group, "params": [flat]})
        self.muon = torch.optim.Muon(matrices, lr=2e-3, momentum=0.9, nesterov=True)
        self.adamw = torch.optim.AdamW(others, lr=2e-3, betas=(0.9, 0.95), eps=1e-6)

    def step(self):
        module = sys.modules["torch.optim._muon"]
        narrow = module._zeropower_via_newtonschulz
        module._zeropower_via_newtonschulz = wide_orthogonalisation
        try:
            for p, flat in self.kernels:
                flat.grad = p.grad.reshape(flat.shape)
            self.muon.step()
            with torch.no_grad():
                for p, flat in self.kernels:
                    p.copy_(flat.reshape(p.shape))
        finally:
            module._zeropower_via_newtonschulz = narrow
        self.adamw.step()


O = torch.optim
BETAS = "beta1=0.9 beta2=0.95 eps=1e-6"
# Name: our keys, and the optimizer of a model and its groups. Rates are such that no step is lost in the noise of the others.
OPTIMIZERS = {
    "adamw": (f"kind=adamw lr=0.01 {BETAS}", lambda m, g: O.AdamW(g, lr=1e-2, betas=(0.9, 0.95), eps=1e-6)),
    "sgd": ("kind=sgd lr=0.05 momentum=0.7", lambda m, g: O.SGD(g, lr=0.05, momentum=0.7)),
    "sgd_nesterov": ("kind=sgd lr=0.05 momentum=0.7 nesterov=1", lambda m, g: O.SGD(g, lr=0.05, momentum=0.7, nesterov=True)),
    "sgd_plain": ("kind=sgd lr=0.05 momentum=0", lambda m, g: O.SGD(g, lr=0.05)),
    "adagrad": ("kind=adagrad lr=0.01 eps=1e-6", lambda m, g: O.Adagrad(g, lr=1e-2, eps=1e-6)),
    "adafactor": ("kind=adafactor lr=0.02", lambda m, g: O.Adafactor(g, lr=0.02)),
    "lion": ("kind=lion lr=0.001 beta1=0.9 beta2=0.97", lambda m, g: Formula(g, lion)),
    "lamb": (f"kind=lamb lr=0.01 {BETAS}", lambda m, g: Formula(g, lamb)),
    "lars": ("kind=lars lr=0.5 momentum=0.8", lambda m, g: Formula(g, lars)),
    "muon": (f"kind=muon lr=0.002 momentum=0.9 nesterov=1 {BETAS}", Muon),
}
DECAY = 0.1


# These divide a gradient by its own size, or take its sign.
UNSTEADY = ("adafactor", "lion")


def steady(array, value, optimizer, case):
    """The elements that roundings do not decide: the gradient of the bias of keys is 0 in exact arithmetic, unless keys are rotated."""
    if optimizer not in UNSTEADY or case.name == "qwen2":
        return value
    if array.endswith("c_attn.bias"):
        q, _, v = value.chunk(3)
        return torch.cat([q, v])
    return value[:0] if array.endswith("key.bias") else value


def groups_of(model, optimizer):
    """What is published with two dims or more decays; but tables that adagrad updates by rows, as nothing but look-ups reads them, do
    not (docs/reference/run-config.md)."""
    def decays(name, p):
        return p.dim() >= 2 and not (optimizer == "adagrad" and "token_type_embeddings" in name)
    named = list(model.named_parameters())
    return [{"params": [p for name, p in named if decays(name, p)], "weight_decay": DECAY},
            {"params": [p for name, p in named if not decays(name, p)], "weight_decay": 0.0}]


class Optimizers(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="tessera_optimizers_test_")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        torch.set_num_threads(1)
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        cls.losses, cls.parameters, jobs = {}, {}, []
        for case in CASES:
            theirs = cls.folder / case.name
            with models.wide():
                inputs = models.make_inputs(case, torch.float64)
                models.make_model(case, torch.float64).save_pretrained(theirs)
                safetensors.torch.save_file(inputs, f"{theirs}.inputs")
                for name, (_, make) in OPTIMIZERS.items():
                    cls.train(case, inputs, name, make)
            done = subprocess.run([TESSERA, "import", theirs, "--out", f"{theirs}.ours"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            for name, (keys, _) in OPTIMIZERS.items():
                for plan, text in PLANS.items():
                    jobs.append((f"{theirs}.ours/config.json", f"{theirs}.ours", f"{theirs}.inputs", text, "float64", STEPS,
                                 f"{theirs}.{name}.{plan}", "", f"{keys} weight_decay={DECAY}"))
        (cls.folder / "jobs").write_text("".join("\t".join(map(str, job)) + "\n" for job in jobs))
        done = subprocess.run([STEP, str(cls.folder / "jobs")], capture_output=True, text=True, check=False, timeout=250)
        assert done.returncode == 0, done.stderr

    @classmethod
    def train(cls, case, inputs, name, make):
        model = models.make_model(case, torch.float64)
        separate(model)
        optimizer = make(model, groups_of(model, name))
        losses = []
        for _ in range(STEPS):
            model.zero_grad()
            loss = models.loss_of(models.logits_of(case, model, inputs), inputs)
            loss.backward()
            losses.append(loss.item())
            optimizer.step()
        cls.losses[case.name, name] = losses
        join(model)
        trained = cls.folder / f"{case.name}.{name}.trained"
        model.save_pretrained(trained)
        cls.parameters[case.name, name] = arrays_of(trained)

    def exported(self, case, out):
        to = f"{out}.exported"
        done = subprocess.run([TESSERA, "export", f"{out}.parameters", "--to", "hf", "--model",
                               f"{self.folder / case.name}.ours/config.json", "--out", to], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return arrays_of(to)

    def test_losses_and_parameters_after_five_steps(self):
        for case in CASES:
            for name in OPTIMIZERS:
                expected = self.parameters[case.name, name]
                for plan in PLANS:
                    with self.subTest(model=case.name, optimizer=name, plan=plan):
                        out = f"{self.folder / case.name}.{name}.{plan}"
                        losses = safetensors.torch.load_file(f"{out}.losses")
                        for step, loss in enumerate(self.losses[case.name, name], 1):
                            self.assertLess(abs(losses[f"loss.{step}"].item() / loss - 1), TOLERANCE, f"loss of step {step}")
                        found = self.exported(case, out)
                        self.assertEqual(sorted(found), sorted(expected))
                        for array, value in found.items():
                            with self.subTest(array=array):
                                right, value = (steady(array, one, name, case) for one in (expected[array], value))
                                if right.numel() > 0:
                                    error = (value - right).abs().max().item() / right.abs().max().item()
                                    self.assertLess(error, TOLERANCE)


def main():
    global TESSERA, STEP
    TESSERA, STEP = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    unittest.main()


if __name__ == "__main__":
    main()
