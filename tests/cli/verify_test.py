"""tessera verify, and graph files as models of each command. How to run it: cli.py."""
import array
import json
import math
import pathlib
import struct

from cli import ALL_CASES, MODEL, ROOT, RuntimeTest, main, run


class Verify(RuntimeTest):
    def test_json(self):
        answer = self.expect_json("verify", MODEL, "--plan", "megatron(tp=2,dp=2)", "--json")
        self.assertEqual(list(answer), ["max_rel_error", "bytes", "peak_memory_bytes", "ok"])
        self.assertEqual(list(answer["max_rel_error"]), ["loss", "gradients", "parameters"])
        for key in ("bytes", "peak_memory_bytes"):
            self.assertEqual(list(answer[key]), ["predicted", "counted"])
            self.assertEqual(answer[key]["predicted"], answer[key]["counted"])
        self.assertTrue(answer["ok"])
        self.assertTrue(all(error <= 1e-9 for error in answer["max_rel_error"].values()))

    def test_roundings_are_named_and_are_no_fault(self):
        """Norms over two numbers, and Adam without epsilon, which divides 0 by 0 where a gradient is 0."""
        model = ("verify", "resnet:layers=18,width=4,image=32,classes=5,ghost=2,eps=1e-12", "--plan", "data_parallel(2)", "--batch", "4")
        answer = self.expect_json(*model, "--json")
        self.assertEqual(list(answer), ["max_rel_error", "bytes", "peak_memory_bytes", "ok", "within_noise"])
        within = answer["within_noise"]
        self.assertEqual(list(within), ["tensors", "worst", "error", "noise"])
        self.assertTrue(1e-9 < within["error"] <= 10 * within["noise"])
        self.assertTrue(all(error <= 1e-9 for error in answer["max_rel_error"].values()))
        self.assertRegex(self.expect_text(*model), r"(?m)^within rounding: \d+ tensors? not counted above, since .*; most \S+, by \S+ "
                                                   r"\(serial runs by \S+\)$")
        answer = self.expect_json(*model, "--set", "optimizer.eps=0", "--json")
        self.assertGreater(answer["not_finite"], 0)
        self.assertTrue(answer["ok"])

    def test_parts_and_shares_that_cross_between_two_meshes(self):
        batch, k_over_d = '{ ops = "*", dim = "batch", over = "h" }', '{ ops = "layers.1.linear", dim = "hidden", over = "d" }'
        cases = [
            ("h = 2, d = 2", "h = 2, d = 2", [k_over_d, batch]),  # parts, to the same mesh
            ("h = 2, d = 2", "i = 3, e = 2", [k_over_d, '{ ops = "{layers.1.act,layers.2}", dim = "batch", over = "i" }']),
            ("d = 3", "i = 2, e = 2", [k_over_d]),                # whole over two axes
            # Held in pieces over d, needed in pieces over h.
            ("h = 2, d = 2", "h = 2, d = 2", ['{ ops = "layers.1.linear", dim = "ffn", over = "d" }',
                                              '{ ops = "layers.1.act", dim = "ffn", over = "h" }']),
        ]
        for first, second, splits in cases if ALL_CASES else cases[1:2]:
            with self.subTest(first=first, second=second, splits=splits):
                plan = self.write("meshes.toml", f"""stage = [
  {{ ops = "{{layers.0,layers.1.linear}}", at = 0, mesh = {{ {first} }} }},
  {{ ops = "{{layers.1.act,layers.2,head,loss}}", at = 1, mesh = {{ {second} }} }},
]
split = [ {", ".join(splits)} ]
""")
                answer = self.expect_json("verify", "mlp:layers=3,in=12,hidden=600,out=5", "--plan", plan, "--batch", "120", "--json")
                self.assertTrue(answer["ok"])
                self.assertEqual(answer["bytes"]["predicted"], answer["bytes"]["counted"])

    def test_sparse_products_under_splits_of_rows_and_features(self):
        """Rows of up to 7 of 9 edges, of which samples of 3 are taken by the row's number in the whole graph."""
        graph = self.write("sparse.graph", """graph "sparse"
input %x [batch=8, in=4] float32
input %end [batch=8] int64
input %columns [e=9] int64
buffer %begin [batch=8] int64 init=zeros
parameter %w [in=4, h=6] float32 init=normal(0.5)
parameter %values [e=9] float32 init=normal(1)
activation %up [batch=8, h=6] float32
activation %y [batch=8, h=6] float32
activation %z [batch=8, h=6] float32
activation %squares [batch=8, h=6] float32
activation %loss [] float32
forward op "up" %up = einsum(%x, %w) {spec="batch in+, in h -> batch h"}
forward op "aggregate" %y = spmm(%begin, %end, %columns, %up, %values) {reduce="mean", sampler="permutation", width=3, seed=3}
forward op "add" %z = add(%y, %up)
forward op "square" %squares = mul(%z, %z)
forward op "loss" %loss = reduce_sum(%squares) {dims="batch h", factor=0.1}
loss %loss
""")
        for splits in (['{ ops = "*", dim = "batch", over = "a" }'], ['{ ops = "*", dim = "h", over = "a" }'],
                       ['{ ops = "*", dim = "batch", over = "a" }', '{ ops = "*", dim = "h", over = "b" }'])[0 if ALL_CASES else 2:]:
            with self.subTest(splits=splits):
                plan = self.write("sparse.toml", f"mesh = {{ a = 2, b = 2 }}\nsplit = [ {', '.join(splits)} ]\n")
                answer = self.expect_json("verify", graph, "--plan", plan, "--json")
                self.assertTrue(answer["ok"])
                self.assertGreater(answer["bytes"]["counted"], 0)
                self.assertEqual(answer["bytes"]["predicted"], answer["bytes"]["counted"])

    def test_a_plan_that_is_not_equal_to_zero_tolerance_ends_with_1(self):
        answer = run("verify", MODEL, "--plan", "data_parallel(2)", "--tolerance", "0")
        self.assertEqual(answer.code, 1)
        self.assertRegex(answer.err, r"^tessera: verify: not equal: [^\n]+\n$")

    def test_both_runs_begin_with_given_weights(self):
        """NaN in the weights shows in the serial run, and the plan has it in the same places."""
        model = ("verify", "mlp:layers=1,in=4,hidden=8,out=3", "--plan", "data_parallel(2)", "--json")
        shapes = {"layers.0.linear.weight": [4, 8], "layers.0.linear.bias": [8], "head.weight": [8, 3], "head.bias": [3]}

        def weights(value, **others):
            header, data = {}, b""
            for name, shape in {**shapes, **others}.items():
                values = array.array("f", [value] * math.prod(shape)).tobytes()
                header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
                data += values
            text = json.dumps(header).encode()
            path = pathlib.Path(self.folder, "w.safetensors")
            path.write_bytes(struct.pack("<Q", len(text)) + text + data)
            return str(path)
        self.assertNotIn("not_finite", self.expect_json(*model, "--weights", weights(0.5)))
        self.assertGreater(self.expect_json(*model, "--weights", weights(math.nan))["not_finite"], 0)
        path = weights(0.5, **{"head.bias": [4]})
        self.expect_error(2, f"verify: weights '{path}': expected the shape [3] of 'head.bias', found [4]", *model, "--weights", path)

    def test_whole_experts_over_tensor_ranks(self):
        model = "mixtral:layers=2,hidden=32,heads=4,seq=8,vocab=32,experts=8"
        for plan in ("expert_parallel(ep=2,tp=2,experts_over_tp=true)", "expert_parallel(ep=1,tp=4,experts_over_tp=true)",
                     "expert_parallel(ep=2,dp=2,tp=2,zero=1,sequence_shard=true,experts_over_tp=true)")[0 if ALL_CASES else 2:]:
            self.assertIn("equal: the plan computes what the serial plan computes",
                          self.expect_text("verify", model, "--plan", plan, "--batch", "8"))

    def test_a_mesh_larger_than_the_ranks(self):
        self.expect_error(2, "data_parallel(4): its mesh {dp=4} needs 4 ranks, found 2 (--ranks)",
                          "verify", MODEL, "--plan", "data_parallel(4)", "--ranks", "2")


