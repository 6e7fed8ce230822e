"""Tables of which the device has some rows, from the command line: a run, its record, its checkpoints, what is simulated. How to
run it: cli.py."""
import json
import os

from cli import ALL_CASES, ROOT, MpiTest, RuntimeTest, main, run, slow

MODEL = "dlrm:dense=2,rows=400-60,bags=3-1,width=4,bottom=4,top=4-1"
STORE = 'store = [{{ tensors = "{{,optimizer.*.}}tables.*", tier = "{}", cache = {{ {} }} }}]\n'


class RowCache(RuntimeTest):
    def plan(self, tier, cache, mesh="mesh = { dp = 1 }\n"):
        return self.write("cache.toml", mesh + STORE.format(tier, cache))

    def run_file(self, text=""):
        return self.write("run.toml", f'model = "{MODEL}"\ndata = "random"\nbatch = 16\nsteps = 12\n{text}'
                                      '[optimizer]\nkind = "rowwise_adagrad"\nlr = 0.05\n')

    def train(self, *arguments):
        """The losses of the steps, and the summary."""
        answer = run("train", *arguments, "--json")
        self.assertEqual(answer.code, 0, answer.err)
        lines = [json.loads(line) for line in answer.out.splitlines()]
        return {line["step"]: line["loss"] for line in lines if "loss" in line}, lines[-1]["summary"]

    def test_losses_are_those_without_a_cache_and_the_record_says_what_it_did(self):
        file = self.run_file(f'folder = "{self.folder}/record"\n')
        plain, summary = self.train(file)
        self.assertNotIn("row_caches", summary)
        for tier in ("host", "disk"):
            cached, summary = self.train(file, "--plan", self.plan(tier, 'slots = 0.3, policy = "lookahead", window = 3'))
            self.assertEqual(cached, plain)
            first, second = summary["row_caches"]
            self.assertEqual([first[key] for key in ("table", "policy", "rows", "slots", "row_bytes")],
                             ["tables.0.weight", "lookahead", 400, 120, 20])
            self.assertEqual(second["rows"], 60)
            # 12 steps and the batch behind the last, whose rows came ahead.
            self.assertLessEqual(first["lookups"], 13 * 48)
            self.assertGreater(first["lookups"], 12 * 12)
            self.assertGreater(first["rows_in"], 120)
            self.assertGreater(first["rows_out"], 0)
            self.assertGreater(first["hit_rate"], 0)
            self.assertLess(first["hit_rate"], 1)
            drawn = self.expect_text("report", f"{self.folder}/record")
            self.assertRegex(drawn, rf"(?m)^tables\.0\.weight +400 +4  on 0 \({tier}\)$")
            self.assertRegex(drawn, rf"(?m)^tables\.0\.weight lookahead +400 +120 +{100 * first['hit_rate']:.2f} % +"
                                    rf"{first['rows_in']} +{first['rows_out']} +0$")

    @slow
    def test_look_ahead_reads_no_more_rows_than_other_policies(self):
        rows = {}
        for policy in ("lookahead", "lfu", "lru", "dataset"):
            cache = f'slots = 100, policy = "{policy}", counted = 12, window = 12'
            _, summary = self.train(self.run_file(), "--plan", self.plan("host", cache))
            rows[policy] = summary["row_caches"][0]["rows_in"]
        self.assertEqual(min(rows, key=rows.get), "lookahead")

    def test_a_run_goes_on_from_a_checkpoint_under_a_plan_with_or_without_a_cache(self):
        plain, _ = self.train(self.run_file())
        for before, after in (("host", None), ("disk", "host"), (None, "disk")) if ALL_CASES else (("disk", "host"),):
            folder = os.path.join(self.folder, f"checkpoints_{before}")
            file = self.run_file(f'checkpoint = {{ dir = "{folder}", every = 6 }}\n')
            def plans(tier):
                return ["--plan", self.plan(tier, "slots = 50")] if tier else []
            self.train(file, *plans(before))
            os.rename(os.path.join(folder, "step-000000000012"), os.path.join(self.folder, f"kept_{before}"))
            again, summary = self.train(file, *plans(after), "--resume")
            self.assertEqual(summary["checkpoints"]["resumed_from"], 6)
            self.assertEqual(again, {step: plain[step] for step in range(7, 13)})

    def test_evaluations_change_nothing(self):
        file = self.run_file()
        evaluated = ["--set", 'eval.data="random"', "--set", "eval.every=3"]
        plain, _ = self.train(file, *evaluated)
        cached, _ = self.train(file, *evaluated, "--plan", self.plan("host", "slots = 30"))
        self.assertEqual(cached, plain)

    def test_look_ups_one_step_ahead_give_the_run_without(self):
        """Also with evaluations in between, and after a checkpoint; the rows of the next batch come beside what is computed."""
        ahead = 'mesh = { dp = 1 }\nsplit = [{ ops = "tables.*", dim = "step", over = "ahead" }]\n'
        folder = os.path.join(self.folder, "checkpoints")
        file = self.run_file(f'checkpoint = {{ dir = "{folder}", every = 6 }}\n')
        evaluated = ["--set", 'eval.data="random"', "--set", "eval.every=3"]
        plain, _ = self.train(file, *evaluated)
        for i, cache in enumerate(('slots = 30', 'slots = 0.5, policy = "lfu"', 'slots = 20, prefetch = false')[0 if ALL_CASES else 1:]):
            os.rename(os.path.join(folder, "step-000000000012"), os.path.join(self.folder, f"kept_{i}"))
            os.rename(os.path.join(folder, "step-000000000006"), os.path.join(self.folder, f"early_{i}"))
            found, summary = self.train(file, *evaluated, "--plan", self.plan("host", cache, ahead))
            self.assertEqual(found, plain)
            self.assertGreater(summary["row_caches"][0]["rows_out"], 0)
        os.rename(os.path.join(folder, "step-000000000012"), os.path.join(self.folder, "last"))
        again, summary = self.train(file, *evaluated, "--plan", self.plan("disk", "slots = 40", ahead), "--resume")
        self.assertEqual(again, {step: plain[step] for step in range(7, 13)})

    def test_bits_that_round_are_those_of_the_row_wherever_it_is(self):
        """Of 16-bit tables: rounding is drawn by the row's number in the whole table, not by its slot."""
        def losses(rounding, slots=None, mesh="mesh = { dp = 1 }\n"):
            run_file = self.write("narrow.toml", f'model = "{MODEL}"\ndata = "random"\nbatch = 16\nsteps = 12\n'
                                                 f'[optimizer]\nkind = "rowwise_adagrad"\nlr = 0.05\nrounding = "{rounding}"\n')
            store = STORE.format("host", f"slots = {slots}") if slots else ""
            plan = self.write("narrow.plan.toml", mesh + 'precision = { parameter = "bfloat16" }\n' + store)
            return self.train(run_file, "--plan", plan)[0]
        plain = losses("stochastic")
        self.assertNotEqual(plain, losses("nearest"))
        for slots in (9, 150) if ALL_CASES else (9,):
            self.assertEqual(losses("stochastic", slots), plain)
        hot = ('mesh = { dp = 2 }\nloop = [{ ops = "tables.0", dim = "rows", sizes = [30, 370] }]\n'
               'split = [{ ops = "tables.0#1", dim = "rows", over = "dp" }]\n')
        self.assertEqual({step: round(loss, 5) for step, loss in losses("stochastic", mesh=hot).items()},
                         {step: round(loss, 5) for step, loss in plain.items()})
        for dim in ("rows", "width") if ALL_CASES else ("rows",):
            split = f'mesh = {{ dp = 2 }}\nsplit = [{{ ops = "tables", dim = "{dim}", over = "dp" }}]\n'
            found = losses("stochastic", 30, split)
            self.assertEqual({step: round(loss, 5) for step, loss in found.items()},
                             {step: round(loss, 5) for step, loss in plain.items()})

    def test_verify_counts_what_is_predicted(self):
        report = self.expect_json("verify", MODEL, "--plan", self.plan("host", "slots = 0.2"), "--batch", "16", "--json",
                                  "--optimizer", "row_adam")
        self.assertEqual(report["peak_memory_bytes"]["predicted"], report["peak_memory_bytes"]["counted"])
        self.assertEqual(set(report["max_rel_error"].values()), {0})

    def test_the_simulator_prices_rows(self):
        def simulated(cache):
            plan = self.plan("host", cache)
            answer = self.expect_json("simulate", "dlrm:rows=1000000-1000000,bags=20,width=64,bottom=64,top=64-1", "--plan", plan,
                                      "--cluster", "dgx-a100:1", "--batch", "16384", "--optimizer", "rowwise_adagrad", "--json")
            return answer["step_time_s"], answer["peak_memory_bytes"]
        small, large = simulated("slots = 0.02, prefetch = false"), simulated("slots = 0.5, prefetch = false")
        self.assertGreater(small[0], large[0])
        self.assertLess(small[1], large[1])
        self.assertLessEqual(simulated("slots = 0.02")[0], small[0])
        text = self.expect_text("inspect", MODEL, "--plan", self.plan("host", "slots = 0.2"), "--rank", "0", "--optimizer", "row_adam")
        self.assertRegex(text, r"(?m)^cache held \(%\d+, %\d+, %\d+\) rests .* slots 80 places 80 policy \"lookahead\" window 8 ")
        self.assertRegex(text, r"(?m)^  fetch_rows #\d+ cache 0 ahead \(\"ids.0\"\[0:\d+, 0:1, 0:3\]\) expect \d+ in \d+ out ")

    def test_what_needs_all_rows_is_one_line(self):
        plan = self.plan("host", "slots = 9")
        self.expect_error(2, f"{plan}:2: cache of tensor 'tables.0.weight': expected ops that name rows by ids (a look-up, an "
                             "optimizer that updates by rows), found op 'optimizer.tables.0.weight' (adamw), which needs all rows",
                          "train", self.run_file(), "--plan", plan, "--set", "optimizer.kind=adamw")

    def test_the_example_names_its_plan(self):
        text = (ROOT / "examples/dlrm_big_table.toml").read_text(encoding="utf-8")
        self.assertIn('plan = "dlrm_big_table.plan.toml"', text)


