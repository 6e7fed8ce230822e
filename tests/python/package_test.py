"""The Python package as users have it: installed from its wheel (scripts/wheel runs this file in a fresh environment).

Usage: python package_test.py [unittest options]. What needs pandas is skipped, with the reason, where pandas is not installed.
"""
import doctest
import html.parser
import importlib.util
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import unittest

import tessera
import tessera._commands
import tessera._table
import tessera._values

MODEL = "gpt:layers=2,hidden=64,heads=4,seq=32,vocab=128"
COMMAND = pathlib.Path(sysconfig.get_path("scripts")) / "tessera"
# The user's file of defaults does not count.
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"

PLAN_TEXT = '''mesh = { dp = 2, tp = 2 }
split = [
  { ops = "*", dim = "batch", over = "dp" },
  { ops = "blocks.*.mlp", dim = "ffn", over = "tp" },
]
'''
CLUSTER_TEXT = subprocess.run([COMMAND, "inspect", "dgx-a100:1", "--text"], capture_output=True, text=True, check=True).stdout


def load_tests(_loader, tests, _pattern):
    """Adds the examples of all docstrings."""
    for module in (tessera, tessera._table, tessera._values, tessera._commands):
        tests.addTests(doctest.DocTestSuite(module, optionflags=doctest.ELLIPSIS))
    return tests


def printed(*arguments, code=0):
    """What the command of the wheel prints with --json, without the number of the format."""
    done = subprocess.run([COMMAND, *arguments, "--json"], capture_output=True, text=True, check=False)
    if done.returncode != code:
        raise AssertionError(f"{arguments}: exit code {done.returncode}: {done.stderr}")
    answer = json.loads(done.stdout)
    del answer["schema"]
    answer.pop("notes", None)
    return answer


