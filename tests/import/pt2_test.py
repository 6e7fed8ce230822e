"""Modules of PyTorch against what is imported of them: loss, all gradients and five AdamW steps, under several plans; bad
archives.

Usage: pt2_test.py PROGRAM STEPS [unittest options]. Skipped, with the reason, where torch is absent.
"""
import json
import os
import pathlib
import random
import resource
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tools"), str(pathlib.Path(__file__).resolve().parent)]
try:
    import torch
    import export_pt2
    import models
except ImportError as error:
    print(f"import_pt2: skipped: {error}", file=sys.stderr)
    sys.exit(0)

TYPES = {"F64": torch.float64, "F32": torch.float32, "I64": torch.int64}
STEPS = 5
FLOOR = 0.01  # errors of a gradient count against its largest element, or this share of the largest of all


def write_arrays(path, arrays):
    header, data = {}, b""
    for name, array in arrays.items():
        raw = array.contiguous().numpy().tobytes()
        kind = next(key for key, value in TYPES.items() if value == array.dtype)
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_arrays(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header, out = json.loads(raw[8:8 + size]), {}
    metadata = header.pop("__metadata__", {})
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        out[name] = torch.frombuffer(bytearray(raw[8 + size + begin:8 + size + end]), dtype=TYPES[entry["dtype"]]).view(entry["shape"])
    return out, metadata


def run(*command, memory=None):
    limit = (lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory))) if memory else None
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, cwd=ROOT, timeout=240, preexec_fn=limit)


