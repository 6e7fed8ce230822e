"""tessera inspect: models, plans, programs, clusters, resharding. How to run it: cli.py."""
import json
import re

from cli import CliTest, MODEL, ROOT, main, program, run


class BadModels(CliTest):
    def test_unknown_key(self):
        answer = run("inspect", "gpt:layer=2")
        self.assertEqual((answer.code, answer.out), (2, ""))
        self.assertRegex(answer.err, r"^tessera: model 'gpt': unknown key 'layer', did you mean 'layers'\? "
                                     r"\(keys: layers, hidden, .*\)\n$")

    def test_heads_that_do_not_divide_hidden(self):
        self.expect_error(2, "model 'gpt': hidden=64 must be a multiple of heads=5", "inspect", "gpt:hidden=64,heads=5")

    def test_unknown_family(self):
        self.expect_error(2, "unknown model 'gptt', did you mean 'gpt'? (a model is family:key=value, a config.json, .graph or "
                             ".pt2, a folder with one, or a published name; tessera inspect --models)", "inspect", "gptt:layers=2")

    def test_a_family_in_the_place_of_a_recipe(self):
        for family in self.expect_json("inspect", "--models", "--json")["families"]:
            self.expect_error(2, "plan: expected --cluster, the machine for which a plan is wanted (dgx-a100:8, local)",
                              "plan", family["name"])


class ModelList(CliTest):
    def test_lists_every_key_with_its_default_and_meaning(self):
        text = self.expect_text("inspect", "--models")
        for family in self.expect_json("inspect", "--models", "--json")["families"]:
            self.assertIn(f"\n{family['name']}: {family['summary']}\n", text)
            for key in family["keys"]:
                self.assertRegex(text, rf"(?m)^  {key['name']} +{re.escape(key['default'])} +{re.escape(key['meaning'])}")

    def test_examples_are_models(self):
        for family in self.expect_json("inspect", "--models", "--json")["families"]:
            self.assertEqual(self.expect_json("inspect", family["examples"][0], "--json")["model"].split(":")[0], family["name"])


