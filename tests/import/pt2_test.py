"""Modules of PyTorch against what is imported of them: loss, all gradients and five AdamW steps, under several plans;
trained parameters back in the module.

Usage: pt2_test.py PROGRAM STEPS [unittest options].
"""
import contextlib
import io
import json
import pathlib
import re
import runpy
import shutil
import sys
import tempfile
from unittest import mock

from pt2_case import ALL_CASES, ROOT, STEPS, Pt2Case, main, read_arrays, reference, run, torch, write_arrays
from safetensors.torch import load_file
from torch._subclasses.fake_tensor import FakeTensorMode
import models


class Models(Pt2Case):
    def found_plan(self, folder, batch, precision):
        """What the planner makes of the graph for four ranks."""
        out = self.folder / "auto.toml"
        answer = run(self.program, "plan", folder / "model.graph", "--cluster", pathlib.Path(__file__).with_name("ranks.toml"), "--batch", batch,
                     "--precision", precision, "--fix", "devices=4", "--out", out)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return out

    def check_model(self, module, arguments, plans, precision, *settings, searched=False):
        dtype, tolerance, precision = {
            "float64": (torch.float64, 1e-10, "float64"), "float32": (torch.float32, 1e-5, "float32"),
            "float32 inside float64": (torch.float64, 1e-5, "float64")}[precision]
        module = module.to(dtype)
        arguments = tuple(x.to(dtype) if x.is_floating_point() else x for x in arguments)
        folder = self.imported(module, arguments, *settings)
        expected = reference(module, arguments)
        every = ["serial"] + plans + ([self.found_plan(folder, len(arguments[0]), precision)] if searched or ALL_CASES else [])
        for plan, found in zip(every, self.trained(folder, every, precision)):
            self.check(found, expected, tolerance, plan)
        # Without weights, from the first values that the graph states.
        if searched or ALL_CASES:
            answer = run(self.program, "verify", folder / "model.graph", "--plan", plans[-1])
            self.assertEqual(answer.returncode, 0, f"{plans[-1]}: {answer.stdout}{answer.stderr}")

    def test_targets_that_do_not_count_as_asked_for(self):
        tokens, targets = models.tokens()
        targets[torch.rand(targets.shape) < 0.3] = -100
        module = models.Transformer(lambda: models.FusedBlock(16, 4))
        self.check_model(module, (tokens, targets), ["fsdp(dp=4)", "megatron(tp=2,dp=2)"], "float64", "--set", "ignored=-100")


    def test_inputs_have_the_shape_of_the_module(self):
        """Also where ops see their dims in parts: pixels of patches."""
        for name, shapes in (("grouped_input", ["[batch=8, channels=4, height=12, width=8]"]), ("windows", ["[batch=8, ", ", height=8, width=8]"])):
            with self.subTest(name):
                self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder.parent, prefix="tessera_import_test_"))
                self.addCleanup(shutil.rmtree, self.folder)
                folder = self.imported(*models.cases()[name][:2])
                line = next(line for line in (folder / "model.graph").read_text().splitlines() if line.startswith("input "))
                for shape in shapes:
                    self.assertIn(shape, line)


