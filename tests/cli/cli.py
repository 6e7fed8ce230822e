"""What the tests of the command line share: runs the built program, checks exit codes, exact wording and JSON shapes.

Usage of each test file: NAME_test.py PROGRAM [unittest options]. Tests that run a model are skipped, with the reason, where
the program was built without the runtime.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = "gpt:layers=2,hidden=64,heads=4,seq=32,vocab=128"
LONG_RUN_MODEL = "gpt:layers=2,hidden=32,heads=4,seq=16,vocab=64"
BYTES_MODEL = "gpt:layers=1,hidden=16,heads=2,seq=16,vocab=256"
# A simulation that several files ask for.
SIMULATE = ["simulate", MODEL, "--batch", "8", "--cluster", "dgx-a100:1", "--plan", "megatron(dp=2)"]
# The slow tests set this: the entry cli_NAME_slow runs NAME_test.py with it. A start of the program with libtorch takes half a
# second of processor time, so that the quick tests try each value of each choice once, and the slow ones all combinations.
SCHEMA = 1  # the number of the JSON format (docs/reference/command-line.md)
ALL_CASES = "TESSERA_ALL_CASES" in os.environ
NO_RUNTIME = "this build has no runtime: expected the library {}; to get it: scripts/setup, then make build"


def program():
    """The program under test: the first argument of the test file."""
    return main.program


def main():
    main.program = os.path.abspath(sys.argv.pop(1))
    unittest.main()


def slow(test):
    """Marks what runs with the slow tests only."""
    return unittest.skipUnless(ALL_CASES, "one of the slow tests (make test-slow)")(test)


# The user's file of defaults does not count, and a slow machine shows no progress.
OF_ITS_OWN = {"XDG_CONFIG_HOME": "/nonexistent", "TESSERA_PROGRESS_S": "1000000"}


class Answer:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


def run(*arguments, cwd=None, before=None, env=None):
    done = subprocess.run([program(), *arguments], capture_output=True, text=True, check=False, cwd=cwd or ROOT, timeout=120,
                          preexec_fn=before, env={**os.environ, **OF_ITS_OWN, **(env or {})})
    return Answer(done.returncode, done.stdout, done.stderr)


def runtime_library():
    return pathlib.Path(program()).resolve().parent / "libtessera_runtime.so"


def has_runtime():
    return runtime_library().exists()


class CliTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tessera_cli_test_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def expect_error(self, code, message, *arguments):
        answer = run(*arguments)
        self.assertEqual((answer.code, answer.err), (code, f"tessera: {message}\n"))
        self.expect_error_object(answer, arguments, message)

    def expect_error_object(self, answer, arguments, message):
        """With --json standard output has the error as an object; else it is empty."""
        found = json.loads(answer.out) if "--json" in arguments else answer.out
        error = {"schema": SCHEMA, "error": {"code": answer.code, "message": message}}
        self.assertEqual(found, error if "--json" in arguments else "")

    def expect_json(self, *arguments):
        """The answer without the number of its format."""
        answer = run(*arguments)
        self.assertEqual((answer.code, answer.err), (0, ""))
        found = json.loads(answer.out)
        if isinstance(found, dict):
            self.assertEqual(found.pop("schema"), SCHEMA)
        return found

    def expect_text(self, *arguments):
        answer = run(*arguments)
        self.assertEqual((answer.code, answer.err), (0, ""))
        return answer.out


class RuntimeTest(CliTest):
    @classmethod
    def setUpClass(cls):
        if not has_runtime():
            raise unittest.SkipTest("this build has no runtime (libtorch)")

    def run_file(self, **keys):
        self.write("text.txt", "to be or not to be, that is the question. " * 40)
        values = {"model": BYTES_MODEL, "data": "text.txt", "batch": 4, "steps": 3, **keys}
        return self.write("run.toml", "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))


# More ranks than cores, as root, in a container.
MPI_ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
                   "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


class MpiTest(RuntimeTest):
    """Tests that start ranks as processes; skipped where there is no mpirun or the program was built without MPI."""

    def needs_mpirun(self):
        if shutil.which("mpirun") is None:
            self.skipTest("no mpirun on this machine")

    def mpirun(self, ranks, *arguments):
        self.needs_mpirun()
        done = subprocess.run(["mpirun", "-n", str(ranks), program(), *arguments], capture_output=True, text=True,
                              check=False, cwd=ROOT, timeout=120, env=MPI_ENVIRONMENT)
        if "without MPI" in done.stderr:
            self.skipTest("this build has no MPI: " + done.stderr)
        return Answer(done.returncode, done.stdout, done.stderr)

    @staticmethod
    def process_of_rank(parent, rank):
        for entry in pathlib.Path("/proc").iterdir():
            try:
                status = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                variables = (entry / "environ").read_bytes().split(b"\0")
            except (OSError, IndexError):
                continue
            if int(status[1]) == parent and f"OMPI_COMM_WORLD_RANK={rank}".encode() in variables:
                return int(entry.name)
        raise AssertionError(f"no process of rank {rank}")


class LongRuns(MpiTest):
    """Runs of a small model in float64 at a constant rate, with checkpoints and a record."""

    def run_file(self, steps=60, plan="data_parallel(2)", checkpoint=True):
        text = (f'model = "{LONG_RUN_MODEL}"\ndata = "random"\nbatch = 12\nsteps = {steps}\nplan = "{plan}"\n'
                'precision = "float64"\n')
        if checkpoint:
            text += f'checkpoint = {{ dir = "{self.folder}/ck", every = 5, keep = 2 }}\nfolder = "{self.folder}/record"\n'
        text += "optimizer = { lr = 1e-3, min_lr = 1e-3 }\n"  # the same rate whatever the number of steps
        return self.write("run.toml", text)

    def last_loss(self, *arguments):
        answer = run(*arguments, "--json")
        self.assertEqual(answer.code, 0, answer.err)
        lines = [json.loads(line) for line in answer.out.splitlines()]
        return lines[-1]["summary"]["last_loss"], [line["change"] for line in lines if "change" in line]
