"""Ranks that are watched: what `tessera report` says about a slow one. How to run it: cli.py."""
import json
import os
import pathlib
import re
import subprocess

from cli import MPI_ENVIRONMENT, ROOT, CliTest, MpiTest, main, program, run, slow

# Kernels of a GPT are products; the whole step is long beside the switching of processes.
MODEL = "gpt:layers=2,hidden=256,heads=4,seq=64,vocab=256"


class ReportOfRanks(CliTest):
    def record(self, paces, steps=13):
        """A run made by hand: by rank, how long it takes for the same work in relation to the others."""
        lines = [{"watch": {"model": MODEL, "plan": f"data_parallel({len(paces)})", "batch": 8, "precision": "float32",
                            "optimizer": "adamw", "transport": "threads", "ranks": len(paces)}}]
        for step in range(1, steps + 1):
            for rank, pace in enumerate(paces):
                waited = 0.01 * (max(paces) - pace)
                waits = [["all_reduce dp", "w.grad", paces.index(max(paces)), 1, waited]] if waited else []
                lines.append({"step": step, "rank": rank, "seconds": 0.01 * pace + waited + 0.001,
                              "work": [["einsum", "einsum.float32.nt 1 64 64 64", 4, 0.01 * pace]],
                              "transfers": [["all_reduce dp", list(range(len(paces))), 4096, 1, 0.001]], "waits": waits})
        self.write("ranks.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        self.write("metrics.jsonl", "".join(json.dumps(
            {"step": step, "loss": 2, "tokens_per_s": 1000, "step_time_s": 0.5, "memory_bytes": 1, "resident_bytes": 1}) + "\n"
            for step in range(1, steps + 1)))

    def test_a_slow_rank_is_named_with_a_figure(self):
        self.record([1, 1, 1.5, 1])
        watch = self.expect_json("report", self.folder, "--json")["watch"]
        self.assertEqual((watch["slow_ranks"], watch["slow_links"], watch["steps"], watch["first_step"]), ([2], [], 12, 2))
        slow = watch["ranks"][2]
        self.assertAlmostEqual(slow["beside_peers"]["ratio"], 1.5)
        self.assertEqual(slow["beside_peers"]["slower_steps"], 12)
        self.assertEqual(slow["waits"], [])
        self.assertAlmostEqual(slow["computing_s"], 0.015)
        self.assertGreater(slow["predicted"]["computing_s"], 0)
        self.assertEqual([wait["for_rank"] for wait in watch["ranks"][0]["waits"]], [2])
        self.assertAlmostEqual(watch["ranks"][0]["waiting_s"], 0.005)
        text = self.expect_text("report", self.folder)
        self.assertIn("Rank 2 is slow: for the same work it takes 1.50 times as long (1.50 to 1.50 in the middle half of the "
                      "steps) as its peers, 5 ms of a step of 16 ms; slower in 12 of 12 steps, 99.9 % sure: einsum 15 ms where "
                      "its peers take 10 ms.\n", text)
        self.assertIn("Rank 3 waits 5 ms of its step of 16 ms: 5 ms for rank 2: all_reduce dp of w.grad.\n", text)

    def test_ranks_that_are_alike_are_not_slow(self):
        self.record([1, 1.01, 1, 1.02])
        watch = self.expect_json("report", self.folder, "--json")["watch"]
        self.assertEqual((watch["slow_ranks"], watch["slow_links"]), ([], []))
        self.assertIn("No rank is slow: the one that loses most to its peers, rank 3, loses ",
                      self.expect_text("report", self.folder))

    def test_the_page_says_the_same(self):
        self.record([1, 2])
        page = os.path.join(self.folder, "run.html")
        done = run("report", self.folder, "-o", page)
        if "no plotting library" in done.err:
            self.skipTest("this build has no plotting library (npm)")
        self.assertEqual((done.code, done.err), (0, ""))
        text = pathlib.Path(page).read_text(encoding="utf-8")
        data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL).group(1))
        said = self.expect_json("report", self.folder, "--json")["watch"]["said"]
        self.assertEqual(data["watch"]["said"], said)
        self.assertEqual(data["watch"]["slow"], [1])
        self.assertEqual([row[0] for row in data["watch"]["ranks"]], [0, 1])

    def test_what_cannot_be_predicted_is_shown_without_a_prediction(self):
        self.record([1, 2])
        path = pathlib.Path(self.folder, "ranks.jsonl")
        path.write_text(path.read_text().replace(MODEL, "gone.graph"))
        answer = self.expect_json("report", self.folder, "--json")
        self.assertTrue(answer["notes"][0].startswith("no prediction of the step: "), answer["notes"])
        self.assertIsNone(answer["watch"]["predicted_for"])
        self.assertEqual(answer["watch"]["slow_ranks"], [1])
        # On a machine that the user names this is an error.
        self.assertEqual(run("report", self.folder, "--cluster", "dgx-a100").code, 2)

    def test_damage_is_one_line(self):
        self.record([1, 2])
        path = pathlib.Path(self.folder, "ranks.jsonl")
        path.write_text(path.read_text().replace('"seconds"', '"second"', 1))
        self.expect_error(2, f"{path}:2: expected the key 'seconds', found none", "report", self.folder)
        self.expect_error(2, "report: expected the folder of a run with --json, found a page", "report", MODEL, "--plan", "serial",
                          "-o", "x.html", "--json")