class GraphFile(RuntimeTest):
    """A graph in text form as MODEL; the example is that of docs/guides/bring-your-model.md."""
    def setUp(self):
        super().setUp()
        page = (ROOT / "docs/guides/bring-your-model.md").read_text(encoding="utf-8")
        self.graph = self.write("my.graph", page.split("Save this as `my.graph`:\n```\n", 1)[1].split("```", 1)[0])

    def test_each_command_takes_it(self):
        plan = "gpipe(pp=2,micro_batches=4)"
        found = self.expect_json("inspect", self.graph, "--json")
        self.assertEqual((found["model"], found["batch"]), (self.graph, 8))
        self.assertIn("parameters ", run("inspect", self.graph).out)
        text = self.expect_text("plan", plan, "--model", self.graph)
        self.assertIn('{first,layer.0}', text)
        self.assertIn('{layer.1,head,loss}', text)
        self.assertTrue(self.expect_json("verify", self.graph, "--plan", plan, "--json")["ok"])
        self.assertTrue(self.expect_json("verify", self.graph, "--plan", "zero(stage=3,dp=4)", "--optimizer", "lamb", "--json")["ok"])
        self.assertTrue(self.expect_json("verify", self.graph, "--plan", "zero(stage=3,dp=2)", "--optimizer", "muon",
                                         "--set", "optimizer.nesterov=1", "--set",
                                         'optimizer.group=[{parameters="first.w",kind="sgd",rate=0.5}]', "--json")["ok"])
        self.assertTrue(self.expect_json("verify", self.graph, "--plan", "zero(stage=3,dp=2)", "--optimizer", "muon,first.w=sgd",
                                         "--json")["ok"])
        self.expect_error(2, "optimizer: unknown 'lambs', did you mean 'lamb'? (adafactor, adagrad, adamw, lamb, lars, lion, muon, "
                          "row_adam, row_sgd, rowwise_adagrad, sgd)",
                          "verify", self.graph, "--plan", "zero(stage=3,dp=2)", "--optimizer", "lambs")
        self.expect_error(2, "--set: expected a key optimizer.<...>, found 'seed=2'",
                          "verify", self.graph, "--plan", "serial", "--set", "seed=2")
        self.assertEqual(self.expect_json("simulate", self.graph, "--plan", plan, "--cluster", "dgx-a100:1", "--json")["batch"], 8)
        run_file = self.write("run.toml", f'model = "{self.graph}"\ndata = "random"\nsteps = 2\nplan = "{plan}"\noptimizer = "lamb"\n')
        lines = [json.loads(line) for line in self.expect_text("train", run_file, "--json").splitlines()]
        self.assertEqual([line["step"] for line in lines if "step" in line], [1, 2])

    def test_a_printed_model_trains_as_the_model_itself(self):
        spec = "gpt:layers=1,hidden=16,heads=2,seq=8,vocab=256"
        printed = self.write("gpt.graph", self.expect_text("inspect", spec, "--batch", "4", "--text"))
        losses = []
        for model in (spec, printed):
            run_file = self.write("run.toml", f'model = "{model}"\ndata = "{ROOT}/README.md"\nsteps = 2\nbatch = 4\n')
            lines = [json.loads(line) for line in self.expect_text("train", run_file, "--json").splitlines()]
            losses.append([line["loss"] for line in lines if "loss" in line])
        self.assertEqual(*losses)

    def test_errors_name_file_and_line(self):
        bad = self.write("bad.graph", "graph \"bad\"\ninput %x [batch=2] float32\nloss %y\n")
        self.expect_error(2, f"{bad}:3: tensor 'y' is not declared above", "inspect", bad)
        self.expect_error(2, f"{self.graph}: expected --batch 8, the size of the dim 'batch' that the file fixes, found 16",
                          "verify", self.graph, "--plan", "serial", "--batch", "16")


if __name__ == "__main__":
    main()
