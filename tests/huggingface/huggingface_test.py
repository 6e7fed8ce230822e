"""Imported models compute what `transformers` computes: logits, losses and all gradients, serial and under a parallel plan; and
the way back gives the same bytes.

Usage: huggingface_test.py TESSERA STEP [unittest options]; STEP is tests/support/steps_on_weights.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is looked up
import safetensors.torch
import torch
import transformers

import models

TESSERA, STEP = "", ""
# Relative to the largest element of a tensor, for gradients at least to so much of the largest of all gradients.
TOLERANCE, FLOOR = {"float32": 1e-5, "float64": 1e-10}, 0.01
PLANS = {"serial": "serial", "parallel": "megatron(tp=2,dp=2)", "sharded": "fsdp(dp=4)",
         "pipeline": "gpipe(pp=2,micro_batches=1)"}
# By precision. The quick tests run each precision and two of the plans, the slow ones every plan in every precision.
RUNS = {precision: PLANS if models.ALL_CASES else {name: PLANS[name]}
        for precision, name in (("float32", "parallel"), ("float64", "serial"))}


def run(*arguments):
    return subprocess.run([TESSERA, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120)


class HuggingFace(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="tessera_huggingface_test_")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        torch.set_num_threads(1)
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        cls.losses, cls.logits, jobs = {}, {}, []
        for case in models.CASES:
            for precision in TOLERANCE:
                jobs += cls.prepare(case, precision)
        (cls.folder / "jobs").write_text("".join("\t".join(map(str, job)) + "\n" for job in jobs))
        done = subprocess.run([STEP, str(cls.folder / "jobs")], capture_output=True, text=True, check=False, timeout=250)
        assert done.returncode == 0, done.stderr

    @classmethod
    def place(cls, case, precision, name):
        return cls.folder / f"{case.name}_{precision}_{name}"

    @classmethod
    def prepare(cls, case, precision):
        """A model with its loss and gradients by transformers, imported; and the steps to run."""
        dtype = getattr(torch, precision)
        place = lambda name: cls.place(case, precision, name)
        with models.wide() if precision == "float64" else models.contextlib.nullcontext():
            model, inputs = models.make_model(case, dtype), models.make_inputs(case, dtype)
            model.save_pretrained(place("theirs"), max_shard_size="12KB" if case.name == "llama" else "1GB")
            safetensors.torch.save_file(inputs, place("inputs"))
            logits = models.logits_of(case, model, inputs)
            loss = models.loss_of(logits, inputs) + models.further_loss_of(case, model, inputs)
            loss.backward()
        cls.losses[case.name, precision], cls.logits[case.name, precision] = loss.item(), logits.detach()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
        model.save_pretrained(place("gradients"))
        done = run("import", place("theirs"), "--out", place("ours"), *(("--set", f"mtp={case.further}") if case.further else ()))
        assert done.returncode == 0, done.stderr
        spec = f"{place('ours')}/config.json" + cls.further(case) + (f":{case.keys}" if case.keys else "")
        return [(spec, place("ours"), place("inputs"), plan, precision, 1, place(name), "logits") for name, plan in RUNS[precision].items()]

    @classmethod
    def further(cls, case):
        return f":mtp={case.further}" if case.further else ""

    def load(self, folder):
        arrays = {}
        for file in sorted(folder.glob("*.safetensors")):
            arrays.update(safetensors.torch.load_file(file))
        return arrays

    def export(self, case, weights, out, keys=""):
        keys = self.further(case) + ("," + keys if case.further and keys else ":" + keys if keys else "")
        model = f"{self.place(case, 'float32', 'ours')}/config.json{keys}"
        done = run("export", weights, "--to", "hf", "--model", model, "--out", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.load(out)

    def with_frozen(self, case, precision, gradients):
        """Adds the arrays that are not trained, which are no parameters of theirs, with their values."""
        found = safetensors.torch.load_file(gradients)
        rest = {name: value for name, value in self.load(self.place(case, precision, "ours")).items() if name not in found}
        if rest:
            safetensors.torch.save_file({**found, **rest}, gradients)
        return gradients

    def test_loss_and_gradients_equal_those_of_transformers(self):
        for case in models.CASES:
            for precision, tolerance in TOLERANCE.items():
                expected = self.load(self.place(case, precision, "gradients"))
                largest = max(value.abs().max().item() for value in expected.values())
                for name in RUNS[precision]:
                    with self.subTest(model=case.name, precision=precision, plan=name):
                        out = self.place(case, precision, name)
                        found = self.export(case, self.with_frozen(case, precision, f"{out}.gradients"),
                                            self.place(case, precision, name + "_gradients"))
                        self.assertEqual(sorted(found), sorted(expected))
                        loss = safetensors.torch.load_file(f"{out}.losses")["loss.1"].item()
                        self.assertAlmostEqual(loss / self.losses[case.name, precision], 1, delta=tolerance)
                        for array, value in expected.items():
                            scale = max(value.abs().max().item(), FLOOR * largest)
                            error = (found[array].double() - value.double()).abs().max().item() / scale
                            self.assertLess(error, tolerance, array)

    def test_logits_equal_those_of_transformers(self):
        for case in models.CASES:
            for precision, tolerance in TOLERANCE.items():
                expected = self.logits[case.name, precision]
                for name in RUNS[precision]:
                    with self.subTest(model=case.name, precision=precision, plan=name):
                        found = safetensors.torch.load_file(f"{self.place(case, precision, name)}.logits")["logits"]
                        self.assertEqual((found.dtype, found.shape), (expected.dtype, expected.shape))
                        error = (found.double() - expected.double()).abs().max() / expected.abs().max()
                        self.assertLess(error.item(), tolerance)

    def test_import_then_export_is_the_identity(self):
        for case in models.CASES:
            with self.subTest(model=case.name):
                theirs, ours = self.place(case, "float32", "theirs"), self.place(case, "float32", "ours")
                back = self.place(case, "float32", "back")
                expected, found = self.load(theirs), self.export(case, ours, back)
                self.assertEqual({name: value.shape for name, value in found.items()},
                                 {name: value.shape for name, value in expected.items()})
                for name, value in expected.items():
                    self.assertTrue(torch.equal(found[name], value), name)
                before, after = (json.loads((folder / "config.json").read_text()) for folder in (theirs, back))
                if case.further:  # written from keys, because the file says nothing of mtp
                    self.assertEqual({name: before[name] for name in after if name in before}, 
                                     {name: value for name, value in after.items() if name in before})
                    continue
                # The keys that transformers 4 reads in place of rope_parameters are added.
                rotary = before.get("rope_parameters", {})
                more = {"rope_theta", "rope_scaling"} if rotary else set()
                more |= {"partial_rotary_factor"} & rotary.keys()
                more |= {"rope_local_base_freq"} if "sliding_attention" in rotary else set()
                self.assertEqual({name: value for name, value in after.items() if name in before or name not in more}, before)

    def test_layers_that_predict_further_tokens_are_left_out_unless_they_are_asked_for(self):
        for case in models.CASES:
            if not case.further:
                continue
            with self.subTest(model=case.name):
                theirs, ours, out = (self.folder / f"{case.name}_{name}" for name in ("whole", "left", "alone"))
                shutil.copytree(self.place(case, "float32", "theirs"), theirs)
                file = theirs / "model.safetensors"
                arrays, layers = safetensors.torch.load_file(file), case.config().num_hidden_layers
                further = {name for name in arrays if name.startswith("model.layers.") and int(name.split(".")[2]) >= layers}
                copies = {f"model.layers.{layers}.embed_tokens.weight": "model.embed_tokens.weight",
                          f"model.layers.{layers}.shared_head.head.weight": "lm_head.weight"}
                arrays.update({copy: arrays[name].clone() for copy, name in copies.items()})
                safetensors.torch.save_file(arrays, file, {"format": "pt"})
                for keys, left in (((), further), (("--set", f"mtp={case.further}"), set())):
                    done = run("import", theirs, "--out", ours, *keys)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    self.assertIn("layers that predict further tokens are left out", done.stdout)
                    model = f"{ours}/config.json{self.further(case) if keys else ''}"
                    done = run("export", ours, "--to", "hf", "--model", model, "--out", out)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    self.assertEqual(set(self.load(out)), set(arrays) - left - set(copies))
                    shutil.rmtree(ours)
                    shutil.rmtree(out)
                # A copy with other values belongs to another model.
                copy = next(iter(copies))
                safetensors.torch.save_file({**arrays, copy: arrays[copy] + 1}, file, {"format": "pt"})
                done = run("import", theirs, "--out", ours, "--set", f"mtp={case.further}")
                self.assertEqual((done.returncode, ours.exists(), done.stderr.count("\n")), (2, False, 1))
                self.assertIn(copy, done.stderr)

    def test_transformers_loads_what_is_exported_with_a_configuration_of_ours(self):
        for case in models.CASES:
            with self.subTest(model=case.name):
                out = self.place(case, "float32", "written")
                self.export(case, self.place(case, "float32", "ours"), out, "dtype=float32")
                inputs = models.make_inputs(case, torch.float32)
                theirs = case.make.from_pretrained(self.place(case, "float32", "theirs")).eval()
                ours, notes = case.make.from_pretrained(out, output_loading_info=True)
                self.assertFalse(notes["missing_keys"] or notes["unexpected_keys"], notes)
                with torch.no_grad():
                    expected = models.logits_of(case, theirs, inputs)
                    self.assertTrue(torch.equal(models.logits_of(case, ours.eval(), inputs), expected))


def main():
    global TESSERA, STEP
    TESSERA, STEP = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    unittest.main()


if __name__ == "__main__":
    main()
