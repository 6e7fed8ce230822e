"""tessera rescale, train --change: a run whose plan changes between two steps. How to run it: cli.py."""
import json

from cli import LongRuns, main, run


class Rescale(LongRuns):
    kept = {}

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
