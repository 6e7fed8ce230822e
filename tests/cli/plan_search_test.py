"""tessera plan: searches. How to run it: cli.py."""
import json
import os
import pathlib
import pty
import signal
import subprocess

from cli import CliTest, MODEL, ROOT, has_runtime, main, program, run

SMALL = "mlp:layers=2,in=64,hidden=64,out=10"  # searched in a thirtieth of the time of MODEL


class Planner(CliTest):
    def test_the_plan_is_found_and_its_prediction_is_that_of_simulate(self):
        path = os.path.join(self.folder, "found.toml")
        question = [SMALL, "--cluster", "local:2", "--batch", "8"]
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

    def test_report_draws_what_a_search_saw(self):
        question = [SMALL, "--cluster", "local:2", "--batch", "8"]
        answer, page = self.write("answer.json", self.expect_text("plan", *question, "--json")), os.path.join(self.folder, "page.html")
        drawn = run("report", "--curve", answer, "-o", page)
        if "no plotting library" not in drawn.err:
            self.assertEqual((drawn.code, drawn.err), (0, ""))
            self.assertRegex(drawn.out, r"page\.html: [0-9.]+ MiB of [0-9]+ choices\n")
        torn = self.write("torn.json", pathlib.Path(answer).read_text(encoding="utf-8")[:-9])
        self.expect_error(2, f"{torn}: expected what tessera plan MODEL --json prints, found no JSON, or a part of one",
                          "report", "--curve", torn, "-o", page)
        for wrong in ([], [SMALL], ["--plan", "serial"], ["--curve", answer, "--plan", "serial"]):
            self.expect_error(2, "report: expected MODEL with --plan, or --curve, or both, or the folder of a run (tessera report --help)",
                              "report", *wrong, "-o", page)

    def test_inspect_and_report_take_auto(self):
        question = [SMALL, "--cluster", "local:2", "--batch", "8", "--plan", "auto"]
        path, page = (os.path.join(self.folder, name) for name in ("found.toml", "page.html"))
        text = self.expect_text("plan", *question[:-2], "--out", path)
        choice = text.splitlines()[1]  # behind the line that names model and machine
        of_file = [path if word == "auto" else word for word in question]
        self.assertEqual(self.expect_text("inspect", *question, "--rank", "0"), self.expect_text("inspect", *of_file, "--rank", "0"))
        drawn = run("report", *question, "-o", page)
        if "no plotting library" not in drawn.err:
            self.assertEqual((drawn.code, drawn.err), (0, ""))
            self.assertIn(f"auto: {choice}", pathlib.Path(page).read_text(encoding="utf-8"))
        self.expect_error(2, "plan auto: expected --batch, the sequences of a step", "inspect", question[0], "--cluster", "local:2",
                          "--plan", "auto")

    def test_verify_takes_auto(self):
        if not has_runtime():
            self.skipTest("this build has no runtime (libtorch)")
        for ranks in ("2", "3"):
            self.assertTrue(self.expect_json("verify", SMALL, "--plan", "auto", "--ranks", ranks, "--batch", "6",
                                             "--json")["ok"])

    def test_candidates_are_explained(self):
        text = self.expect_text("plan", SMALL, "--cluster", "local:2", "--batch", "8", "--explain", "--fix", "tp=2",
                                "--evaluations", "8")
        self.assertIn("# Candidates, as they were tried (* the answer):\n", text)
        self.assertIn("# Time of the devices: compute ", text)
        self.assertIn("# Blocks (both passes; of one unit of the row):\n", text)
        self.assertIn("#   with twice the memory: ", text)
        answer = self.expect_json("plan", SMALL, "--cluster", "local:2", "--batch", "8", "--explain", "--fix", "tp=2",
                                  "--evaluations", "8", "--json")
        self.assertIn("tp: ", " ".join(row["chosen"] for row in answer["blocks"]))
        self.assertLessEqual(answer["with_twice_memory"]["step_time_s"], 1.001 * answer["best"]["step_time_s"])

    def test_progress_is_shown_and_an_interrupted_search_gives_the_best_so_far(self):
        model = "gpt:layers=32,hidden=2560,heads=32,seq=1024,vocab=51200"
        terminal, errors = pty.openpty()
        self.addCleanup(os.close, terminal)
        search = subprocess.Popen([program(), "plan", model, "--cluster", "dgx-a100:8", "--batch", "512", "--evaluations",
                                   "100000", "--json"], stdout=subprocess.PIPE, stderr=errors, text=True)
        os.close(errors)
        self.addCleanup(search.kill)
        shown = b""
        while b"plan: " not in shown:  # after a second
            shown += os.read(terminal, 4096)
        search.send_signal(signal.SIGINT)
        out = search.communicate(timeout=120)[0]
        self.assertEqual(search.returncode, 0)
        answer = json.loads(out)
        self.assertEqual(answer["ended"], "stopped")
        self.assertIn("mesh = ", answer["text"])

    def test_a_search_ends_after_the_given_time(self):
        question = ["plan", SMALL, "--cluster", "local:2", "--batch", "8"]
        answer = self.expect_json(*question, "--seconds", "0.001", "--json")
        self.assertEqual(answer["ended"], "stopped")
        self.assertIn("mesh = ", answer["text"])
        self.assertEqual(run(*question, "--seconds", "0").code, 2)

    def test_other_objectives_than_time(self):
        question = ["plan", SMALL, "--cluster", "local:2", "--batch", "8", "--evaluations", "8"]
        fastest = self.expect_json(*question, "--json")["best"]
        cheap = self.expect_json(*question, "--objective", "money", "--price", "3.6", "--json")
        self.assertEqual(cheap["objective"], "money")
        self.assertAlmostEqual(cheap["best"]["usd_a_step"],
                               cheap["best"]["step_time_s"] * cheap["best"]["devices"] * 3.6 / 3600, delta=1e-12)
        self.assertLessEqual(cheap["best"]["usd_a_step"], fastest["step_time_s"] * fastest["devices"] * 3.6 / 3600 * (1 + 1e-9))
        self.assertNotIn("deadline_s", cheap)
        few = self.expect_json(*question, "--objective", "devices", "--within", "10000%", "--json")
        self.assertEqual(few["best"]["devices"], 1)
        self.assertAlmostEqual(few["deadline_s"], 101 * few["fastest_step_time_s"], delta=1e-9)
        text = self.expect_text(*question, "--objective", "memory", "--price", "local=3.6")
        self.assertRegex(text, r"# objective memory as little as can be; .* USD a step, .* USD for 1000 sequences, .* USD an hour; "
                               r"a step of at most .*, as the fastest takes ")
        late = run(*question, "--objective", "devices", "--within", "1 ns")
        self.assertEqual(late.code, 1)
        self.assertIn("no plan takes at most 1e-06 ms a step: the fastest of ", late.err)

    def test_objectives_that_say_nothing_sensible_are_refused(self):
        question = ["plan", SMALL, "--cluster", "local:2", "--batch", "8"]
        for given, line in [
                (["--objective", "money"], "plan: --objective money: expected --price local=USD an hour of a device, found none"),
                (["--within", "10%"], "plan: --within: expected --objective money, devices or memory beside it, found '10%' with time"),
                (["--objective", "memory", "--within", "soon"], "plan: --within: expected how much longer than the fastest a step may "
                                                                "take, as 10%, or how long, as '1.5 s', found 'soon'"),
                (["--price", "h100=2"], "--price: expected TYPE=USD an hour, as local=2.5, where the types are local, found 'h100=2'"),
                (["--price", "-1"], "--price: expected TYPE=USD an hour, as local=2.5, where the types are local, found '-1'"),
                (["--objective", "devices", "--planner", "recipes"], "plan: --objective devices: expected --planner auto or "
                                                                     "megatron_grid, found 'recipes', which looks for the least time")]:
            self.expect_error(2, line, *question, *given)

    def test_the_plan_contains_the_given_part(self):
        part = os.path.join(self.folder, "part.toml")
        pathlib.Path(part).write_text('mesh = { tp = 2 }\nstore = [ { tensors = "optimizer.*", tier = "host" } ]\n')
        question = ["plan", SMALL, "--cluster", "local:2", "--batch", "8", "--with", part]
        answer = self.expect_json(*question, "--json")
        self.assertIn("tp = 2", answer["text"])
        self.assertIn('{ tensors = "optimizer.*", tier = "host" }', answer["text"])
        self.expect_error(2, f"{part}:1: the part says tp = 2, but --fix says tp=1", *question, "--fix", "tp=1")
        pathlib.Path(part).write_text('\nstore = [ { tensors = "optimiser.*", tier = "host" } ]\n')
        self.expect_error(2, f"{part}:2: tensors = \"optimiser.*\" selects no tensor, did you mean 'optimizer.m'?",
                          *question)
        question[-1] = part + "s"
        self.expect_error(2, f"cannot read '{part}s': No such file or directory", *question)

    def test_tables_are_placed_for_the_optimizer_that_is_asked(self):
        model = "dlrm:rows=400000-300000-2000-50,bags=10-1-4-1,width=32,bottom=64-32,top=64-1"
        question = ["plan", model, "--cluster", "dgx-a100:1", "--batch", "4096", "--optimizer",
                    "adamw,tables.*=rowwise_adagrad"]
        steps = {}
        for planner in ("auto", "neuroshard", "torchrec"):
            path = os.path.join(self.folder, planner + ".toml")
            answer = self.expect_json(*question, "--planner", planner, "--out", path, "--json")
            simulated = self.expect_json("simulate", model, "--cluster", "dgx-a100:1", "--batch", "4096", "--plan", path,
                                         *question[-2:], "--json")
            self.assertAlmostEqual(simulated["step_time_s"], answer["best"]["step_time_s"], delta=1e-9)
            steps[planner] = simulated["step_time_s"]
        self.assertLessEqual(steps["auto"], 1.0005 * min(steps.values()))
        text = self.expect_text(*question, "--planner", "torchrec")
        self.assertIn(" with tables by torchrec\n", text)
        dense = self.expect_json("simulate", model, "--cluster", "dgx-a100:1", "--batch", "4096", "--plan",
                                 os.path.join(self.folder, "torchrec.toml"), "--json")
        self.assertGreater(dense["step_time_s"], steps["torchrec"])
        self.expect_error(2, "plan: planner 'torchrec': expected a model with embedding tables (as dlrm), found no op that looks up "
                          "rows of a parameter", "plan", "mlp:layers=2", "--cluster", "dgx-a100:1", "--batch", "16",
                          "--planner", "torchrec")
        self.expect_error(2, "optimizer: expected PATTERN=OPTIMIZER behind the first, as tables.*=rowwise_adagrad, found 'sgd'",
                          *question[:-1], "adamw,sgd")
        self.expect_error(2, "optimizer.group: expected a pattern of the model's parameters (as 'top.1.bias'), found 'table', "
                          "which none has", *question[:-1], "adamw,table=sgd")

    def test_nothing_fits_is_exit_code_1(self):
        answer = run("plan", SMALL, "--cluster", "local:2", "--batch", "8", "--memory-limit", "20 kB")
        self.assertEqual((answer.code, answer.out), (1, ""))
        self.assertTrue(answer.err.startswith("tessera: plan: nothing fits: the smallest of "), answer.err)

    def test_what_does_not_fit_on_the_device_rests_on_the_host(self):
        question = ["plan", "gpt:layers=8,hidden=1024,heads=16,seq=512,vocab=8192", "--cluster", "2080ti:1", "--batch", "8",
                    "--precision", "float16", "--fix", "devices=1", "--memory-limit", "2.3 GB", "--evaluations", "24"]
        answer = run(*question, "--fix", "offload=none")
        self.assertEqual((answer.code, answer.out), (1, ""))
        self.assertIn("nothing fits", answer.err)
        path = os.path.join(self.folder, "offloaded.toml")
        text = self.expect_text(*question, "--fix", "offload=optimizer", "--out", path)
        self.assertRegex(text, r"\nhost +\S+ GiB a device \(optimizer state\)\n")
        self.assertIn('tier = "host"', pathlib.Path(path).read_text())
        self.assertEqual(self.expect_json(*question, "--fix", "offload=states", "--json")["offload"], "states")
        self.expect_error(2, "plan: --fix offload=disk: expected offload = none or optimizer or states or all, found 'disk', "
                             "did you mean 'none'?", *question, "--fix", "offload=disk")
        self.expect_error(2, "plan: --fix offload=states: expected --planner auto, found planner 'alpa', which leaves all tensors on "
                             "the devices", *question, "--fix", "offload=states", "--planner", "alpa")

    def test_halos_are_treated_as_asked(self):
        question = ["plan", "cosmoflow:width=512", "--cluster", "dgx-v100-16:1", "--batch", "4", "--fix", "tp=2", "--evaluations", "4",
                    "--style", "tessera", "--memory-limit", "100%"]
        path = os.path.join(self.folder, "halos.toml")
        text = self.expect_text(*question, "--fix", "rims=1", "--fix", "halo_layers=2", "--out", path)
        self.assertIn(" rims halo_layers=2\n", text)
        plan = pathlib.Path(path).read_text()
        self.assertIn('"time:rims"', plan)
        self.assertIn('halo = "compute"', plan)
        plain = self.expect_text(*question, "--fix", "rims=0", "--fix", "halo_layers=1", "--out", path)
        self.assertNotIn("rims", plain + pathlib.Path(path).read_text())
        self.assertNotIn("compute\"", pathlib.Path(path).read_text())
        self.expect_error(2, "plan: --fix rims=2: expected a whole number from 0 to 1", *question, "--fix", "rims=2")
        self.expect_error(2, "plan: --fix halo_layers=0: expected a whole number of at least 1", *question, "--fix", "halo_layers=0")
        self.expect_error(2, "plan: --fix rims=1: expected --planner auto, found planner 'rannc', which waits for halos before it "
                             "computes", *question, "--fix", "rims=1", "--planner", "rannc")

    def test_wrong_questions(self):
        question = ["plan", MODEL, "--cluster", "local:2", "--batch", "8"]
        self.expect_error(2, "plan: --fix: expected KEY=VALUE, found 'tp'", *question, "--fix", "tp")
        self.assertEqual(run(*question, "--planner", "alpha").code, 2)
        self.expect_error(2, "plan: --memory-limit: expected a size with a unit, as '80 GB', found '80' without one",
                          *question, "--memory-limit", "80")
        for limit in ("0 MB", "-3 GB", "1e9 TB"):
            self.expect_error(2, f"plan: --memory-limit: expected a size from 1 B to 1000 TB, found '{limit}'", *question,
                              f"--memory-limit={limit}")


class Examples(CliTest):
    def test_every_plan_of_the_examples_lowers(self):
        plans = sorted((ROOT / "examples" / "plans").glob("*.toml"))
        self.assertGreater(len(plans), 3)
        for plan in plans:
            with self.subTest(plan=plan.name):
                model = plan.read_text().splitlines()[0].removeprefix("# Model: ")
                self.expect_json("inspect", str(plan), "--model", model, "--batch", "12", "--json")


if __name__ == "__main__":
    main()