class Html(html.parser.HTMLParser):
    """Checks that what is opened is closed, and collects the text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text = [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            raise AssertionError(f"</{tag}> closes nothing")

    def handle_data(self, data):
        self.text += data


class PackageTest(unittest.TestCase):
    maxDiff = None

    def refused(self, kind, message, call, *arguments, **options):
        with self.assertRaises(kind) as caught:
            call(*arguments, **options)
        self.assertIn(message, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))
        self.assertIs(type(caught.exception), kind)


class SameAsTheCommand(PackageTest):
    def test_a_simulation(self):
        self.assertEqual(tessera.simulate(MODEL, "megatron(tp=2,dp=2)", "dgx-a100:1", batch=8, what_if="link:inner*0.5",
                                          stragglers={1: 1.5}).json,
                         printed("simulate", MODEL, "--plan", "megatron(tp=2,dp=2)", "--cluster", "dgx-a100:1", "--batch", "8",
                                 "--what-if", "link:inner*0.5", "--straggler", "1*1.5"))

    def test_a_search(self):
        options = ["--batch", "16", "--evaluations", "20", "--fix", "tp=2", "--precision", "float32"]
        found = tessera.plan(MODEL, "8xA100", batch=16, evaluations=20, fixed={"tp": 2}, precision="float32")
        self.assertEqual(found.found.json, printed("plan", MODEL, "--cluster", "8xA100", *options))
        self.assertEqual(found.text, found.found["text"])

    def test_a_search_for_a_framework(self):
        model = "llama:layers=2,hidden=64,heads=4,ffn=128,vocab=128"
        found = tessera.plan(model, "8xA100", framework="torchtitan", batch=8)
        answer = printed("plan", model, "--cluster", "8xA100", "--for", "torchtitan", "--batch", "8")
        self.assertEqual((found.found.json, found.text, found.found.launch), (answer, answer["plan"], answer["text"]))
        self.assertEqual(len(found.found.candidates), 1 + len(answer["others"]))

    def test_an_inspection(self):
        self.assertEqual(tessera.inspect(MODEL, "ddp(2)").json, printed("inspect", MODEL, "--plan", "ddp(2)"))
        self.assertEqual(tessera.inspect(MODEL, "ddp(2)", rank=0).text, printed("inspect", MODEL, "--plan", "ddp(2)", "--rank", "0")["text"])

    def test_a_sharding(self):
        self.assertEqual(tessera.shard("random:max_dim=64,seed=7", 4, 4 * 2**30).json,
                         printed("shard", "random:max_dim=64,seed=7", "--devices", "4", "--memory", "4 GiB"))

    def test_an_export(self):
        model = "llama:layers=2,hidden=64,heads=4,ffn=128,vocab=128"
        self.assertEqual(tessera.export(model, "fsdp(8)", "torchtitan").json,
                         printed("export", model, "--plan", "fsdp(8)", "--to", "torchtitan"))


class Values(PackageTest):
    def test_are_equal_by_their_contents_and_pickled(self):
        simulation = tessera.simulate(MODEL, "ddp(2)", "dgx-a100:1", batch=4)
        found = tessera.plan(MODEL, "8xA100", batch=16, evaluations=5)
        values = [tessera.Model(MODEL), tessera.Plan(PLAN_TEXT), tessera.Plan("ddp(2)"), tessera.Cluster("8xA100"), simulation,
                  simulation.roles, found, found.found, tessera.inspect(MODEL)]
        for value in values:
            again = pickle.loads(pickle.dumps(value))
            self.assertEqual(again, value)
            self.assertEqual(hash(again), hash(value))
            self.assertEqual(repr(again), repr(value))
        self.assertNotEqual(tessera.Plan("ddp(2)"), tessera.Plan("ddp(4)"))
        self.assertNotEqual(tessera.Plan("ddp(2)"), tessera.Model(MODEL))

    def test_a_model_may_be_the_text_of_a_graph(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "small.graph"
            path.write_text(subprocess.run([COMMAND, "inspect", MODEL, "--batch", "4", "--text"], capture_output=True, text=True,
                                           check=True).stdout, encoding="utf-8")
            model = tessera.Model(path.read_text(encoding="utf-8"))
            self.assertEqual(model.parameters, tessera.Model(path).parameters)
        self.assertEqual(model.parameters, tessera.Model(MODEL).parameters)
        step = tessera.simulate(pickle.loads(pickle.dumps(model)), "ddp(2)", "dgx-a100:1")
        self.assertEqual(step["batch"], 4)
        self.assertEqual(tessera.simulate(model, "ddp(2)", "dgx-a100:1"), step)

    def test_a_plan_may_be_a_text_or_a_file(self):
        plan = tessera.Plan(PLAN_TEXT)
        self.assertEqual((plan.ranks, plan.mesh, plan.micro_batches), (4, {"dp": 2, "tp": 2}, 1))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "mine.toml"
            plan.save(path)
            self.assertEqual(tessera.Plan(path), plan)
        written = tessera.Plan("megatron(tp=2,dp=2)").written(MODEL)
        self.assertEqual(written.ranks, 4)
        self.assertIs(written.written(MODEL), written)

    def test_a_cluster_may_be_a_text(self):
        cluster = tessera.Cluster(CLUSTER_TEXT)
        named = tessera.Cluster("dgx-a100:1")
        self.assertEqual((cluster.devices, cluster.nodes, cluster.memory_bytes), (8, 1, named.memory_bytes))
        self.assertEqual(tessera.simulate(MODEL, "ddp(8)", cluster, batch=8).step_time_s,
                         tessera.simulate(MODEL, "ddp(8)", named, batch=8).step_time_s)


class Refusals(PackageTest):
    def test_are_one_line_of_the_kind(self):
        self.refused(tessera.InputError, "unknown model 'gpd', did you mean 'gpt'?", tessera.Model, "gpd:layers=2")
        self.refused(tessera.InputError, "did you mean '8xh100'", tessera.Cluster, "8xH1000")
        self.refused(tessera.InputError, "plan.toml:1:", tessera.Plan, "mish = { dp = 2 }\n")
        self.refused(tessera.InputError, "cannot read '/nonexistent/a.toml': No such file", tessera.Plan, "/nonexistent/a.toml")
        self.refused(tessera.InputError, "unknown argument 'zero'", tessera.simulate, MODEL, "ddp(2,zero=9)", "dgx-a100:1")
        self.refused(tessera.InputError, "--batch", tessera.plan, MODEL, "8xA100", batch=0)
        self.refused(tessera.InputError, "expected a text, a path or a torch.nn.Module, found int", tessera.Model, 3)
        self.refused(tessera.InputError, "expected a torch.nn.Module with example", tessera.Model, MODEL, (1,))
        self.refused(tessera.InputError, "rows.csv", tessera.predict, "row_id\na\n")
        self.refused(tessera.InputError, "expected a path, rows or a DataFrame, found int", tessera.predict, 3)

    def test_have_kinds_that_python_knows(self):
        self.assertTrue(issubclass(tessera.InputError, ValueError))
        self.assertTrue(issubclass(tessera.Fault, RuntimeError))
        self.assertTrue(issubclass(tessera.DoesNotFit, tessera.Error))

    def test_what_does_not_fit(self):
        self.refused(tessera.DoesNotFit, "nothing fits: the smallest of", tessera.plan, MODEL, "8xA100", batch=16, evaluations=5,
                     memory_limit=10**6)
        tiny = CLUSTER_TEXT.replace('memory = "80 GiB"', 'memory = "1 MiB"')
        self.refused(tessera.DoesNotFit, "plan auto: ", tessera.simulate, MODEL, "auto", tiny, batch=8)
        step = tessera.simulate("gpt:layers=48,hidden=8192,heads=64", "ddp(8)", "8xA100", batch=8, evaluations=0)
        self.assertFalse(step.fits)
        self.assertTrue(any("GiB" in line for line in step.notes), step.notes)
        self.refused(tessera.DoesNotFit, "", tessera.shard, "random:max_dim=64,seed=7", 1, 1000)

    def test_of_a_program_without_a_runtime(self):
        before = os.environ.pop("TESSERA_PROGRAM", None)
        path = os.environ["PATH"]
        try:
            os.environ["PATH"] = str(COMMAND.parent)
            self.refused(tessera.InputError, "expected a program with the runtime", tessera.verify, MODEL, "ddp(2)")
            os.environ["TESSERA_PROGRAM"] = str(COMMAND)
            self.refused(tessera.InputError, "TESSERA_PROGRAM: expected a program with libtessera_runtime.so beside it",
                         tessera.train, "run.toml")
        finally:
            os.environ["PATH"] = path
            del os.environ["TESSERA_PROGRAM"]
            if before is not None:
                os.environ["TESSERA_PROGRAM"] = before


class Calls(PackageTest):
    def setUp(self):
        # What a shell starts in the background ignores Ctrl-C.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))

    def test_progress_comes_on_the_callers_thread(self):
        seen = []
        tessera.plan("gpt:layers=24,hidden=1024,heads=16", "dgx-a100:4", batch=256, evaluations=12,
                     progress=lambda what: seen.append((what, threading.current_thread())))
        self.assertTrue(any(what.startswith("simulating") for what, _ in seen), seen)
        self.assertEqual({thread for _, thread in seen}, {threading.current_thread()})

    def test_an_exception_of_the_callback_ends_the_search(self):
        def fail(what):
            raise KeyError(what)
        with self.assertRaises(KeyError):
            tessera.plan("gpt:layers=24,hidden=1024,heads=16", "dgx-a100:4", batch=256, progress=fail)
        self.assertEqual([thread.name for thread in threading.enumerate() if thread.name.startswith("tessera")], [])

    def test_ctrl_c_gives_the_best_plan_so_far(self):
        handler = signal.getsignal(signal.SIGINT)
        simulated = []

        def interrupt(what):
            simulated.append(what)
            if what.startswith("simulating") and not what.startswith("simulating 1 "):
                signal.raise_signal(signal.SIGINT)
        question = {"batch": 256, "evaluations": 200}
        found = tessera.plan("gpt:layers=24,hidden=1024,heads=16", "dgx-a100:4", progress=interrupt, **question)
        self.assertTrue(found.found.interrupted)
        self.assertLessEqual(found.ranks, 32)
        self.assertEqual(found.found["ended"], "stopped")
        self.assertIn("by Ctrl-C", found._repr_html_())
        self.assertTrue(tessera.simulate("gpt:layers=24,hidden=1024,heads=16", found, "dgx-a100:4", batch=256).fits)
        self.assertIs(signal.getsignal(signal.SIGINT), handler)

    def test_ctrl_c_goes_on_where_there_is_no_answer(self):
        def interrupt(what):
            signal.raise_signal(signal.SIGINT)
        with self.assertRaises(KeyboardInterrupt):
            tessera.report(MODEL, "auto", "dgx-a100:1", batch=8, progress=interrupt)

    def test_python_runs_beside_a_command_and_calls_run_beside_each_other(self):
        counted = [0]
        ended = threading.Event()

        def count():
            while not ended.is_set():
                counted[0] += 1
        counter = threading.Thread(target=count)
        plans = [f"megatron(tp={tp},dp={dp})" for tp, dp in ((1, 2), (2, 1), (2, 2), (4, 2))]
        alone = [tessera.simulate(MODEL, plan, "dgx-a100:1", batch=8) for plan in plans]
        together = [None] * len(plans)

        def ask(index):
            together[index] = tessera.simulate(MODEL, plans[index], "dgx-a100:1", batch=8)
        counter.start()
        before = counted[0]
        threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(plans))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ended.set()
        counter.join()
        self.assertGreater(counted[0], before)
        self.assertEqual(together, alone)
        self.assertEqual([step.notes for step in together], [step.notes for step in alone])


class Pages(PackageTest):
    def test_answers_are_drawn(self):
        step = tessera.simulate(MODEL, "ddp(2)", "dgx-a100:1", batch=4)
        found = tessera.plan(MODEL, "8xA100", batch=16, evaluations=5)
        for shown in (step, step.roles, step.transfers, found, found.found, tessera.Model(MODEL), tessera.Cluster("8xA100"),
                      tessera.inspect(MODEL, "ddp(2)"), tessera.shard("random:max_dim=64,seed=7", 4, "4 GiB"),
                      tessera.report(MODEL, "ddp(2)", "dgx-a100:1", batch=4)):
            page = Html(shown._repr_html_())
            self.assertEqual(page.open, [], type(shown))

    def test_texts_are_escaped(self):
        page = Html(tessera.Table([{"<b>": "<script>&"}])._repr_html_())
        self.assertIn("<script>&", page.text)
        self.assertIn("<b>", page.text)

    def test_a_report_is_the_page_of_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.html")
            subprocess.run([COMMAND, "report", MODEL, "--plan", "ddp(2)", "--cluster", "dgx-a100:1", "--batch", "4", "-o", path],
                           check=True, capture_output=True)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(tessera.report(MODEL, "ddp(2)", "dgx-a100:1", batch=4).html, file.read())

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "pandas is not installed")
    def test_tables_become_frames(self):
        roles = tessera.simulate(MODEL, "gpipe(2,4)", "dgx-a100:1", batch=4).roles
        frame = roles.to_pandas()
        self.assertEqual(list(frame.columns), roles.columns)
        self.assertEqual(list(frame["ranks"]), roles.column("ranks"))


class Command(PackageTest):
    def test_the_command_is_the_program(self):
        text = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(text, f"tessera {tessera.__version__}\n")
        done = subprocess.run([COMMAND, "verify", MODEL, "--plan", "ddp(2)"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("this build has no runtime", done.stderr)
        module = subprocess.run([sys.executable, "-m", "tessera", "--version"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(module, text)

    def test_importing_takes_nothing_heavy(self):
        code = "import sys, tessera; print([name for name in ('pandas', 'torch', 'numpy', 'IPython') if name in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "[]\n")


if __name__ == "__main__":
    unittest.main()
