"""tessera evaluate, and the accuracy of evaluations. How to run it: cli.py."""
import array
import ast
import json
import pathlib
import shutil
import struct
import tempfile

from cli import ALL_CASES, ROOT, RuntimeTest, main, run

SAMPLES = 12


class Evaluate(RuntimeTest):
    kept = None  # the folder that the run has left, and its summary

    def npy(self, name, code, values, shape):
        head = f"{{'descr': '{code}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        path = pathlib.Path(self.folder, name)
        path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + values.tobytes())
        return str(path)

    def data(self, image):
        """Images whose brightness tells the class."""
        pixels = [float(i % 3) + 0.1 * (k % 5) for i in range(SAMPLES) for k in range(image * image)]
        images = self.npy(f"x{image}.npy", "<f4", array.array("f", pixels), (SAMPLES, 1, image, image))
        labels = self.npy("y.npy", "<i8", array.array("q", [i % 3 for i in range(SAMPLES)]), (SAMPLES,))
        return f'{{ arrays = {{ images = "{images}", targets = "{labels}" }} }}'

    def model(self, image):
        return f"resnet:layers=18,width=2,channels=1,classes=3,ghost=4,running=0.5,image={image}"

    def train(self):
        """The summary of a run, and its checkpoints in this test's folder; it runs for the first test that asks."""
        if Evaluate.kept is None:
            summary = self.train_anew()
            folder = tempfile.TemporaryDirectory(prefix="tessera_cli_test_")
            Evaluate.addClassCleanup(folder.cleanup)
            shutil.copytree(f"{self.folder}/checkpoints", folder.name, dirs_exist_ok=True)
            Evaluate.kept = folder.name, summary
        else:
            shutil.copytree(Evaluate.kept[0], f"{self.folder}/checkpoints")
        return Evaluate.kept[1]

    def train_anew(self):
        run_file = pathlib.Path(self.folder, "run.toml")
        run_file.write_text(f'model = "{self.model(16)}"\ndata = {self.data(16)}\nbatch = 4\nsteps = 3\n'
                            f'checkpoint = {{ dir = "{self.folder}/checkpoints" }}\n'
                            f"[eval]\ndata = {self.data(16)}\nevery = 3\nbatches = 3\n")
        return json.loads(self.expect_text("train", str(run_file), "--json").splitlines()[-1])["summary"]

    def test_agrees_with_the_run_that_made_the_weights(self):
        summary = self.train()
        out = f"{self.folder}/logits.npy"
        found = self.expect_json("evaluate", self.model(16), "--weights", f"{self.folder}/checkpoints", "--data", self.data(16),
                                 "--batch", "4", "--out", out, "--json")
        self.assertEqual(found["samples"], SAMPLES)
        self.assertEqual(found["accuracy"], summary["eval_accuracy"])
        self.assertAlmostEqual(found["loss"], summary["eval_loss"], places=5)
        content = pathlib.Path(out).read_bytes()
        length = struct.unpack("<H", content[8:10])[0]
        self.assertEqual(ast.literal_eval(content[10:10 + length].decode()),
                         {"descr": "<f8", "fortran_order": False, "shape": (SAMPLES, 3)})
        logits = array.array("d", content[10 + length:])
        right = sum(max(range(3), key=lambda c: logits[3 * i + c]) == i % 3 for i in range(SAMPLES))
        self.assertEqual(right / SAMPLES, found["accuracy"])

    def test_images_of_other_sizes_take_the_same_weights(self):
        self.train()
        adds = [self.expect_json("evaluate", self.model(image), "--weights", f"{self.folder}/checkpoints", "--data", self.data(image),
                                 "--batch", "4", "--plan", "data_parallel(2)" if image == 8 else "serial", "--json")["multiply_adds_per_sample"]
                for image in (8, 32)]
        self.assertEqual(adds, sorted(adds))
        text = self.expect_text("evaluate", self.model(8), "--weights", f"{self.folder}/checkpoints", "--data", self.data(8), "--batch", "4")
        self.assertRegex(text, r"^12 samples: loss [\d.]+, accuracy [\d.]+ %; [\d.e+-]+ ms and [\d.]+ million multiply-adds a sample\n$")

    def test_another_tensor_may_be_asked_for(self):
        self.train()
        arguments = ("evaluate", self.model(16), "--weights", f"{self.folder}/checkpoints", "--data", self.data(16), "--batch", "4",
                     "--json", "--out")
        found = self.expect_json(*arguments, f"{self.folder}/head.npy")
        self.assertIn("accuracy", found)
        asked = self.expect_json(*arguments, f"{self.folder}/asked.npy", "--tensor", "head")
        self.assertNotIn("accuracy", asked)
        self.assertEqual(asked["loss"], found["loss"])
        self.assertEqual(*[pathlib.Path(self.folder, name).read_bytes() for name in ("head.npy", "asked.npy")])
        self.expect_json(*arguments, f"{self.folder}/pool.npy", "--tensor", "final.pool", "--plan", "data_parallel(2)")
        self.assertIn(b"(12, 16)", pathlib.Path(self.folder, "pool.npy").read_bytes()[:128])

    def test_wrong_input_is_one_line(self):
        self.train()
        weights = f"{self.folder}/checkpoints"
        for tensor, found in (("haed", "expected a tensor of 'resnet', found 'haed', did you mean 'head'?"),
                              ("head.weight", "expected a tensor whose first dim is the batch, found 'head.weight' [channels=16, classes=3]")):
            answer = run("evaluate", self.model(16), "--weights", weights, "--data", self.data(16), "--batch", "4", "--tensor", tensor)
            self.assertEqual((answer.code, answer.err), (2, f"tessera: evaluate: {found}\n"))
        answer = run("evaluate", self.model(16), "--weights", weights, "--data", "'random'")
        self.assertEqual((answer.code, answer.err), (2, "tessera: evaluate: expected data of arrays or of the nodes of a graph, "
                         "found other data or none\n"))
        answer = run("evaluate", self.model(16), "--weights", weights, "--data", "{ arrays = 3 }")
        self.assertEqual(answer.code, 2)
        self.assertIn("tessera: evaluate: --data: ", answer.err)
        answer = run("evaluate", self.model(16).replace("classes=3", "classes=5"), "--weights", weights, "--data", self.data(16), "--batch", "4")
        self.assertEqual(answer.code, 2)
        self.assertIn("of 'head.weight'", answer.err)
        self.assertEqual(answer.err.count("\n"), 1)

    def test_an_evaluation_of_a_run_counts_each_sample_once(self):
        """Of 12 samples, by batches of 5, 7 and 16: as one by one. Nothing is trained, as the rate is 0."""
        model = "vit:layers=1,hidden=8,heads=2,image=8,patch=4,channels=1,classes=3"
        run_file = pathlib.Path(self.folder, "run.toml")
        found = {}
        quick = [(1, "serial"), (5, "data_parallel(2)"), (7, "serial"), (16, "data_parallel(2)")]
        for batch, batches in ((1, 12), (5, 3), (7, 2), (16, 1), (12, 4)):
            run_file.write_text(f'model = "{model}"\ndata = {self.data(8)}\nbatch = {batch}\nsteps = 1\nprecision = "float64"\n'
                                f"optimizer = {{ lr = 0 }}\n[eval]\ndata = {self.data(8)}\nbatches = {batches}\n")
            for plan in ("serial", "data_parallel(2)"):
                if (plan != "serial" and batch < 2) or not (ALL_CASES or (batch, plan) in quick):
                    continue
                text = self.expect_text("train", str(run_file), "--plan", plan, "--json").splitlines()[-1]
                summary = json.loads(text)["summary"]
                found[batch, plan] = summary["eval_loss"], summary["eval_accuracy"]
        loss, accuracy = found[1, "serial"]
        for (batch, plan), (its_loss, its_accuracy) in found.items():
            with self.subTest(batch=batch, plan=plan):
                self.assertAlmostEqual(its_loss, loss, delta=1e-12)
                self.assertEqual(its_accuracy, accuracy)


