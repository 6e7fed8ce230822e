"""tessera plan: recipes, and the plans of the examples. How to run it: cli.py."""
import os
import re

from cli import CliTest, MODEL, ROOT, main, run


class PlanCommand(CliTest):
    def test_list(self):
        text = self.expect_text("plan", "--list")
        lines = text.split("\n\n")[0].splitlines()
        self.assertEqual(len(lines), len(self.expect_json("plan", "--list", "--json")["recipes"]))  # a line a recipe
        self.assertIn("data_parallel       batch over ranks; gradients are summed (also ddp, dp)", lines)
        one = self.expect_text("plan", "--list", "megatron")
        self.assertIn("megatron(tp=1, pp=1, dp=1, zero=0, micro_batches=1, schedule=1f1b, chunks=1, recompute=none, "
                      "sequence_shard=false, cp=1, order=zigzag, precision=float32)\n", one)
        self.assertIn("      zero           = 0 ", one)
        self.assertTrue(self.expect_text("plan", "--list", "hsdp").startswith("fsdp(dp, replicas=1, "))
        self.expect_error(2, "unknown recipe 'dppp', did you mean 'ddp'?", "plan", "--list", "dppp")
        recipes = self.expect_json("plan", "--list", "--json")["recipes"]
        self.assertLessEqual({"serial", "data_parallel", "zero", "tensor_parallel", "gpipe", "one_f_one_b", "pipeline", "megatron",
                              "summa", "cannon", "tesseract", "tensor_parallel_3d", "fsdp", "per_layer", "per_op",
                              "recompute", "ring_attention", "rsa", "ulysses",
                              "ring_ulysses"}, {recipe["name"] for recipe in recipes})
        zero = next(recipe for recipe in recipes if recipe["name"] == "zero")
        self.assertEqual(list(zero), ["name", "summary", "arguments"])
        self.assertEqual(zero["arguments"][0], {"name": "stage", "default": None, "meaning": "1, 2 or 3"})

    def test_the_pages_on_strategies_show_what_recipes_emit(self):
        shown = 0
        for page in sorted((ROOT / "docs" / "strategies").glob("*.md")):
            pattern = r"`([a-z_0-9]+\([^`]*\))`([^\n]*) emits[^\n]*\n```toml\n(.*?)```"
            for call, on, text in re.findall(pattern, page.read_text(), re.DOTALL):
                named = re.search(r"`([a-z0-9]+:[^`]*)`", on)
                layers = "layers=4" if "four layers" in on else "layers=2"
                model = named.group(1) if named else MODEL.replace("layers=2", layers)
                emitted = self.expect_text("plan", call, "--model", model)
                self.assertEqual(emitted.split("\n", 1)[1].strip(), text.strip(), f"{page.name}: {call}")
                shown += 1
        self.assertGreaterEqual(shown, 12)

    def test_each_recipe_is_on_a_page_of_strategies(self):
        pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "strategies").glob("*.md") if page.name != "README.md"]
        listed = (ROOT / "docs" / "strategies" / "README.md").read_text(encoding="utf-8")
        for recipe in self.expect_json("plan", "--list", "--json")["recipes"]:
            call = f"`{recipe['name']}("
            self.assertIn(call, listed, "docs/strategies/README.md")
            self.assertTrue(any(call in page or f"'{call[1:]}" in page or f'"{call[1:]}' in page for page in pages),
                            f"no page of docs/strategies shows a call of {recipe['name']}")

    def test_a_recipe_emits_the_plan_of_the_examples(self):
        path = os.path.join(self.folder, "plan.toml")
        answer = run("plan", "megatron(tp=2,dp=2)", "--model", MODEL, "--out", path)
        self.assertEqual((answer.code, answer.out, answer.err), (0, "", ""))
        canonical = lambda file: self.expect_json("inspect", file, "--json")["text"]
        self.assertEqual(canonical(path), canonical("examples/plans/tp2_dp2.toml"))

    def test_an_order_of_devices_lays_axes_inside_nodes(self):
        def axes(order):
            found = self.expect_json("inspect", MODEL, "--plan", f"summa(4{order})", "--cluster", "dgx-a100:2", "--json")
            return [(axis["axis"], axis["nodes"], axis["members_a_node"], axis["inside_node"]) for axis in found["axes"]]
        self.assertEqual(axes(""), [("row", 2, 2, False), ("col", 1, 4, True)])
        self.assertEqual(axes(',device_order="col,row"'), [("row", 1, 4, True), ("col", 2, 2, False)])
        text = run("inspect", MODEL, "--plan", 'summa(4,device_order="row,col:2")', "--cluster", "dgx-a100:2").out
        self.assertIn('Order of devices: ["row", "col:2"]', text)
        self.assertIn("inside a node", text)
        self.expect_error(2, "inspect: --cluster needs --plan", "inspect", MODEL, "--cluster", "dgx-a100:2")
        self.expect_error(2, "cluster 'dgx-a100': expected at least 16 devices for the plan's ranks, found 8",
                          "inspect", MODEL, "--plan", "summa(4)", "--cluster", "dgx-a100:1")

    def test_what_is_missing_is_said(self):
        self.expect_error(2, "plan: expected a model with --cluster, or a recipe call with --model, or "
                             "--list (tessera plan --help)", "plan")
        self.expect_error(2, "plan: expected --model for 'serial': recipes read sizes from the model", "plan", "serial")

    def test_a_batch_is_assumed_and_said(self):
        text = self.expect_text("plan", MODEL, "--cluster", "dgx-a100:1", "--evaluations", "1", "--fix", "devices=1")
        self.assertIn("batch 64 (8 a device, as none is given)\n", text.splitlines(True)[0])


if __name__ == "__main__":
    main()
