"""tessera checkpoint convert beside PyTorch: what FSDP2 and tensor parallelism on gloo ranks have saved by torch.distributed.checkpoint
is converted, trained on under other plans, and written back; PyTorch's own loader says what is in the folders.

Usage: dcp_test.py TESSERA [unittest options]
"""
import importlib.util
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings

import numpy
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import worker

warnings.simplefilter("ignore")
TESSERA = ""


def torchrun(ranks, *arguments, script="worker.py"):
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
                           pathlib.Path(__file__).with_name(script), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        raise AssertionError(done.stderr[-3000:])
    return done.stdout


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


class Dcp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="tessera_dcp_test_")
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.config = cls.folder / "config.json"
        cls.config.write_text(json.dumps(worker.CONFIG), encoding="utf-8")
        torchrun(3, "fsdp", cls.folder / "fsdp")
        torchrun(4, "tp_fsdp", cls.folder / "tp_fsdp")

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
        import torch.distributed.checkpoint
        import transformers

        torch.manual_seed(0)
        model = transformers.Phi3ForCausalLM(transformers.Phi3Config(  # queries, keys and values of unequal sizes in one array
            vocab_size=37, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
            pad_token_id=None, max_position_embeddings=12))
        theirs, saved, ours, back = (self.folder / f"fused_{name}" for name in ("theirs", "saved", "ours", "back"))
        model.save_pretrained(theirs)
        torch.distributed.checkpoint.save(model.state_dict(), checkpoint_id=saved)
        for source, to, form in ((saved, ours, "tessera"), (ours, back, "hf")):
            done = subprocess.run([TESSERA, "checkpoint", "convert", source, to, "--format", form, "--model", theirs / "config.json"],
                                  capture_output=True, text=True, check=False, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
        expected, found = load_file(theirs / "model.safetensors"), load_file(back / "model.safetensors")
        self.assertEqual(sorted(found), sorted(expected))
        for name, value in expected.items():
            self.assertTrue(torch.equal(found[name], value), name)

    def test_the_layout_of_safetensors(self):
        """The same run saved in the other layout, which PyTorch writes and does not read back."""
        torchrun(3, "fsdp", self.folder / "plain", "safetensors")
        for name in ("plain", "fsdp"):
            self.convert(self.folder / name, self.folder / f"{name}_layout", "--model", self.config)
            self.convert(self.folder / f"{name}_layout", self.folder / f"{name}_layout_back", "--model", self.config)
        self.assert_same_state(state_of(self.folder / "plain_layout_back"), state_of(self.folder / "fsdp_layout_back"))

    def test_a_run_goes_on_as_pytorch_goes_on(self):
        """Losses and parameters after further steps under another plan; what is written back, PyTorch loads on 3 ranks of FSDP2."""
        ours = self.folder / "goes_on"
        self.convert(self.folder / "fsdp", ours, "--model", self.config, "--seed", 5)
        tokens, targets = worker.data()
        numpy.save(self.folder / "tokens.npy", tokens.numpy())
        numpy.save(self.folder / "targets.npy", targets.numpy())
        adamw = worker.ADAMW
        run = self.folder / "run.toml"
        run.write_text(f"""model = "{self.config}"
data = {{ arrays = {{ tokens = "{self.folder}/tokens.npy", targets = "{self.folder}/targets.npy" }} }}
batch = {worker.BATCH}
seed = 5
steps = {worker.STEPS + worker.MORE}
plan = "megatron(tp=2,dp=2,zero=1)"
checkpoint = {{ dir = "{ours}", every = {worker.MORE} }}
optimizer = {{ lr = {adamw["lr"]}, min_lr = {adamw["lr"]}, warmup = 0, beta1 = {adamw["betas"][0]}, beta2 = {adamw["betas"][1]}, \
eps = {adamw["eps"]}, weight_decay = 0, clip = 0 }}
""", encoding="utf-8")
        lines = [json.loads(line) for line in self.tessera("train", run, "--resume", "--json").splitlines()]
        losses = [line["loss"] for line in lines if "loss" in line]
        right = json.loads(torchrun(1, "continue", self.folder / "fsdp"))
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
        torchrun(3, "reload", back)
        self.assert_same_state(state_of(f"{back}.again"), found)

    @unittest.skipIf(importlib.util.find_spec("megatron") is None, "no Megatron Core: pip install --no-deps megatron-core psutil")
    def test_megatron_core(self):
        """Weights: our folder for transformers has the logits of Megatron's model. States: the same boxes of its arrays, by hand."""
        origin = self.folder / "megatron"
        torchrun(2, origin, 2, script="megatron_worker.py")
        self.convert(origin, self.folder / "megatron_hf", "--format", "hf", "--model", self.config)
        model = worker.Llama()
        model.load_state_dict(load_file(self.folder / "megatron_hf/model.safetensors"))
        logits = torch.load(origin / "logits.pt")
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

    def expect_refusal(self, expected, origin, *more):
        """One line, exit code 2, and nothing is written."""
        out = self.folder / "refused"
        done = self.run_tessera("checkpoint", "convert", origin, out, *more)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertRegex(done.stderr, rf"^tessera: {expected}\n$")
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertFalse(out.exists(), "something was left")
        self.assertEqual(list(self.folder.glob("refused*")), [])

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


if __name__ == "__main__":
    TESSERA = sys.argv.pop(1)
    unittest.main()
