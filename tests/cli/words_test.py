"""The words that people use: models by name, folder and archive, clusters as devices, dtypes, strategies. How to run it: cli.py."""
import json
import os
import unittest

from cli import CliTest, MODEL, has_runtime, main, run

CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
          "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 32}
KINDS = ("a model is family:key=value, a config.json, .graph or .pt2, a folder with one, or a published name; "
         "tessera inspect --models")


class Models(CliTest):
    def spec(self, model, *options):
        return self.expect_json("inspect", model, "--json", *options)["model"]

    def folder_of_a_model(self):
        folder = os.path.join(self.folder, "Mine")
        os.mkdir(folder)
        self.write("Mine/config.json", json.dumps(CONFIG))
        return folder

    def test_every_planning_command_takes_the_same_names(self):
        name = "meta-llama/Meta-Llama-3-8B:layers=2,seq=128"
        long = self.spec(name)
        self.assertTrue(long.startswith("llama:layers=2,hidden=4096,heads=32,kv_heads=8,"), long)
        machine = ["--cluster", "dgx-a100:1", "--batch", "8"]
        self.assertEqual(self.expect_json("simulate", name, "--plan", "ddp(8)", *machine, "--json")["model"], long)
        self.assertEqual(self.expect_json("plan", "serial", "--model", name, "--json")["model"], long)
        self.assertEqual(self.expect_json("inspect", name, "--plan", "ddp(2)", "--json")["model"], long)
        found = self.expect_json("plan", name, *machine, "--evaluations", "1", "--planner", "megatron_grid", "--json")
        self.assertTrue(found["found"])
        exported = self.expect_json("export", name, "--plan", "fsdp(8,recompute=full)", "--to", "torchtitan", "--batch", "8", "--json")
        self.assertEqual(exported["model"], long)

    def test_folders_and_their_files_are_one_model(self):
        folder = self.folder_of_a_model()
        self.assertEqual(self.spec(folder), self.spec(os.path.join(folder, "config.json")))
        self.assertIn("seq=16,", self.spec(folder + ":seq=16"))
        text = self.expect_text("inspect", folder, "--text")
        graph = os.path.join(self.folder, "graph")
        os.mkdir(graph)
        self.write("graph/model.graph", text)
        self.assertEqual(self.spec(graph), os.path.join(graph, "model.graph"))

    def test_a_wrong_model_is_never_a_recipe(self):
        self.expect_error(2, f"unknown model 'lama-3-8b', did you mean 'llama-3-8b'? ({KINDS})",
                          "plan", "lama-3-8b", "--cluster", "dgx-a100:1", "--batch", "8")
        self.expect_error(2, f"no folder 'metal/Lamma-3-8B' and no published model of this name, did you mean 'llama-3-8b'? ({KINDS})",
                          "plan", "metal/Lamma-3-8B", "--cluster", "dgx-a100:1", "--batch", "8")
        self.expect_error(2, f"unknown model 'lama-3-8b', did you mean 'llama-3-8b'? ({KINDS})",
                          "simulate", "lama-3-8b", "--plan", "serial", "--cluster", "local")
        # With --model the subject is a recipe.
        self.expect_error(2, "unknown recipe 'megatrom', did you mean 'megatron'?", "plan", "megatrom(tp=2)", "--model", MODEL)

    def test_the_first_line_names_the_model_shortly(self):
        simulate = ["simulate", "Llama-3-8B:layers=2,seq=64", "--plan", "serial", "--cluster", "dgx-a100:1", "--batch", "1"]
        text = self.expect_text(*simulate)
        first = "Llama-3-8B: Llama, 2 layers, 1.49 B parameters under serial in bfloat16 on dgx-a100 (8 devices) (1 rank)\npriced with "
        self.assertTrue(text.startswith(first), text)
        # 128256 x 4096 twice, two blocks of 2 x 4096^2 + 2 x 4096 x 1024 + 3 x 4096 x 14336 + 2 x 4096, and 4096.
        count = 2 * 128256 * 4096 + 2 * (2 * 4096 ** 2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096) + 4096
        self.assertEqual(f"{count / 1e9:.2f}", "1.49")
        self.assertNotIn("qk_norm=", text)
        self.assertIn("qk_norm=", self.expect_text(*simulate, "--verbose"))

    def test_archives_that_need_their_weights_say_how(self):
        if has_runtime():
            self.expect_error(2, "x.pt2: this command needs the weights of an archive: tessera import x.pt2 --out FOLDER, then FOLDER "
                                 "is the model", "verify", "x.pt2", "--plan", "serial")
        else:
            print("the refusal by verify is skipped: this build has no runtime (libtorch)")
        answer = run("inspect", os.path.join(self.folder, "none.pt2"))
        self.assertEqual((answer.code, answer.err.count("\n")), (2, 1))
        self.assertIn("none.pt2", answer.err)