class Inspect(CliTest):
    def test_a_model(self):
        text = self.expect_text("inspect", MODEL)
        self.assertRegex(text, r"(?m)^parameters  110,336 \(0\.42 MiB\)$")
        answer = self.expect_json("inspect", MODEL, "--json", "--batch", "4")
        self.assertEqual(list(answer), ["model", "title", "batch", "seq", "vocab", "parameters", "trained_parameters", "parameter_bytes",
                                        "tensors", "ops", "flops"])
        self.assertEqual((answer["parameters"], answer["batch"]), (110336, 4))
        self.assertEqual(list(answer["flops"]), ["forward", "backward", "update"])
        self.assertTrue(self.expect_text("inspect", MODEL, "--text").startswith("graph "))

    def test_published_parameter_counts(self):
        for model, parameters in (("gpt:", 124439808), ("llama:", 6738415616),
                                  ("llama:kv_heads=8,ffn=14336,vocab=128256,theta=5e5,seq=8192", 8030261248)):
            self.assertEqual(self.expect_json("inspect", model, "--batch", "1", "--json")["parameters"], parameters)

    def test_a_plan_file_alone_is_its_canonical_text(self):
        path = self.write("p.toml", 'mesh = { b = 2, a = 3 }\nmicro_batches = 1 # one\n')
        text = self.expect_text("inspect", path)
        self.assertEqual(text, f"# {path}: 6 ranks, 1 micro-batch (--model shows what they do)\nmesh = {{ b = 2, a = 3 }}\n")
        answer = self.expect_json("inspect", path, "--json")
        self.assertEqual((answer["ranks"], answer["mesh"]), (6, {"b": 2, "a": 3}))
        self.expect_error(2, "inspect: expected --model for 'zero(1,2)': recipes read sizes from the model",
                          "inspect", "zero(1,2)")

    def test_roles(self):
        answer = self.expect_json("inspect", MODEL, "--plan", "megatron(tp=2,pp=2,dp=2,zero=1,micro_batches=4)", "--json")
        self.assertEqual((answer["ranks"], answer["micro_batches"], answer["batch"]), (8, 4, 8))
        self.assertEqual([role["stage"] for role in answer["roles"]], [0, 1])
        self.assertEqual(sum(role["ranks"] for role in answer["roles"]), 8)
        for role in answer["roles"]:
            self.assertEqual(list(role["instructions"]),
                             ["compute", "collective", "send", "receive", "wait", "copy", "load", "free"])
            self.assertGreater(role["peak_memory_bytes"], 0)
            self.assertIn("all_reduce", role["bytes_sent"])
        swapped = self.expect_json("inspect", "megatron(tp=2,pp=2,dp=2,zero=1,micro_batches=4)", "--model", MODEL, "--json")
        self.assertEqual(swapped, answer)

    def test_sixteen_thousand_ranks(self):
        text = self.expect_text("inspect", "gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=51200", "--plan",
                                "megatron(tp=8,pp=16,dp=128,zero=1,micro_batches=64)")
        self.assertIn("16,384 ranks, 16 stages, 64 micro-batches\n"
                      "batch 8,192 (default: one sequence a replica and micro-batch)", text)

    def test_sixteen_thousand_ranks_in_chunks_and_rings(self):
        text = self.expect_text("inspect", "gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=51200", "--plan",
                                "megatron(tp=8,pp=16,dp=64,cp=2,sequence_shard=true,chunks=2,zero=1,schedule=interleaved,micro_batches=32)")
        self.assertIn("16,384 ranks, 32 stages, 32 micro-batches\n", text)

    def test_an_op_names_the_entries_that_decided(self):
        path = self.write("p.toml", 'mesh = { dp = 2 }\nsplit = [\n  { ops = "*", dim = "batch", over = "dp" },\n]\n'
                                    'store = [\n  { tensors = "role:parameter", over = "dp" },\n]\n')
        text = self.expect_text("inspect", MODEL, "--plan", path, "--op", "blocks.0.mlp.up")
        self.assertIn(f'  batch (2): over dp=2, by {path}:3 (ops = "*")\n', text)
        self.assertIn(f'  stored over dp, by {path}:6 (tensors = "role:parameter")\n', text)
        self.expect_error(2, "inspect: no op matches 'blocks.0.mpl', did you mean 'blocks.0.mlp'?",
                          "inspect", MODEL, "--plan", path, "--op", "blocks.0.mpl")

    def test_ranks_that_hold_the_steps_of_a_loop_are_one_role(self):
        answer = self.expect_json("inspect", "gpt:layers=8,hidden=12288,heads=96,seq=2048,vocab=51200", "--plan",
                                  "tesseract(16,4,pp=4,dp=4,zero=2,micro_batches=16,schedule=zb_v)", "--json")
        self.assertEqual([2048] * 8, [role["ranks"] for role in answer["roles"]])

    def test_ops_that_an_entry_leaves_whole_are_listed_with_the_reason(self):
        path = self.write("p.toml", 'mesh = { dp = 2 }\nsplit = [\n  { ops = "*", dim = "head_dim", over = "dp" },\n]\n')
        model = "gpt:layers=4,hidden=32,heads=4,seq=16,vocab=64"
        text = self.expect_text("inspect", model, "--plan", path)
        self.assertIn(f"""\nNot split though an entry selects them:\n{path}:3 (ops = "*", dim = "head_dim") leaves 4 ops whole, """
                      "as the kind 'attention' freezes it: blocks.0.attn.core, blocks.1.attn.core and 2 more\n", text)
        answer = self.expect_json("inspect", model, "--plan", path, "--json")
        self.assertEqual([4], [len(one["ops"]) for one in answer["left_whole"]])
        text = self.expect_text("inspect", model, "--plan", path, "--op", "blocks.0.attn.core")
        self.assertIn(f"""  head_dim (8): not split though {path}:3 (ops = "*") names it: the kind 'attention' freezes it\n""", text)
        text = self.expect_text("inspect", model, "--plan", path, "--op", "blocks.0.attn.core.grad")
        self.assertIn("  head_dim (8): not split, as in 'blocks.0.attn.core'\n", text)
        text = self.expect_text("inspect", MODEL, "--plan", "zero(stage=1,dp=2)")
        self.assertNotIn("Not split", text)

    def test_a_rank_s_program_parses_back_and_is_verified(self):
        plan = ["--plan", "zero(stage=2,dp=2)"]
        program = self.expect_text("inspect", MODEL, *plan, "--rank", "1")
        path = self.write("rank1.program", program)
        text = self.expect_text("inspect", path, "--model", MODEL, *plan)
        self.assertRegex(text, r"rank 1 of 2, \d+ instructions, .*: accepted\n$")
        damaged = self.write("damaged.program", re.sub(r"\n[^\n]*wait #1\b[^\n]*", "", program, count=1))
        answer = run("inspect", damaged, "--model", MODEL, *plan)
        self.assertEqual(answer.code, 1)
        self.assertRegex(answer.err, r"^tessera: .*damaged\.program: \w+: rank 1, [^\n]*\n$")
        self.expect_error(2, "inspect: a program needs --model and --plan, which say what it must compute",
                          "inspect", path)
        self.expect_error(2, "expected a rank from 0 to 1, found 2 (--rank)", "inspect", MODEL, *plan, "--rank", "2")

    def test_places_and_decisions_print(self):
        plan = ["--plan", "gpipe(2,4)"]
        text = self.expect_text("inspect", MODEL, *plan, "--place", "1")
        self.assertTrue(text.startswith("place 1\nmesh 0 from 0 axes ["))
        self.assertRegex(text, r"\n  recv #\d+ tag \d+ \"[^\n]* from 0 %\d+\[")
        answer = self.expect_json("inspect", MODEL, *plan, "--place", "1", "--json")
        self.assertEqual(answer, {"place": 1, "places": 2, "text": text})
        decisions = self.expect_text("inspect", MODEL, *plan, "--decisions")
        self.assertRegex(decisions, r"\n  brought at place 1 in forward@1, each micro-batch: from place 0 to \[batch: -")
        self.expect_error(2, "expected a place from 0 to 1, found 2 (--place)", "inspect", MODEL, *plan, "--place", "2")
        self.expect_error(2, "inspect: --place needs --plan", "inspect", MODEL, "--place", "0")
        self.expect_error(2, "inspect: --decisions needs --plan", "inspect", MODEL, "--decisions")


