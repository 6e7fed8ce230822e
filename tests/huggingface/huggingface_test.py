"""Imported models compute what `transformers` computes: logits, all gradients, and the losses of further steps of AdamW, serial and
under parallel plans; and the way back gives the same bytes.

Usage: huggingface_test.py TESSERA STEP [unittest options]; STEP is tests/support/steps_on_weights. With TESSERA_REWRITE_GOLDEN the slow
test writes docs/results/huggingface.md anew: each of its cells is one of these comparisons.
"""
import copy
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
STEPS = 4  # of AdamW
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/results/huggingface.md"
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
        cls.errors = {}  # by case and what is compared: the largest error
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
            cls.losses[case.name, precision] = [loss.item(), *cls.train(case, copy.deepcopy(model), inputs)]
            loss.backward()
        cls.logits[case.name, precision] = logits.detach()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
        model.save_pretrained(place("gradients"))
        done = run("import", place("theirs"), "--out", place("ours"), *(("--set", f"mtp={case.further}") if case.further else ()))
        assert done.returncode == 0, done.stderr
        spec = f"{place('ours')}/config.json" + cls.further(case) + (f":{case.keys}" if case.keys else "")
        return [(spec, place("ours"), place("inputs"), plan, precision, STEPS, place(name), "logits") for name, plan in RUNS[precision].items()]

    @classmethod
    def train(cls, case, model, inputs):
        """The losses of the second step of AdamW and those after it, with the settings of steps_on_weights."""
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), eps=1e-6, weight_decay=0)
        for step in range(STEPS):
            loss = models.loss_of(models.logits_of(case, model, inputs), inputs) + models.further_loss_of(case, model, inputs)
            if step > 0:
                yield loss.item()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def compare(self, case, what, error, tolerance, message=None):
        """Expects an error below the tolerance, and keeps it for the table."""
        self.errors[case.name, what] = max(error, self.errors.get((case.name, what), 0.0))
        self.assertLess(error, tolerance, message)

    @classmethod
    def tearDownClass(cls):
        if models.ALL_CASES and "TESSERA_REWRITE_GOLDEN" in os.environ:
            text = PAGE.read_text(encoding="utf-8")
            begin, end = "<!-- table: models -->\n", "<!-- end -->"
            before, rest = text.split(begin)
            PAGE.write_text(before + begin + cls.table() + end + rest.split(end, 1)[1], encoding="utf-8")

    @classmethod
    def table(cls):
        rows = ["case", "model_type", "config, weights in"]
        rows += [f"{what}, {precision}" for what in ("logits", "gradients", "training") for precision in TOLERANCE]
        rows += ["export", "loads in transformers"]
        lines = ["| " + " | ".join(rows) + " |", "|---" * len(rows) + "|"]
        for case in models.CASES:
            cells = [case.name, case.config().model_type, "yes"]
            for what in ("logits", "gradients", "training"):
                for precision in TOLERANCE:
                    error = cls.errors.get((case.name, f"{what} {precision}"))
                    cells.append("failed" if error is None else f"{error:.0e}")
            cells += ["yes" if (case.name, what) in cls.errors else "failed" for what in ("export", "load")]
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"

    def test_each_case_has_a_row_of_the_table(self):
        rows = [line.split(" | ")[0].removeprefix("| ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
        self.assertEqual(rows[1:], [case.name for case in models.CASES], "write it anew: TESSERA_REWRITE_GOLDEN=1 ctest -R huggingface_slow")

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

    def test_losses_and_gradients_equal_those_of_transformers(self):
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
                        losses = safetensors.torch.load_file(f"{out}.losses")
                        for step, loss in enumerate(self.losses[case.name, precision], 1):
                            error = abs(losses[f"loss.{step}"].item() / loss - 1)
                            self.compare(case, f"training {precision}", error, tolerance * (1 if step == 1 else 10))
                        for array, value in expected.items():
                            scale = max(value.abs().max().item(), FLOOR * largest)
                            error = (found[array].double() - value.double()).abs().max().item() / scale
                            self.compare(case, f"gradients {precision}", error, tolerance, array)

    def test_logits_equal_those_of_transformers(self):
        for case in models.CASES:
            for precision, tolerance in TOLERANCE.items():
                expected = self.logits[case.name, precision]
                for name in RUNS[precision]:
                    with self.subTest(model=case.name, precision=precision, plan=name):
                        found = safetensors.torch.load_file(f"{self.place(case, precision, name)}.logits")["logits"]
                        self.assertEqual((found.dtype, found.shape), (expected.dtype, expected.shape))
                        error = (found.double() - expected.double()).abs().max() / expected.abs().max()
                        self.compare(case, f"logits {precision}", error.item(), tolerance)

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
                    before = {name: value for name, value in before.items() if name in after}
                    after = {name: value for name, value in after.items() if name in before}
                # The keys that transformers 4 reads in place of rope_parameters are added.
                rotary = before.get("rope_parameters", {})
                more = {"rope_theta", "rope_scaling"} if rotary else set()
                more |= {"partial_rotary_factor"} & rotary.keys()
                more |= {"rope_local_base_freq"} if "sliding_attention" in rotary else set()
                self.assertEqual({name: value for name, value in after.items() if name in before or name not in more}, before)
                self.errors[case.name, "export"] = 0

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
                    self.assertEqual("layers that predict further tokens are left out" in done.stdout, not keys)
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
                self.errors[case.name, "load"] = 0


def main():
    global TESSERA, STEP
    TESSERA, STEP = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    unittest.main()


if __name__ == "__main__":
    main()
