"""The command line as its users meet it: exit codes, exact wording of errors, JSON shapes. Runs the built program.

Usage: cli_test.py PROGRAM [unittest options]. Tests that run a model are skipped, with the reason, where the program was
built without the runtime. One file for all commands (over 800 lines), because they share one contract, whose tables in
docs/reference/command-line.md are checked against all of them.
"""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

PROGRAM = ""
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = "gpt:layers=2,hidden=64,heads=4,seq=32,vocab=128"
BYTES_MODEL = "gpt:layers=1,hidden=16,heads=2,seq=16,vocab=256"
NO_RUNTIME = "this build has no runtime: expected the library {}; to get it: scripts/setup, then make build"


class Answer:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


def run(*arguments, cwd=None, before=None, env=None):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False, cwd=cwd or ROOT, timeout=120,
                          preexec_fn=before, env={**os.environ, **(env or {})})
    return Answer(done.returncode, done.stdout, done.stderr)


def runtime_library():
    return pathlib.Path(PROGRAM).resolve().parent / "libtessera_runtime.so"


def has_runtime():
    return runtime_library().exists()


class CliTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tessera_cli_test_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def expect_error(self, code, message, *arguments):
        answer = run(*arguments)
        self.assertEqual((answer.code, answer.out, answer.err), (code, "", f"tessera: {message}\n"))

    def expect_json(self, *arguments):
        answer = run(*arguments)
        self.assertEqual((answer.code, answer.err), (0, ""))
        return json.loads(answer.out)

    def expect_text(self, *arguments):
        answer = run(*arguments)
        self.assertEqual((answer.code, answer.err), (0, ""))
        return answer.out


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


