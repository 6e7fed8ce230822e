"""A recommender from data to a plan, as docs/guides/recommenders.md does it: examples/dlrm_criteo.toml on fewer samples, under
plans for its tables. How to run it: cli.py."""
import json
import os
import re
import resource
import tomllib

from cli import ALL_CASES, ROOT, RuntimeTest, main, run

EXAMPLE = ROOT / "examples/dlrm_criteo.toml"
SMALL = "dlrm:dense=2,rows=40-9,bags=2-1,width=4,bottom=4,top=4-1"


class Recommender(RuntimeTest):
    def clicks(self, name, rows, samples, *options):
        path = os.path.join(self.folder, name)
        made = self.expect_json("data", "generate", "--samples", str(samples), "--rows", rows, "--out", path, "--json", *options)
        return path, made["normalized_entropy"]

    def train(self, *arguments):
        """The lines of steps, and the summary."""
        lines = [json.loads(line) for line in self.expect_text("train", *arguments, "--json").splitlines()]
        return lines[:-1], lines[-1]["summary"]

    def example(self, steps, every):
        """Arguments of a shortened version, and the normalised entropy of the model that is planted in its evaluations."""
        rows = re.search(r"rows=([0-9-]+)", tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))["model"]).group(1)
        rows = rows.replace("-", ",")
        train, _ = self.clicks("train.clicks", rows, 512 * steps)
        evaluation, planted = self.clicks("eval.clicks", rows, 2048, "--first", "100000")
        settings = [f'data={{ clicks = "{train}" }}', f'eval.data={{ clicks = "{evaluation}" }}', "eval.batches=4",
                    f"eval.every={every}", f"folder={self.folder}/record"]
        return [str(EXAMPLE), "--steps", str(steps), *[word for one in settings for word in ("--set", one)]], planted

    def test_the_example_learns_and_its_record_is_drawn(self):
        arguments, planted = self.example(steps=78, every=26)
        steps, summary = self.train(*arguments)
        evaluations = [step for step in steps if "eval_loss" in step]
        self.assertEqual([step["step"] for step in evaluations], [26, 52, 78])
        self.assertEqual(list(evaluations[0])[-3:], ["eval_loss", "eval_normalized_entropy", "eval_auc"])
        entropies = [step["eval_normalized_entropy"] for step in evaluations]
        self.assertLess(entropies[-1], 0.8)
        self.assertLess(entropies[-1], entropies[0])
        self.assertGreater(entropies[-1], planted)
        self.assertGreater(evaluations[-1]["eval_auc"], 0.75)
        self.assertEqual(summary["eval_normalized_entropy"], entropies[-1])
        self.assertEqual(summary["eval_auc"], evaluations[-1]["eval_auc"])
        drawn = self.expect_text("report", f"{self.folder}/record")
        self.assertRegex(drawn, r"(?m)^tables\.25\.weight +10000 +16  on 0$")
        self.assertIn(f"normalised entropy of the evaluation (last: {entropies[-1]:.4f})\n", drawn)
        self.assertIn(f"area under the ROC curve of the evaluation (last: {summary['eval_auc']:.4f})\n", drawn)

    def test_tables_on_two_ranks_give_the_losses_of_one(self):
        arguments, _ = self.example(steps=20, every=10)
        arguments += ["--set", "precision=float64"]
        serial, _ = self.train(*arguments)
        for plan in ("tables(2,table_row,1)", "tables(2)")[:2 if ALL_CASES else 1]:
            parallel, summary = self.train(*arguments, "--plan", plan)
            self.assertEqual(summary["ranks"], 2)
            drawn = self.expect_text("report", f"{self.folder}/record")
            whole = r"on [01]$" if plan == "tables(2)" else r"rows 0-4999 on 0, rows 5000-9999 on 1$"
            self.assertRegex(drawn, r"(?m)^tables\.25\.weight +10000 +16  " + whole)
            self.assertGreater(sum(summary["bytes_sent"].values()), 0)
            for a, b in zip(serial, parallel, strict=True):
                for key in ("loss", "eval_loss", "eval_normalized_entropy", "eval_auc"):
                    self.assertEqual(key in a, key in b)
                    if key in a:
                        self.assertAlmostEqual(a[key], b[key], delta=1e-9, msg=f"{plan}, step {a['step']}, {key}")
        first, last = [step["eval_normalized_entropy"] for step in serial if "eval_loss" in step]
        self.assertLess(last, first)

    def test_look_ups_one_step_ahead_give_the_same_run(self):
        """Losses, evaluations in between, and what goes on from a checkpoint, under either plan."""
        def plan(name, over, first=""):
            ahead = f'{{ ops = "tables.*", dim = "step", over = "{over}" }}, ' if over else ""
            return self.write(name, f'mesh = {{ dp = 2 }}\nsplit = [{ahead}{{ ops = "*", dim = "batch", over = "dp" }}]\n'
                                    'pin = [{ ops = "tables.1", axis = "dp", at = 1 }]\n' + first)
        plain, ahead, stale = plan("plain.toml", ""), plan("ahead.toml", "ahead"), plan("stale.toml", "ahead_stale")
        data, _ = self.clicks("train.clicks", "40,9", 16 * 12, "--dense", "2")
        other, _ = self.clicks("eval.clicks", "40,9", 32, "--first", "100000", "--dense", "2")
        folder = f"{self.folder}/checkpoints"
        run_file = self.write("run.toml", f'model = "{SMALL}"\ndata = {{ clicks = "{data}" }}\nbatch = 16\nsteps = 12\n'
                                          f'precision = "float64"\neval = {{ data = {{ clicks = "{other}" }}, every = 3, batches = 2 }}\n'
                                          '[optimizer]\nkind = "rowwise_adagrad"\nlr = 0.05\n')
        kept = ["--set", f"checkpoint.dir={folder}", "--set", "checkpoint.every=6"]
        def figures(lines):
            return [(line["step"], line["loss"], line.get("eval_loss")) for line in lines if "loss" in line]
        expected = figures(self.train(run_file, "--plan", plain)[0])
        self.assertEqual(figures(self.train(run_file, "--plan", ahead, *kept)[0]), expected)
        os.rename(f"{folder}/step-000000000012", f"{self.folder}/kept")
        for after in (ahead, plain) if ALL_CASES else (plain,):
            answer = run("train", run_file, "--plan", after, *kept, "--resume", "--json")
            self.assertEqual(answer.code, 0, answer.err)
            lines = [json.loads(line) for line in answer.out.splitlines()]
            self.assertEqual(lines[-1]["summary"]["checkpoints"]["resumed_from"], 6)
            self.assertEqual(figures(lines[:-1]), expected[6:])
            os.rename(f"{folder}/step-000000000012", f"{self.folder}/kept_{'ahead' if after == ahead else 'plain'}")
        late = figures(self.train(run_file, "--plan", stale)[0])
        self.assertEqual(late[0][1], expected[0][1])  # the first step has nothing old
        self.assertNotEqual(late[-1][1], expected[-1][1])
        # In a pipeline, with micro-batches: what it is on one rank, and as old.
        staged = ("mesh = { pp = 2, dp = 2 }\nmicro_batches = %d\n"
                  'split = [{ ops = "tables.*", dim = "step", over = "%s" }, { ops = "*", dim = "batch", over = "dp" }]\n'
                  'stage = [{ ops = "{bottom,tables}", at = 0 }, { ops = "{interaction,top,loss}", at = 1 }]\n')
        alone = self.write("alone.toml", 'mesh = { dp = 1 }\nsplit = [{ ops = "tables.*", dim = "step", over = "ahead_stale" }]\n')
        late = figures(self.train(run_file, "--plan", alone)[0])
        for over, wanted in (("ahead", expected), ("ahead_stale", late)):
            for count in (1, 2) if ALL_CASES else (2,):
                found = figures(self.train(run_file, "--plan", self.write("staged.toml", staged % (count, over)))[0])
                for a, b in zip(found, wanted, strict=True):
                    self.assertEqual((a[0], a[2] is None), (b[0], b[2] is None))
                    for x, y in zip(a[1:], b[1:], strict=True):
                        if x is not None:
                            self.assertAlmostEqual(x, y, delta=1e-9, msg=f"{over}, {count} micro-batches, step {a[0]}")

    def test_hot_rows_on_every_rank_give_the_same_run(self):
        """Checkpoints know whole tables: a run goes on under a plan that cuts them otherwise. The record shows the pieces."""
        data, _ = self.clicks("train.clicks", "40,9", 16 * 12, "--dense", "2")
        run_file = self.write("run.toml", f'model = "{SMALL}"\ndata = {{ clicks = "{data}" }}\nbatch = 16\nsteps = 12\n'
                                          'precision = "float64"\n[optimizer]\nkind = "row_adam"\nlr = 0.05\n')
        def losses(lines):
            return {line["step"]: line["loss"] for line in lines if "loss" in line}
        expected = losses(self.train(run_file)[0])
        for before, after in (("tables(2,row,hot=7)", "tables(2)"), ("tables(3)", "tables(2,column,hot=11)"),
                              ("tables(2,hot=4)", "tables(3,row,hot=5)"))[:3 if ALL_CASES else 1]:
            folder = os.path.join(self.folder, before)
            kept = ["--set", f"checkpoint.dir={folder}", "--set", "checkpoint.every=6"]
            first, _ = self.train(run_file, "--plan", before, *kept, "--set", f"folder={self.folder}/record")
            os.rename(f"{folder}/step-000000000012", f"{self.folder}/kept_{before}")
            answer = run("train", run_file, "--plan", after, *kept, "--resume", "--json")
            self.assertEqual(answer.code, 0, answer.err)
            again = [json.loads(line) for line in answer.out.splitlines()]
            self.assertEqual(again[-1]["summary"]["checkpoints"]["resumed_from"], 6)
            for found, steps in ((losses(first), range(1, 13)), (losses(again[:-1]), range(7, 13))):
                self.assertEqual(list(found), list(steps))
                for step, loss in found.items():
                    self.assertAlmostEqual(loss, expected[step], delta=1e-9, msg=f"{before}, {after}, step {step}")
            if before == "tables(2,row,hot=7)":
                self.assertRegex(self.expect_text("report", f"{self.folder}/record"),
                                 r"(?m)^tables\.0\.weight +40 +4  rows 0-6 on 0 and 1, rows 7-23 on 0, rows 24-39 on 1$")
        answer = run("train", run_file, "--plan", "tables(2)", "--change", "6:tables(2,row,hot=7)")
        self.assertEqual((answer.code, answer.err.count("\n")), (2, 1), answer.err)
        self.assertIn("tables.0.weight", answer.err)

    def test_a_recommender_on_128_devices_is_simulated_within_a_second(self):
        """MLPerf's DLRM with cross interaction on 16 nodes of 8, the platform of the ZionEX sheet: exchanges shown, hidden and
        exposed."""
        rows = ("40000000-39060-17295-7424-20265-3-7122-1543-63-40000000-3067956-405282-10-2209-11938-155-4-976-14-40000000-40000000-"
                "40000000-590152-12973-108-36")
        bags = "3-2-1-2-6-1-1-1-1-7-3-8-1-6-9-5-1-1-1-12-100-27-10-3-1-1"
        model = (f"dlrm:dense=13,rows={rows},bags={bags},width=128,bottom=512-256-128,top=1024-1024-512-256-1,interaction=cross")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        answer = self.expect_json("simulate", model, "--plan", "tables(8,table_row,nodes=16)", "--cluster", "dgx-a100-40:16",
                                  "--batch", "65536", "--optimizer", "adagrad,tables.*=rowwise_adagrad", "--json")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)
        self.assertGreater(answer["step_time_s"], 0)
        text = self.expect_text("simulate", model, "--plan", "tables(8,table_row,nodes=16)", "--cluster", "dgx-a100-40:16",
                                "--batch", "65536", "--optimizer", "adagrad,tables.*=rowwise_adagrad")
        self.assertRegex(text, r"(?m)^transfer +over +count +sent +busy +exposed +algorithm$")
        # Gradients of rows cross once to each node, and are spread inside it.
        self.assertRegex(text, r"(?m)^exchange +nodes +\d")
        self.assertRegex(text, r"(?m)^reduce_scatter +dp ")

    def test_criteo_logs_are_trained_on(self):
        out = os.path.join(self.folder, "sample.clicks")
        self.expect_text("data", "criteo", str(ROOT / "data/ctr/criteo_sample.txt"), "--rows", "1000", "--out", out)
        rows = "-".join(["1000"] * 26)
        run_file = self.write("run.toml", f'model = "dlrm:rows={rows},width=4,bottom=8-4,top=8-1"\n'
                                          f'data = {{ clicks = "sample.clicks" }}\nbatch = 50\nsteps = 40\n'
                                          '[optimizer]\nkind = "adagrad"\nlr = 0.05\n')
        steps, summary = self.train(run_file)
        self.assertEqual(summary["steps"], 40)
        self.assertLess(steps[-1]["loss"], 0.8 * steps[0]["loss"])

    def test_text_names_the_metrics(self):
        path, _ = self.clicks("a.clicks", "40,9", 64, "--bags", "2,1", "--dense", "2")
        run_file = self.write("run.toml", f'model = "{SMALL}"\ndata = {{ clicks = "{path}" }}\nsteps = 3\n'
                                          f'eval = {{ data = {{ clicks = "{path}" }}, every = 3, batches = 8 }}\n')
        text = self.expect_text("train", run_file)
        self.assertRegex(text, r"(?m)^step 3/3  loss \d\.\d{4}  eval \d\.\d{4}, NE \d\.\d{4}, AUC \d\.\d{4} +[\d,]+ tokens/s")
        self.assertRegex(text, r"(?m)^loss \d\.\d{4} -> \d\.\d{4} \(eval \d\.\d{4}, NE \d\.\d{4}, AUC \d\.\d{4}\) in 3 steps")
        # Labels that are all equal have neither.
        path, _ = self.clicks("b.clicks", "40,9", 64, "--bags", "2,1", "--dense", "2", "--bias", "-60")
        self.assertIn(", NE none, AUC none", self.expect_text("train", run_file, "--set", f'eval.data={{ clicks = "{path}" }}'))
        steps, _ = self.train(run_file, "--set", f'eval.data={{ clicks = "{path}" }}')
        self.assertIsNone(steps[-1]["eval_auc"])

    def test_a_file_that_does_not_fit_is_one_line(self):
        path, _ = self.clicks("a.clicks", "40,9", 64, "--bags", "2,1", "--dense", "2")
        run_file = self.write("run.toml", f'model = "{SMALL}"\ndata = {{ clicks = "{path}" }}\nsteps = 3\n')
        place = f"data: '{path}': "
        self.expect_error(2, f"{place}expected data for each input of the model, found none for 'ids.2' (features: 2, dense "
                             f"numbers: 2) ({run_file}:2)", "train", run_file, "--set", f"model={SMALL.replace('40-9', '40-9-5').replace('2-1,', '2,')}")
        self.expect_error(2, f"{place}expected a model with an input 'ids.1' for feature 'C2', found none ({run_file}:2)",
                          "train", run_file, "--set", f"model={SMALL.replace('40-9', '40').replace('2-1,', '2,')}")
        self.expect_error(2, f"{place}expected samples of 3 numbers for the model's input 'dense', found 2 ({run_file}:2)",
                          "train", run_file, "--set", f"model={SMALL.replace('dense=2', 'dense=3')}")
        self.expect_error(2, f"{place}feature 'C1': expected bags of at most 1 (the model's input 'ids.0'), found up to 2 "
                             f"({run_file}:2)", "train", run_file, "--set", f"model={SMALL.replace('2-1,', '1,')}")
        self.expect_error(2, "eval.data: cannot read 'none.clicks': No such file or directory (--set eval.data)", "train",
                          run_file, "--set", 'eval.data={ clicks = "none.clicks" }')
        self.expect_error(2, "--set data={ clicks = 3 }: expected data.clicks to be the path of a file of clicks, found an "
                             "integer", "train", run_file, "--set", "data={ clicks = 3 }")
        self.expect_error(2, '--set data={ clicks = "a", scale = 2 }: data: expected the key \'clicks\' alone, found \'scale\'',
                          "train", run_file, "--set", 'data={ clicks = "a", scale = 2 }')

    def test_an_id_beyond_the_models_table_is_named(self):
        path, _ = self.clicks("a.clicks", "40,9", 64, "--bags", "2,1", "--dense", "2", "--zipf", "0")
        run_file = self.write("run.toml", f'model = "{SMALL}"\ndata = {{ clicks = "{path}" }}\nsteps = 3\n')
        answer = run("train", run_file, "--set", f"model={SMALL.replace('40-9', '30-9')}")
        self.assertEqual((answer.code, answer.out), (2, ""))
        self.assertRegex(answer.err, rf"^tessera: data: '{re.escape(path)}': feature 'C1', sample \d+: expected ids below 30 \(rows of "
                                 rf"the model's table for 'ids\.0'\), found row 3\d \({re.escape(run_file)}:2\)\n$")


if __name__ == "__main__":
    main()
