"""What the tests of imports of .pt2 archives share: PROGRAM and STEPS of the command line, running them, what they write.

A test is skipped, with the reason, where torch is absent.
"""
import json
import os
import pathlib
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
except ImportError as error:
    print(f"import_pt2: skipped: {error}", file=sys.stderr)
    sys.exit(0)

TYPES = {"F64": torch.float64, "F32": torch.float32, "I64": torch.int64}
ALL_CASES = "TESSERA_ALL_CASES" in os.environ  # the slow tests
STEPS = 5
# Of Adam. A step changes by up to RATE / EPSILON times what a gradient near zero changes: with 1e-6 PyTorch's own parameters
# in float32 and in float64 differ by up to 1.6e-5 of the largest after five steps of these models, with 1e-4 by at most 1e-6.
RATE, EPSILON = 1e-2, 1e-4
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
    raw = pathlib.Path(path).read_bytes()
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


def reference(module, arguments, steps=STEPS):
    """Loss of each step, gradients of the first, parameters after the last."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE, betas=(0.9, 0.95), eps=EPSILON, weight_decay=0)
    losses, gradients = [], {}
    for step in range(steps):
        optimizer.zero_grad()
        loss = module(*arguments)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            gradients = {name: parameter.grad.clone() for name, parameter in module.named_parameters() if parameter.grad is not None}
        optimizer.step()
    return losses, gradients, {name: parameter for name, parameter in module.named_parameters() if name in gradients}


class Pt2Case(unittest.TestCase):
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

    def trained(self, folder, plans, precision, steps=STEPS):
        """What comes out under each plan, by kind: arrays by name."""
        outs = [self.folder / f"out{i}" for i in range(len(plans))]
        jobs = [[folder / "model.graph", folder / "weights.safetensors", self.folder / "inputs.safetensors", plan, precision, steps, out, "", f"lr={RATE} eps={EPSILON}"]
                for plan, out in zip(plans, outs)]
        (self.folder / "jobs").write_text("".join("\t".join(map(str, job)) + "\n" for job in jobs))
        answer = run(self.steps, self.folder / "jobs")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return [{kind: read_arrays(f"{out}.{kind}")[0] for kind in ("losses", "gradients", "parameters")} for out in outs]

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

    def rewritten(self, source, change, name="models/model.json"):
        """The archive with one of its JSON entries changed."""
        out = self.folder / "changed.pt2"
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(out, "w") as new:
            for entry in old.infolist():
                data = old.read(entry)
                if entry.filename.endswith(name):
                    program = json.loads(data)
                    change(program)
                    data = json.dumps(program).encode()
                new.writestr(entry.filename, data)
        return out


def main():
    Pt2Case.program, Pt2Case.steps = (os.path.abspath(path) for path in (sys.argv.pop(1), sys.argv.pop(1)))
    unittest.main()