class TheProgram(CliTest):
    def test_help_has_an_example_for_every_command(self):
        for command in ([], ["train"], ["verify"], ["inspect"], ["plan"], ["predict"], ["accuracy"], ["reproduce"]):
            with self.subTest(command=command):
                text = self.expect_text(*command, "--help")
                self.assertRegex(text, r"Examples?:\n  (mpirun .* )?tessera ")
                self.assertIn(" ".join(["Usage: tessera", *command]), text)

    def test_the_reference_has_every_option(self):
        page = (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8")
        commands = re.findall(r"(?m)^  (\w+)  ", self.expect_text("--help").split("Subcommands:")[1].split("MODEL")[0])
        self.assertIn("simulate", commands)
        for command in commands:
            with self.subTest(command=command):
                options = set(re.findall(r"(?m)^  (?:-\w,)?(--[\w-]+)", self.expect_text(command, "--help"))) - {"--help"}
                rows = "".join(line for line in page.splitlines() if line.startswith(f"| `tessera {command} "))
                self.assertEqual(options, set(re.findall(r"--[a-z][\w-]*", rows)))

    def test_the_reference_has_every_key_of_simulate(self):
        found = self.expect_json(*DoesNotFit.SIMULATE, "--json")
        page = (ROOT / "docs/reference/simulate.md").read_text(encoding="utf-8")
        keys = {*found, *found["roles"][0], *found["roles"][0]["memory"]} - {"model", "plan", "cluster", "style", "batch", "ranks"}
        self.assertEqual([key for key in sorted(keys) if f"`{key}`" not in page], [])
        line = next(line for line in (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8").splitlines()
                    if line.startswith("| `simulate --json`"))
        self.assertEqual([key for key in found if f"`{key}`" not in line], [])

    def test_unknown_commands_and_options_are_one_line(self):
        self.expect_error(2, "expected a command: train, verify, inspect, plan, profile, predict, accuracy, simulate, report, diff, reproduce (tessera --help)")
        self.expect_error(2, "unknown command 'trian': expected one of train, verify, inspect, plan, profile, predict, accuracy, simulate, report, diff, reproduce", "trian")
        self.expect_error(2, "verify: unknown option '--stpes', did you mean '--steps'?",
                          "verify", MODEL, "--plan", "serial", "--stpes", "2")
        self.expect_error(2, "inspect: unexpected argument 'more'", "inspect", MODEL, "more")
        self.expect_error(2, "verify: --plan is required (tessera verify --help)", "verify", MODEL)
        self.expect_error(2, "verify: --batch: expected a number of at least 1, found '0' (tessera verify --help)",
                          "verify", MODEL, "--plan", "serial", "--batch", "0")


class Reproduce(CliTest):
    def test_worked_examples_instances_and_claims(self):
        answer = self.expect_text("reproduce", "terapipe")
        self.assertIn("worked example", answer)
        self.assertRegex(answer, r"(?m)^terapipe_slices +\d+ +0$")
        found = self.expect_json("reproduce", "galvatron", "tests/reproduce/galvatron_chain.json", "--json")
        self.assertEqual([case["answer"].get("seconds") for case in found["cases"]], [None, 60, 49, 42, 39, 35, 30])
        self.assertEqual(found["differences"], [])
        claims = self.expect_json("reproduce", "--list", "--json")
        self.assertEqual([system["name"] for system in claims["systems"]],
                         ["galvatron", "alpa", "terapipe", "opfence", "rannc", "dtfm", "splitbrain"])
        self.assertIn("not reproducible: ", self.expect_text("reproduce", "--list"))

    def test_another_answer_than_expected_is_exit_code_1(self):
        path = self.write("x.json", '{"ask": "strategies", "devices": 8, "expected": {"strategies": 23}}')
        answer = run("reproduce", "galvatron", path)
        self.assertEqual(answer.code, 1)
        self.assertIn("expected.strategies: expected 23, found 22", answer.out)
        self.assertEqual(answer.err, f"tessera: reproduce: {path}: 1 value of what is expected found otherwise; "
                                     "expected.strategies: expected 23, found 22\n")

    def test_wrong_input_is_one_line(self):
        path = self.write("x.json", '{"length": 64, "stages": "many"}')
        self.expect_error(2, f'{path}: stages: expected a whole number of at least 1, found "many"', "reproduce", "terapipe", path)
        self.expect_error(2, "reproduce: expected --list, or a system (tessera reproduce --help)", "reproduce")


class DoesNotFit(CliTest):
    SIMULATE = ["simulate", MODEL, "--batch", "8", "--cluster", "dgx-a100:1", "--plan", "megatron(dp=2)"]

    def test_exit_code_1_how_much_where_and_what(self):
        fits = run(*self.SIMULATE)
        self.assertEqual((fits.code, fits.err), (0, ""))
        answer = run(*self.SIMULATE, "--what-if", "device:memory*0.001")
        self.assertEqual(answer.code, 1)
        self.assertRegex(answer.err, r"^does not fit: rank 0 needs up to [0-9.]+ GB of 0.0[0-9] GB: "
                                     r"[0-9.]+ GB \([0-9]+ bytes\) too much\nat the peak: ")
        self.assertRegex(answer.err, r"no change of the plan that was tried makes it fit \([0-9]+ changes tried(, [0-9]+ more are not possible)?\)\n$")
        shown = json.loads(run(*self.SIMULATE, "--what-if", "device:memory*0.001", "--json").out)
        self.assertEqual(shown["fits"], False)
        memory = shown["roles"][0]["memory"]
        self.assertEqual(memory["reserved_bytes"] + memory["overhead_bytes"], shown["peak_memory_bytes"])
        self.assertTrue(memory["low_bytes"] <= shown["peak_memory_bytes"] <= memory["high_bytes"])
        sizes = [live["bytes"] for live in memory["at_peak"]]
        self.assertTrue(sizes and sizes == sorted(sizes, reverse=True))

    def test_what_would_fit_is_in_the_precision_that_was_asked(self):
        plain = self.expect_json(*self.SIMULATE, "--precision", "bfloat16", "--json")
        device = self.expect_json("inspect", "dgx-a100:1", "--json")["parts"][0]["device"]["memory_bytes"]
        factor = plain["roles"][0]["memory"]["high_bytes"] * .999 / device
        answer = run(*self.SIMULATE, "--precision", "bfloat16", "--what-if", f"device:memory*{factor:.9f}")
        self.assertEqual(answer.code, 1)
        change = re.search(r"cheapest change that fits: .*\n  --plan '(.*)'", answer.err)
        self.assertIsNotNone(change, answer.err)
        fits = run(*self.SIMULATE[:-1], change.group(1), "--precision", "bfloat16", "--what-if", f"device:memory*{factor:.9f}")
        self.assertEqual((fits.code, fits.err), (0, ""))


class BadModels(CliTest):
    def test_unknown_key(self):
        answer = run("inspect", "gpt:layer=2")
        self.assertEqual((answer.code, answer.out), (2, ""))
        self.assertRegex(answer.err, r"^tessera: model 'gpt': unknown key 'layer', did you mean 'layers'\? "
                                     r"\(keys: layers, hidden, .*\)\n$")

    def test_heads_that_do_not_divide_hidden(self):
        self.expect_error(2, "model 'gpt': hidden=64 must be a multiple of heads=5", "inspect", "gpt:hidden=64,heads=5")

    def test_unknown_family(self):
        families = [family["name"] for family in self.expect_json("inspect", "--models", "--json")["families"]]
        self.expect_error(2, f"unknown model 'gptt', did you mean 'gpt'? (models: {', '.join(families)}, or a path to a "
                             "Hugging Face config.json or to a .graph)", "inspect", "gptt:layers=2")

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

    def test_precision_is_that_of_a_plan_file(self):
        text = self.expect_text("plan", "megatron(tp=2,dp=2)", "--model", MODEL)
        narrow = self.write("narrow.toml", 'precision = { compute = "bfloat16" }\n' + text)
        options = ["--batch", "8", "--cluster", "dgx-a100:1", "--json"]
        as_file = self.expect_json("simulate", MODEL, "--plan", narrow, *options)
        plan = ["--plan", "megatron(tp=2,dp=2)"]
        as_option = self.expect_json("simulate", MODEL, *plan, "--precision", "bfloat16", *options)
        wide = self.expect_json("simulate", MODEL, *plan, *options)
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
        self.expect_error(2, "simulate: --precision: fp8 not in {float32,float64,bfloat16,float16} (tessera simulate --help)",
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
        self.expect_error(2, "plan 'auto' is not known here; tessera plan MODEL --cluster C --batch B writes a plan file",
                          "inspect", MODEL, "--plan", "auto")

    def test_a_missing_file(self):
        self.expect_error(2, "cannot read 'none.toml': No such file or directory",
                          "inspect", MODEL, "--plan", "none.toml")


class Inspect(CliTest):
    def test_a_model(self):
        text = self.expect_text("inspect", MODEL)
        self.assertRegex(text, r"(?m)^parameters  110,336 \(431\.00 KiB\)$")
        answer = self.expect_json("inspect", MODEL, "--json", "--batch", "4")
        self.assertEqual(list(answer), ["model", "batch", "seq", "vocab", "parameters", "trained_parameters", "parameter_bytes", "tensors",
                                        "ops", "flops"])
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
        path = self.write("p.toml", 'mesh = { dp = 2 }\nsplit = [\n  { ops = "*", dim = "height", over = "dp" },\n]\n')
        model = "resnet:layers=18,image=32,ghost=1"
        text = self.expect_text("inspect", model, "--plan", path)
        self.assertIn(f"""\nNot split though an entry selects them:\n{path}:3 (ops = "*", dim = "height") leaves 20 ops whole, """
                      "as the kind 'conv' freezes it: embed.conv, blocks.0.conv_1 and 18 more\n", text)
        answer = self.expect_json("inspect", model, "--plan", path, "--json")
        self.assertEqual([20, 1], [len(one["ops"]) for one in answer["left_whole"]])
        text = self.expect_text("inspect", model, "--plan", path, "--op", "embed.conv")
        self.assertIn(f"""  height (16): not split though {path}:3 (ops = "*") names it: the kind 'conv' freezes it\n""", text)
        text = self.expect_text("inspect", model, "--plan", path, "--op", "blocks.0.conv_1.dw")
        self.assertIn("  height (8): not split, as in 'blocks.0.conv_1'\n", text)
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


class PlanCommand(CliTest):
    def test_list(self):
        text = self.expect_text("plan", "--list")
        self.assertIn("megatron(tp=1, pp=1, dp=1, zero=0, micro_batches=1, schedule=1f1b, chunks=1, recompute=none, "
                      "sequence_shard=false, cp=1, order=zigzag, precision=float32)\n", text)
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
        self.expect_error(2, "plan: expected a model with --cluster and --batch, or a recipe call with --model, or "
                             "--list (tessera plan --help)", "plan")
        self.expect_error(2, "plan: expected --model for 'serial': recipes read sizes from the model", "plan", "serial")
        self.expect_error(2, "plan: expected --batch, the sequences of a step", "plan", MODEL, "--cluster", "local")


class Planner(CliTest):
    def test_the_plan_is_found_and_its_prediction_is_that_of_simulate(self):
        path = os.path.join(self.folder, "found.toml")
        question = [MODEL, "--cluster", "local:2", "--batch", "8"]
        text = self.expect_text("plan", *question, "--out", path)
        self.assertIn("\ndevices ", text)
        answer = self.expect_json("plan", *question, "--json")
        self.assertTrue(answer["found"])
        self.assertEqual(pathlib.Path(path).read_text(encoding="utf-8"), answer["text"])
        simulated = self.expect_json("simulate", *question, "--plan", path, "--json")
        self.assertAlmostEqual(simulated["step_time_s"], answer["best"]["step_time_s"], delta=1e-9)
        auto = self.expect_json("simulate", *question, "--plan", "auto", "--json")
        self.assertEqual(auto["step_time_s"], simulated["step_time_s"])
        self.assertTrue(auto["plan"].startswith("auto: "), auto["plan"])
        steps = [point["estimated_step_s"] for point in answer["curve"]]
        self.assertEqual(steps, sorted(steps, reverse=True))

    def test_verify_takes_auto(self):
        if not has_runtime():
            self.skipTest("this build has no runtime (libtorch)")
        for ranks in ("2", "3"):
            self.assertTrue(self.expect_json("verify", MODEL, "--plan", "auto", "--ranks", ranks, "--batch", "6",
                                             "--json")["ok"])

    def test_candidates_are_explained(self):
        text = self.expect_text("plan", MODEL, "--cluster", "local:2", "--batch", "8", "--explain", "--fix", "tp=2")
        self.assertIn("# Candidates, as they were tried (* the answer):\n", text)
        self.assertIn("# Time of the devices: compute ", text)

    def test_nothing_fits_is_exit_code_1(self):
        answer = run("plan", MODEL, "--cluster", "local:2", "--batch", "8", "--memory-limit", "1 MB")
        self.assertEqual((answer.code, answer.out), (1, ""))
        self.assertTrue(answer.err.startswith("tessera: plan: nothing fits: the smallest of "), answer.err)

    def test_wrong_questions(self):
        question = ["plan", MODEL, "--cluster", "local:2", "--batch", "8"]
        self.expect_error(2, "plan: --fix: expected KEY=VALUE, found 'tp'", *question, "--fix", "tp")
        self.assertEqual(run(*question, "--planner", "alpha").code, 2)
        self.assertEqual(run(*question, "--memory-limit", "80").code, 2)


class Resharding(CliTest):
    """Case 6 of the worked table in docs/theory/cross-mesh-resharding.md: the order decides, and the optimum is known."""

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


class Clusters(CliTest):
    def test_a_preset_is_drawn(self):
        text = self.expect_text("inspect", "dgx-a100:40")
        self.assertTrue(text.startswith("dgx-a100: 40 nodes, 320 devices, 25.00 TiB of device memory\n"))
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
        self.assertEqual(list(answer), ["cluster", "nodes", "devices", "rail_aligned", "parts", "tiers", "profile", "text"])
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
                self.assertIn(f"{cluster['name']}: 1 node, ", self.expect_text("inspect", cluster["name"]))

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
        self.expect_error(2, "cluster 'dgx-a10:2': expected a preset (tessera inspect --list-clusters), 'local' or a .toml file, "
                             "found 'dgx-a10', did you mean 'dgx-a100'?", "inspect", "dgx-a10:2")
        self.expect_error(2, "cluster 'dgx-a100:two': expected a number of nodes from 1 to 1000000 after ':', found 'two'",
                          "inspect", "dgx-a100:two")
        self.expect_error(2, "inspect: 'dgx-a100' is a cluster: --plan, --model, --rank and --op belong to models and plans",
                          "inspect", "dgx-a100", "--model", MODEL)
        self.expect_error(2, "inspect: MODEL|PLAN|PROGRAM|CLUSTER is required (tessera inspect --help)", "inspect")
        path = self.write("c.toml", 'name = "c"\n[[part]]\nlike = "dgx-a100"\n[part.nic]\nrate = "200"\n')
        self.expect_error(2, f"{path}:5: 'rate' in [part.nic]: expected a rate with a unit, as '300 GB/s', found '200' without one",
                          "inspect", path)


class Examples(CliTest):
    def test_every_plan_of_the_examples_lowers(self):
        plans = sorted((ROOT / "examples" / "plans").glob("*.toml"))
        self.assertGreater(len(plans), 3)
        for plan in plans:
            with self.subTest(plan=plan.name):
                model = plan.read_text().splitlines()[0].removeprefix("# Model: ")
                self.expect_json("inspect", str(plan), "--model", model, "--batch", "12", "--json")


class WithoutRuntime(CliTest):
    """A copy of the program in a folder of its own finds no runtime library beside it."""

    def setUp(self):
        super().setUp()
        self.program = shutil.copy(PROGRAM, self.folder)
        self.library = os.path.join(os.path.realpath(self.folder), "libtessera_runtime.so")

    def run_copy(self, *arguments):
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
        return done.returncode, done.stdout, done.stderr

    def test_commands_that_execute_say_how_to_get_it(self):
        for command in (["train", "examples/gpt_small.toml"], ["verify", MODEL, "--plan", "serial"], ["profile"]):
            message = f"tessera: {command[0]}: {NO_RUNTIME.format(self.library)}\n"
            self.assertEqual(self.run_copy(*command), (2, "", message))

    def test_planning_commands_do_not_need_it(self):
        code, out, err = self.run_copy("plan", "--list")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("megatron", out)

    def test_a_library_that_cannot_be_loaded_is_one_line(self):
        self.write("libtessera_runtime.so", "no library")
        code, out, err = self.run_copy("verify", MODEL, "--plan", "serial")
        self.assertEqual((code, out, err.count("\n")), (2, "", 1))
        self.assertRegex(err, "^tessera: verify: the runtime cannot be loaded: .*; to get it: scripts/setup, then make build")


class PlanningStart(CliTest):
    def test_planning_commands_load_neither_libtorch_nor_mpi(self):
        answer = run("plan", "--list", env={"LD_DEBUG": "libs"})
        self.assertEqual(answer.code, 0)
        loaded = set(re.findall(r"calling init: \S*/(\S+?)\.so", answer.err))
        self.assertIn("libstdc++", loaded)
        self.assertEqual({name for name in loaded if re.match("libtorch|libc10|libmpi|libgomp|libtessera", name)}, set())


class RuntimeTest(CliTest):
    @classmethod
    def setUpClass(cls):
        if not has_runtime():
            raise unittest.SkipTest("this build has no runtime (libtorch)")

    def run_file(self, **keys):
        self.write("text.txt", "to be or not to be, that is the question. " * 40)
        values = {"model": BYTES_MODEL, "data": "text.txt", "batch": 4, "steps": 3, **keys}
        return self.write("run.toml", "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))


class Train(RuntimeTest):
    def losses(self, *arguments):
        lines = [json.loads(line) for line in self.expect_text("train", *arguments, "--json").splitlines()]
        self.assertEqual(len(lines), 4)
        for index, line in enumerate(lines[:3]):
            self.assertEqual(list(line), ["step", "loss", "step_time_s", "tokens_per_s"])
            self.assertEqual(line["step"], index + 1)
        self.assertEqual(list(lines[3]), ["summary"])
        return [line["loss"] for line in lines[:3]], lines[3]["summary"]

    def test_json_and_equal_losses_under_a_plan(self):
        run_file = self.run_file()
        serial, summary = self.losses(run_file)
        self.assertEqual(list(summary), ["steps", "ranks", "transport", "parameters", "first_loss", "last_loss",
                                         "tokens_per_s", "peak_memory_bytes", "process_peak_bytes", "bytes_sent"])
        self.assertEqual((summary["ranks"], summary["bytes_sent"]), (1, {}))
        plan, summary = self.losses(run_file, "--plan", "megatron(tp=2,dp=2)")
        self.assertEqual(summary["ranks"], 4)
        self.assertGreater(summary["bytes_sent"]["all_reduce"], 0)
        for a, b in zip(serial, plan):
            self.assertAlmostEqual(a, b, delta=1e-5 * a)

    def test_equal_losses_with_state_on_disk(self):
        run_file = self.run_file()
        serial, _ = self.losses(run_file)
        for call in ("offload(2,gradients=true,to=disk)", "offload(2,zero=3,parameters=1,activations=true)"):
            plan, _ = self.losses(run_file, "--plan", call)
            for a, b in zip(serial, plan):
                self.assertAlmostEqual(a, b, delta=1e-5 * a)

    def test_a_disk_without_room_is_a_fault_of_one_line(self):
        def no_large_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        answer = run("train", self.run_file(), "--plan", "offload(zero=0,to=disk)", before=no_large_files)
        self.assertEqual(answer.code, 3, answer.err)
        self.assertRegex(answer.err, r"^tessera: rank 0: disk tier: \S+: expected room for .*: File too large\n$")

    def test_text_where_there_is_no_terminal(self):
        text = self.expect_text("train", self.run_file())
        self.assertNotIn("\r", text)
        self.assertRegex(text, r"(?m)^step 3/3  loss \d\.\d{4} +[\d,]+ tokens/s  0:00 left$")
        self.assertRegex(text, r"(?m)^loss \d\.\d{4} -> \d\.\d{4} in 3 steps, \d:\d\d; median [\d,]+ tokens/s$")

    def test_set_and_its_errors(self):
        run_file = self.run_file()
        _, summary = self.losses(run_file, "--set", "optimizer.lr=0.1", "--set", "plan=data_parallel(2)")
        self.assertEqual(summary["ranks"], 2)
        self.expect_error(2, "--set step=3: unknown key 'step', did you mean 'steps'?", "train", run_file, "--set", "step=3")
        self.expect_error(2, "cannot read 'none.toml': No such file or directory", "train", "none.toml")

    def test_missing_data(self):
        run_file = self.run_file(data=["nowhere/*.txt"])
        self.expect_error(2, f"data: no file matches 'nowhere/*.txt' ({run_file}:2)", "train", run_file)

    def test_short_data(self):
        short = self.write("short.txt", "too short")
        run_file = self.run_file(data=[short])
        self.expect_error(2, f"data: expected a file of more than 16 bytes (seq = 16), the longest of 1, '{short}', has 9 "
                             f"({run_file}:2)", "train", run_file)

    def test_a_mesh_larger_than_the_ranks(self):
        self.expect_error(2, "megatron(tp=2,dp=2): its mesh {dp=2, tp=2} needs 4 ranks, found 2 (--ranks)",
                          "train", self.run_file(), "--plan", "megatron(tp=2,dp=2)", "--ranks", "2")

    def test_a_model_for_bytes(self):
        run_file = self.run_file(model="gpt:layers=1,hidden=16,heads=2,seq=16,vocab=128")
        self.expect_error(2, "data: bytes are the tokens, so the model needs vocab >= 256, found vocab = 128",
                          "train", run_file)


class TrainOverMpi(RuntimeTest):
    ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
                   "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}

    def mpirun(self, ranks, *arguments):
        if shutil.which("mpirun") is None:
            self.skipTest("no mpirun on this machine")
        done = subprocess.run(["mpirun", "-n", str(ranks), PROGRAM, *arguments], capture_output=True, text=True,
                              check=False, cwd=ROOT, timeout=120, env=self.ENVIRONMENT)
        return Answer(done.returncode, done.stdout, done.stderr)

    def lose_rank_1(self, sent, timeout):
        """Three ranks train; rank 1 gets the signal. Exit code of mpirun, and the lines of the other ranks."""
        self.mpirun(1, "--help")  # skips where there is no mpirun
        run_file = self.run_file(plan="data_parallel(3)", batch=9, steps=1000000)
        world = subprocess.Popen(["mpirun", "-n", "3", PROGRAM, "train", run_file, "--json", "--timeout", timeout],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
                                 env=self.ENVIRONMENT)
        drain = threading.Thread(target=lambda: [None for _ in world.stdout], daemon=True)
        try:
            if not world.stdout.readline():  # all ranks train
                self.skipTest("this build has no MPI: " + world.stderr.read())
            drain.start()
            os.kill(self.process_of_rank(world.pid, 1), sent)
            errors = world.stderr.read()
            code = world.wait(timeout=60)
            drain.join()
            world.stdout.close()
            world.stderr.close()
        finally:
            if world.poll() is None:
                world.kill()
        return code, [line for line in errors.splitlines() if line.startswith("tessera")], errors

    @staticmethod
    def process_of_rank(parent, rank):
        for entry in pathlib.Path("/proc").iterdir():
            try:
                status = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                variables = (entry / "environ").read_bytes().split(b"\0")
            except (OSError, IndexError):
                continue
            if int(status[1]) == parent and f"OMPI_COMM_WORLD_RANK={rank}".encode() in variables:
                return int(entry.name)
        raise AssertionError(f"no process of rank {rank}")

    def test_a_killed_rank_stops_the_others_with_a_line_each(self):
        code, lines, errors = self.lose_rank_1(signal.SIGKILL, timeout="20")
        self.assertNotEqual(code, 0)
        self.assertTrue(lines, errors)
        for line in lines:
            self.assertRegex(line, r"^tessera: rank [02]: (op \S+, tensor \S+.*, axis dp: |.*)stopped", errors)

    def test_a_rank_that_hangs_ends_the_others_with_code_3(self):
        code, lines, errors = self.lose_rank_1(signal.SIGSTOP, timeout="2")
        self.assertEqual(code, 3, errors)
        self.assertTrue(any(re.match(r"tessera: rank [02]: op \S+, tensor \S+.*, axis dp: no answer from ranks "
                                     r"\{.*1.*\} within 2 s$", line) for line in lines), errors)

    def test_the_losses_are_those_of_threads(self):
        arguments = ["train", self.run_file(plan="data_parallel(2)"), "--json"]
        answer = self.mpirun(2, *arguments)
        self.assertEqual(answer.code, 0, answer.err)
        lines = [json.loads(line) for line in answer.out.splitlines()]
        if lines[-1]["summary"]["transport"] != "mpi":
            self.skipTest("this build has no MPI")
        threads = [json.loads(line) for line in self.expect_text(*arguments).splitlines()]
        self.assertEqual(len(lines), len(threads))  # rank 0 alone prints
        for a, b in zip(lines[:-1], threads):
            self.assertAlmostEqual(a["loss"], b["loss"], delta=1e-5 * b["loss"])
        self.assertEqual(lines[-1]["summary"]["bytes_sent"], threads[-1]["summary"]["bytes_sent"])

    def test_wrong_input_is_reported_once(self):
        answer = self.mpirun(2, "train", self.run_file(plan="data_parallel(4)"))
        if "no runtime" in answer.err or answer.code == 0:
            self.skipTest("this build has no MPI")
        self.assertEqual([line for line in answer.err.splitlines() if line.startswith("tessera")],
                         ["tessera: data_parallel(4): its mesh {dp=4} needs 4 ranks, found 2 (mpirun)"])


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
        for first, second, splits in cases:
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

    def test_a_plan_that_is_not_equal_to_zero_tolerance_ends_with_1(self):
        answer = run("verify", MODEL, "--plan", "data_parallel(2)", "--tolerance", "0")
        self.assertEqual(answer.code, 1)
        self.assertRegex(answer.err, r"^tessera: verify: not equal: [^\n]+\n$")

    def test_a_mesh_larger_than_the_ranks(self):
        self.expect_error(2, "data_parallel(4): its mesh {dp=4} needs 4 ranks, found 2 (--ranks)",
                          "verify", MODEL, "--plan", "data_parallel(4)", "--ranks", "2")


class GraphFile(RuntimeTest):
    """A graph in text form as MODEL; the example is that of docs/guides/bring-a-model.md."""
    def setUp(self):
        super().setUp()
        page = (ROOT / "docs/guides/bring-a-model.md").read_text(encoding="utf-8")
        self.graph = self.write("my.graph", page.split("```\n", 1)[1].split("```", 1)[0])

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


class Predict(CliTest):
    HEADER = ("row_id,source,model,params,layers,hidden,heads,kv_heads,ffn,seq,vocab,gpu,n_gpus,gpus_per_node,tp,pp,vpp,dp,cp,"
              "ep,zero,microbatch,global_batch,recompute,dtype")
    ROW = "r1,Megatron-LM,,,2,256,4,,,128,1024,A100-80GB,4,8,2,1,1,2,1,1,0,1,4,none,fp16"

    def test_rows_get_figures_or_a_reason(self):
        rows = self.write("rows.csv", "\n".join([self.HEADER, self.ROW, self.ROW.replace("r1", "r2").replace("A100-80GB", "abacus")]))
        lines = self.expect_text("predict", rows).splitlines()
        self.assertEqual(lines[0], "row_id,step_time_s,mem_GB,relative_uncertainty,style,reason")
        self.assertRegex(lines[1], r'^r1,[0-9.e-]+,[0-9.]+,[0-9.]+,"?megatron,')
        self.assertEqual(lines[2], 'r2,,,,,"the GPU \'abacus\' is not known, did you mean \'habana\'?"')
        self.assertEqual(self.expect_text("predict", rows, "--threads", "2").splitlines(), lines)
        self.assertIn("recipe      megatron(dp=2,tp=2,micro_batches=2,precision=float16)", self.expect_text("predict", rows, "--explain", "r1"))

    def test_accuracy_writes_both_figures_and_holds_a_page_to_them(self):
        header = self.HEADER + ",tflops_per_gpu,tokens_per_s_per_gpu,step_time_s,mem_GB,notes,quality"
        rows = self.write("rows.csv", header + "\n" + self.ROW + ",,,0.5,3,,A\n")
        each, page = os.path.join(self.folder, "each.csv"), os.path.join(self.folder, "page.md")
        self.assertEqual(self.expect_text("accuracy", rows, "--each", each, "-o", page), "")
        with open(each, encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertEqual(lines[0], "row_id,source,group,quality,reported_s,predicted_s,others_constants_s,unnamed_s,reported_bytes,"
                         "predicted_bytes")
        predicted = self.expect_text("predict", rows).splitlines()[1].split(",")[1]
        self.assertRegex(lines[1], rf"^r1,Megatron-LM,Megatron-LM\|\|4\|4,A,0.5,{predicted},{predicted},[0-9.e+-]+,3e\+09,[0-9.e+]+$")
        self.assertEqual(self.expect_text("accuracy", rows, "--check", page), "")
        with open(page, encoding="utf-8") as file:
            text = file.read()
        self.write("page.md", text.replace("1 of 1 rows", "2 of 1 rows"))
        line = text.splitlines()[4]
        changed = line.replace("1 of 1 rows", "2 of 1 rows")
        self.expect_error(1, f"{page}:5: expected '{line}', found '{changed}'; make accuracy writes it anew",
                          "accuracy", rows, "--check", page)

    def test_accuracy_may_hide_the_names_of_sources(self):
        header = self.HEADER + ",tflops_per_gpu,tokens_per_s_per_gpu,step_time_s,mem_GB,notes,quality"
        row = self.ROW.replace("Megatron-LM", "Megatron-DeepSpeed")
        rows = self.write("rows.csv", header + "\n" + row + ",,,0.5,,,A\n")
        named, unnamed = (self.expect_json("accuracy", rows, "--json", *hidden) for hidden in ((), ("--unnamed",)))
        self.assertEqual(list(unnamed["others_constants"]["sources"]), ["Megatron-DeepSpeed"])
        self.assertNotEqual(named["others_constants"]["macro_mape"], unnamed["others_constants"]["macro_mape"])
        self.assertIn("**Without the names of sources**", self.expect_text("accuracy", rows, "--unnamed"))

    def test_wrong_input_is_one_line(self):
        rows = self.write("rows.csv", self.HEADER.replace(",hidden", "") + "\n")
        self.expect_error(2, f"{rows}:1: expected the column 'hidden', found none; nearest: 'model'", "predict", rows)
        good = self.write("good.csv", self.HEADER + "\n" + self.ROW + "\n")
        self.expect_error(2, "predict: no row 'r9', did you mean 'r1'?", "predict", good, "--explain", "r9")
        self.expect_error(2, "expected [SCOPE.]KEY=VALUE, found 'jitter'", "predict", good, "--style-set", "jitter")
        self.expect_error(2, f"{good}:1: expected the column 'step_time_s', found none", "accuracy", good)
        self.expect_error(2, "expected ROWS.csv or --reality FILE, found neither", "accuracy")

    def test_accuracy_shows_steps_measured_on_a_machine_alone(self):
        pair = {"model": "small", "plan": "serial", "transport": "threads", "ranks": 1, "runs": [0.1, 0.12], "bytes": 0,
                "memory": 4096, "predicted": {"step_time_s": 0.121, "bytes": 0, "memory": 4096}, "error": ""}
        measured = {"date": "2026-01-02", "command": "run", "machine": {}, "models": {}, "pairs": [pair]}
        file = self.write("reality.json", json.dumps(measured))
        self.assertIn("| small | `serial` | 1 threads | 110.0 | 121.0 | +10.0 % |",
                      self.expect_text("accuracy", "--reality", file))
        scores = self.expect_json("accuracy", "--reality", file, "--json")
        self.assertEqual((scores["pairs"], scores["exact"], scores["failed"]), (1, 1, 0))
        self.expect_error(2, "--each: expected ROWS.csv, found none", "accuracy", "--reality", file, "--each", "each.csv")
        self.assertFalse(os.path.exists("each.csv"))
        text = self.write("text.json", "{}")
        self.expect_error(2, f"{text}: expected the file of benchmarks/run_reality.py, found: "
                             "[json.exception.out_of_range.403] key 'date' not found", "accuracy", "--reality", text)



if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