class RowCacheOnProcesses(MpiTest):
    """Ranks are processes: each with the caches of its rows."""
    def losses_of(self, answer):
        self.assertEqual(answer.code, 0, answer.err)
        lines = [json.loads(line) for line in answer.out.splitlines() if line.startswith("{")]
        return {line["step"]: line["loss"] for line in lines if "loss" in line}, lines[-1]["summary"]

    def test_losses_are_those_of_threads(self):
        run_file = self.write("run.toml", f'model = "{MODEL}"\ndata = "random"\nbatch = 12\nsteps = 8\n'
                                          '[optimizer]\nkind = "rowwise_adagrad"\nlr = 0.05\n')
        store = STORE.format("host", 'slots = 0.2, policy = "lookahead", window = 3')
        for ranks, split in ((2, 'pin = [{ ops = "tables.0", axis = "dp", at = 1 }, { ops = "tables.1", axis = "dp", at = 0 }]'),
                             (3, 'split = [{ ops = "tables", dim = "rows", over = "dp" }]'),
                             (4, 'split = [{ ops = "tables", dim = "width", over = "dp" }]'))[slice(3) if ALL_CASES else slice(1, 2)]:
            plan = self.write("plan.toml", f"mesh = {{ dp = {ranks} }}\n{split}\n{store}")
            processes, summary = self.losses_of(self.mpirun(ranks, "train", run_file, "--plan", plan, "--json"))
            self.assertEqual(summary["transport"], "mpi")
            threads, other = self.losses_of(run("train", run_file, "--plan", plan, "--json"))
            self.assertEqual(processes, threads)
            self.assertEqual(summary["row_caches"], other["row_caches"])
            self.assertGreater(summary["row_caches"][0]["rows_out"], 0)


if __name__ == "__main__":
    main()
