"""The survey of architectures of transformers (survey.py): imports, is planned, verifies and equals PyTorch as the page says.

Usage: survey_test.py PROGRAM STEPS [unittest options]. TESSERA_REWRITE_GOLDEN writes the page's tables anew.
"""
import contextlib
import os
import pathlib
import sys
import tempfile

from pt2_case import ALL_CASES, FLOOR, ROOT, Pt2Case, main, reference, run, torch, write_arrays
from safetensors.torch import load_file
import export_pt2

try:
    import survey
except ImportError as error:
    print(f"survey of transformers: skipped: {error}", file=sys.stderr)
    survey = None

PAGE = ROOT / "docs/results/pt2-survey.md"
QUICK = ("qwen3_moe",)  # all with the slow tests
RECIPES = ("fsdp(dp=4)", "megatron(tp=2,dp=2)")
STEPS = 2


@contextlib.contextmanager
def wide():
    """Widens what transformers computes in float32 whatever the dtype is, as the tests of its folders do."""
    sys.path.insert(0, str(ROOT / "tests/huggingface"))
    import importlib.util
    spec = importlib.util.spec_from_file_location("wide_models", ROOT / "tests/huggingface/models.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.wide():
        yield


class Survey(Pt2Case):
    def errors(self, found, expected):
        """The largest errors of losses and of gradients, as the other tests of imports measure them."""
        losses, gradients, _ = expected
        loss = max(abs(found["losses"][f"loss.{step}"].item() - value) / abs(value) for step, value in enumerate(losses, 1))
        largest = max(array.abs().max().item() for array in gradients.values())
        self.assertEqual(set(gradients) - set(found["gradients"]), set())
        return max([loss] + [(found["gradients"][name].view(array.shape) - array).abs().max().item()
                             / max(array.abs().max().item(), FLOOR * largest) for name, array in gradients.items()])

    def outcome(self, name):
        """The cells of the architecture's row."""
        module, arguments = survey.make(name)
        path = self.folder / "model.pt2"
        export_pt2.export(module, arguments, path)
        folder = self.folder / "model"
        answer = run(self.program, "import", path, "--out", folder)
        if answer.returncode:
            self.assertEqual((answer.returncode, answer.stderr.count("\n")), (2, 1), answer.stderr)
            said = answer.stderr.strip().split("model.pt2: ", 1)[1]
            self.assertRegex(said, r"^node '\w+' \([\w.]+\) in module '[\w.]+': ")
            return ["no", "", "", "", said]
        self.check_state(module, folder)
        plan = self.folder / "auto.toml"
        answer = run(self.program, "plan", folder / "model.graph", "--cluster", pathlib.Path(__file__).with_name("ranks.toml"),
                     "--batch", survey.BATCH, "--precision", "float32", "--fix", "devices=4", "--out", plan)
        cells = ["yes", "yes" if answer.returncode == 0 else "no"]
        plans = [*RECIPES, plan] if answer.returncode == 0 else list(RECIPES)
        verified = [run(self.program, "verify", folder / "model.graph", "--plan", one) for one in plans]
        cells.append("yes" if all(one.returncode == 0 for one in verified) else "no")
        said = [one.stderr.strip() for one in (answer, *verified) if one.returncode]
        equal = True
        for dtype, tolerance, widened in ((torch.float32, 1e-5, contextlib.nullcontext()), (torch.float64, 1e-10, wide())):
            with widened:
                if not self.runs(name, dtype):
                    said.append("in float32: PyTorch's grouped products have no float64")
                    continue
                error = self.compared(name, dtype, plans)
            if error >= tolerance:
                said.append(f"{dtype}: error {error:.1e}")
                equal = False
        return [*cells, "yes" if equal else "no", "; ".join(said)]

    def runs(self, name, dtype):
        """Whether PyTorch has the model's products in this dtype."""
        module, arguments = made(name, dtype)
        try:
            module(*arguments)
        except RuntimeError as error:
            if "Expected mat_a to be Float32" in str(error):
                return False
            raise
        return True

    def compared(self, name, dtype, plans):
        module, arguments = made(name, dtype)
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder, prefix=str(dtype)))
        folder = self.imported(module, arguments)
        expected = reference(module, arguments, STEPS)
        precision = str(dtype).removeprefix("torch.")
        return max(self.errors(found, expected) for found in self.trained(folder, ["serial", *plans], precision, STEPS))

    def check_state(self, module, folder):
        """What comes out of the imported folder is the module's state_dict."""
        answer = run(self.program, "export", folder / "weights.safetensors", "--to", "pt2", "--model", folder / "model.graph", "--out",
                     self.folder / "back")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        state, own = load_file(self.folder / "back" / "model.safetensors"), module.state_dict()
        self.assertEqual(set(state), set(own))
        for key, value in own.items():
            self.assertTrue(torch.equal(state[key], value), key)


def made(name, dtype):
    module, arguments = survey.make(name)
    return module.to(dtype), tuple(x.to(dtype) if x.is_floating_point() else x for x in arguments)


def row(name, cells):
    return f"| `{name}` | {' | '.join(cells)} |"


def check_row(self, name):
    found, lines = row(name, self.outcome(name)), PAGE.read_text().splitlines()
    at = [i for i, line in enumerate(lines) if line.startswith(f"| `{name}` |")]
    self.assertEqual(len(at), 1, f"{PAGE.name}: one row for {name}")
    if "TESSERA_REWRITE_GOLDEN" in os.environ:
        lines[at[0]] = found
        PAGE.write_text("\n".join(lines) + "\n")
    self.assertEqual(PAGE.read_text().splitlines()[at[0]], found)


def add_architecture(name):
    def test(self):
        if name not in QUICK and not ALL_CASES:
            self.skipTest("one of the slow tests (make test-slow)")
        check_row(self, name)
    setattr(Survey, f"test_{name.replace('-', '_')}_does_as_the_page_says", test)


def test_the_page_counts_its_rows(self):
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    names = [cells[0].strip("|` ") for cells in rows]
    self.assertEqual(names, [*survey.ARCHITECTURES, *survey.OTHERS])
    surveyed = rows[:len(survey.ARCHITECTURES)]
    counts = [sum(cells[i] == "yes" for cells in surveyed) for i in range(1, 5)]
    total = next(line for line in PAGE.read_text().splitlines() if line.startswith("| **of "))
    self.assertEqual(total, "| **of {}** | **{}** | **{}** | **{}** | **{}** | |".format(len(surveyed), *counts))


if survey is not None:
    for architecture in [*survey.ARCHITECTURES, *survey.OTHERS]:
        add_architecture(architecture)
    Survey.test_the_page_counts_its_rows = test_the_page_counts_its_rows


if __name__ == "__main__":
    main()
