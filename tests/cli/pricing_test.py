"""One price: the same plan on the same machine costs the same in every command that prices it. How to run it: cli.py."""
import csv
import json
import os
import re

from cli import CliTest, MODEL, ROOT, main, run

GPU = ["--cluster", "dgx-a100:1", "--batch", "16"]
CONSTANTS = "attention_efficiency=0.65,matmul_efficiency=0.84"  # of A100s, tessera/predict/data/constants.toml


class OnePrice(CliTest):
    def test_what_predict_explains_costs_the_same_under_simulate(self):
        with open(ROOT / "data/published-throughput.csv", encoding="utf-8") as file:
            head, *rows = list(csv.reader(file))
        at = {name: place for place, name in enumerate(head)}
        asked = [row for row in rows if row[at["n_gpus"]] == row[at["gpus_per_node"]] == "8" and row[at["gpu"]].startswith("A100")][::9][:3]
        self.assertEqual(len(asked), 3)
        path = os.path.join(self.folder, "rows.csv")
        with open(path, "w", encoding="utf-8") as file:
            csv.writer(file).writerows([head, *asked])
        for row in asked:
            text = self.expect_text("predict", path, "--explain", row[at["row_id"]])
            said = dict(re.findall(r"^(model|batch|cluster|style|changes|step) +(.*)$", text, re.MULTILINE))
            plan = self.write("plan.toml", text.split("\nplan\n", 1)[1])
            answer = run("simulate", said["model"], "--batch", said["batch"], "--cluster", said["cluster"].split()[0], "--style",
                         said["style"], "--plan", plan, "--json", *(["--what-if", said["changes"]] if "changes" in said else []))
            self.assertIn(answer.code, (0, 1), answer.err)
            self.assertEqual(f"{json.loads(answer.out)['step_time_s']:.6g}", said["step"].split()[0], row)

    def test_a_plan_that_was_found_costs_the_same_in_every_command(self):
        path, page = os.path.join(self.folder, "plan.toml"), os.path.join(self.folder, "page.html")
        for style in ([], ["--style", "megatron,overlap_gradients=false"]):
            answer = self.expect_json("plan", MODEL, *GPU, *style, "--evaluations", "4", "--json")
            plan = self.write("plan.toml", answer["text"])
            simulated = self.expect_json("simulate", MODEL, *GPU, "--plan", plan, "--json")
            self.assertEqual(simulated["step_time_s"], answer["best"]["step_time_s"])
            self.assertEqual((simulated["style"], simulated["precision"]), (answer["style"], answer["precision"]))
            self.expect_text("report", MODEL, *GPU, "--plan", plan, "-o", page)
        self.assertIn(f'style = "{style[1]}"\n', self.expect_text("plan", MODEL, *GPU, *style, "--evaluations", "4"))

    def test_the_answer_says_with_what_it_was_priced(self):
        def priced(plan, *options):
            found = self.expect_json("simulate", MODEL, "--batch", "16", "--plan", plan, "--json", *options)
            text = run("simulate", MODEL, "--batch", "16", "--plan", plan, *options).out
            self.assertIn(f"\npriced with {found['priced_with']}\n", text)
            return found["priced_with"]

        a100, v100 = ("--cluster", "dgx-a100:1"), ("--cluster", "dgx-v100:1")
        self.assertEqual(priced("zero(stage=1,dp=8)", *a100),
                         "style megatron-core (the plan can be exported to megatron), bfloat16 (the default on a100-sxm-80), constants of "
                         f"the machine {CONSTANTS}")
        self.assertEqual(priced("serial", "--cluster", "local:1"),
                         "style tessera (the default on processors), float32 (the default on core (constants, not measured))")
        self.assertEqual(priced("tesseract(2,2)", *a100, "--constants", "none"),
                         "style torchtitan (the default on GPUs; no framework runs this plan), bfloat16 (the default on a100-sxm-80)")
        self.assertEqual(priced("megatron(dp=8)", *v100, "--style", "megatron-2022"),
                         "style megatron-2022, float32 (the default on v100-sxm-32)")
        self.assertEqual(priced("megatron(dp=8,precision=float16)", *v100, "--style", "nemo"),
                         "style nemo, float16 (as the plan says)")

    def test_options_of_the_style_count_more_than_constants(self):
        large = "gpt:layers=1,hidden=4096,heads=32,seq=512,vocab=128"  # the device is slower than the host
        plain = self.expect_json("simulate", large, *GPU, "--plan", "megatron(dp=8)", "--style", "megatron", "--json")
        self.assertEqual(plain["style"], f"megatron-core,{','.join(reversed(CONSTANTS.split(',')))}")
        own = self.expect_json("simulate", large, *GPU, "--plan", "megatron(dp=8)", "--style", "megatron,matmul_efficiency=0.5", "--json")
        self.assertEqual(own["style"], "megatron-core,matmul_efficiency=0.5,attention_efficiency=0.65")
        self.assertGreater(own["step_time_s"], plain["step_time_s"])

    def test_constants_of_a_machine_hold_for_files_like_it(self):
        like = self.write("two.toml", 'name = "two"\n[[part]]\nlike = "dgx-a100"\nname = "two"\ndevices = 2\nnodes = 1\n')
        self.assertTrue(self.expect_json("simulate", MODEL, "--batch", "16", "--cluster", like, "--plan", "megatron(dp=2)",
                                         "--json")["priced_with"].endswith(CONSTANTS))
        mine = self.write("mine.toml", '[[constants]]\nkind = "assumption"\nreason = "a test"\nmachines = ["dgx-a100"]\n'
                                       "matmul_efficiency = 0.5\n")
        found = self.expect_json("simulate", MODEL, *GPU, "--plan", "megatron(dp=8)", "--constants", mine, "--json")
        self.assertTrue(found["priced_with"].endswith("constants of the machine matmul_efficiency=0.5"), found["priced_with"])

    def test_the_styles_are_listed_with_their_years(self):
        for command in ("simulate", "plan", "report", "export"):
            text = self.expect_text(command, "--list-styles")
            self.assertRegex(text, r"(?m)^megatron-core = megatron +2023 to today +\S")
            self.assertRegex(text, r"(?m)^megatron-2022 +2019 to 2022 +\S")

    def test_wrong_words_are_one_line(self):
        question = ["simulate", MODEL, *GPU, "--plan", "megatron(dp=8)"]
        answer = run(*question, "--style", "megatron-core2")
        self.assertEqual((answer.code, answer.out, answer.err.count("\n")), (2, "", 1))
        self.assertIn("found 'megatron-core2'; nearest: 'megatron-core'", answer.err)
        self.expect_error(2, "cannot read 'none.toml': No such file or directory", *question, "--constants", "none.toml")
        wrong = self.write("plan.toml", 'style = "torchtitam"\nmesh = { dp = 8 }\nsplit = [{ ops = "*", dim = "batch", over = "dp" }]\n')
        answer = run("simulate", MODEL, *GPU, "--plan", wrong)
        self.assertEqual((answer.code, answer.out, answer.err.count("\n")), (2, "", 1))
        self.assertIn("found 'torchtitam'; nearest: 'torchtitan'", answer.err)


if __name__ == "__main__":
    main()
