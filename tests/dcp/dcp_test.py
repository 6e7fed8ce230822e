"""tessera checkpoint convert beside PyTorch: what FSDP2 and tensor parallelism on gloo ranks have saved by torch.distributed.checkpoint
is converted, trained on under other plans, and written back; PyTorch's own loader says what is in the folders.

Usage: dcp_test.py TESSERA [unittest options]
"""
import importlib.util
import json
import math
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
import warnings

import numpy
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import ranks
import worker

warnings.simplefilter("ignore")
TESSERA = ""


def flat(value, name=""):
    """A state_dict as a flat one; lists of names in order."""
    if isinstance(value, dict):
        return {k: v for key, one in value.items() for k, v in flat(one, f"{name}/{key}").items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {k: v for i, one in enumerate(value) for k, v in flat(one, f"{name}/{i}").items()}
    return {name: sorted(value) if isinstance(value, list) else value}


def state_of(folder):
    """What PyTorch reads in a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        dcp_to_torch_save(folder, f"{scratch}/state.pt")
        return flat(torch.load(f"{scratch}/state.pt", weights_only=False))


def array(*shape):
    """Counts, which differ in all places and in every dtype as wide as float32."""
    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)


class Converting(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="tessera_dcp_test_")
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.config = cls.write_config("config.json")

    @classmethod
    def write_config(cls, name, **changes):
        file = cls.folder / name
        file.write_text(json.dumps({**worker.CONFIG, **changes}), encoding="utf-8")
        return file

    def run_tessera(self, *arguments):
        return subprocess.run([TESSERA, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120)

    def tessera(self, *arguments):
        done = self.run_tessera(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def convert(self, origin, target, *more):
        return json.loads(self.tessera("checkpoint", "convert", origin, target, "--json", *more))

    def assert_same_state(self, found, right):
        self.assertEqual(set(found), set(right))
        for name, value in right.items():
            if isinstance(value, torch.Tensor):
                self.assertEqual(found[name].dtype, value.dtype, name)
                self.assertTrue(torch.equal(found[name], value), name)
            else:
                self.assertEqual(found[name], value, name)

    def train(self, config, checkpoints, plan):
        """Trains on from the newest checkpoint. Returns the losses of the steps."""
        tokens, targets = worker.data()
        numpy.save(self.folder / "tokens.npy", tokens.numpy())
        numpy.save(self.folder / "targets.npy", targets.numpy())
        adamw = worker.ADAMW
        run = self.folder / "run.toml"
        run.write_text(f"""model = "{config}"
data = {{ arrays = {{ tokens = "{self.folder}/tokens.npy", targets = "{self.folder}/targets.npy" }} }}
batch = {worker.BATCH}
seed = 5
steps = {worker.STEPS + worker.MORE}
plan = "{plan}"
checkpoint = {{ dir = "{checkpoints}", every = {worker.MORE} }}
optimizer = {{ lr = {adamw["lr"]}, min_lr = {adamw["lr"]}, warmup = 0, beta1 = {adamw["betas"][0]}, beta2 = {adamw["betas"][1]}, \
eps = {adamw["eps"]}, weight_decay = 0, clip = 0 }}
""", encoding="utf-8")
        lines = [json.loads(line) for line in self.tessera("train", run, "--resume", "--json").splitlines()]
        return [line["loss"] for line in lines if "loss" in line]

    def expect_refusal(self, expected, origin, *more):
        """One line, exit code 2, and nothing is written."""
        out = self.folder / "refused"
        done = self.run_tessera("checkpoint", "convert", origin, out, *more)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertRegex(done.stderr, rf"^tessera: {expected}\n$")
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertFalse(out.exists(), "something was left")
        self.assertEqual(list(self.folder.glob("refused*")), [])


class Dcp(Converting):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        ranks.run(3, worker.run, "fsdp", cls.folder / "fsdp")
        ranks.run(4, worker.run, "tp_fsdp", cls.folder / "tp_fsdp")

    def test_there_and_back_is_equal_to_the_bit(self):
        """Values, AdamW's state and settings, under plans and numbers of files that have nothing to do with the ranks that saved."""
        for name, plan, files in (("fsdp", "megatron(tp=2,dp=2)", 2), ("tp_fsdp", "fsdp(dp=3)", 5)):
            with self.subTest(name):
                ours, back = self.folder / f"{name}_ours", self.folder / f"{name}_back"
                done = self.convert(self.folder / name, ours, "--model", self.config, "--plan", plan)
                self.assertEqual((done["from"], done["to"], done["step"]), ("dcp", "tessera", worker.STEPS))
                self.tessera("checkpoint", "verify", ours)
                self.convert(ours, back, "--format", "dcp", "--plan", f"fsdp(dp={files})", "--model", self.config)
                self.assertEqual(len(list(back.glob("*.distcp"))), files)
                self.assert_same_state(state_of(back), state_of(self.folder / name))

    def test_weights_for_transformers(self):
        """Bit-equal arrays under the names of the config.json, from both sorts of ranks."""
        for name in ("fsdp", "tp_fsdp"):
            out = self.folder / f"{name}_hf"
            done = self.convert(self.folder / name, out, "--format", "hf", "--model", self.config)
            self.assertEqual(done["notes"], ["a Hugging Face folder has no place for the optimizer's state"])
            found = load_file(out / "model.safetensors")
            right = {key.removeprefix("/model/"): value for key, value in state_of(self.folder / name).items()
                     if key.startswith("/model/")}
            self.assertEqual(set(found), set(right))
            for key, value in right.items():
                self.assertTrue(torch.equal(found[key], value), key)

    def test_arrays_that_several_of_our_tensors_share(self):
        """Queries, keys and values of unequal sizes in one array, as Phi-3 has them."""
        config = self.write_config("phi3.json", model_type="phi3", architectures=["Phi3ForCausalLM"], num_attention_heads=3,
                                   num_key_value_heads=1, pad_token_id=None, original_max_position_embeddings=8)
        weights = {"model.embed_tokens.weight": array(37, 24), "lm_head.weight": array(37, 24) + 1, "model.norm.weight": array(24)}
        for i in range(worker.CONFIG["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            weights |= {layer + "self_attn.qkv_proj.weight": array(40, 24) + i, layer + "self_attn.o_proj.weight": array(24, 24) + i,
                        layer + "mlp.gate_up_proj.weight": array(80, 24) + i, layer + "mlp.down_proj.weight": array(24, 40) + i,
                        layer + "input_layernorm.weight": array(24) + i, layer + "post_attention_layernorm.weight": array(24) - i}
        saved, ours, back = (self.folder / f"fused_{name}" for name in ("saved", "ours", "back"))
        torch.distributed.checkpoint.save(weights, checkpoint_id=saved)
        self.convert(saved, ours, "--format", "tessera", "--model", config)
        self.convert(ours, back, "--format", "hf", "--model", config)
        found = load_file(back / "model.safetensors")
        self.assertEqual(sorted(found), sorted(weights))
        for name, value in weights.items():
            self.assertTrue(torch.equal(found[name], value), name)

    def test_the_layout_of_safetensors(self):
        """The same run saved in the other layout, which PyTorch writes and does not read back."""
        ranks.run(3, worker.run, "fsdp", self.folder / "plain", "safetensors")
        for name in ("plain", "fsdp"):
            self.convert(self.folder / name, self.folder / f"{name}_layout", "--model", self.config)
            self.convert(self.folder / f"{name}_layout", self.folder / f"{name}_layout_back", "--model", self.config)
        self.assert_same_state(state_of(self.folder / "plain_layout_back"), state_of(self.folder / "fsdp_layout_back"))

    def test_a_run_goes_on_as_pytorch_goes_on(self):
        """Losses and parameters after further steps under another plan; what is written back, PyTorch loads on 3 ranks of FSDP2."""
        ours = self.folder / "goes_on"
        self.convert(self.folder / "fsdp", ours, "--model", self.config, "--seed", 5)
        losses = self.train(self.config, ours, "megatron(tp=2,dp=2,zero=1)")
        right = ranks.run(1, worker.run, "continue", self.folder / "fsdp")
        self.assertEqual(len(losses), worker.MORE)
        for found, expected in zip(losses, right, strict=True):
            self.assertAlmostEqual(found, expected, delta=2e-6 * expected)
        back = self.folder / "goes_on_back"
        done = self.convert(ours, back, "--format", "dcp", "--plan", "fsdp(dp=2)", "--model", self.config)
        self.assertEqual(done["step"], worker.STEPS + worker.MORE)
        found, expected = state_of(back), state_of(f"{self.folder}/fsdp.continued")
        self.assertEqual(set(found), set(expected))
        for name, value in expected.items():
            if isinstance(value, torch.Tensor):
                self.assertLessEqual((found[name] - value).abs().max(), 1e-5 * (1 + value.abs().max()), name)
        ranks.run(3, worker.run, "reload", back)
        self.assert_same_state(state_of(f"{back}.again"), found)

    def test_forms_of_megatron_core(self):
        """Arrays and common.pt as Megatron Core has them, written without it: states by the tiles of tensor ranks (the form
        fully_sharded_model_space of releases up to 0.14), and an array for each layer."""
        layers, rows = worker.CONFIG["num_hidden_layers"], 40
        shapes = {"embedding.word_embeddings.weight": (rows, 24), "output_layer.weight": (rows, 24), "decoder.final_layernorm.weight": (24,)}
        tiles = {"embedding.word_embeddings.weight": (2, 1), "output_layer.weight": (2, 1), "decoder.final_layernorm.weight": (1,)}
        for name, shape, cut in (
                ("self_attention.linear_qkv.weight", (48, 24), (2, 1)), ("self_attention.linear_qkv.layer_norm_weight", (24,), (1,)),
                ("self_attention.linear_proj.weight", (24, 24), (1, 2)), ("mlp.linear_fc1.weight", (80, 24), (4, 1)),
                ("mlp.linear_fc1.layer_norm_weight", (24,), (1,)), ("mlp.linear_fc2.weight", (24, 40), (1, 2))):
            shapes[f"decoder.layers.{name}"] = (layers, *shape)
            tiles[f"decoder.layers.{name}"] = (layers, *cut)
        wide = {name: array(*shape) + i for i, (name, shape) in enumerate(shapes.items())}
        whole = {name: value.to(torch.bfloat16) for name, value in wide.items()}
        for i, state in enumerate(("exp_avg", "exp_avg_sq", "fp32_param")):
            whole |= {f"optimizer.state.{state}.{name}": value if state == "fp32_param" else value * 2 + i for name, value in wide.items()}

        def tiled(name, value):
            name = ".".join(name.split(".")[3:])
            split = [size for pair in zip(tiles[name], value.shape, strict=True) for size in (pair[0], pair[1] // pair[0])]
            return value.reshape(split).permute([*range(0, len(split), 2), *range(1, len(split), 2)]).reshape(*tiles[name], -1)

        by_tiles = {name: tiled(name, value) if name.startswith("optimizer") else value for name, value in whole.items()}
        by_layers = {name.replace("decoder.layers.", f"decoder.layers.{i}."): value[i] for name, value in whole.items() for i in
                     range(layers) if "decoder.layers." in name} | {n: v for n, v in whole.items() if "decoder.layers." not in n}
        group = {"lr": 0.25, "betas": (0.5, 0.75), "eps": 0.125, "weight_decay": 0.0625, "wd_mult": 1.0, "step": 7}
        for form, arrays in (("whole", whole), ("by_tiles", by_tiles), ("by_layers", by_layers)):
            with self.subTest(form):
                origin, back = self.folder / form, self.folder / f"{form}_back"
                torch.distributed.checkpoint.save(arrays, checkpoint_id=origin)
                torch.save({"optimizer": {"optimizer": {"param_groups": [{**group, "weight_decay": 0.0, "wd_mult": 0.0}, group]}}},
                           origin / "common.pt")
                done = self.convert(origin, back, "--model", self.config, "--format", "torch_dist")
                self.assertEqual((done["from"], done["to"], done["step"]), ("torch_dist", "torch_dist", 7))
                found = {name.removeprefix("/"): value for name, value in state_of(back).items() if isinstance(value, torch.Tensor)}
                own = worker.CONFIG["vocab_size"]
                for name, value in whole.items():
                    if name.startswith("optimizer"):
                        self.assertTrue(torch.equal(found[name][:own], value[:own]), name)
                self.assertEqual(set(found), set(whole) | {f"optimizer.state.param.{name}" for name in wide})
                for name in wide:
                    for masters in ("optimizer.state.fp32_param.", "optimizer.state.param."):
                        self.assertTrue(torch.equal(found[masters + name], found[name]), name)
                common = torch.load(back / "common.pt")  # weights_only
                for optimizer in (common["optimizer"], common["optimizer"]["optimizer"]):
                    for found_group, decay in zip(optimizer["param_groups"], (0.0625, 0.0), strict=True):
                        expected = {**group, "weight_decay": decay, "wd_mult": float(decay > 0)}
                        self.assertEqual({key: found_group[key] for key in group}, expected)
                weights = self.folder / f"{form}_hf"
                self.convert(origin, weights, "--model", self.config, "--format", "hf")
                self.assertTrue(torch.equal(load_file(weights / "model.safetensors")["model.norm.weight"],
                                            whole["decoder.final_layernorm.weight"]))  # in bfloat16

    def changed(self, name, change):
        """A copy of the folder of FSDP2 with another .metadata, or with whatever `change` does to it."""
        copy = self.folder / name
        shutil.copytree(self.folder / "fsdp", copy)
        change(copy)
        return copy

    def test_bad_folders(self):
        model = ("--model", self.config)

        def repickle(change):
            def apply(folder):
                with open(folder / ".metadata", "rb") as file:
                    metadata = pickle.load(file)
                change(metadata)
                with open(folder / ".metadata", "wb") as file:
                    pickle.dump(metadata, file)
            return apply

        self.expect_refusal(r".*expected --model, .*", self.folder / "fsdp")
        missing = self.changed("missing", repickle(lambda m: m.state_dict_metadata.pop("model.lm_head.weight")))
        self.expect_refusal(r".*/missing: 'lm_head.weight': expected \[37, 24\] \(head.weight\), found none", missing, *model)
        lost = self.changed("lost", repickle(lambda m: m.state_dict_metadata["model.lm_head.weight"].chunks.pop()))
        self.expect_refusal(r".*/lost/\.metadata: model\.lm_head\.weight: expected boxes of 888 elements in all, found 624", lost,
                            *model)
        state = self.changed("state", repickle(lambda m: m.state_dict_metadata.pop("optim.state.lm_head.weight.exp_avg")))
        self.expect_refusal(r".*/state: exp_avg: 'lm_head.weight': expected \[37, 24\] \(head.weight\), found none", state, *model)
        other = self.folder / "other.json"
        other.write_text(json.dumps({**worker.CONFIG, "hidden_size": 32}), encoding="utf-8")
        self.expect_refusal(r".*/fsdp: 'model.embed_tokens.weight': expected \[37, 32\] .*found \[37, 24\]", self.folder / "fsdp",
                            "--model", other)
        self.expect_refusal(r".*/fsdp: expected the model's arrays, as '.*', found none of them among 84 tensors: .*",
                            self.folder / "fsdp", "--model", "gpt:layers=1,hidden=8,heads=2,seq=4,vocab=11")

        def torn(folder):
            file = folder / "__1_0.distcp"
            file.write_bytes(file.read_bytes()[:-1000])
        self.expect_refusal(r".*/torn/__1_0\.distcp: '.*': expected \d+ bytes at byte \d+, found \d+ in all: the file is torn",
                            self.changed("torn", torn), *model)
        self.expect_refusal(r".*/gone/__2_0\.distcp: expected a file that can be read, found .*",
                            self.changed("gone", lambda folder: (folder / "__2_0.distcp").unlink()), *model)

        def overwritten(folder):
            file = folder / "__0_0.distcp"
            file.write_bytes(bytes(len(file.read_bytes())))
        self.expect_refusal(r".*/zeros/__0_0\.distcp: .*", self.changed("zeros", overwritten), *model)

    def weights(self):
        """The parameters of a model, by the names of transformers."""
        return {key.removeprefix("/model/"): value for key, value in state_of(self.folder / "fsdp").items() if key.startswith("/model/")}

    def saved(self, name, state):
        torch.distributed.checkpoint.save(state, checkpoint_id=self.folder / name, no_dist=True)
        return self.folder / name

    def test_two_sets_of_the_models_arrays(self):
        """Nothing says which is meant; one without some of the arrays is not meant."""
        weights = self.weights()
        two = self.saved("two_sets", {"ema": weights, "model": {key: value + 1 for key, value in weights.items()}})
        self.expect_refusal(r".*/two_sets: expected one set of arrays with the model's names, found one that begins with 'ema\.' and "
                            r"one that begins with 'model\.'", two, "--model", self.config, "--format", "hf")
        part = self.saved("part_set", {"ema": {"model.norm.weight": weights["model.norm.weight"] + 1}, "model": weights})
        self.convert(part, self.folder / "part_hf", "--model", self.config, "--format", "hf")
        found = load_file(self.folder / "part_hf/model.safetensors")["model.norm.weight"]
        self.assertTrue(torch.equal(found, weights["model.norm.weight"]))

    def test_what_is_not_kept_of_an_optimizer_is_said(self):
        weights = self.weights()
        names = sorted(weights)
        adam = {name: {"step": torch.tensor(3.0), "exp_avg": weights[name] * 2, "exp_avg_sq": weights[name] * 3,
                       "max_exp_avg_sq": weights[name] * 4} for name in names}
        groups = [{"params": names[:4], "lr": 0.5, "weight_decay": 0.25, "maximize": True},
                  {"params": names[4:], "lr": 0.5, "weight_decay": 0.0, "maximize": True}]
        saved = self.saved("amsgrad", {"model": weights, "optim": {"state": adam, "param_groups": groups}})
        notes = self.convert(saved, self.folder / "amsgrad_ours", "--model", self.config)["notes"]
        self.assertEqual(notes[1:], [
            "its groups of parameters have 2 values of weight_decay, of which one is kept: 0.25",
            "its optimizer had maximize, which is not kept",
            "it has 'max_exp_avg_sq' of parameters, which is not kept: of an optimizer's states, AdamW's are"])
        momentum = {name: {"momentum_buffer": weights[name]} for name in names}
        saved = self.saved("sgd", {"model": weights, "optim": {"state": momentum, "param_groups": [{"params": names, "lr": 0.5}]}})
        notes = self.convert(saved, self.folder / "sgd_ours", "--model", self.config)["notes"]
        self.assertRegex(notes[1], r"it has no state of AdamW: .*")
        self.assertEqual(notes[2:], ["it has 'momentum_buffer' of parameters, which is not kept: of an optimizer's states, AdamW's are"])

    def test_a_tied_head_is_written_twice(self):
        config = self.write_config("tied.json", tie_word_embeddings=True)
        weights = self.weights()
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
        names = sorted(set(weights) - {"lm_head.weight"})
        adam = {name: {"step": torch.tensor(3.0), "exp_avg": weights[name] * 2, "exp_avg_sq": weights[name] * 3} for name in names}
        saved = self.saved("tied", {"model": weights, "optim": {"state": adam, "param_groups": [{"params": names, "lr": 0.5}]}})
        self.convert(saved, self.folder / "tied_ours", "--model", config)
        self.convert(self.folder / "tied_ours", self.folder / "tied_back", "--model", config)
        found, right = state_of(self.folder / "tied_back"), state_of(saved)
        self.assertEqual([key for key in found if key.startswith("/optim/state") and "lm_head" in key], [])
        for key, value in right.items():
            if isinstance(value, torch.Tensor):
                self.assertTrue(torch.equal(found[key], value), key)
        self.assertEqual(found["/optim/param_groups/0/params"], names)

    def test_a_checkpoint_with_more_layers_than_the_model(self):
        ours = self.folder / "more_layers"
        self.convert(self.folder / "fsdp", ours, "--model", self.config)
        less = self.write_config("less.json", num_hidden_layers=1)
        refusal = r".*: 'blocks\.1\..*': expected only arrays of the model, found float32 of shape \[.*\]"
        for form in ("dcp", "hf", "torch_dist"):
            self.expect_refusal(refusal, ours, "--model", less, "--format", form)
        done = self.run_tessera("export", ours, "--to", "hf", "--model", less, "--out", self.folder / "exported")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, rf"^tessera: {refusal}\n$")
        self.assertFalse((self.folder / "exported").exists())

    def test_the_vocabulary_has_bounds(self):
        ours = self.folder / "bounds"
        self.convert(self.folder / "fsdp", ours, "--model", self.config)
        for rows in (0, 1 << 31, 1 << 62):
            self.expect_refusal(rf"checkpoint convert: expected --vocabulary with --format torch_dist, from 1 to 2147483647, found {rows}",
                                ours, "--model", self.config, "--format", "torch_dist", "--vocabulary", rows)
        done = self.run_tessera("checkpoint", "convert", ours, self.folder / "refused", "--format", "torch_dist", "--vocabulary", 10**20)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)

    def test_folders_by_the_name_of_a_family_and_onto_themselves(self):
        llama = self.folder / "llama"
        self.convert(self.folder / "fsdp", llama, "--model", self.config, "--format", "hf")

        def convert(*arguments):
            return subprocess.run([os.path.abspath(TESSERA), "checkpoint", "convert", *arguments], cwd=self.folder, check=False,
                                  capture_output=True, text=True, timeout=120)
        done = convert("llama", "of_family", "--format", "tessera")
        self.assertEqual(done.returncode, 0, done.stderr)
        before = sorted(path.name for path in llama.iterdir())
        for target, found in (("llama", "FROM itself"), ("fsdp", "a folder of torch\\.distributed\\.checkpoint")):
            done = convert("llama", target, "--format", "tessera")
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, rf"^tessera: {target}: expected a TO of its own, found {found}\n$")
        done = convert("of_family", "llama", "--format", "tessera")
        self.assertEqual((done.returncode, done.stderr), (2, "tessera: llama: expected a TO of its own, found a Hugging Face folder\n"))
        self.assertEqual(sorted(path.name for path in llama.iterdir()), before)

    def test_a_foreign_class_is_not_called(self):
        ran = self.folder / "ran"

        class Foreign:
            def __reduce__(self):
                return os.system, (f"touch {ran}",)

        def write(folder):
            (folder / ".metadata").write_bytes(pickle.dumps(Foreign()))
        self.expect_refusal(r".*/foreign/\.metadata: byte \d+ of the pickle: expected only classes of a checkpoint, found "
                            r"posix\.system", self.changed("foreign", write), "--model", self.config)
        with open(self.folder / "foreign/.metadata", "wb") as file:
            pickle.dump({"a": 1}, file)
        self.expect_refusal(r".*/foreign/\.metadata: expected the class Metadata, found another value", self.folder / "foreign",
                            "--model", self.config)
        self.assertFalse(ran.exists())


PADDED = 40  # rows of the vocabulary, as Megatron pads it for two or four ranks


@unittest.skipIf(importlib.util.find_spec("megatron") is None, "no Megatron Core: pip install --no-deps megatron-core psutil")
class Megatron(Converting):
    """Megatron Core's loader is the judge: what it makes of a folder of ours is what it makes of the folder that it saved."""

    results: dict

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.worker = importlib.import_module("megatron_worker")
        cls.results = {}
        cls.whole = cls.write_config("whole.json", vocab_size=PADDED)

    def saved(self, name, tensor_parallel, vocabulary, *more):
        """A folder by Megatron Core; `results` are the logits and the losses of further steps."""
        folder = self.folder / name
        if name not in self.results:
            self.results[name] = ranks.run(2, self.worker.save, folder, tensor_parallel, vocabulary, *more)
        return folder

    def loaded(self, folder, tensor_parallel, *more):
        return ranks.run(2, self.worker.load, folder, tensor_parallel, PADDED, *more)

    def there_and_back(self, origin, config, *more):
        """Through a checkpoint of Tessera under a plan, into other numbers of files."""
        ours, back = (origin.with_name(f"{origin.name}_{end}") for end in ("ours", "back"))
        done = self.convert(origin, ours, "--model", config, "--plan", "megatron(tp=2,pp=2)")
        self.assertEqual((done["from"], done["to"], done["step"], done["tensors"]), ("torch_dist", "tessera", worker.STEPS, 3 * 21))
        return back, self.convert(ours, back, "--model", config, "--format", "torch_dist", "--plan", "fsdp(dp=3)", *more)

    def test_boxes_by_hand(self):
        """Weights: our folder for transformers has the logits of Megatron's model. States: the same boxes of its arrays, by hand."""
        origin = self.saved("padded", 2, PADDED)
        logits = self.results["padded"][0][..., :worker.CONFIG["vocab_size"]]
        self.convert(origin, self.folder / "megatron_hf", "--format", "hf", "--model", self.config)
        model = worker.Llama()
        model.load_state_dict(load_file(self.folder / "megatron_hf/model.safetensors"))
        self.assertLessEqual((model(worker.data()[0]) - logits).abs().max(), 1e-6)
        done = self.convert(origin, self.folder / "megatron_ours", "--model", self.config, "--plan", "megatron(tp=2,pp=2)")
        self.assertEqual((done["step"], done["tensors"]), (worker.STEPS, 3 * 21))
        self.convert(self.folder / "megatron_ours", self.folder / "megatron_back", "--model", self.config)
        found, theirs = state_of(self.folder / "megatron_back"), state_of(origin)
        c = worker.CONFIG
        kv, rows = c["num_key_value_heads"], c["vocab_size"]
        group = c["num_attention_heads"] // kv
        for ours, state in (("exp_avg", "exp_avg"), ("exp_avg_sq", "exp_avg_sq")):
            def of(name, state=state):
                return theirs[f"/optimizer.state.{state}.{name}"]
            qkv = of("decoder.layers.self_attention.linear_qkv.weight").unflatten(1, (kv, group + 2, worker.HEAD))
            fc1 = of("decoder.layers.mlp.linear_fc1.weight").unflatten(1, (2, -1))
            right = {"model.embed_tokens": of("embedding.word_embeddings.weight")[:rows], "lm_head": of("output_layer.weight")[:rows],
                     "model.norm": of("decoder.final_layernorm.weight")}
            for i in range(c["num_hidden_layers"]):
                layer = f"model.layers.{i}."
                right |= {layer + "self_attn.q_proj": qkv[i, :, :group].flatten(0, 2), layer + "self_attn.k_proj":
                          qkv[i, :, group].flatten(0, 1), layer + "self_attn.v_proj": qkv[i, :, group + 1].flatten(0, 1),
                          layer + "self_attn.o_proj": of("decoder.layers.self_attention.linear_proj.weight")[i],
                          layer + "mlp.gate_proj": fc1[i, 0], layer + "mlp.up_proj": fc1[i, 1],
                          layer + "mlp.down_proj": of("decoder.layers.mlp.linear_fc2.weight")[i],
                          layer + "input_layernorm": of("decoder.layers.self_attention.linear_qkv.layer_norm_weight")[i],
                          layer + "post_attention_layernorm": of("decoder.layers.mlp.linear_fc1.layer_norm_weight")[i]}
            self.assertEqual(len(right), 21)
            for name, value in right.items():
                self.assertTrue(torch.equal(found[f"/optim/state/{name}.weight/{ours}"], value), f"{name} {ours}")

    def test_each_optimizer_goes_on(self):
        """Values equal to the bit, and under another tensor parallelism the logits and losses that Megatron's own folder gives."""
        for name, tensor_parallel, optimizer, form in (("adam", 2, "adam", None), ("masters", 2, "masters", None),
                                                       ("distributed", 1, "distributed", "fully_reshardable")):
            with self.subTest(name):
                origin = self.saved(name, tensor_parallel, PADDED, optimizer, form, worker.MORE)
                back, _ = self.there_and_back(origin, self.whole, "--vocabulary", PADDED)
                found, right = state_of(back), state_of(origin)
                wide = {"masters": "optimizer.state.fp32_param.", "distributed": "optimizer.state.param."}.get(name, "")
                for key, value in right.items():
                    if not isinstance(value, torch.Tensor) or not (key.startswith("/optimizer") or name != "masters"):
                        continue
                    self.assertEqual(found[key].dtype, value.dtype, key)
                    self.assertTrue(torch.equal(found[key], value), key)
                for key in [key for key in right if wide and key.startswith("/" + wide)]:
                    self.assertTrue(torch.equal(found["/" + key.removeprefix("/" + wide)], right[key]), key)
                again = 3 - tensor_parallel if name != "distributed" else 1
                ours, theirs = (self.loaded(one, again, optimizer, form, worker.MORE) for one in (back, origin))
                self.assertTrue(torch.equal(ours[0], theirs[0]))
                self.assertEqual(ours[1], theirs[1])
                if name == "adam":
                    for one, other in zip(ours[1], self.results[name][1], strict=True):
                        self.assertAlmostEqual(one, other, delta=2e-6 * other)

    def test_steps_here_are_steps_there(self):
        """Trained on here under another plan: Megatron's losses; and it goes on from here as from its own steps."""
        from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
        origin = self.saved("adam", 2, PADDED, "adam", None, worker.MORE)
        ours, back = self.folder / "trained", self.folder / "trained_back"
        self.convert(origin, ours, "--model", self.whole, "--seed", 5)
        losses = self.train(self.whole, ours, "megatron(tp=2,dp=2,zero=1)")
        for one, other in zip(losses, self.results["adam"][1], strict=True):
            self.assertAlmostEqual(one, other, delta=2e-6 * other)
        done = self.convert(ours, back, "--model", self.whole, "--format", "torch_dist", "--vocabulary", PADDED)
        self.assertEqual(done["step"], worker.STEPS + worker.MORE)
        schedule = OptimizerParamScheduler(
            types.SimpleNamespace(param_groups=[]), init_lr=0, max_lr=1, min_lr=0, lr_warmup_steps=0, lr_decay_steps=1000,
            lr_decay_style="cosine", start_wd=0, end_wd=0, wd_incr_steps=0, wd_incr_style="constant",
            use_checkpoint_opt_param_scheduler=False, override_opt_param_scheduler=True)
        schedule.load_state_dict(torch.load(back / "common.pt")["opt_param_scheduler"])
        self.assertEqual(schedule.num_steps, done["step"] * worker.BATCH)
        _, after = self.loaded(back, 1, "adam", None, 2)
        long = self.saved("long", 1, PADDED, "adam", None, worker.MORE + 2)
        for one, other in zip(after, self.results[long.name][1][worker.MORE:], strict=True):
            self.assertAlmostEqual(one, other, delta=1e-5 * other)

    def test_the_vocabulary_is_padded(self):
        origin = self.saved("padded", 2, PADDED)
        own, right = worker.CONFIG["vocab_size"], self.results["padded"][0]
        for more, rows in (((), 128), (("--plan", "megatron(tp=2)"), 256), (("--vocabulary", PADDED), PADDED), (("--vocabulary", own), own)):
            with self.subTest(rows=rows):
                ours = self.folder / "padded_to"
                if not ours.exists():
                    self.convert(origin, ours, "--model", self.config)
                back = self.folder / f"padded_to_{rows}"
                done = self.convert(ours, back, "--model", self.config, "--format", "torch_dist", *more)
                note = f"the vocabulary of {own} is padded to {rows} by rows of zeros, which Megatron Core counts in its softmax"
                self.assertEqual(done["notes"][1:], [note] if rows > own else [])
                self.assertRegex(done["notes"][0], "it does not say how many samples the steps had, .*")
                state = state_of(back)
                for name in ("/embedding.word_embeddings.weight", "/optimizer.state.exp_avg.output_layer.weight"):
                    self.assertEqual(state[name].shape[0], rows)
                    self.assertEqual(state[name][own:].count_nonzero(), 0)
                self.assertTrue(torch.equal(self.loaded(back, 2)[0][..., :own], right[..., :own]))
        self.convert(origin, self.folder / "padded_again", "--model", self.config, "--format", "torch_dist")
        self.assertEqual(state_of(self.folder / "padded_again")["/output_layer.weight"].shape[0], PADDED)

    def test_weights_of_other_models(self):
        """Biases of queries, keys and values, norms of heads: Megatron's logits are those of transformers, from its folders."""
        import transformers
        sizes = {key: worker.CONFIG[key] for key in (
            "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "rms_norm_eps",
            "max_position_embeddings", "rope_theta", "tie_word_embeddings")}
        for name, more in (("Qwen2", {"add_qkv_bias": True}), ("Qwen3", {"qk_layernorm": True})):
            with self.subTest(name):
                torch.manual_seed(1)
                config = getattr(transformers, f"{name}Config")(**sizes, vocab_size=PADDED, head_dim=worker.HEAD)
                model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
                theirs, there, back = (self.folder / f"{name}{end}" for end in ("", "_there", "_back"))
                with torch.no_grad():
                    for value in model.parameters():
                        value.add_(torch.randn_like(value) / 8)  # norms and biases that are not 1 and 0
                    right = model(worker.data()[0]).logits
                model.save_pretrained(theirs)
                self.convert(theirs, there, "--format", "torch_dist", "--vocabulary", PADDED)
                logits = ranks.run(2, self.worker.logits_of, there, 2, PADDED, more)
                self.assertLessEqual((logits - right).abs().max(), 2e-6)
                self.convert(there, back, "--format", "hf", "--model", theirs / "config.json")
                found, expected = (load_file(one / "model.safetensors") for one in (back, theirs))
                self.assertEqual(set(found), set(expected))
                for key, value in expected.items():
                    self.assertTrue(torch.equal(found[key], value), key)

    def test_bad_folders_of_megatron(self):
        model = ("--model", self.whole)
        origin = self.saved("adam", 2, PADDED, "adam", None, worker.MORE)

        def changed(name, change):
            copy = self.folder / name
            shutil.copytree(origin, copy)
            change(copy)
            return copy

        def drop(key):
            def apply(folder):
                metadata = pickle.loads((folder / ".metadata").read_bytes())
                del metadata.state_dict_metadata[key]
                (folder / ".metadata").write_bytes(pickle.dumps(metadata))
            return apply

        missing = changed("missing", drop("decoder.layers.mlp.linear_fc1.weight"))
        self.expect_refusal(r".*/missing: 'decoder\.layers\.mlp\.linear_fc1\.weight': expected \[2, 80, 24\], of which .* is "
                            r"model\.layers\.0\.mlp\.gate_proj\.weight, found none", missing, *model)
        state = changed("state", drop("optimizer.state.exp_avg.output_layer.weight"))
        self.expect_refusal(r".*/state: 'output_layer\.weight': expected .*, found none", state, *model)
        self.expect_refusal(r".*/adam: 'embedding\.word_embeddings\.weight': expected \[40, 32\].* found \[40, 24\]", origin, "--model",
                            self.write_config("wide.json", vocab_size=PADDED, hidden_size=32))
        self.expect_refusal(r".*/adam: expected a Llama as the model of a checkpoint of Megatron Core, found gpt", origin, "--model",
                            "gpt:layers=2,hidden=24,heads=4,seq=8,vocab=40")
        self.expect_refusal(r".*/adam: 'model\.embed_tokens\.weight': expected at most the 40 rows .*, found \[64, 24\]", origin,
                            "--model", self.write_config("many.json", vocab_size=64))
        torn = changed("torn", lambda folder: (folder / "common.pt").write_bytes((folder / "common.pt").read_bytes()[:-30]))
        self.expect_refusal(r".*/torn/common\.pt: .*expected a zip archive with an end, found none: the archive is torn", torn, *model)
        gone = changed("gone", lambda folder: (folder / "common.pt").unlink())
        self.expect_refusal(r".*/gone/common\.pt: expected a file that can be read, found .*", gone, *model)
        ran = self.folder / "ran"

        class Foreign:
            def __reduce__(self):
                return os.system, (f"touch {ran}",)
        foreign = changed("foreign", lambda folder: torch.save({"optimizer": Foreign()}, folder / "common.pt"))
        self.expect_refusal(r".*/foreign/common\.pt: byte \d+ of the pickle: expected only classes of a checkpoint, found "
                            r"posix\.system", foreign, *model)
        self.assertFalse(ran.exists())
        buckets = self.saved("buckets", 1, PADDED, "distributed", "dp_reshardable")
        self.expect_refusal(r".*/buckets: expected AdamW's state by parameters, found the form dp_reshardable of the distributed "
                            r"optimizer, .*: save with --dist-ckpt-optim-fully-reshardable", buckets, *model)
        self.convert(buckets, self.folder / "buckets_hf", "--format", "hf", *model)  # its weights are whole
        self.assertTrue(torch.equal(load_file(self.folder / "buckets_hf/model.safetensors")["lm_head.weight"],
                                    state_of(buckets)["/output_layer.weight"]))


if __name__ == "__main__":
    TESSERA = sys.argv.pop(1)
    unittest.main()