class Words(CliTest):
    def simulate(self, *options):
        return ["simulate", MODEL, "--plan", "ddp(8)", "--batch", "8", *options]

    def test_dtypes(self):
        for word, dtype in (("bf16", "bfloat16"), ("fp16", "float16"), ("FP32", "float32"), ("bfloat16", "bfloat16")):
            found = self.expect_json(*self.simulate("--cluster", "dgx-a100:1", "--precision", word, "--json"))
            self.assertEqual(found["precision"], dtype)
        answer = run(*self.simulate("--cluster", "dgx-a100:1", "--precision", "bf61"))
        self.assertEqual(answer.code, 2)
        self.assertEqual(answer.err, "tessera: simulate: --precision: expected one of float32, float64, bfloat16, float16, found 'bf61', "
                                     "did you mean 'bf16'? (tessera simulate --help)\n")

    def test_clusters_are_devices_and_the_answer_says_which_preset(self):
        same = self.expect_json(*self.simulate("--cluster", "dgx-h100:1", "--json"))
        for word in ("8xH100", "h100:8", "h100"):
            answer = self.expect_json(*self.simulate("--cluster", word, "--json"))
            self.assertEqual(answer["step_time_s"], same["step_time_s"])
            self.assertEqual(answer["notes"], [f"{word} is dgx-h100:1"])
        self.assertTrue(self.expect_text(*self.simulate("--cluster", "8xH100")).startswith("8xH100 is dgx-h100:1\n"))
        plan = self.expect_text("plan", MODEL, "--cluster", "2xA100", "--batch", "8", "--evaluations", "1", "--planner", "megatron_grid")
        self.assertTrue(plan.startswith("# 2xA100 is 2 of the 8 devices of a dgx-a100\n# GPT, 2 layers, 110 K parameters on dgx-a100 "
                                        "(2 devices), batch 8\n"), plan)
        self.expect_error(2, "cluster '12xH100': expected fewer than 8 devices or a multiple, for a dgx-h100 has 8, found 12",
                          *self.simulate("--cluster", "12xH100"))

    def test_what_words_were_taken_for_is_not_in_json_of_others(self):
        answer = run("plan", "gpt:layers=4,hidden=512,heads=8,seq=128,vocab=1024", "--cluster", "8xA100", "--for", "deepspeed")
        self.assertEqual(json.loads(answer.out)["train_batch_size"], 64)
        self.assertTrue(answer.err.startswith("8xA100 is dgx-a100:1\n") or "\n8xA100 is dgx-a100:1\n" in answer.err, answer.err)

    def test_strategies(self):
        for alias, recipe in (("ddp(8)", "data_parallel(8)"), ("zero3(8)", "zero(stage=3,dp=8)"), ("tp(4)", "tensor_parallel(4)"),
                              ("hsdp(4,2)", "fsdp(dp=4,replicas=2)"), ("fsdp(8)", "fsdp(8,prefetch=1)")):
            texts = [self.expect_text("plan", call, "--model", MODEL).split("\n", 1)[1] for call in (alias, recipe)]
            self.assertEqual(*texts)
        self.expect_error(2, "unknown recipe 'hsdpp', did you mean 'hsdp'?", "plan", "hsdpp(2)", "--model", MODEL)

    def test_degrees_of_sequences_and_experts_can_be_fixed(self):
        search = ["--cluster", "dgx-a100:1", "--batch", "8", "--evaluations", "12", "--json"]
        found = self.expect_json("plan", "llama:layers=2,hidden=64,heads=8,seq=64,vocab=128", *search, "--fix", "cp=2")
        self.assertRegex(found["best"]["choice"], r"cp=2\b|cp = 2")
        found = self.expect_json("plan", "mixtral:layers=2,hidden=64,heads=8,seq=64,vocab=128,experts=8", *search, "--fix", "ep=4")
        self.assertRegex(found["best"]["choice"], r"ep=4\b")
        self.expect_error(2, "plan: --fix cp=2: expected --planner auto, found planner 'megatron_grid', which leaves sequences whole",
                          "plan", MODEL, *search, "--fix", "cp=2", "--planner", "megatron_grid")


if __name__ == "__main__":
    main()
