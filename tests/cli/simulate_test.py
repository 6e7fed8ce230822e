"""tessera simulate and diff: figures, plans that do not fit, plans that are wrong, traces. How to run it: cli.py."""
import json
import os
import pathlib
import re
import resource

from cli import CliTest, MODEL, SIMULATE, main, run


# MLPerf's recommender of 2023, and the 16 nodes of ZionEX (docs/theory/zionex-dlrm.md).
BENCHMARK_ROWS = ("40000000-39060-17295-7424-20265-3-7122-1543-63-40000000-3067956-405282-10-2209-11938-155-4-976-14-40000000-40000000-"
                  "40000000-590152-12973-108-36")
BENCHMARK = (f"dlrm:dense=13,rows={BENCHMARK_ROWS},bags=3-2-1-2-6-1-1-1-1-7-3-8-1-6-9-5-1-1-1-12-100-27-10-3-1-1,width=128,"
             "bottom=512-256-128,top=1024-1024-512-256-1,interaction=cross,layers=3,rank=512")


class Recommender(CliTest):
    def simulate(self, plan, *options):
        return ["simulate", BENCHMARK, "--plan", plan, "--cluster", "dgx-a100-40:16", "--batch", "65536", "--optimizer",
                "rowwise_adagrad", "--precision", "float32", *options]

    def test_the_benchmark_on_128_gpus_takes_a_second_and_tells_what_is_hidden(self):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = self.expect_json(*self.simulate("tables(128)", "--json"))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertLess(after.ru_utime - before.ru_utime, 1)
        self.assertEqual(found["ranks"], 128)
        exchanges = [(role["ranks"], row) for role in found["roles"] for row in role["traffic"] if row["kind"] == "exchange"]
        # Vectors of 26 tables there and their gradients back, each B D (W - 1) / W numbers of 4 bytes.
        self.assertEqual(sum(ranks * row["bytes"] for ranks, row in exchanges), 2 * 26 * 65536 * 128 * 127 // 128 * 4)
        for _, row in exchanges:
            self.assertTrue(0 < row["exposed_s"] <= row["busy_s"], row)  # what is not exposed is hidden behind computation
        reduced = [row for role in found["roles"] for row in role["traffic"] if row["kind"] == "all_reduce"]
        self.assertTrue(all(row["exposed_s"] < 0.5 * row["busy_s"] for row in reduced), reduced)  # gradients of dense layers
        self.assertRegex(self.expect_text(*self.simulate("tables(128)")), r"transfer +over +count +sent +busy +exposed +algorithm\n")

    def test_tables_inside_nodes_take_less_memory_and_their_gradients_enter_each_node_once(self):
        whole = self.expect_json(*self.simulate("tables(128)", "--json"))
        inside = self.expect_json(*self.simulate("tables(8,by=table_row,nodes=16)", "--json"))
        self.assertLess(inside["peak_memory_bytes"], 0.5 * whole["peak_memory_bytes"])
        # Each of the 8 ranks that have rows of a table needs the gradients of all samples. The ranks of all nodes send theirs
        # to the equal rank of the table's node, which spreads them among its ranks: between nodes the gradients go once, as
        # the vectors do on their way there.
        rows = [(role["ranks"], row) for role in inside["roles"] for row in role["traffic"]]
        between = [(ranks, row) for ranks, row in rows if row["kind"] == "exchange"]
        self.assertEqual({row["axes"] for _, row in between}, {"nodes"})
        self.assertEqual(sum(ranks * row["bytes"] for ranks, row in between), 2 * 26 * 65536 * 128 * 4 * 15 // 16)


class ThreeDims(CliTest):
    """The axes of tensor_parallel_3d lie by what is sent over them: most of all in a node. All six orders are tried."""

    def test_no_order_is_faster_than_the_default(self):
        cluster = self.write("four.toml", """name = "four"
[[part]]
like = "dgx-a100"
name = "four"
devices = 4
nodes = 2
[part.nic]
count = 4
[[tier]]
latency = "1 us"
""")
        for model, batch in (("gpt:layers=2,hidden=4096,heads=32,seq=1024,vocab=8192", 32),
                             ("gpt:layers=2,hidden=1024,heads=16,seq=512,vocab=8192", 16),
                             ("gpt:layers=2,hidden=8192,heads=64,seq=1024,vocab=8192", 8)):
            def seconds(plan):
                return self.expect_json("simulate", model, "--plan", plan, "--cluster", cluster, "--batch", str(batch),
                                        "--precision", "bfloat16", "--json")["step_time_s"]

            default = seconds("tensor_parallel_3d(2,2,2)")
            orders = {order: seconds(f'tensor_parallel_3d(2,2,2,device_order="{order}")')
                      for order in ("x,y,z", "x,z,y", "y,x,z", "y,z,x", "z,x,y", "z,y,x")}
            self.assertLessEqual(default, 1.001 * min(orders.values()), orders)
            self.assertLess(default, 0.9 * max(orders.values()), orders)


class Host(CliTest):
    def test_a_host_that_launches_each_function_bounds_a_small_step_and_a_graph_does_not(self):
        found = {host: self.expect_json(*SIMULATE, "--style", f"tessera,host={host}", "--json") for host in ("ops", "launches", "graph")}
        role = {host: one["roles"][0] for host, one in found.items()}
        self.assertGreater(role["launches"]["launches"], 3 * role["ops"]["launches"])
        self.assertEqual(role["launches"]["launches"], role["graph"]["launches"])
        self.assertAlmostEqual(role["launches"]["host_s"], role["launches"]["launches"] * 6e-6)  # host_issue of dgx-a100
        self.assertAlmostEqual(role["graph"]["host_s"], 6e-6)
        self.assertGreater(found["launches"]["host_bound"], .5)
        self.assertLess(found["graph"]["host_bound"], .1)
        text = {host: self.expect_text(*SIMULATE, "--style", f"tessera,host={host}") for host in found}
        self.assertNotIn("\nhost  ", text["ops"])
        self.assertRegex(text["launches"], r"\nhost +[0-9,]+ launches a step take [0-9.]+ ms; it bounds the step: devices wait for it [0-9.]+ % of the time\n")
        self.assertRegex(text["graph"], r"\nhost +launches one graph a step in 6 us, with [0-9,]+ launches inside\n")

    def test_an_unknown_choice_is_one_line(self):
        self.expect_error(2, "style option 'host': expected one of ops, launches, graph, found 'graphs'; nearest: 'graph'",
                          *SIMULATE, "--style", "tessera,host=graphs")


class Diff(CliTest):
    def trace(self, name, dur, instruction=3):
        slice_ = {"ph": "X", "name": "up", "cat": "einsum", "pid": 0, "tid": 1000, "ts": 0.0, "dur": dur,
                  "args": {"id": f"forward:0:{instruction}"}}
        about = {"writer": "tessera", "format": 1, "step_time_s": dur / 1e6, "ranks": 1, "tokens": 8}
        return self.write(name, json.dumps({"otherData": about, "traceEvents": [slice_]}))

    def test_change_is_of_the_second_against_the_first(self):
        a, b = self.trace("a.json", 1000.0), self.trace("b.json", 1120.0)
        answer = run("diff", a, b, "--json")
        self.assertEqual((answer.code, answer.err), (0, ""))
        found = json.loads(answer.out)
        self.assertAlmostEqual(found["classes"][0]["change"], 0.12)
        self.assertEqual(found["worst"][0]["id"], "forward:0:3")
        self.assertEqual((found["a"], found["b"], found["events"]), (a, b, 1))
        text = run("diff", a, b).out
        self.assertIn("step    1.00 ms -> 1.12 ms (+12.0 %)", text)
        self.assertIn("aligned 1 instruction on 1 rank", text)

    def test_wrong_files_are_one_line(self):
        a, other = self.trace("a.json", 1.0), self.trace("b.json", 1.0, instruction=4)
        self.expect_error(2, f"diff: expected traces of one model, plan and batch, found no common instruction in {a} "
                             f"(1 events) and {other} (1 events)", "diff", a, other)
        text = self.write("c.json", "{}")
        self.expect_error(2, f"{text}: expected a trace that tessera wrote, found other JSON (no otherData.writer)",
                          "diff", a, text)


class DoesNotFit(CliTest):
    def test_exit_code_1_how_much_where_and_what(self):
        fits = run(*SIMULATE)
        self.assertEqual((fits.code, fits.err), (0, ""))
        answer = run(*SIMULATE, "--what-if", "device:memory*0.001")
        self.assertEqual(answer.code, 1)
        self.assertRegex(answer.err, r"^does not fit: rank 0 needs up to [0-9.]+ GiB of 81.9 MiB: "
                                     r"[0-9.]+ [GM]iB too much\nat the peak: ")
        self.assertRegex(answer.err, r"no change of the plan that was tried makes it fit \([0-9]+ changes tried(, [0-9]+ more are not possible)?\)\n$")
        shown = json.loads(run(*SIMULATE, "--what-if", "device:memory*0.001", "--json").out)
        self.assertEqual(shown["fits"], False)
        memory = shown["roles"][0]["memory"]
        self.assertEqual(memory["reserved_bytes"] + memory["overhead_bytes"], shown["peak_memory_bytes"])
        self.assertTrue(memory["low_bytes"] <= shown["peak_memory_bytes"] <= memory["high_bytes"])
        sizes = [live["bytes"] for live in memory["at_peak"]]
        self.assertTrue(sizes and sizes == sorted(sizes, reverse=True))

    def test_what_would_fit_is_in_the_precision_that_was_asked(self):
        plain = self.expect_json(*SIMULATE, "--precision", "bfloat16", "--json")
        device = self.expect_json("inspect", "dgx-a100:1", "--json")["parts"][0]["device"]["memory_bytes"]
        factor = plain["roles"][0]["memory"]["high_bytes"] * .999 / device
        answer = run(*SIMULATE, "--precision", "bfloat16", "--what-if", f"device:memory*{factor:.9f}")
        self.assertEqual(answer.code, 1)
        change = re.search(r"cheapest change that fits: .*\n  --plan '(.*)'", answer.err)
        self.assertIsNotNone(change, answer.err)
        fits = run(*SIMULATE[:-1], change.group(1), "--precision", "bfloat16", "--what-if", f"device:memory*{factor:.9f}")
        self.assertEqual((fits.code, fits.err), (0, ""))


class BadPlans(CliTest):
    """Through inspect, which needs no runtime; train and verify read plans by the same functions."""

    def expect_plan_error(self, message, text):
        path = self.write("p.toml", text)
        self.expect_error(2, f"{path}:{message}", "inspect", MODEL, "--plan", path, "--batch", "8")

    def test_unknown_axis(self):
        self.expect_plan_error("2: axis 'tq' is not in the mesh {tp=2}, did you mean 'tp'?",
                               'mesh = { tp = 2 }\nsplit = [ { ops = "*", dim = "batch", over = "tq" } ]\n')

    def test_a_selector_that_matches_nothing(self):
        self.expect_plan_error('2: ops = "block.*" selects no forward op, did you mean \'blocks\'?',
                               'mesh = { tp = 2 }\nsplit = [ { ops = "block.*", dim = "batch", over = "tp" } ]\n')

    def test_a_dim_that_the_op_lacks(self):
        self.expect_plan_error("2: no op that ops = \"blocks.0.mlp\" selects has the dim 'fnn': op 'blocks.0.mlp.up' "
                               "has (batch, seq, hidden, ffn), did you mean 'ffn'?",
                               'mesh = { tp = 2 }\nsplit = [ { ops = "blocks.0.mlp", dim = "fnn", over = "tp" } ]\n')

    def test_an_axis_used_twice(self):
        self.expect_plan_error("4: axis 'tp' splits two dims of op 'blocks.0.mlp.up': 'batch' (line 3) and 'ffn' (line 4)",
                               'mesh = { tp = 2 }\nsplit = [\n  { ops = "*", dim = "batch", over = "tp" },\n'
                               '  { ops = "blocks.0.mlp", dim = "ffn", over = "tp" },\n]\n')

    def test_a_truncated_file(self):
        self.expect_plan_error("3: Error while parsing string: encountered end-of-file",
                               'mesh = { tp = 2 }\nsplit = [\n  { ops = "bloc')

    def test_a_schedule_that_never_finishes(self):
        self.expect_plan_error(
            "3: the schedule never finishes: place 0 waits at B0@0 for B0@1 of place 1, which waits at F1@1 for F1@0 of place 0",
            'mesh = { pp = 2 }\nmicro_batches = 2\nschedule = [ ["F0", "B0", "F1", "B1"], ["F0", "F1", "B0", "B1"] ]\n'
            'stage = [ { ops = "{embed,blocks.0}", at = 0 }, { ops = "{blocks.1,final,head,loss}", at = 1 } ]\n')

    def test_a_cycle_through_chunks(self):
        self.expect_plan_error(
            "3: the schedule never finishes: place 0 waits at F0@2 for F0@1 of place 1, which waits at F0@3 for F0@2 of place 0",
            'mesh = { pp = 2 }\nplace = [0, 1, 0, 1]\n'
            'schedule = [ ["F0@0", "F0@2", "B0@2", "B0@0"], ["F0@3", "F0@1", "B0@3", "B0@1"] ]\n'
            'stage = [ { ops = "embed", at = 0 }, { ops = "blocks.0", at = 1 }, { ops = "blocks.1", at = 2 },\n'
            '  { ops = "{final,head,loss}", at = 3 } ]\n')

    def test_unknown_recipe(self):
        self.expect_error(2, "unknown recipe 'megatrom', did you mean 'megatron'?",
                          "inspect", MODEL, "--plan", "megatrom(tp=2)")

    def test_recipe_arguments(self):
        self.expect_error(2, "recipe zero: argument 'dp' is missing: expected zero(stage, dp, micro_batches=1, reshard_after_forward=0, precision=float32)",
                          "inspect", MODEL, "--plan", "zero(stage=1)")
        self.expect_error(2, "recipe megatron: expected tp >= 1 (a whole number), found '0'",
                          "inspect", MODEL, "--plan", "megatron(tp=0)")

    def test_simulate(self):
        plan = ["--plan", "megatron(tp=2,pp=2,dp=2,micro_batches=2)", "--batch", "8"]
        found = self.expect_json("simulate", MODEL, *plan, "--cluster", "dgx-a100:1", "--json")
        self.assertEqual((found["ranks"], found["batch"], found["tokens"]), (8, 8, 8 * 32))
        self.assertAlmostEqual(found["tokens_per_s"] * found["step_time_s"], found["tokens"])
        self.assertEqual(sum(role["ranks"] for role in found["roles"]), 8)
        for role in found["roles"]:
            self.assertAlmostEqual(sum(role["spent_s"].values()), found["step_time_s"])
        self.assertEqual(found["critical_path"][0]["start_s"], 0)
        unfolded = self.expect_json("simulate", MODEL, *plan, "--cluster", "dgx-a100:1", "--json", "--no-fold")
        self.assertEqual(len(unfolded["roles"]), 8)
        self.assertAlmostEqual(unfolded["step_time_s"], found["step_time_s"], places=12)
        self.assertIn("Critical path: ", run("simulate", MODEL, *plan, "--cluster", "dgx-a100:1").out)

    def test_the_optimizer_decides_what_a_step_needs(self):
        plan = ["--plan", "data_parallel(2)", "--batch", "8"]
        needs = {}
        for optimizer in ("adamw", "sgd", "adamw,embed=sgd"):
            found = self.expect_json("simulate", MODEL, *plan, "--cluster", "dgx-a100:1", "--json", "--optimizer", optimizer)
            needs[optimizer] = max(role["memory"]["buffers_bytes"] for role in found["roles"])
        self.assertLess(needs["sgd"], needs["adamw,embed=sgd"])
        self.assertLess(needs["adamw,embed=sgd"], needs["adamw"])
        for command in (["inspect", MODEL], ["simulate", MODEL, "--cluster", "dgx-a100:1"],
                        ["report", MODEL, "--cluster", "dgx-a100:1", "-o", os.path.join(self.folder, "page.html")]):
            answer = run(*command, *plan, "--optimizer", "adamv")
            self.assertEqual(answer.code, 2)
            self.assertTrue(answer.err.startswith("tessera: optimizer: unknown 'adamv', did you mean 'adamw'? (adafactor, "), answer.err)
        self.expect_error(2, "inspect: --optimizer needs --plan", "inspect", MODEL, "--optimizer", "sgd")

    def test_precision_is_that_of_a_plan_file(self):
        text = self.expect_text("plan", "megatron(tp=2,dp=2)", "--model", MODEL)
        narrow = self.write("narrow.toml", 'precision = { compute = "bfloat16" }\n' + text)
        options = ["--batch", "8", "--cluster", "dgx-a100:1", "--style", "tessera", "--json"]
        as_file = self.expect_json("simulate", MODEL, "--plan", narrow, *options)
        plan = ["--plan", "megatron(tp=2,dp=2)"]
        as_option = self.expect_json("simulate", MODEL, *plan, "--precision", "bfloat16", *options)
        wide = self.expect_json("simulate", MODEL, *plan, "--precision", "float32", *options)
        for key in ("step_time_s", "peak_memory_bytes", "model_flops"):
            self.assertEqual(as_file[key], as_option[key], key)
        self.assertNotEqual(wide["peak_memory_bytes"], as_option["peak_memory_bytes"])
        double = self.expect_json("simulate", MODEL, *plan, "--precision", "float64", *options)
        self.assertGreater(double["peak_memory_bytes"], wide["peak_memory_bytes"])
        self.assertEqual([found["precision"] for found in (wide, double, as_file, as_option)],
                         ["float32", "float64", "bfloat16", "bfloat16"])
        roles = [self.expect_json("inspect", MODEL, *plan, "--batch", "8", "--json", *more)
                 for more in ([], ["--precision", "bfloat16"])]
        self.assertNotEqual(roles[0], roles[1])
        page = f"{self.folder}/page.html"
        self.expect_text("report", MODEL, *plan, "--cluster", "dgx-a100:1", "--precision", "bfloat16", "-o", page)
        with open(page) as written:
            self.assertIn("megatron(tp=2,dp=2) in bfloat16", written.read())
        self.expect_error(2, "simulate: --precision: expected one of float32, float64, bfloat16, float16, found 'fp8', did you mean "
                             "'fp16'? (tessera simulate --help)",
                          "simulate", MODEL, *plan, "--precision", "fp8", *options)
        self.expect_error(2, "inspect: --precision needs --plan", "inspect", MODEL, "--precision", "bfloat16")

    def test_simulate_writes_chakra_traces(self):
        plan = ["--plan", "megatron(tp=2,dp=2)", "--batch", "4", "--cluster", "dgx-a100:1"]
        prefix = os.path.join(self.folder, "step")
        self.assertEqual(self.expect_text("simulate", MODEL, *plan, "--chakra", prefix), self.expect_text("simulate", MODEL, *plan))
        self.assertEqual(sorted(os.listdir(self.folder)), ["step.0.et", "step.1.et", "step.2.et", "step.3.et", "step.groups.json"])
        groups = json.loads(pathlib.Path(prefix + ".groups.json").read_text(encoding="utf-8"))
        self.assertEqual(list(groups), [str(1 + i) for i in range(len(groups))])
        self.assertTrue({(0, 1), (2, 3), (0, 2), (1, 3)} <= {tuple(members) for members in groups.values()})
        for rank in range(4):
            messages = self.chakra_messages(pathlib.Path(f"{prefix}.{rank}.et").read_bytes())
            self.assertEqual(messages[0], b"\x0a\x050.0.4")  # GlobalMetadata.version
            mine = {number for number, members in groups.items() if rank in members}
            named = {name.decode() for node in messages[1:] for name in re.findall(rb"pg_name\xea\x01.([0-9]+)", node)}
            self.assertTrue(named and named <= mine, (rank, named, mine))
        self.expect_error(3, f"cannot write '{self.folder}/none/step.0.et': No such file or directory",
                          "simulate", MODEL, *plan, "--chakra", f"{self.folder}/none/step")

    @staticmethod
    def chakra_messages(data):
        """The messages of a file, each behind its length."""
        out, at = [], 0
        while at < len(data):
            length = shift = 0
            while True:
                byte, at = data[at], at + 1
                length, shift = length | (byte & 127) << shift, shift + 7
                if byte < 128:
                    break
            out.append(data[at:at + length])
            at += length
        return out

    def test_simulate_refuses(self):
        plan = ["--plan", "data_parallel(16)"]
        self.expect_error(2, "cluster 'dgx-a100': expected at least 16 devices for the plan's ranks, found 8",
                          "simulate", MODEL, *plan, "--cluster", "dgx-a100:1")
        self.expect_error(2, "simulate: --straggler: expected DEVICE*TIMES (as 3*1.5), found '3'",
                          "simulate", MODEL, *plan, "--cluster", "dgx-a100:2", "--straggler", "3")
        self.expect_error(2, "straggler: expected a device from 0 to 15 and a positive factor, found 16*2",
                          "simulate", MODEL, *plan, "--cluster", "dgx-a100:2", "--straggler", "16*2")
        self.expect_error(2, "simulate: --cluster is required (tessera simulate --help)", "simulate", MODEL, *plan)
        self.assertEqual(run("simulate", MODEL, *plan, "--cluster", "dgx-a101:2").code, 2)

    def test_auto_needs_a_machine(self):
        self.expect_error(2, "inspect: expected --cluster beside --plan auto, the machine for which a plan is wanted (dgx-a100:8, local)",
                          "inspect", MODEL, "--plan", "auto")

    def test_a_missing_file(self):
        self.expect_error(2, "cannot read 'none.toml': No such file or directory",
                          "inspect", MODEL, "--plan", "none.toml")


if __name__ == "__main__":
    main()
