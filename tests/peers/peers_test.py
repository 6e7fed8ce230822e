"""What `tessera plan --for` and `tessera export` write is accepted by the parsers of the frameworks themselves.

Usage: peers_test.py PROGRAM [unittest options]. Installs the frameworks from PyPI into an environment of its own, which needs
Python 3.12 (on PATH or of pyenv) and some minutes. PEERS_PYTHON may name an interpreter that has them already, PEERS_BRIDGE a
folder with the sources of Megatron Bridge. Exit code 77: there is no such Python, or no network; the reason is printed.
"""
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECK = pathlib.Path(__file__).with_name("check.py")
LAYOUTS = CHECK.with_name("titan_layouts.py")
PACKAGES = ["torch", "numpy", "torchtitan==0.3.0", "megatron-core==0.19.2", "deepspeed==0.19.8", "accelerate==1.15.0",
            "transformers==5.24.0"]
# Its dependencies need a GPU's compiler, and the check reads its sources alone.
BARE = ["megatron-bridge==0.6.2"]
PYTHON = (3, 12)  # megatron-core needs it at least, megatron-bridge at most
SKIPPED = 77
MODELS = ["llama:layers=8,hidden=1024,heads=16,kv_heads=8,ffn=2816,vocab=32000,seq=1024",
          "llama:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=128256,seq=4096",
          "gpt:layers=12,hidden=768,heads=12,seq=1024,vocab=50304",
          "mixtral:layers=8,hidden=1024,heads=16,kv_heads=8,seq=1024,vocab=32000,ffn=2816,experts=8"]
MACHINES = ["dgx-a100:1", "dgx-h100:2", "p4d:1"]
TARGETS = ["torchtitan", "megatron", "deepspeed", "nemo", "fsdp2", "accelerate", "transformers"]
ENDINGS = {"torchtitan": "py", "fsdp2": "py", "megatron": "sh", "nemo": "sh", "accelerate": "yaml"}
EXPERTS = ["torchtitan", "megatron", "nemo"]  # have expert ranks
CASES = 60