class Resharding(CliTest):
    """The last row of the worked table in docs/strategies/cross-mesh.md: the order decides, and the optimum is known."""

    def test_the_plan_and_its_bounds(self):
        found = self.expect_json("inspect", "S0RR@2x4 -> S0RR@3x4", "--shape", "3072,1024,170", "--json")
        self.assertEqual(found["unit_tasks"], 4)
        self.assertAlmostEqual(found["time"], 0.5, delta=0.01)
        self.assertLessEqual(found["busiest_card_bytes"], 1.1 * found["busiest_card_bound_bytes"])
        self.assertIn("unit tasks", self.expect_text("inspect", "RR@2x4 -> S0R@2x4", "--shape", "8,8"))

    def test_what_is_missing_or_wrong(self):
        self.expect_error(2, "inspect: expected --shape for 'RR@2x4 -> S0R@2x4', the sizes of the tensor's dims, as "
                             "1024,1024,512", "inspect", "RR@2x4 -> S0R@2x4")
        self.expect_error(2, "inspect: --shape belongs to a resharding, as 'S0RR@2x4 -> S0RR@3x4'",
                          "inspect", MODEL, "--shape", "8")
        answer = run("inspect", "RQ@2x4 -> S0R@2x4", "--shape", "8,8")
        self.assertEqual((answer.code, answer.out, answer.err.count("\n")), (2, "", 1))