class OfAnImportedModel(RuntimeTest):
    """GPT-2 by transformers 5.24.0 with random weights, and ten samples. The losses are those of transformers in float64."""

    CASE = ROOT / "tests/cli/evaluate_last_batch"
    ALL, SEVEN = 3.1889495390652867, 3.507256705670588

    def setUp(self):
        super().setUp()
        self.expect_text("import", str(self.CASE), "--out", f"{self.folder}/ours")

    def evaluate(self, *options):
        data = f"{{ arrays = {{ tokens = '{self.CASE}/tokens.npy', targets = '{self.CASE}/targets.npy' }} }}"
        return run("evaluate", f"{self.folder}/ours/config.json", "--weights", f"{self.folder}/ours", "--data", data, "--precision",
                   "float64", "--json", *options)

    def test_each_sample_counts_once_whatever_the_batch_is(self):
        quick = [(1, "serial", 10), (3, "data_parallel(2)", 7), (4, "tensor_parallel(2)", 10), (7, "gpipe(pp=2,micro_batches=1)", 10),
                 (10, "serial", 7), (16, "data_parallel(2)", 10)]
        for batch in (1, 3, 4, 6, 7, 10, 16, 23):
            for plan in ("serial", "data_parallel(2)", "tensor_parallel(2)", "gpipe(pp=2,micro_batches=1)"):
                if plan == "data_parallel(2)" and batch == 1:
                    continue
                for options, samples, loss in (((), 10, self.ALL), (("--samples", "7"), 7, self.SEVEN)):
                    if not (ALL_CASES or (batch, plan, samples) in quick):
                        continue
                    with self.subTest(batch=batch, plan=plan, samples=samples):
                        answer = self.evaluate("--batch", str(batch), "--plan", plan, *options)
                        self.assertEqual((answer.code, answer.err), (0, ""))
                        found = json.loads(answer.out)
                        self.assertEqual(found["samples"], samples)
                        self.assertAlmostEqual(found["loss"], loss, delta=1e-12)

    def test_more_samples_than_the_data_have_are_refused(self):
        answer = self.evaluate("--samples", "11")
        message = "evaluate: expected at most 10 samples, as the data have, found 11"
        self.assertEqual((answer.code, answer.err), (2, f"tessera: {message}\n"))
        self.expect_error_object(answer, ["--json"], message)


if __name__ == "__main__":
    main()