class Peers(unittest.TestCase):
    program = python = ""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tessera_peers_test_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def planned(self, target, draw):
        """A drawn plan for the target, as the program's answer and the number of ranks; None if nothing fits."""
        model, machine = draw.choice(MODELS), draw.choice(MACHINES)
        batch = draw.choice([32, 64, 128])
        command = [self.program, "plan", model, "--for", target, "--cluster", machine, "--batch", str(batch), "--precision",
                   "bfloat16", "--json"]
        if model.startswith("mixtral") and target in EXPERTS:
            command += ["--fix", f"ep={draw.choice([1, 2, 4])}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 1:
            return None  # nothing fits
        self.assertEqual(done.returncode, 0, f"{' '.join(command)}: {done.stderr}")
        return json.loads(done.stdout), 16 if machine.endswith(":2") else 8, batch

    def checked(self, target, files):
        """What the framework's parser understood of each of the files."""
        done = subprocess.run([self.python, str(CHECK), target, *files], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, f"{target}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
        return [json.loads(line[len("understood "):]) for line in done.stdout.splitlines() if line.startswith("understood ")]

    def test_plans_for_every_framework_are_what_its_parser_understands(self):
        for target in TARGETS:
            draw = random.Random(f"peers {target}")
            plans = []
            while len(plans) < CASES // len(TARGETS) + 1:
                plan = self.planned(target, draw)
                if plan is not None:
                    plans.append(plan)
            files = []
            for i, (answer, ranks, _) in enumerate(plans):
                path = self.folder / f"planned_{target}_{i}.{ENDINGS.get(target, 'json')}"
                path.write_text(answer["text"], encoding="utf-8")
                files += [str(path), str(ranks)]
            understood = self.checked(target, files)
            self.assertEqual(len(understood), len(plans), target)
            for (answer, ranks, batch), found in zip(plans, understood):
                with self.subTest(target=target, plan=answer["best"]["words"], text=answer["text"]):
                    self.expect_the_same(answer["best"]["words"], ranks, batch, found)

    def test_modules_that_tensor_ranks_leave_whole_compute_the_same_in_torchtitan(self):
        """Loss and gradients of TorchTitan's own model on two ranks, with the shardings that the file has by named axes."""
        parts = {"attn": '{ ops = "blocks.*.attn", dim = "heads", over = "tp" }', "mlp": '{ ops = "blocks.*.mlp", dim = "ffn", over = "tp" }'}
        vocab = '{ ops = "{embed,head,loss}", dim = "vocab", over = "tp" }'
        for cut, entry in parts.items():
            with self.subTest(cut=cut):
                plan = self.folder / f"{cut}.toml"
                plan.write_text(f"mesh = {{ tp = 2 }}\nsplit = [ {entry}, {vocab} ]\n", encoding="utf-8")
                folder = self.folder / cut
                folder.mkdir()
                done = subprocess.run([self.program, "export", MODELS[1], "--plan", plan, "--to", "torchtitan", "--batch", "1", "--precision",
                                       "bfloat16", "--out", folder / "planned.py"], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                done = subprocess.run([self.python, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                                       LAYOUTS, folder / "planned.py"], capture_output=True, text=True, check=False)
                line = next((line for line in done.stdout.splitlines() if line.startswith("understood ")), None)
                self.assertIsNotNone(line, done.stderr[-4000:])
                found = json.loads(line[len("understood "):])
                self.assertLess(found["error"], 1e-5)
                modules = {name.split(".")[2] for name in found["cut"] if name.startswith("layers.")}
                self.assertEqual(modules, {"attn": {"attention"}, "mlp": {"feed_forward"}}[cut])

    def expect_the_same(self, words, ranks, batch, found):
        said = {name: int(value) for name, value in re.findall(r"\b(tp|pp|cp|ep|dp|replicas)=(\d+)", words)}
        steps, micro = map(int, re.search(r"(\d+) micro-batch(?:es)? of (\d+)", words).groups())
        zero = re.search(r"ZeRO-(\d)", words)
        shards = said.get("dp", 1) * said.get("ep", 1)
        expected = {"tp": said.get("tp", 1), "pp": said.get("pp", 1), "cp": said.get("cp", 1), "ep": said.get("ep", 1),
                    "batch": batch, "micro": micro, "steps": steps, "ranks": ranks, "zero": int(zero.group(1)) if zero else 0,
                    "replicas": said.get("replicas", 1), "shards": shards,
                    "recompute": (re.search(r"recompute (\w+)", words) or ["", "none"])[1]}
        if not zero:  # replicas that share nothing
            expected.update(replicas=shards, shards=1)
        for key, value in found.items():
            self.assertEqual(value, expected[key], key)


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def find_python():
    """An interpreter of the version that the frameworks have packages for, on PATH or of pyenv; None if there is none."""
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    named = f"python{PYTHON[0]}.{PYTHON[1]}"
    for name in [sys.executable, shutil.which(named), *sorted(map(str, pyenv.glob(f"*/bin/{named}")))]:
        done = subprocess.run([name or "false", "-c", "import sys, venv; print(*sys.version_info[:2])"], capture_output=True,
                              text=True, check=False)
        if done.returncode == 0 and tuple(map(int, done.stdout.split())) == PYTHON:
            return name
    return None


def frameworks():
    """An interpreter that has the frameworks, with the sources of Megatron Bridge in PEERS_BRIDGE."""
    if "PEERS_PYTHON" in os.environ:
        return os.environ["PEERS_PYTHON"], None
    of = find_python()
    if of is None:
        skip("expected Python 3.12, for which the frameworks have packages, found none on PATH or of pyenv")
    folder = tempfile.TemporaryDirectory(prefix="tessera_peers_")
    subprocess.run([of, "-m", "venv", folder.name], check=True)
    python = f"{folder.name}/bin/python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    bridge = f"{folder.name}/bridge"
    for packages in (PACKAGES, ["--no-deps", "--target", bridge, *BARE]):
        done = subprocess.run([*install, *packages], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            skip(f"the frameworks cannot be installed from PyPI: {(done.stderr.strip().splitlines() or ['no reason'])[-1]}")
    os.environ["PEERS_BRIDGE"] = bridge
    return python, folder


if __name__ == "__main__":
    Peers.program = os.path.abspath(sys.argv.pop(1))
    Peers.python, keep = frameworks()
    unittest.main()
