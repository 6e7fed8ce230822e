"""Plans with outer steps in train, verify, simulate and inspect, and where they are refused. How to run it: cli.py."""
import json
import os
import shutil

from cli import BYTES_MODEL, MODEL, CliTest, MpiTest, RuntimeTest, main, run

THREE_LAYERS = "gpt:layers=3,hidden=16,heads=2,seq=16,vocab=256"
PLAN = """mesh = { site = 2, dp = 2 }
outer = { axis = "site", every = 3, %s }
split = [ { ops = "*", dim = "batch", over = "dp" } ]
"""


class Priced(CliTest):
    def plan(self, outer="momentum = 0.5"):
        return self.write("outer.toml", PLAN % outer)

    def test_simulate_adds_the_share_of_the_outer_steps(self):
        base = ["simulate", MODEL, "--batch", "32", "--cluster", "two_sites:1", "--style", "torchtitan", "--json"]
        cluster = ["--what-if", "fabric:uplink*1"]
        outer = self.expect_json(*base, "--plan", self.plan())["outer_steps"]
        self.assertEqual((outer["islands"], outer["every"], len(outer["outer_step_time_s"])), (2, 3, 1))
        self.assertAlmostEqual(outer["a_step_s"], sum(outer["outer_step_time_s"]) / 3)
        rare = self.expect_json(*base, "--plan", self.write("rare.toml", (PLAN % "lr = 0.5").replace("every = 3", "every = 300")))
        self.assertAlmostEqual(rare["step_time_s"], outer["inner_step_time_s"] + outer["a_step_s"] / 100, delta=1e-9)
        self.assertEqual((rare["ranks"], rare["batch"]), (4, 32))
        text = run(*[one for one in base if one != "--json"], *cluster, "--plan", self.plan()).out
        self.assertIn("outer steps     2 islands, one step in 3 (of 1 fragment)", text)

    def test_a_line_of_a_thousandth_of_the_rate_makes_the_outer_step_slow(self):
        # Twice as fast a line, half the time of the outer step, but for latencies.
        times = []
        for factor in (1, 2):
            found = self.expect_json("simulate", MODEL, "--batch", "32", "--cluster", "two_sites:1", "--style", "torchtitan", "--json",
                                     "--plan", self.write("split.toml", SPREAD), "--what-if", f"fabric:uplink*{factor}")
            times.append(found["outer_steps"]["outer_step_time_s"][0])
        self.assertTrue(1.8 < times[0] / times[1] < 2, times)

    def test_inspect_lists_the_fragments(self):
        text = self.expect_text("inspect", MODEL, "--plan", self.write("two.toml", (PLAN % "fragments = 2").replace("every = 3", "every = 4")))
        self.assertIn("outer steps: 2 islands along axis site, which exchange nothing for 2 steps; lossy\n", text)
        self.assertIn("One island:\n", text)
        self.assertIn("embed", text.split("One island")[0])

    def test_commands_that_take_no_such_plan_say_so(self):
        plan = self.plan()
        self.expect_error(2, f"{plan}:2: expected a plan without 'outer' here: train, verify, simulate and inspect take one with it",
                          "export", MODEL, "--plan", plan, "--to", "megatron")


# Two islands of eight devices, one node each.
SPREAD = """mesh = { site = 2, dp = 8 }
outer = { axis = "site", every = 10 }
split = [ { ops = "*", dim = "batch", over = "dp" } ]
"""