class Without(Pt2Case):
    """Archives without weights, and with sizes that they leave open, against those with both."""
    MODEL = staticmethod(lambda: models.WithoutPositions(lambda: models.FusedBlock(16, 4)))

    def graph(self, path, *settings):
        """The text of the model without first values, what was written, and what was said."""
        out = pathlib.Path(tempfile.mkdtemp(dir=self.folder)) / "out"
        answer = run(self.program, "import", path, "--out", out, *settings)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        text = (out / "model.graph").read_text()
        return re.sub(r" init=\S+", "", text), sorted(entry.name for entry in out.iterdir()), answer.stdout

    def saved(self, name, module, arguments, **options):
        torch.export.save(torch.export.export(module, arguments, **options), self.folder / name)
        return self.folder / name

    def test_meta_and_fake_tensors_give_the_same_model_without_weights(self):
        arguments = models.tokens()
        whole = self.graph(self.saved("whole.pt2", self.MODEL(), arguments))
        with torch.device("meta"):
            meta = self.saved("meta.pt2", self.MODEL(), tuple(x.to("meta") for x in arguments))
        with FakeTensorMode(allow_non_fake_inputs=True):
            program = torch.export.export(self.MODEL(), arguments)
        torch.export.save(program, self.folder / "fake.pt2")
        self.assertEqual(whole[1], ["model.graph", "module.safetensors", "weights.safetensors"])
        for path in (meta, self.folder / "fake.pt2"):
            found = self.graph(path)
            self.assertEqual(found[:2], (whole[0], ["model.graph"]))
            self.assertRegex(found[2], r"(?s)^\S+ \(pt2\): [\d,]+ parameters in \d+ arrays, 0 B\nmodel +\S+\nnote +the archive has no weights ")
            self.assertEqual(*(re.search(r"[\d,]+ parameters in \d+ arrays", said)[0] for said in (whole[2], found[2])))

    def test_open_sizes_are_those_of_the_example_or_those_stated(self):
        tokens, targets = models.tokens()
        batch, seq = torch.export.Dim("batch", min=2, max=1024), torch.export.Dim("seq", min=2, max=4096)
        shapes = {0: batch, 1: seq}
        path = self.saved("open.pt2", self.MODEL(), (tokens, targets), dynamic_shapes=(shapes, shapes))
        self.assertEqual(self.graph(path)[0], self.graph(self.saved("closed.pt2", self.MODEL(), (tokens, targets)))[0])
        larger = tuple(x.repeat(3, 2) for x in (tokens, targets))
        size, length = larger[0].shape
        stated = self.graph(path, "--set", f"batch={size}", "--set", f"seq={length}")[0]
        self.assertEqual(stated, self.graph(self.saved("larger.pt2", self.MODEL(), larger))[0])
        # As a model of commands that plan it.
        simulate = ["--plan", "fsdp(dp=2)", "--cluster", "dgx-a100", "--batch", size]
        answer = run(self.program, "simulate", f"{path}:seq={length}", *simulate, "--json")
        self.assertEqual((answer.returncode, answer.stderr), (0, ""))
        found = json.loads(answer.stdout)
        self.assertEqual((found["batch"], found["tokens"]), (size, size * length))
        answer = run(self.program, "simulate", f"{path}:sek=8", *simulate)
        self.assertEqual((answer.returncode, answer.stdout, answer.stderr),
                         (2, "", f"tessera: {path}: expected one of loss, ignored, batch, seq, found 'sek'\n"))


