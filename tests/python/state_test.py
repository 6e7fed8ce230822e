"""Parameters and data by DLPack, in and out of runs. Usage: python state_test.py [unittest options].

Needs torch and a program with a runtime (TESSERA_PROGRAM); without the program all tests are skipped, with the reason.
"""
import math
import pickle
import unittest

import tessera
import torch

from module_test import has_runtime

# The samples of a step, SEQ tokens each; one micro-batch.
BATCH, SEQ, WORDS, WIDTH = 4, 8, 48, 16


class Tied(torch.nn.Module):
    """A head tied to the table, queries of several heads (whose dims the graph cuts), a table of angles that the import
    computes, a buffer and a parameter that no step reads."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, WIDTH)
        self.qkv = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = torch.nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embed.weight
        self.unread = torch.nn.Parameter(torch.randn(3))
        self.register_buffer("counts", torch.arange(5))

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        angles = (torch.arange(SEQ, dtype=x.dtype).unsqueeze(1) * torch.arange(1, WIDTH + 1, dtype=x.dtype)).sin()
        q, k, v = (product(x + angles).view(BATCH, SEQ, 2, WIDTH // 2).transpose(1, 2) for product in self.qkv)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + mixed.transpose(1, 2).reshape(BATCH, SEQ, WIDTH)
        return torch.nn.functional.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


RUN = f"""batch = {BATCH}
steps = 2
[optimizer]
group = [{{ parameters = "embed.weight", kind = "none" }}]
"""


@unittest.skipUnless(has_runtime(), "no program with a runtime was found")
class StateTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)
        self.module = Tied()
        self.tokens = torch.randint(WORDS, (BATCH, SEQ))
        self.model = tessera.Model(self.module, (self.tokens, self.tokens))
        self.data = {"tokens": self.tokens, "targets": self.tokens}

    def train(self, state_dict, **options):
        return tessera.train(RUN, model=options.pop("model", self.model), state_dict=state_dict,
                             data=options.pop("data", self.data), **options)

    def loss(self, module):
        return float(module(self.tokens, self.tokens).detach())

    def test_a_run_begins_and_ends_with_a_state_dict(self):
        before = {name: tensor.clone() for name, tensor in self.module.state_dict().items()}
        losses = {}
        for plan in ("serial", "megatron(tp=2)", "fsdp(2)"):
            trained = self.train(self.module.state_dict(), plan=plan)
            self.assertAlmostEqual(trained["first_loss"], self.loss(self.module), delta=1e-5)
            after = trained.state_dict()
            self.assertEqual(list(after), list(before))
            for name in ("embed.weight", "head.weight", "counts", "unread"):  # not trained: bit for bit
                self.assertTrue(torch.equal(after[name], before[name]), name)
            self.assertFalse(torch.equal(after["qkv.0.weight"], before["qkv.0.weight"]))
            module = Tied()
            module.load_state_dict(after)
            losses[plan] = self.loss(module)
            self.assertLess(losses[plan], trained["first_loss"])
        self.assertLess(max(losses.values()) - min(losses.values()), 1e-5)

    def test_what_comes_out_is_the_mapped_file(self):
        trained = self.train(self.module.state_dict())
        arrays, state = trained.parameters, trained.state_dict()
        for name, array in arrays.items():
            self.assertEqual(torch.from_dlpack(array).data_ptr(), state[name].data_ptr(), name)
            self.assertEqual(array.__dlpack_device__()[0], 1)  # the host's memory
        with open("/proc/self/maps", encoding="ascii") as maps:
            ranges = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps if "trained.safetensors" in line]
        (begin, end), = ranges  # the mapping of this run, whose file has no name any more
        for name in arrays:
            self.assertTrue(begin <= state[name].data_ptr() < end, name)
        self.assertEqual(state["head.weight"].data_ptr(), state["embed.weight"].data_ptr())
        self.assertIs(state["counts"], trained.state_dict()["counts"])
        self.module.load_state_dict(state, assign=True)
        for name, parameter in self.module.named_parameters():
            self.assertEqual(parameter.data_ptr(), state[name].data_ptr(), name)
        del trained, arrays, state  # the module keeps the memory alive, and may change it
        with torch.no_grad():
            self.module.qkv[0].weight.mul_(2)
        self.assertTrue(math.isfinite(self.loss(self.module)))

    def test_a_tensor_need_not_be_contiguous(self):
        state = self.module.state_dict()
        strided = dict(state, **{"embed.weight": torch.stack([state["embed.weight"]] * 2, 2)[:, :, 0],
                                 "qkv.1.weight": state["qkv.1.weight"].t().contiguous().t(),
                                 "qkv.1.bias": state["qkv.1.bias"].new_ones(1).expand(WIDTH)})
        self.assertFalse(any(strided[name].is_contiguous() for name in ("embed.weight", "qkv.1.weight", "qkv.1.bias")))
        whole = {name: tensor.contiguous() for name, tensor in strided.items()}
        found, expected = self.train(strided).state_dict(), self.train(whole).state_dict()
        for name in state:
            self.assertTrue(torch.equal(found[name], expected[name]), name)
        tokens = self.tokens.t().contiguous().t()
        other = self.train(whole, data={"tokens": tokens, "targets": tokens}).state_dict()
        self.assertTrue(torch.equal(other["qkv.0.weight"], expected["qkv.0.weight"]))

    def test_bfloat16(self):
        module = Tied().to(torch.bfloat16)
        model = tessera.Model(module, (self.tokens, self.tokens))
        trained = self.train(module.state_dict(), model=model)
        state = trained.state_dict()
        for name in trained.parameters:
            self.assertEqual(state[name].dtype, torch.bfloat16, name)
        self.assertTrue(torch.equal(state["embed.weight"], module.state_dict()["embed.weight"]))
        module.load_state_dict(state, assign=True)
        self.assertLess(self.loss(module), trained["first_loss"] + 0.05)

    def test_a_family_has_the_names_of_its_graph(self):
        gpt = "gpt:layers=1,hidden=16,heads=2,seq=8,vocab=256"
        first = tessera.train(f'model = "{gpt}"\ndata = "random"\nbatch = 4\nsteps = 1\n', parameters=True)
        self.assertIn("blocks.0.attn.q.weight", first.parameters)
        again = tessera.train('data = "random"\nbatch = 4\nsteps = 1\n', model=gpt, state_dict=first.parameters)
        self.assertEqual({name: value.shape for name, value in again.state_dict().items()},
                         {name: value.shape for name, value in first.state_dict().items()})
        self.assertLess(again["first_loss"], first["first_loss"] + 0.5)
        with self.assertRaisesRegex(tessera.InputError, "parameters=True"):
            tessera.train(f'model = "{gpt}"\ndata = "random"\nbatch = 4\nsteps = 1\n').state_dict()

    def test_verifies_with_given_parameters_and_data(self):
        proof = tessera.verify(self.model, "megatron(tp=2)", state_dict=self.module.state_dict(), data=self.data)
        self.assertTrue(proof.ok)
        broken = dict(self.module.state_dict(), **{"qkv.2.bias": torch.full((WIDTH,), math.nan)})
        self.assertGreater(tessera.verify(self.model, "fsdp(2)", state_dict=broken).json["not_finite"], 0)

    def test_pickled_models_keep_their_state(self):
        model = pickle.loads(pickle.dumps(self.model))
        self.assertAlmostEqual(self.train(self.module.state_dict(), model=model)["first_loss"], self.loss(self.module), delta=1e-5)

    def test_refusals_are_one_line(self):
        state = self.module.state_dict()
        without = {name: tensor for name, tensor in state.items() if name != "qkv.0.bias"}
        for message, given in (
                ("state_dict: expected 'qkv.0.bias' [16], found none", without),
                ("state_dict: expected names of the model, found 'qkv.0.bais'; the nearest is 'qkv.0.bias'",
                 {**state, "qkv.0.bais": state["qkv.0.bias"]}),
                ("state_dict: 'qkv.0.weight': expected [16, 16], found [16, 2, 8]",
                 {**state, "qkv.0.weight": state["qkv.0.weight"].view(16, 2, 8)}),
                ("state_dict: 'qkv.0.bias': expected a tensor with __dlpack__, found list", {**state, "qkv.0.bias": [0.0] * 16}),
                ("state_dict: 'qkv.0.bias': expected elements of a dtype that models have, found DLPack's code 0 with 8 bits",
                 {**state, "qkv.0.bias": torch.zeros(16, dtype=torch.int8)})):
            with self.assertRaises(tessera.InputError) as caught:
                self.train(given)
            self.assertEqual(str(caught.exception), message)
        for message, data in (
                ("data: 'tokens': expected a dtype that NumPy has, found bfloat16", {"tokens": torch.zeros(4, dtype=torch.bfloat16)}),
                ("tokenz", {"tokenz": self.tokens, "targets": self.tokens})):
            with self.assertRaises(tessera.InputError) as caught:
                self.train(state, data=data)
            self.assertIn(message, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