class Run(RuntimeTest):
    def test_an_island_leaves_and_comes_back(self):
        islands = {count: self.write(f"{count}.toml", f'mesh = {{ site = {count} }}\nouter = {{ axis = "site", every = 2 }}\n')
                   for count in (1, 2)}
        file = self.run_file(model=BYTES_MODEL, batch=4, steps=9, data="random", plan=islands[2])
        changes = ["--change", f"3:{islands[1]}", "--change", f"6:{islands[2]}"]
        answer = run("train", file, *changes, "--json")
        self.assertEqual((answer.code, answer.err), (0, ""))
        lines = [json.loads(line) for line in answer.out.splitlines()]
        found = [line["change"] for line in lines if "change" in line]
        self.assertEqual([(change["after"], change["ranks"]) for change in found], [(3, 1), (6, 2)])
        # Nothing moves where an island leaves; one that comes takes parameters and states.
        self.assertEqual(found[0]["bytes"], {"predicted": 0, "counted": 0})
        self.assertGreater(found[1]["bytes"]["counted"], 0)
        self.assertEqual(found[1]["bytes"]["predicted"], found[1]["bytes"]["counted"])
        losses = [line["loss"] for line in lines if "loss" in line]
        # Until the first change it is the run of two islands, and the islands that are left see the same batches.
        undisturbed = [json.loads(line)["loss"] for line in run("train", file, "--json").out.splitlines() if '"loss"' in line]
        self.assertEqual((len(losses), losses[:3]), (9, undisturbed[:3]))
        self.assertNotEqual(losses[4:], undisturbed[4:])

        self.expect_error(2, "change: expected a plan with outer steps after step 3, because the islands of the plan before have "
                          "parameters of their own, found one without", "train", file, "--change", "3:serial")
        self.expect_error(2, f"{file}: checkpoint.dir: expected none in a run that changes to a plan with outer steps, found 'ck'",
                          "train", file, *changes, "--set", "checkpoint.dir=ck")
        self.expect_error(2, "change: expected one plan for the whole run, because it has outer steps, found a change", "verify",
                          BYTES_MODEL, "--batch", "4", "--plan", islands[2], "--change", f"1:{islands[1]}")

    def test_verify_compares_with_islands_of_one_rank(self):
        found = json.loads(run("verify", BYTES_MODEL, "--batch", "8", "--steps", "4", "--json", "--plan",
                               self.write("outer.toml", PLAN % "delay = 1, mix = 0.5")).out)
        self.assertTrue(found["ok"])
        self.assertLess(max(found["max_rel_error"].values()), 1e-9)
        self.assertEqual(found["bytes"]["predicted"], found["bytes"]["counted"])

    def test_train_sends_over_the_axis_only_in_outer_steps(self):
        plan = self.write("outer.toml", PLAN.replace(", dp = 2", "").replace('over = "dp"', "over = []") % "lr = 0.7")
        file = self.run_file(steps=6, batch=4)
        answer = run("train", file, "--plan", plan, "--json")
        self.assertEqual((answer.code, answer.err), (0, ""))
        lines = [json.loads(line) for line in answer.out.splitlines()]
        summary = lines[-1]["summary"]
        self.assertEqual(summary["ranks"], 2)
        # Two outer steps of an all-reduce of all parameters between two ranks.
        self.assertEqual(summary["bytes_sent"]["all_reduce"], 2 * 2 * 4 * summary["parameters"])
        losses = [line["loss"] for line in lines if "step" in line]
        self.assertEqual(len(losses), 6)
        self.assertLess(losses[-1], losses[0])

    def losses(self, *arguments):
        answer = run("train", *arguments, "--json")
        self.assertEqual(answer.code, 0, answer.err)
        return {line["step"]: line["loss"] for line in map(json.loads, answer.out.splitlines()) if "step" in line}

    def test_a_run_goes_on_from_its_checkpoints(self):
        for outer in ("momentum = 0.9", "fragments = 3, mix = 0.25", "delay = 2"):
            plan = self.write("outer.toml", PLAN % outer)
            whole = self.losses(self.run_file(steps=12, model=THREE_LAYERS), "--plan", plan)
            saved = ["--set", f"checkpoint.dir={self.folder}/{len(outer)}", "--set", "checkpoint.every=3"]
            first = self.losses(self.run_file(steps=6, model=THREE_LAYERS), "--plan", plan, *saved)
            rest = self.losses(self.run_file(steps=12, model=THREE_LAYERS), "--plan", plan, *saved, "--resume")
            self.assertEqual({**first, **rest}, whole, outer)
            self.assertEqual(min(rest), 7)

    def test_a_checkpoint_that_one_island_lacks_is_left_out(self):
        plan, folder = self.write("outer.toml", PLAN % "lr = 0.7"), f"{self.folder}/saved"
        saved = ["--set", f"checkpoint.dir={folder}", "--set", "checkpoint.every=3"]
        whole = self.losses(self.run_file(steps=6), "--plan", plan, *saved)
        newest = sorted(os.listdir(f"{folder}/island1"))[-1]
        shutil.rmtree(f"{folder}/island1/{newest}")
        self.assertEqual(self.losses(self.run_file(steps=6), "--plan", plan, *saved, "--resume"),
                         {step: loss for step, loss in whole.items() if step > 3})

    def test_what_a_run_with_outer_steps_refuses(self):
        plan = self.write("outer.toml", PLAN % "delay = 1")
        answer = run("train", self.run_file(steps=4), "--plan", plan, "--set", f"checkpoint.dir={self.folder}/saved")
        self.assertEqual((answer.code, answer.err), (2, "tessera: checkpoint: expected 'every' and 'steps' to be multiples of 3 steps, because with a "
                                                        "delay differences are under way between two outer steps, found 100 and 4\n"))


class Processes(MpiTest):
    def test_processes_compute_what_threads_compute(self):
        plan = self.write("outer.toml", PLAN % "lr = 0.7")
        file = self.run_file(steps=4, batch=4)
        threads = run("train", file, "--plan", plan, "--json").out.splitlines()
        processes = self.mpirun(4, "train", file, "--plan", plan, "--json").out.splitlines()
        for one, other in zip(threads, processes, strict=True):
            a, b = json.loads(one), json.loads(other)
            if "step" in a:
                self.assertEqual(a["loss"], b["loss"])
            if "summary" in a:
                self.assertEqual(a["summary"]["bytes_sent"], b["summary"]["bytes_sent"])


if __name__ == "__main__":
    main()