class WatchedRun(MpiTest):
    def test_watch_needs_a_folder(self):
        file = self.run_file(watch=1)
        self.expect_error(2, f"{file}: watch: expected the key 'folder' too, where the times of the ranks go, found none", "train",
                          file)

    def watched(self, steps, of_rank_1=()):
        """What the report says of the ranks of a run of two processes; the second one has further variables."""
        self.needs_mpirun()
        folder = os.path.join(self.folder, "run")
        file = self.run_file(model=MODEL, batch=8, steps=steps, plan="data_parallel(2)", folder=folder, watch=2, threads=1)
        train = [program(), "train", file]
        words = [word for name in of_rank_1 for word in ("-x", name)]
        # Not bound to cores, so that what else runs on the machine takes its time from both alike.
        done = subprocess.run(["mpirun", "--bind-to", "none", "-n", "1", *train, ":", "-n", "1", *words, *train],
                              capture_output=True, text=True, check=False, cwd=ROOT, timeout=120, env=MPI_ENVIRONMENT)
        if "without MPI" in done.stderr:
            self.skipTest("this build has no MPI: " + done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.expect_json("report", folder, "--json")["watch"]

    def test_the_report_has_the_ranks_of_all_processes(self):
        watch = self.watched(steps=8)
        self.assertEqual((watch["steps"], watch["first_step"], watch["last_step"]), (3, 4, 8))
        self.assertEqual([rank["rank"] for rank in watch["ranks"]], [0, 1])
        for rank in watch["ranks"]:
            self.assertGreater(rank["computing_s"], 0)
            self.assertGreater(rank["transfers_s"], 0)
            self.assertGreater(rank["predicted"]["computing_s"], 0)
            self.assertGreater(next(op for op in rank["ops"] if op["what"] == "einsum")["predicted_s"], 0)
            for wait in rank["waits"]:
                self.assertEqual((wait["for_rank"], wait["what"]), (1 - rank["rank"], "all_reduce dp"))

    @slow  # it is about time
    def test_a_process_with_old_instructions_is_the_slow_one(self):
        """In one process the libraries may use the oldest vector instructions alone."""
        watch = self.watched(steps=42, of_rank_1=["ATEN_CPU_CAPABILITY=default", "DNNL_MAX_CPU_ISA=SSE41",
                                                  "MKL_ENABLE_INSTRUCTIONS=SSE4_2", "MKL_CBWR=COMPATIBLE"])
        self.assertEqual(watch["slow_ranks"], [1], watch["said"])
        fast, late = watch["ranks"]
        self.assertGreater(late["beside_peers"]["ratio"], 1.2)
        self.assertGreater(fast["waiting_s"], late["waiting_s"])
        self.assertEqual(fast["waits"][0]["for_rank"], 1)


if __name__ == "__main__":
    main()
