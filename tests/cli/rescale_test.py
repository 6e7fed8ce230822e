"""tessera rescale, train --change: a run whose plan changes between two steps. How to run it: cli.py."""
import json
import os
import random
import subprocess

from cli import LongRuns, main, program, run

SIZES = ["data_parallel({})", "zero(stage=1,dp={})", "zero(stage=3,dp={})", "tensor_parallel({})"]


class Rescale(LongRuns):
    kept = {}

    def steer(self, text):
        with open(self.path("steer.new"), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(self.path("steer.new"), self.path("steer"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def steered(self, file, *options):
        return subprocess.Popen([program(), "train", file, "--json", "--steer", self.path("steer"), *options], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def test_fifty_random_changes_by_another_program(self):
        draw = random.Random(50)
        file = self.run_file(steps=100000)
        with self.steered(file, "--ranks", "4", "--plan", "serial") as run_now:
            changes, plan, stopped = [], "serial", None
            for line in run_now.stdout:
                event = json.loads(line)
                if "change" in event:
                    changes.append(event["change"])
                    self.assertEqual(changes[-1]["plan"], plan)
                if "step" in event and event["step"] == 1 or "change" in event and len(changes) < 50:
                    plan = draw.choice([one for one in [size.format(n) for size in SIZES for n in (1, 2, 4)] if one != plan])
                    self.steer(json.dumps({"plan": plan}))
                elif "change" in event:
                    self.steer('{"stop": true}')
                elif "summary" in event:
                    stopped = event["summary"]
            self.assertEqual((run_now.wait(), run_now.stderr.read()), (0, ""))
        self.assertEqual(len(changes), 50)
        self.assertEqual([one["bytes"]["counted"] for one in changes], [one["bytes"]["predicted"] for one in changes])
        self.assertGreater(sum(one["bytes"]["counted"] for one in changes), 0)
        # The run that was stopped has a checkpoint of its last step, and computed what an undisturbed run does.
        steps = stopped["stopped_after"]
        self.assertEqual(self.last_loss("train", file, "--resume", "--steps", str(steps + 1))[1], [])
        undisturbed, _ = self.last_loss("train", self.run_file(steps=100000, checkpoint=False), "--steps", str(steps))
        self.assertAlmostEqual(stopped["last_loss"], undisturbed, delta=1e-9 * undisturbed)

    def test_a_plan_that_cannot_follow_is_refused_and_the_run_goes_on(self):
        for plan, message in [("data_parallel(2", "the run goes on under serial: 'data_parallel(2': expected ')' at the end"),
                              ("data_parallel(8)", "the run goes on under serial: data_parallel(8): its mesh {dp=8} needs 8 ranks, found 4")]:
            file = self.run_file(steps=100000)
            self.steer(json.dumps({"plan": plan}))
            with self.steered(file, "--ranks", "4", "--plan", "serial", "--set", f"checkpoint.dir={self.path(str(len(plan)))}") as run_now:
                self.assertIn(message, run_now.stderr.readline())
                self.steer('{"stop": true}')
                self.assertIn('"stopped_after"', run_now.stdout.read().splitlines()[-1])
                self.assertEqual(run_now.wait(), 0)

    def undisturbed(self):
        """The last loss of the run without a change, which runs for the first test that asks."""
        if not Rescale.kept:
            Rescale.kept["loss"], _ = self.last_loss("train", self.run_file(steps=12, checkpoint=False))
        return Rescale.kept["loss"]

    def test_the_loss_goes_on_as_if_nothing_had_happened(self):
        file = self.run_file(steps=12, checkpoint=False)
        undisturbed = self.undisturbed()
        loss, changes = self.last_loss("rescale", file, "--at", "5", "--to", "zero(stage=3,dp=3)")
        self.assertAlmostEqual(loss, undisturbed, delta=1e-9 * undisturbed)
        self.assertEqual([(one["after"], one["ranks"]) for one in changes], [(5, 3)])
        self.assertEqual(changes[0]["bytes"]["predicted"], changes[0]["bytes"]["counted"])
        self.assertGreater(changes[0]["bytes"]["counted"], 0)

    def test_several_changes_over_mpi_and_in_the_run_file(self):
        self.needs_mpirun()
        undisturbed = self.undisturbed()
        file = self.run_file(steps=12, checkpoint=False)
        with open(file, "a", encoding="utf-8") as text:
            text.write('change = [{ after = 4, plan = "tensor_parallel(4)" }, { after = 8, plan = "serial" }]\n')
        done = self.mpirun(4, "train", file, "--json")
        self.assertEqual(done.code, 0, done.err)
        lines = [json.loads(line) for line in done.out.splitlines()]
        self.assertAlmostEqual(lines[-1]["summary"]["last_loss"], undisturbed, delta=1e-9 * undisturbed)
        changes = [line["change"] for line in lines if "change" in line]
        self.assertEqual([one["ranks"] for one in changes], [4, 1])
        for one in changes:
            self.assertEqual(one["bytes"]["predicted"], one["bytes"]["counted"])

    def test_checkpoints_before_and_after_a_change(self):
        undisturbed = self.undisturbed()
        file = self.run_file(steps=12)
        self.last_loss("rescale", file, "--at", "7", "--to", "tensor_parallel(2)", "--steps", "10")
        loss, _ = self.last_loss("train", file, "--resume", "--change", "7:tensor_parallel(2)")
        self.assertAlmostEqual(loss, undisturbed, delta=1e-9 * undisturbed)

    def test_what_is_wrong_is_said(self):
        file = self.run_file(steps=12, checkpoint=False)
        for arguments, message in [
                (["rescale", file, "--at", "12", "--to", "serial"],
                 "change: expected a change of the plan before the last of 12 steps, found one after step 12"),
                (["train", file, "--change", "x:serial"],
                 "change: expected STEPS:PLAN, for example '50:data_parallel(2)', found 'x:serial'"),
                (["train", file, "--set", "change=[{ after = 3 }]"],
                 "--set change=[{ after = 3 }]: change: expected tables with the keys after and plan, for example "
                 '{ after = 50, plan = "data_parallel(2)" }')]:
            answer = run(*arguments)
            self.assertEqual(answer.code, 2, answer.err)
            self.assertEqual(answer.err.splitlines()[-1], "tessera: " + message)


if __name__ == "__main__":
    main()
