"""The report page without a browser: its size, what it says first, which sections have data, and the page of a run.

What a reader sees is the matter of tests/report/report_page.sh, which opens pages in a browser."""
import json
import os
import pathlib
import re

from cli import MODEL, CliTest, main, run

LLAMA_70B = "llama:layers=80,hidden=8192,heads=64,kv_heads=8,seq=8192,vocab=128256,ffn=28672,theta=500000"
MOST_BYTES = 2_000_000
GIB = 2 ** 30


class ReportTest(CliTest):
    def page(self, *arguments):
        """The text of a page and its data."""
        path = os.path.join(self.folder, "page.html")
        done = run("report", *arguments, "-o", path)
        if "no plotting library" in done.err:
            self.skipTest("this build has no plotting library (npm)")
        self.assertEqual((done.code, done.err), (0, ""))
        text = pathlib.Path(path).read_text(encoding="utf-8")
        self.assertLessEqual(os.path.getsize(path), MOST_BYTES)
        return text, json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL).group(1))

    def simulated(self, *arguments):
        answer = run("simulate", *arguments, "--json")
        return json.loads(answer.out)

    def test_llama_70b_on_64_gpus_is_one_small_page(self):
        question = [LLAMA_70B, "--cluster", "dgx-h100:8", "--batch", "256", "--precision", "bfloat16", "--style", "megatron-core"]
        plan = "megatron(tp=8,pp=4,dp=2,micro_batches=64,zero=1)"
        text, data = self.page(*question, "--plan", plan)
        self.assertEqual(data["title"], "Llama, 80 layers, 70.6 B parameters on 64 H100")
        found = data["runs"][0]
        missing = found["summary"]["peak_memory_bytes"] - found["summary"]["capacity_bytes"]
        self.assertTrue(10 * GIB < missing < 99 * GIB, missing)
        self.assertEqual(found["summary"]["verdict"], {"state": "too large", "bytes": missing,
                                                       "text": f"Does not fit by {missing / GIB:.1f} GiB"})
        self.assertIn(f'content="Does not fit by {missing / GIB:.1f} GiB"', text)
        simulated = self.simulated(*question, "--plan", plan)
        self.assertAlmostEqual(found["summary"]["step_time_s"], simulated["step_time_s"], delta=1e-9 * simulated["step_time_s"])
        self.assertEqual(found["summary"]["peak_memory_bytes"], simulated["peak_memory_bytes"])
        # A language model without tables has none on its page.
        self.assertIsNone(found["tables"])
        self.assertIsNone(data["curve"])
        self.assertIsNone(data["record"])
        # Every lane of transfers has bars when the whole step is in view.
        lanes = {i for i, row in enumerate(found["rows"]) if row["lane"] != "compute"}
        self.assertGreater(len(lanes), 8)
        self.assertEqual({bar[0] for bar in found["merged"]}, lanes)
        for row, lane in enumerate(found["rows"]):
            self.assertEqual(sum(bar[3] for bar in found["merged"] if bar[0] == row), lane["events"] if row in lanes else 0)
        # The bands of memory and what is around them add up to the figure at the top.
        for role in found["roles"]:
            memory = role["memory"]
            highest = max(sum(values) for values in zip(*memory["bands"].values())) * memory["unit"]
            self.assertLess(abs(highest - memory["live_bytes"]), 0.001 * memory["live_bytes"])
            self.assertLess(memory["live_bytes"] + memory["overhead_bytes"], 1.0001 * memory["total_bytes"])
            self.assertEqual(memory["reserved_bytes"] + memory["overhead_bytes"], memory["total_bytes"])
        self.assertEqual(max(role["memory"]["total_bytes"] for role in found["roles"]), found["summary"]["peak_memory_bytes"])
        # The parts of the critical path add up to the step, the longest first.
        path = found["path"]
        times = [part[3] for part in path["parts"]]
        self.assertEqual(times, sorted(times, reverse=True))
        self.assertLess(abs(sum(times) + path["more_ns"] - found["end_ns"]), 1e-4 * found["end_ns"])
        self.assertLessEqual(len(times), 40)

    def test_several_plans_share_the_size_of_a_page(self):
        plans = [f"megatron(tp=8,pp={pp},dp={8 // pp},micro_batches=32,zero=1)" for pp in (1, 4, 8)]
        _, data = self.page(LLAMA_70B, "--cluster", "dgx-h100:8", "--batch", "256", "--precision", "bfloat16",
                            *[word for plan in plans for word in ("--plan", plan)])
        self.assertEqual(len(data["runs"]), 3)
        for found in data["runs"]:
            self.assertEqual({bar[0] for bar in found["merged"]}, {i for i, row in enumerate(found["rows"]) if row["lane"] != "compute"})
            self.assertGreater(len(found["roles"][0]["memory"]["times"]), 50)

    def test_the_page_opens_with_the_fastest_plan_that_fits(self):
        question = ["llama:layers=32,hidden=4096,heads=32,kv_heads=8,seq=8192,vocab=128256,ffn=14336", "--cluster", "dgx-a100",
                    "--batch", "8", "--precision", "bfloat16"]
        plans = ["data_parallel(8)", "fsdp(dp=8)", "megatron(tp=8)"]
        text, data = self.page(*question, *[word for plan in plans for word in ("--plan", plan)])
        capacity = data["runs"][0]["summary"]["capacity_bytes"]
        answers = [self.simulated(*question, "--plan", plan) for plan in plans]
        fitting = [i for i, answer in enumerate(answers) if answer["peak_memory_bytes"] <= capacity]
        self.assertNotIn(0, fitting)
        best = min(fitting, key=lambda i: answers[i]["step_time_s"])
        self.assertEqual(data["best_run"], best)
        verdict = f"1 of 3 plans fits: {plans[best]} in bfloat16" if len(fitting) == 1 else \
            f"{len(fitting)} of 3 plans fit; the fastest of them is {plans[best]} in bfloat16"
        self.assertIn(f'content="{verdict}"', text)

    def test_a_recommender_has_a_section_of_tables(self):
        _, data = self.page("dlrm:rows=4000-300-70-5000,width=16,bottom=32-16,top=32-1", "--cluster", "dgx-a100", "--batch", "64",
                            "--plan", "tables(4)")
        self.assertEqual(data["runs"][0]["tables"]["pieces"], 4)
        self.assertEqual(data["title"], "DLRM, 3 layers, 152 K parameters on 8 A100")

    def record(self, steps, restart):
        """The record of a run that was started again at the step `restart`."""
        lines = []
        for step in range(1, steps + 1):
            if step in (1, restart):
                lines.append({"start": {"time": 1.7e9 + step, "model": MODEL, "plan": "serial" if step == 1 else "fsdp(2)",
                                        "ranks": 1 if step == 1 else 2, "parameters": 124439808}})
            lines.append({"step": step, "loss": 8 / step + 2, "tokens_per_s": 1000 + step, "step_time_s": 0.5,
                          "memory_bytes": GIB, "resident_bytes": 2 * GIB, **({"eval_loss": 3} if step % 10 == 0 else {})})
        self.write("metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

    def test_a_run_has_a_page(self):
        self.record(steps=40, restart=25)
        text, data = self.page(self.folder)
        record = data["record"]
        self.assertEqual(data["title"], "GPT, 2 layers, 124 M parameters on 2 ranks")
        self.assertIn('content="Loss 10 to 2.2 in 40 steps, 1 restart"', text)
        self.assertEqual(record["points"][9], [10, 2.8, 1010, 0.5, 2 * GIB])
        self.assertEqual(record["evaluations"], [{"name": "loss", "points": [[10, 3], [20, 3], [30, 3], [40, 3]]}])
        self.assertEqual([(start["step"], start["plan"]) for start in record["starts"]], [(1, "serial"), (25, "fsdp(2)")])
        self.assertEqual((record["seconds"], record["memory_bytes"], record["last_step"]), (20, GIB, 40))
        # Without a page the record is drawn as text, as before.
        self.assertIn("steps 1 to 40, 1 restart (R): at step 25 (plan fsdp(2))\n", self.expect_text("report", self.folder))

    def test_a_long_run_is_shown_by_means_of_steps(self):
        self.record(steps=20_000, restart=15_000)
        _, data = self.page(self.folder)
        record = data["record"]
        self.assertEqual((record["steps_a_point"], len(record["points"])), (5, 4000))
        self.assertEqual(record["points"][1][0], 10)
        self.assertAlmostEqual(record["points"][1][1], 2 + 8 * sum(1 / step for step in range(6, 11)) / 5)

    def test_a_torn_record_leaves_no_page(self):
        self.write("metrics.jsonl", '{"step": 1}\n')
        page = os.path.join(self.folder, "run.html")
        self.assertEqual(run("report", self.folder, "-o", page).code, 2)
        self.assertFalse(os.path.exists(page))


if __name__ == "__main__":
    main()