class BackToPyTorch(Pt2Case):
    def check_state(self, name, plan):
        """Import, train, export: load_state_dict takes what comes out, and the module goes on where the training ended."""
        module, arguments = models.cases()[name][:2]
        module = module.double()
        arguments = tuple(x.double() if x.is_floating_point() else x for x in arguments)
        before = {key: value.clone() for key, value in module.state_dict().items()}
        folder = self.imported(module, arguments)
        self.trained(folder, [plan], "float64")
        answer = run(self.program, "export", self.folder / "out0.parameters", "--to", "pt2", "--model", folder / "model.graph", "--out",
                     self.folder / "back")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        state = load_file(self.folder / "back" / "model.safetensors")
        self.assertEqual({key: value.shape for key, value in state.items()}, {key: value.shape for key, value in before.items()})
        fresh = models.cases()[name][0].double()
        with torch.no_grad():
            for value in fresh.state_dict().values():
                value.zero_()
        fresh.load_state_dict(state, strict=True)
        loss = fresh(*arguments).item()
        trained = self.trained(folder, [plan], "float64", STEPS + 1)[0]["losses"][f"loss.{STEPS + 1}"].item()
        reference(module, arguments)
        for expected in (trained, module(*arguments).item()):
            self.assertLess(abs(loss - expected), 1e-10 * abs(expected), f"{name} under {plan}")
        untrained = {key for key in before if torch.equal(before[key], state[key])}
        self.assertEqual(untrained, {key for key in before if "running" in key or "batches" in key or key.startswith("idle")
                                     or key in ("scale", "hidden")})

    def test_trained_parameters_load_into_the_module(self):
        for name, plan in (("fused", "megatron(tp=2,dp=2)"), ("resnet", "fsdp(dp=4)"), ("state", "serial"))[0 if ALL_CASES else 2:]:
            with self.subTest(name):
                self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder.parent, prefix="tessera_import_test_"))
                self.addCleanup(shutil.rmtree, self.folder)
                self.check_state(name, plan)

    def test_an_export_names_what_is_wrong(self):
        folder = self.imported(torch.nn.Linear(6, 5), (torch.ones(4, 6),), "--set", "loss=cross_entropy")

        def refused(weights, model):
            answer = run(self.program, "export", weights, "--to", "pt2", "--model", model, "--out", self.folder / "back")
            self.assertEqual((answer.returncode, answer.stdout), (2, ""), answer.stderr)
            self.assertEqual([entry.name for entry in self.folder.glob("back*")], [])
            return answer.stderr.removeprefix("tessera: ").replace(str(self.folder) + "/", "").rstrip()

        other = self.folder / "other.safetensors"
        write_arrays(other, {"weight": torch.ones(5, 6), "bias": torch.ones(4)})
        self.assertEqual(refused(other, folder / "model.graph"), "other.safetensors: 'bias' ('bias' of the module): expected [5], found [4]")
        write_arrays(other, {"bias": torch.ones(5)})
        self.assertEqual(refused(other, folder / "model.graph"),
                         "other.safetensors: 'weight' ('weight' of the module): expected [5, 6], found none")
        self.assertEqual(refused(other, "mlp"), "export: --model mlp: expected the graph of a folder that tessera import has made of a .pt2 "
                                                "archive, found no module.safetensors beside it")
        raw = (folder / "module.safetensors").read_bytes()
        (folder / "module.safetensors").write_bytes(raw.replace(b"of", b"at"))
        self.assertEqual(refused(folder / "weights.safetensors", folder / "model.graph"),
                         "model/module.safetensors: metadata 'parameters': expected parameters by name, each with 'of' and 'shape', "
                         "found an object as 'bias'")

    def test_the_script_of_the_guide_in_one_line(self):
        (self.folder / "mine.py").write_text(
            "import torch\n\n\ndef make():\n    return torch.nn.Linear(6, 5), (torch.ones(4, 6),)\n")
        def script(*arguments):
            """Runs the script in this process, which has loaded torch. Its exit code and what it says."""
            said = io.StringIO()
            with mock.patch.object(sys, "argv", ["export_pt2.py", *map(str, arguments)]), mock.patch.object(sys, "path", [*sys.path]), \
                    contextlib.redirect_stderr(said):
                try:
                    runpy.run_path(str(ROOT / "tools" / "export_pt2.py"), run_name="__main__")
                except SystemExit as end:
                    return end.code, said.getvalue()
            return 0, said.getvalue()

        self.assertEqual(script(f"{self.folder}/mine.py:make", self.folder / "mine.pt2"), (0, ""))
        answer = run(self.program, "import", self.folder / "mine.pt2", "--out", self.folder / "mine", "--set",
                     "loss=cross_entropy")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(script("mine.py"), (2, "export_pt2.py: expected FILE.py:FUNCTION OUT.pt2\n"))


# The quick tests take modules that have most kinds of ops between them, as each costs some seconds, and search a plan for one.
QUICK = ("grouped", "resnet", "unet", "padded", "precise", "counted", "written", "sound", "llama")
SEARCHED = ("padded",)


def add_model(name):
    def test(self):
        if name not in QUICK and not ALL_CASES:
            self.skipTest("one of the slow tests (make test-slow)")
        self.check_model(*models.cases()[name], searched=name in SEARCHED)
    setattr(Models, f"test_{name}_equals_pytorch", test)


for case in models.cases():
    add_model(case)


if __name__ == "__main__":
    main()
