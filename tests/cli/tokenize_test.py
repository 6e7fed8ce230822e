"""tools/tokenize.py: from text to tokens that a run trains on, and back. How to run it: cli.py."""
import array
import json
import os
import pathlib
import subprocess
import unittest

from cli import ROOT, CliTest, has_runtime, main, run

PYTHON = ROOT / ".venv" / "bin" / "python"


class Tokenize(CliTest):
    @classmethod
    def setUpClass(cls):
        if not PYTHON.exists() or subprocess.run([PYTHON, "-c", "import tokenizers"], check=False,
                                                 capture_output=True).returncode != 0:
            raise unittest.SkipTest("no .venv with the package tokenizers (scripts/setup)")

    def tokenize(self, *arguments):
        return subprocess.run([PYTHON, ROOT / "tools" / "tokenize.py", *arguments], capture_output=True, text=True, check=False,
                              cwd=self.folder, timeout=120)

    def write_corpus(self):
        os.mkdir(os.path.join(self.folder, "texts"))
        texts = [f"{number} green bottles, hanging on the wall; été, größer, 東京 \U0001f600.\n" * (number + 1)
                 for number in range(40)]
        for number, text in enumerate(texts):
            self.write(f"texts/{number:02}.txt", text)
        return texts

    def tokens(self, name):
        tokens = array.array("H")
        tokens.frombytes(pathlib.Path(self.folder, "out", name).read_bytes())
        return tokens.tolist()

    def decode(self, tokens):
        script = ("import json, sys, tokenizers; t = tokenizers.Tokenizer.from_file('out/tokenizer.json'); "
                  "print(json.dumps([t.decode(d) for d in json.load(sys.stdin)]))")
        documents, rest = [], tokens
        while rest:
            end = rest.index(0)
            documents.append(rest[:end])
            rest = rest[end + 1:]
        done = subprocess.run([PYTHON, "-c", script], input=json.dumps(documents), capture_output=True, text=True, check=True,
                              cwd=self.folder)
        return json.loads(done.stdout)

    def test_tokens_give_back_the_text_document_by_document(self):
        texts = self.write_corpus()
        done = self.tokenize("--vocab", "300", "--eval", "0.25", "--out", "out", "texts")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^out/train.bin: [\d,]+ tokens of \d+ documents, \d\.\d\d bytes a token\n")
        training, held_back = self.decode(self.tokens("train.bin")), self.decode(self.tokens("eval.bin"))
        self.assertEqual(sorted(training + held_back), sorted(texts))
        self.assertTrue(0 < len(held_back) < 20, len(held_back))
        self.assertLess(max(self.tokens("train.bin")), 300)
        again = self.tokenize("--tokenizer", "out/tokenizer.json", "--out", "out2", "texts/00.txt")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "out2"))), ["tokenizer.json", "train.bin"])

    # A tokenizer may leave numbers out: what counts is the largest one, here of a token of each text.
    def test_numbers_of_tokens_may_have_gaps(self):
        self.write_corpus()
        self.assertEqual(self.tokenize("--vocab", "300", "--out", "out", "texts").returncode, 0)
        path = pathlib.Path(self.folder, "out", "tokenizer.json")
        trained = json.loads(path.read_text(encoding="utf-8"))
        wide = {"uint16": 400, "uint32": 70000}
        for kind, number in wide.items():
            trained["model"]["vocab"]["b"] = number
            path.write_text(json.dumps(trained), encoding="utf-8")
            self.write("b.txt", "b")
            done = self.tokenize("--tokenizer", "out/tokenizer.json", "--out", kind, "b.txt")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(f"vocab = {number + 1}; ", done.stdout)
            self.assertIn(f'format = "{kind}"', done.stdout)
            tokens = array.array("H" if kind == "uint16" else "I")
            tokens.frombytes(pathlib.Path(self.folder, kind, "train.bin").read_bytes())
            self.assertEqual(tokens.tolist(), [number, 0])

    def test_errors_are_one_line(self):
        self.write("bad.txt", "x")
        pathlib.Path(self.folder, "bad.txt").write_bytes(b"ab\xff")
        for arguments, message in ((["none.txt"], "no file or folder 'none.txt'"),
                                   (["bad.txt"], "'bad.txt': expected text in UTF-8, found byte 2 to be of something else"),
                                   (["--vocab", "100", "bad.txt"],
                                    "expected --vocab of at least 257 (256 bytes and <|endoftext|>), found 100")):
            done = self.tokenize("--out", "out", *arguments)
            self.assertEqual((done.returncode, done.stderr), (2, f"tokenize: {message}\n"))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "out")))

    def test_a_run_trains_on_them_evaluates_and_keeps_a_record(self):
        if not has_runtime():
            self.skipTest("this build has no runtime (libtorch)")
        self.write_corpus()
        self.assertEqual(self.tokenize("--vocab", "300", "--eval", "0.25", "--out", "out", "texts").returncode, 0)
        record = os.path.join(self.folder, "run")
        run_file = self.write("run.toml", f'''
model = "gpt:layers=1,hidden=32,heads=2,seq=16,vocab=300,eod=0"
data = {{ files = "out/train.bin", format = "uint16" }}
batch = 8
steps = 20
folder = "{record}"
[eval]
data = {{ files = "out/eval.bin", format = "uint16", documents = "padded", end_of_document = 0 }}
every = 10
batches = 2
[optimizer]
lr = 1e-2
warmup = 1
''')
        answer = run("train", run_file, "--json", cwd=self.folder)
        self.assertEqual((answer.code, answer.err), (0, ""))
        lines = [json.loads(line) for line in answer.out.splitlines()]
        self.assertEqual([line["step"] for line in lines if "eval_loss" in line], [10, 20])
        self.assertLess(lines[19]["eval_loss"], lines[9]["eval_loss"])
        self.assertEqual(lines[-1]["summary"]["eval_loss"], lines[19]["eval_loss"])
        with open(os.path.join(record, "metrics.jsonl"), encoding="utf-8") as file:
            kept = [json.loads(line) for line in file]
        self.assertEqual(list(kept[0]["start"]), ["time", "model", "plan", "ranks", "parameters", "tokens_per_step"])
        self.assertEqual([line["loss"] for line in kept[1:]], [line["loss"] for line in lines[:20]])
        text = run("train", run_file, "--steps", "10", cwd=self.folder)
        self.assertEqual((text.code, text.err), (0, ""))
        self.assertRegex(text.out, r"(?m)^step 10/10  loss \d\.\d{4}  eval \d\.\d{4} +[\d,]+ tokens/s")
        drawn = run("report", record)
        self.assertEqual((drawn.code, drawn.err), (0, ""))
        self.assertIn("steps 1 to 20, 1 restart (R): at step 1 (plan serial)\n", drawn.out)
        self.assertIn("loss, nats a token (*), and of the evaluation (o)\n", drawn.out)
        self.assertIn("resident memory of the process", drawn.out)

    def test_a_folder_without_a_record(self):
        self.expect_error(2, f"cannot read '{self.folder}/metrics.jsonl': No such file or directory", "report", self.folder)


if __name__ == "__main__":
    main()