class Paths(CliTest):
    """Two layouts on one mesh. Costs: docs/theory/superscaler.md section 6, (128, 256) on four ranks."""

    def steps(self, path, mesh, *more):
        found = self.expect_json("inspect", path, "--mesh", mesh, "--shape", "128,256", "--json", *more)
        return [(step["what"], step["axes"], step["to"], step["bytes"] // 4) for step in found["steps"]]

    def test_the_worked_costs(self):
        self.assertEqual(self.steps("S0R -> RS0", "4"), [("all_to_all", [0], "RS0", 6144)])
        self.assertEqual(self.steps("RRP0 -> RR", "4"), [("all_reduce", [0], "RR", 49152)])
        self.assertEqual(self.steps("S0R -> RR", "4"), [("all_gather", [0], "RR", 24576)])
        self.assertEqual(self.steps("S0S1 -> S0R", "2x2"), [("all_gather", [1], "S0R", 8192)])
        self.assertEqual([step[0] for step in self.steps("S1R -> RS01", "2x2")], ["slice", "all_to_all"])
        self.assertEqual(sum(step[3] for step in self.steps("RRP01 -> S0S1", "2x2")), 16384 + 8192)
        self.assertEqual(self.steps("S0R -> S0R", "2x4"), [])

    def test_the_table_and_its_price(self):
        text = self.expect_text("inspect", "S0R -> RS0", "--mesh", "2x4")
        self.assertEqual(text, """S0R -> RS0 on 2x4

step        what  axes  ranks  from   to  a rank sends, of the tensor
0     all_to_all     0      2   S0R  RS0                         0.25

A rank sends 0.25 of the tensor in all.
""")
        text = self.expect_text("inspect", "S01R -> RR", "--mesh", "2x4", "--shape", "1024,1024", "--precision", "bfloat16")
        self.assertIn("S01R -> RR on 2x4, a tensor of 1024 x 1024 bfloat16, 2.00 MiB\n", text)
        self.assertIn("A rank sends 1.75 MiB in all.\n", text)
        self.assertIn("Nothing moves", self.expect_text("inspect", "RS1 -> RS1", "--mesh", "2x4"))

    def test_a_cluster_makes_seconds_and_slow_links_make_more(self):
        def seconds(path, cluster):
            found = self.expect_json("inspect", path, "--mesh", "2x8", "--shape", "8192,8192", "--cluster", cluster, "--json")
            self.assertAlmostEqual(found["seconds"], sum(step["seconds"] for step in found["steps"]))
            return found["seconds"]

        inside, across = seconds("S1R -> RR", "dgx-a100:2"), seconds("S0R -> RR", "dgx-a100:2")
        self.assertGreater(inside, 0)
        self.assertGreater(across, inside / 2)
        self.assertGreater(seconds("S0R -> RR", "a10g:2"), across)
        text = self.expect_text("inspect", "S1R -> RR", "--mesh", "2x8", "--shape", "8192,8192", "--cluster", "dgx-a100:2")
        self.assertRegex(text, r"(?m)^0 +all_gather +1 +8 +S1R +RR +0\.22 GiB +[0-9.]+ [mu]s +[a-z/]+$")
        self.assertIn("the steps take", text)

    def test_what_is_missing_or_wrong(self):
        self.expect_error(2, "inspect: expected --mesh for 'S0R -> RS0', as 2x4; or both sides with their meshes, as S0R@2x4",
                          "inspect", "S0R -> RS0")
        self.expect_error(2, "inspect: --mesh belongs to a path on one mesh, as 'S0R -> RS0'",
                          "inspect", "S0R@2x4 -> RS0@2x4", "--shape", "8,8", "--mesh", "2x4")
        self.expect_error(2, "inspect: --mesh belongs to a path on one mesh, as 'S0R -> RS0'", "inspect", MODEL, "--mesh", "2")
        self.expect_error(2, "layout 'S2R' on mesh 2x4: expected axes from 0 to 1, such as S0R",
                          "inspect", "S2R -> RR", "--mesh", "2x4")
        self.expect_error(2, "layout 'S0S0' on mesh 2x4: expected each axis once, behind an S or P, such as S0R",
                          "inspect", "S0S0 -> RR", "--mesh", "2x4")
        self.expect_error(2, "layout 'RRR' on mesh 2x4: expected 2 dims, found 3, such as S0R",
                          "inspect", "S0R -> RRR", "--mesh", "2x4")
        self.expect_error(2, "layout 'RRP0': expected no parts of a sum, or those of 'S0R': nothing makes parts of a value",
                          "inspect", "S0R -> RRP0", "--mesh", "2x4")
        self.expect_error(2, "mesh '2y4': expected 1 to 4 sizes with x between them, of at most 65536 ranks together, such "
                             "as 2x4", "inspect", "S0R -> RS0", "--mesh", "2y4")
        self.expect_error(2, "inspect: expected --shape beside --cluster for 'S0R -> RS0', the sizes of the tensor's dims, as "
                             "1024,1024", "inspect", "S0R -> RS0", "--mesh", "2x4", "--cluster", "dgx-a100:1")
        self.expect_error(2, "mesh of 16 ranks: expected at most 8, the devices of dgx-a100", "inspect", "S0R -> RS0", "--mesh",
                          "2x8", "--shape", "64,64", "--cluster", "dgx-a100:1")


class Clusters(CliTest):
    def test_a_cube_of_links_is_no_switch(self):
        for preset in ("p3.16xlarge", "dgx-v100", "dgx-p100"):
            self.assertIn("a hybrid cube mesh: collectives as measured on it, one link a message\n",
                          self.expect_text("inspect", preset + ":1"))
        self.assertIn("a switch: all devices at full rate\n", self.expect_text("inspect", "dgx-a100:1"))
        self.assertIn("one 25 Gb/s network card", self.expect_text("inspect", "--list-clusters"))

    def test_a_preset_is_drawn(self):
        text = self.expect_text("inspect", "dgx-a100:40")
        self.assertTrue(text.startswith("dgx-a100: 40 nodes, 320 devices, 25600 GiB of device memory\n"))
        self.assertIn("dgx-a100: 40 nodes, devices 0 to 319\n", text)
        self.assertRegex(text, r"(?m)^   \[ 0 \]  .*\[ 7 \] +8 x a100-sxm-80$")
        self.assertRegex(text, r"(?m)^  =+  +a switch: all devices at full rate$")
        self.assertRegex(text, r"(?m) 8 NICs 25 GB/s, 12 us, together 200 GB/s$")
        self.assertIn("network of 40 nodes, rail-aligned: NIC i of a node on leaf i\n  tier 1: joins all, 1 us a hop\n"
                      "    tier 0: a switch for 20 nodes (full rate upwards), 600 ns a hop\n", text)
        self.assertRegex(text, r"(?m)^  bf16 +312 TFLOP/s +312 TFLOP/s$")
        self.assertNotRegex(text, r"(?m) $")

    def test_shared_links_sockets_and_many_devices(self):
        self.assertRegex(self.expect_text("inspect", "rtx5000"), r"(?m)^  =+//=+  +a switch.*\n +// 2 sockets, qpi 16 GB/s")
        self.assertRegex(self.expect_text("inspect", "local:2"), r"(?m)^  -+  +one link that the devices share$")
        self.assertIn("[ 5 ]   ...   [71 ]", self.expect_text("inspect", "gb200-nvl72"))

    def test_json(self):
        answer = self.expect_json("inspect", "p3.16xlarge:3", "--json")
        self.assertEqual(list(answer), ["cluster", "nodes", "devices", "rail_aligned", "one_machine", "parts", "tiers", "switches", "paths", "hosts", "profile",
                                        "text"])
        self.assertEqual((answer["nodes"], answer["devices"], answer["profile"]), (3, 24, None))
        part = answer["parts"][0]
        self.assertEqual((part["nics"], part["nic"]["bytes_per_s"]), (1, 25e9 / 8))
        self.assertEqual(part["device"]["peak_flop_per_s"]["fp16"], 125e12)
        path = self.write("own.toml", answer["text"])
        self.assertEqual(self.expect_json("inspect", path, "--json"), answer)

    def test_every_preset_is_listed_and_drawn(self):
        clusters = self.expect_json("inspect", "--list-clusters", "--json")["clusters"]
        listed = self.expect_text("inspect", "--list-clusters")
        page = (ROOT / "docs" / "reference" / "cluster-format.md").read_text()
        files = {path.stem for path in (ROOT / "tessera" / "cluster" / "presets").glob("*.toml")}
        self.assertEqual({cluster["name"] for cluster in clusters}, files | {"local"})
        for cluster in clusters:
            with self.subTest(cluster=cluster["name"]):
                self.assertRegex(listed, rf"(?m)^{re.escape(cluster['name'])} +{re.escape(cluster['summary'])}$")
                self.assertIn(f"| `{cluster['name']}` |", page)
                self.assertRegex(self.expect_text("inspect", cluster["name"]), f"{cluster['name']}: (1 node|[23] nodes), ")

    def test_the_examples(self):
        files = sorted((ROOT / "examples" / "clusters").glob("*.toml"))
        self.assertGreater(len(files), 2)
        for file in files:
            with self.subTest(file=file.name):
                self.assertGreater(self.expect_json("inspect", str(file), "--json")["devices"], 1)

    def test_the_page_s_example_is_read(self):
        page = (ROOT / "docs" / "reference" / "cluster-format.md").read_text()
        texts = re.findall(r"```toml\n(.*?)```", page, re.S)
        self.assertGreater(len(texts), 0)
        for text in texts:
            self.expect_json("inspect", self.write("c.toml", text), "--json")

    def test_what_if(self):
        answer = self.expect_json("inspect", "dgx-a100:2", "--what-if", "link:ib*2,device:memory*0.5", "--json")
        self.assertEqual(answer["parts"][0]["nic"]["bytes_per_s"], 50e9)
        self.assertEqual(answer["parts"][0]["device"]["memory_bytes"], 40 * 2**30)
        answer = run("inspect", "dgx-a100", "--what-if", "link:nick*2")
        self.assertEqual((answer.code, answer.out, answer.err.count("\n")), (2, "", 1))
        self.assertRegex(answer.err, r"^tessera: what-if 'link:nick\*2': expected one of link:inner, .*, did you mean 'link:nic'\?$")
        self.expect_error(2, "inspect: --what-if belongs to a cluster, as dgx-a100:2", "inspect", MODEL, "--what-if", "link:nic*2")

    def test_local_reads_the_measured_profile(self):
        profile = {"format": 1, "device": "a machine", "version": "1", "date": "2026-01-02", "ranks": 1,
                   "scalars": {"device.peak.fp32": 5e10}, "families": {}}
        path = self.write("profile.json", json.dumps(profile))
        answer = run("inspect", "local:2", env={"TESSERA_PROFILE": path})
        self.assertEqual((answer.code, answer.err), (0, ""))
        self.assertIn(f"measured tables of a machine (2026-01-02): {path}\n", answer.out)
        self.assertRegex(answer.out, r"(?m)^  fp32 +50 GFLOP/s")
        profile["format"] = 7
        path = self.write("profile.json", json.dumps(profile))
        answer = run("inspect", "local", env={"TESSERA_PROFILE": path})
        self.assertEqual((answer.code, answer.out, answer.err),
                         (2, "", f"tessera: {path}: expected format 1, found 7; measure anew: tessera profile\n"))
        answer = run("inspect", "local", env={"TESSERA_PROFILE": path + ".none"})
        self.assertIn("no measured tables: constants only\n", answer.out)

    def test_wrong_input_is_one_line(self):
        self.expect_error(2, "cluster 'dgx-a10:2': expected a preset (tessera inspect --list-clusters), devices (8xH100), 'local' or a .toml file, "
                             "found 'dgx-a10', did you mean 'dgx-a100'?", "inspect", "dgx-a10:2")
        self.expect_error(2, "cluster 'dgx-a100:two': expected a number of nodes from 1 to 131072 after ':', found 'two'",
                          "inspect", "dgx-a100:two")
        self.expect_error(2, "inspect: 'dgx-a100' is a cluster: --plan, --model, --rank and --op belong to models and plans",
                          "inspect", "dgx-a100", "--model", MODEL)
        self.expect_error(2, "inspect: MODEL|PLAN|PROGRAM|CLUSTER is required (tessera inspect --help)", "inspect")
        path = self.write("c.toml", 'name = "c"\n[[part]]\nlike = "dgx-a100"\n[part.nic]\nrate = "200"\n')
        self.expect_error(2, f"{path}:5: 'rate' in [part.nic]: expected a rate with a unit, as '300 GB/s', found '200' without one",
                          "inspect", path)


class WhatPlansCannotDo(CliTest):
    """Messages that say what was expected, what was found and where, in words of the plan that the user wrote."""

    def test_slices_of_a_token_pipeline(self):
        model = "gpt:layers=2,hidden=8,heads=2,seq=6,vocab=16"
        start = "recipe token_pipeline: expected ops that take slices of 'seq' one after the other, found op "
        for call in ("1,3", "2,3", "2,1"):  # without stages and with, and one slice
            self.expect_error(2, f"{start}'blocks.0.attn.core' (attention), which cannot be cut in time: what its dropout (p = 0.1) drops "
                              "is drawn by places in the whole", "inspect", model + ",attention_dropout=0.1", "--plan",
                              f"token_pipeline({call})")
        self.expect_error(2, f"{start}'blocks.2.attn.core' (attention), which cannot be cut in time: places in the whole are compared, as "
                          "of queries and keys", "inspect", "t5:layers=2,hidden=8,heads=2,seq=6,source=6,vocab=16", "--plan",
                          "token_pipeline(1,3)")
        self.expect_error(2, f"{start}'embed.concat' (concat), which cannot be cut", "inspect", "vit:layers=2,hidden=8,heads=2", "--plan",
                          "token_pipeline(1,3)")
        self.expect_text("inspect", "bert:layers=2,hidden=8,heads=2,seq=6,vocab=16", "--plan", "token_pipeline(1,3)")
        self.expect_error(2, "recipe token_pipeline: expected slices that add up to seq = 6 (or their number), found "
                          "'9223372036854775807+9223372036854775807'", "inspect", model, "--plan",
                          "token_pipeline(2,9223372036854775807+9223372036854775807)")

    def test_loops_over_uneven_shards_under_tesseract(self):
        model = "gpt:layers=2,hidden=12,heads=4,seq=5,vocab=7,ffn=11"
        text = self.expect_text("plan", "tesseract(2,2)", "--model", model)
        lines = text.splitlines()
        place = 1 + next(i for i, line in enumerate(lines) if "blocks.*.mlp.down" in line)
        plan = self.write("plan.toml", text + 'loop = [ { ops = "blocks.*.mlp", dim = "ffn", steps = 2 } ]\n')
        self.expect_error(2, f"{plan}:{place}: dim 'ffn' of op 'blocks.0.mlp.down' lies in 2 uneven shards, each of which a loop takes in "
                          "steps: expected no cut of it but over the one axis of 2 ranks, found over = [\"time:2\"] (op "
                          "'blocks.0.mlp.down@part1#0'); a dim that 2 divides may be cut so", "inspect", model, "--plan", plan,
                          "--batch", "8")
        self.expect_text("inspect", model.replace("ffn=11", "ffn=12"), "--plan", plan, "--batch", "8")

    def test_micro_batches_of_what_is_kept_for_a_whole_batch(self):
        for call in ("data_parallel(2,micro_batches=2)", "megatron(dp=2,micro_batches=2)"):
            for batch in ("8", "256"):  # one group of samples for the norms, and two
                answer = run("inspect", "smc", "--plan", call, "--batch", batch)
                self.assertEqual((answer.code, answer.out), (2, ""))
                self.assertRegex(answer.err, r"^tessera: \S+: expected micro_batches = 1, found 2: tensor 'soft_labels' keeps values for the "
                                             r"whole 'batch' from one step to the next\n$")
        answer = run("inspect", "resnet", "--plan", "data_parallel(2,micro_batches=2)", "--batch", "8")
        self.assertEqual(answer.code, 2)
        self.assertRegex(answer.err, r"micro_batches = 2 is more than dim 'batch' of tensor 'images', whose size is 1 \(batch=1 .*=8 .*\)\n$")

    def test_recompute_act_of_convolutions(self):
        self.expect_error(2, "recipe recompute: recompute = act needs activations of MLPs (ops with the dim 'ffn' beside products; selective "
                          "computes all ops but products again), found none", "inspect", "resnet", "--plan", "recompute(act)")
        self.expect_text("inspect", "resnet", "--plan", "recompute(selective)", "--batch", "256")


if __name__ == "__main__":
    main()