def reference(module, arguments):
    """Loss of each step, gradients of the first, parameters after the last."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    losses, gradients = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = module(*arguments)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            gradients = {name: parameter.grad.clone() for name, parameter in module.named_parameters() if parameter.grad is not None}
        optimizer.step()
    return losses, gradients, {name: parameter for name, parameter in module.named_parameters() if name in gradients}


class Pt2Test(unittest.TestCase):
    program = steps = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tessera_import_test_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def imported(self, module, arguments, *settings):
        """The folder of the model and the inputs by name."""
        export_pt2.export(module, arguments, self.folder / "model.pt2")
        out = self.folder / "model"
        answer = run(self.program, "import", self.folder / "model.pt2", "--out", out, *settings)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        names = list(torch.export.load(self.folder / "model.pt2").graph_signature.user_inputs)
        write_arrays(self.folder / "inputs.safetensors", dict(zip(names, arguments)))
        return out

    def trained(self, folder, plan, precision):
        """What comes out, by kind: arrays by name."""
        out = self.folder / "out"
        job = [folder / "model.graph", folder / "weights.safetensors", self.folder / "inputs.safetensors", plan, precision, STEPS,
               out]
        (self.folder / "jobs").write_text("\t".join(map(str, job)))
        answer = run(self.steps, self.folder / "jobs")
        self.assertEqual(answer.returncode, 0, f"{plan}: {answer.stderr}")
        return {kind: read_arrays(self.folder / f"out.{kind}")[0] for kind in ("losses", "gradients", "parameters")}

    def check(self, found, expected, tolerance, what):
        losses, gradients, parameters = expected
        for step, loss in enumerate(losses, 1):
            self.assertLess(abs(found["losses"][f"loss.{step}"].item() - loss), tolerance * abs(loss), f"{what}: loss of step {step}")
        compared = 0
        for kind, arrays in (("gradients", gradients), ("parameters", parameters)):
            # Before small gradients Adam steps by their sign: errors of parameters count against the largest of all.
            largest = max(array.abs().max().item() for array in arrays.values())
            for name, array in arrays.items():
                if name not in found[kind]:
                    continue
                scale = largest if kind == "parameters" else max(array.abs().max().item(), FLOOR * largest)
                error = (found[kind][name].view(array.shape) - array).abs().max().item()
                self.assertLess(error, tolerance * scale, f"{what}: {kind} of {name}")
                compared += 1
        self.assertEqual(compared, 2 * len(gradients), what)

    def check_model(self, name):
        module, arguments, plans, precision = models.cases()[name]
        dtype, tolerance = {"float64": (torch.float64, 1e-10), "float32": (torch.float32, 1e-5)}[precision]
        module = module.to(dtype)
        arguments = tuple(x.to(dtype) if x.is_floating_point() else x for x in arguments)
        folder = self.imported(module, arguments)
        expected = reference(module, arguments)
        for plan in ["serial"] + plans:
            self.check(self.trained(folder, plan, precision), expected, tolerance, f"{name} under {plan}")
        # Without weights, from the first values that the graph states.
        answer = run(self.program, "verify", folder / "model.graph", "--plan", plans[-1])
        self.assertEqual(answer.returncode, 0, f"{name} under {plans[-1]}: {answer.stdout}{answer.stderr}")

    # ---- bad input
    def refused(self, path, *settings):
        """One line, exit code 2, nothing left behind."""
        answer = run(self.program, "import", path, "--out", self.folder / "refused", *settings)
        self.assertEqual((answer.returncode, answer.stdout), (2, ""), answer.stderr)
        self.assertEqual(answer.stderr.count("\n"), 1, answer.stderr)
        self.assertEqual([entry.name for entry in self.folder.glob("refused*")], [])
        return answer.stderr.removeprefix("tessera: ").replace(str(self.folder) + "/", "").rstrip()

    def exported(self, module, arguments):
        path = self.folder / "bad.pt2"
        export_pt2.export(module, arguments, path)
        return path

    def rewritten(self, source, change):
        """The archive with its model's JSON changed."""
        out = self.folder / "changed.pt2"
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(out, "w") as new:
            for entry in old.infolist():
                data = old.read(entry)
                if entry.filename.endswith("models/model.json"):
                    program = json.loads(data)
                    change(program)
                    data = json.dumps(program).encode()
                new.writestr(entry.filename, data)
        return out

    def test_messages_name_what_is_wrong(self):
        class Sorted(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(4, 4)

            def forward(self, x):
                return torch.sort(self.inner(x))[0].sum()

        class Logits(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(4, 3)

            def forward(self, x):
                return self.inner(x)

        x = torch.randn(2, 4)
        self.assertEqual(
            self.refused(self.exported(Sorted(), (x,))),
            "bad.pt2: node 'sort' (aten.sort) in the outermost module: an op without a counterpart, which makes [2, 4] float32")
        path = self.exported(Logits(), (x,))
        self.assertEqual(
            self.refused(path),
            "bad.pt2: expected a module that returns its loss, a scalar, found [2, 3]; with --set loss=cross_entropy the outputs are logits")
        self.assertEqual(self.refused(path, "--set", "loss=squares"), "import: loss: expected module or cross_entropy, found 'squares'")
        answer = run(self.program, "import", path, "--set", "loss=cross_entropy", "--out", self.folder / "logits")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn("input %targets [batch=2] int64", (self.folder / "logits" / "model.graph").read_text())
        answer = run(self.program, "import", path, "--set", "loss=cross_entropy", "--out", self.folder / "logits")
        self.assertEqual(answer.returncode, 2, answer.stderr)

        def node(program):
            return program["graph_module"]["graph"]["nodes"][0]

        changes = {
            "schema_version: major: expected version 8 of the format, found 9":
                lambda program: program["schema_version"].update(major=9),
            "node 'linear': inputs [0]: expected a field 'arg', found none":
                lambda program: node(program)["inputs"][0].pop("arg"),
            'node \'linear\': inputs [0]: arg: expected an argument of a known tag, found \'as_riddle\'':
                lambda program: node(program)["inputs"][0].update(arg={"as_riddle": 1}),
            "graph_module: graph: expected a field 'nodes', found none":
                lambda program: program["graph_module"]["graph"].pop("nodes"),
            "graph_module: graph: tensor_values: linear: dtype: expected the number of a floating dtype, an integer dtype or bool, found 9":
                lambda program: program["graph_module"]["graph"]["tensor_values"]["linear"].update(dtype=9),
        }
        for message, change in changes.items():
            self.assertEqual(self.refused(self.rewritten(path, change)), f"changed.pt2: models/model.json: {message}")
        text = self.folder / "text.pt2"
        text.write_text("no archive")
        self.assertEqual(self.refused(text), "text.pt2: expected a .pt2 archive (a zip file), found: Not a zip archive")
        self.assertEqual(self.refused(self.folder / "none.pt2"), "none.pt2: expected a .pt2 archive, found no file that can be read")

    def test_mutated_archives_are_refused_in_one_line(self):
        module, arguments = models.cases()["manual"][:2]
        raw = self.exported(module, arguments).read_bytes()
        numbers = random.Random(7)
        program = zipfile.ZipFile(self.folder / "bad.pt2").read("bad/models/model.json")
        refused = 0
        for case in range(200):
            data = bytearray(raw)
            if case % 4 == 0:  # flipped bytes anywhere
                for _ in range(numbers.randint(1, 20)):
                    data[numbers.randrange(len(data))] ^= 1 << numbers.randrange(8)
            elif case % 4 == 1:  # cut, or a piece taken out
                place = numbers.randrange(len(data))
                data = data[:place] if numbers.random() < 0.5 else data[:place] + data[place + numbers.randint(1, 4000):]
            elif case % 4 == 2:  # sizes in the central directory
                places = [place for place in range(len(raw) - 46) if raw[place:place + 4] == b"PK\x01\x02"]
                place = numbers.choice(places) + numbers.choice([10, 20, 24, 28, 30, 42])
                data[place:place + 4] = struct.pack("<I", numbers.choice([0, 1, 0x7fffffff, 0xffffffff, numbers.getrandbits(32)]))
            else:  # numbers and tags of the JSON, checksums left right
                text = bytearray(program)
                for _ in range(numbers.randint(1, 4)):
                    place = numbers.choice([i for i, c in enumerate(text) if chr(c).isdigit() or chr(c) in '{}[]_'])
                    text[place] = numbers.choice(b"0123456789-{}[]_e")
                out = self.folder / "mutated.pt2"
                with zipfile.ZipFile(self.folder / "bad.pt2") as old, zipfile.ZipFile(out, "w") as new:
                    for entry in old.infolist():
                        new.writestr(entry.filename, bytes(text) if entry.filename.endswith("model.json") else old.read(entry))
                data = out.read_bytes()
            path, out = self.folder / "mutated.pt2", self.folder / f"out{case}"
            path.write_bytes(data)
            answer = run(self.program, "import", path, "--out", out, memory=1 << 30)
            self.assertIn(answer.returncode, (0, 2), f"case {case}: {answer.stderr}")
            if answer.returncode == 0:  # a byte that nothing depends on
                self.assertTrue((out / "model.graph").exists(), f"case {case}")
                continue
            refused += 1
            self.assertEqual(answer.stderr.count("\n"), 1, f"case {case}: {answer.stderr}")
            self.assertIn("mutated.pt2", answer.stderr, f"case {case}")
            self.assertFalse(out.exists() or pathlib.Path(f"{out}.partial").exists(), f"case {case}")
        self.assertGreater(refused, 100)


    def test_the_script_of_the_guide_in_one_line(self):
        (self.folder / "mine.py").write_text(
            "import torch\n\n\ndef make():\n    return torch.nn.Linear(6, 5), (torch.ones(4, 6),)\n")
        answer = run(sys.executable, ROOT / "tools" / "export_pt2.py", f"{self.folder}/mine.py:make", self.folder / "mine.pt2")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        answer = run(self.program, "import", self.folder / "mine.pt2", "--out", self.folder / "mine", "--set",
                     "loss=cross_entropy")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        answer = run(sys.executable, ROOT / "tools" / "export_pt2.py", "mine.py")
        self.assertEqual((answer.returncode, answer.stderr), (2, "export_pt2.py: expected FILE.py:FUNCTION OUT.pt2\n"))


def add_model(name):
    setattr(Pt2Test, f"test_{name}_equals_pytorch", lambda self: self.check_model(name))


for case in models.cases():
    add_model(case)


if __name__ == "__main__":
    Pt2Test.program, Pt2Test.steps = (os.path.abspath(path) for path in (sys.argv.pop(1), sys.argv.pop(1)))
    unittest.main()
