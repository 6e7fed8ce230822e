"""PyTorch modules as models, and what a program with the runtime adds. Usage: python module_test.py [unittest options].

Needs torch; what executes models is skipped, with the reason, where no program with a runtime is found (TESSERA_PROGRAM).
"""
import pathlib
import pickle
import tempfile
import unittest

import torch

import tessera

MODEL = "gpt:layers=2,hidden=64,heads=4,seq=32,vocab=128"


class Small(torch.nn.Module):
    """Embeds, mixes and classifies tokens [batch, seq]; returns the loss."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(64, 32)
        self.up, self.down = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)
        self.head = torch.nn.Linear(32, 64)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        x = x + self.down(torch.relu(self.up(x)))
        return torch.nn.functional.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


class Sorts(torch.nn.Module):
    def forward(self, x):
        return torch.sort(x).values.mean()


def has_runtime():
    try:
        tessera.full_program()
    except tessera.InputError:
        return False
    return True


class ModuleTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.tokens = torch.randint(64, (4, 8))

    def test_a_module_is_a_model(self):
        module = Small()
        model = tessera.Model(module, (self.tokens, self.tokens))
        self.assertEqual(model.parameters, sum(p.numel() for p in module.parameters()))
        self.assertEqual(pickle.loads(pickle.dumps(model)), model)
        step = tessera.simulate(model, "ddp(2)", "dgx-a100:1")
        self.assertEqual((step["ranks"], step["batch"]), (2, 4))
        self.assertTrue(tessera.plan(model, "8xA100", evaluations=3).ranks)

    def test_an_archive_is_the_same_model(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "small.pt2"
            torch.export.save(torch.export.export(Small(), (self.tokens, self.tokens)), path)
            self.assertEqual(tessera.Model(path).parameters, tessera.Model(Small(), (self.tokens, self.tokens)).parameters)

    def test_an_open_batch(self):
        shapes = {0: torch.export.Dim("batch", min=2, max=64)}
        model = tessera.Model(Small(), (self.tokens, self.tokens), dynamic_shapes=(shapes, shapes), batch=16)
        self.assertEqual(tessera.simulate(model, "ddp(2)", "dgx-a100:1")["batch"], 16)

    def test_a_plan_becomes_pytorch(self):
        text = tessera.to_pytorch(Small(), "fsdp(2)", (self.tokens, self.tokens)).text
        compile(text, "parallel.py", "exec")
        self.assertIn("fully_shard", text)
        self.assertEqual(tessera.to_pytorch(tessera.Model(Small(), (self.tokens, self.tokens)), "fsdp(2)").text, text)

    def test_refusals_are_one_line(self):
        for message, call in (
                ("expected example, the arguments of Small.forward", lambda: tessera.Model(Small())),
                ("node 'sort' (aten.sort", lambda: tessera.Model(Sorts(), (torch.randn(2, 4),))),
                ("torch.export takes no module Small", lambda: tessera.Model(Small(), (self.tokens,)))):
            with self.assertRaises(tessera.InputError) as caught:
                call()
            self.assertIn(message, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))
            self.assertNotIn("tessera-", str(caught.exception))  # the folder of its files


@unittest.skipUnless(has_runtime(), "no program with a runtime was found")
class ProgramTest(unittest.TestCase):
    def test_verifies(self):
        proof = tessera.verify(MODEL, "megatron(tp=2)", batch=4)
        self.assertTrue(proof.ok)
        self.assertLess(proof.max_rel_error["gradients"], 1e-9)
        with self.assertRaisesRegex(tessera.InputError, "unknown recipe|expected"):
            tessera.verify(MODEL, "megatrom(tp=2)")

    def test_trains(self):
        seen = []
        text = pathlib.Path(__file__).resolve()
        run = f'model = "gpt:layers=1,hidden=16,heads=2,seq=16,vocab=256"\ndata = ["{text}"]\nbatch = 4\nsteps = 5\n'
        training = tessera.train(run, changes={"steps": 3}, plan="ddp(2)", progress=seen.append)
        self.assertEqual(training.steps.column("step"), [step["step"] for step in seen])
        self.assertEqual(len(training.steps), 3)
        self.assertGreater(training["tokens_per_s"], 0)


if __name__ == "__main__":
    unittest.main()
