"""What a live controller asks of Slurm, and what it says where there is none: with programs that stand in for Slurm's."""
import json
import os
import subprocess
import time

import fake_slurm
from cli import OF_ITS_OWN, RuntimeTest, main, program, run

RUN = """model = "gpt:layers=1,hidden=16,heads=2,seq=16,vocab=64,dtype=float64"
data = "random"
precision = "float64"
batch = 8
steps = {steps}
checkpoint = {{ dir = "{folder}", every = 5, keep = 2 }}
"""
NASTY = "a b; touch pwned $(touch pwned) `touch pwned` 'x\" %j"


class SlurmWords(RuntimeTest):
    def setUp(self):
        super().setUp()
        self.server = None
        self.slurm = self.path("slurm programs")
        fake_slurm.install(self.slurm)
        self.environment = {**os.environ, **OF_ITS_OWN, "PATH": f"{self.slurm}:{os.environ['PATH']}"}
        self.addCleanup(self.end)

    def end(self):
        if self.server is not None:
            self.server.kill()
            self.server.wait()
            self.server.stderr.close()
            self.server = None
        subprocess.run([f"{self.slurm}/scancel", "--quiet", *os.listdir(f"{self.slurm}/jobs")], check=False)

    def path(self, name):
        return os.path.join(self.folder, name)

    def serve(self, *options):
        self.server = subprocess.Popen(
            [program(), "cluster", "serve", "--backend", "slurm", "--dir", self.path("live"), "--policy", "fifo", "--round", "0.1",
             "--until-idle", *options], stderr=subprocess.PIPE, cwd=self.folder, text=True, env=self.environment)
        return self.server.stderr.readline()

    def ask(self, action, *arguments, cwd=None):
        return run("cluster", action, *arguments, "--dir", self.path("live"), cwd=cwd)

    def job(self, name, steps=10, folder=""):
        os.makedirs(self.path(folder), exist_ok=True)
        return self.write(os.path.join(folder, name + ".toml"), RUN.format(folder=self.path("checkpoints-" + name), steps=steps))

    def submit(self, name, *options, steps=10):
        answer = self.ask("submit", self.job(name, steps), *options)
        self.assertEqual((answer.code, answer.out), (0, f"submitted {name}\n"), answer.err)

    def wait_for(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, "waited in vain")
            time.sleep(0.02)

    def workers(self):
        lines = subprocess.run([f"{self.slurm}/squeue"], capture_output=True, text=True, check=True).stdout.splitlines()[1:]
        return [line.split("|")[0] for line in lines if "RUNNING" in line]

    def test_the_words_of_a_job(self):
        self.assertIn("2 nodes with 8 GPUs of slurm under fifo, listening on", self.serve())
        os.makedirs(self.path(NASTY))
        path = self.job("nasty", folder=NASTY)
        answer = self.ask("submit", path, "--gpus", "2", "--plan", "data_parallel({})", cwd=self.path(NASTY))
        self.assertEqual((answer.code, answer.out), (0, "submitted nasty\n"), answer.err)
        self.assertEqual(self.server.wait(timeout=60), 0)
        [words] = fake_slurm.calls(self.slurm, "sbatch")
        script = words.index(self.path("live/slurm/train.sh"))
        journal = words[4].split()[1]
        self.assertRegex(journal, "^[0-9a-f]{16}$")
        self.assertEqual(words[:script], ["--parsable", "--hold", "--no-requeue", "--job-name=nasty",
                                          f"--comment=tessera {journal} nasty 0/1 n0:2", "--nodes=1", "--ntasks=1", "--gres=gpu:2",
                                          "--output=/dev/null"])
        self.assertEqual(words[script + 1:], [self.path("live/nasty.log"), self.path("live/nasty.lock"), self.path(NASTY), self.path("live/slurm"),
                                              "", os.path.realpath(program()), "train", path, "--resume", "--json", "--steer", self.path("live/nasty.steer"),
                                              "--plan", "data_parallel(2)", "--ranks", "2"])
        self.assertEqual([call for call in fake_slurm.calls(self.slurm, "scontrol") if call[0] != "show"],
                         [["update", "jobid=1", "reqnodelist=n0"], ["release", "1"]])
        with open(self.path("live/nasty.log"), encoding="utf-8") as file:
            self.assertIn('"step":10,', file.read())
        for folder, _, names in os.walk(self.folder):
            self.assertNotIn("pwned", names, folder)
        self.assertEqual(self.ask("replay").code, 0)

    def test_a_job_of_two_nodes_is_two_slurm_jobs(self):
        self.serve()
        self.write("slurm programs/mpirun", "#!/bin/sh\nexec sleep infinity\n")
        os.chmod(f"{self.slurm}/mpirun", 0o700)
        self.submit("wide", "--gpus", "8", "--plan", "data_parallel(8)")
        self.wait_for(lambda: len(self.workers()) == 2)
        second, first = fake_slurm.calls(self.slurm, "sbatch")
        self.assertEqual((second[7], second[-1]), ("--gres=gpu:4", self.path("live/slurm/hold.sh")))
        self.assertIn(" wide 1/2 n1:4", second[4])
        self.assertEqual(first[9], "--dependency=after:1")
        at = first.index("mpirun")
        self.assertEqual(first[at - 1], "n1=1")
        self.assertEqual(first[at:first.index("train") - 1],
                         ["mpirun", "--leave-session-attached", "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", "tessera-reach", "--mca",
                          "plm_rsh_no_tree_spawn", "1", "--mca", "ras", "^slurm", "--bind-to", "none", "--host", "n0:4,n1:4", "-n", "8"])
        self.assertIn(["release", "2,1"], fake_slurm.calls(self.slurm, "scontrol"))
        # Both end where one of them has ended, and begin anew.
        subprocess.run([f"{self.slurm}/scancel", "--quiet", "1"], check=True)
        self.wait_for(lambda: self.workers() == ["3", "4"])
        answer = self.ask("cancel", "wide")
        self.assertEqual(answer.out, "cancelled wide\n", answer.err + (self.server.stderr.read() if self.server.poll() else ""))
        self.assertEqual(self.server.wait(timeout=60), 0)
        self.assertEqual(self.workers(), [])

    def test_a_controller_goes_on_with_its_jobs_and_ends_strays(self):
        self.serve()
        self.submit("a", steps=100000)
        self.wait_for(lambda: self.workers() == ["1"])
        self.server.kill()
        self.server.wait()
        self.server.stderr.close()
        [words] = fake_slurm.calls(self.slurm, "sbatch")
        script = next(i for i, word in enumerate(words) if not word.startswith("-"))
        for old, new in ((" a ", " stray "), ("n0:1", "n1:1")):  # of a job that is not there, and a second copy elsewhere
            subprocess.run([f"{self.slurm}/sbatch", *words[:4], words[4].replace(old, new), *words[5:script], "/bin/true"], check=True,
                           stdout=subprocess.DEVNULL)
        self.serve()
        self.wait_for(lambda: {"2", "3"} <= {number for call in fake_slurm.calls(self.slurm, "scancel") for number in call})
        self.assertEqual(self.workers(), ["1"])
        self.assertNotIn("1", {number for call in fake_slurm.calls(self.slurm, "scancel") for number in call})
        self.assertEqual(self.ask("drain", "n0").out, "drained node n0\n")
        self.wait_for(lambda: self.workers() == ["4"])
        self.assertIn(["update", "jobid=4", "reqnodelist=n1"], fake_slurm.calls(self.slurm, "scontrol"))
        self.assertEqual(self.ask("drain", "x").err, "tessera: expected a node from 0 to 1 or its name, as n0, found \"x\"\n")
        self.ask("cancel", "a")
        self.assertEqual(self.server.wait(timeout=60), 0)
        self.assertEqual(self.workers(), [])
        self.assertEqual(self.ask("replay").code, 0)

    def test_jobs_leave_a_node_that_slurm_takes_out_of_service_until_it_is_back(self):
        self.serve()
        self.submit("a", steps=100000)
        self.wait_for(lambda: self.workers() == ["1"])
        down = self.write("slurm programs/down", "n0")
        self.wait_for(lambda: self.workers() == ["2"])
        self.assertIn(["update", "jobid=2", "reqnodelist=n1"], fake_slurm.calls(self.slurm, "scontrol"))
        self.assertEqual(json.loads(self.ask("status", "--json").out)["nodes"], [0, 4])
        self.server.kill()  # whoever goes on with the journal knows it
        self.server.wait()
        self.server.stderr.close()
        self.serve()
        self.assertEqual(json.loads(self.ask("status", "--json").out)["nodes"], [0, 4])
        os.unlink(down)
        self.wait_for(lambda: json.loads(self.ask("status", "--json").out)["nodes"] == [4, 4])
        self.assertEqual(self.workers(), ["2"])
        self.ask("cancel", "a")
        self.assertEqual(self.server.wait(timeout=60), 0)
        self.assertEqual(self.ask("replay").code, 0)

    def test_a_job_that_fails_or_is_refused_says_why(self):
        self.serve()
        with open(self.job("a"), encoding="utf-8") as file:
            text = file.read().replace('data = "random"', 'data = ["nonsense/*.txt"]')
        answer = self.ask("submit", self.write("a.toml", text), "--plan", "data_parallel({})", "--gpus", "2")
        self.assertEqual(answer.code, 0, answer.err)
        self.submit("b", steps=100000)
        self.wait_for(lambda: "a is failed: " in self.ask("explain", "a").out)
        self.assertIn("a is failed: data: bytes are the tokens", self.ask("explain", "a").out)
        self.write("slurm programs/refuses", "")
        self.submit("c")
        self.wait_for(lambda: "c is failed" in self.ask("explain", "c").out)
        self.assertEqual(self.ask("explain", "c").out, "c is failed: expected that Slurm takes the job, found that it says: sbatch: error: Batch "
                                                       "job submission failed: Requested node configuration is not available\n")

    def test_without_slurm_or_an_answer(self):
        serve = ["cluster", "serve", "--dir", self.path("live"), "--backend"]
        for wanted, environment, options, message in (
                (2, {"PATH": self.folder}, ["slurm"], "--backend slurm: expected the programs of Slurm in PATH, found no sinfo"),
                (2, self.environment, ["slurm", "--cluster", "3x4"], "--cluster: expected the 2 nodes with 8 GPUs that slurm has, or nothing, found '3x4'"),
                (2, self.environment, ["pbs"], "--backend: expected processes or slurm, found 'pbs'"),
                (2, self.environment, ["processes"], "cluster serve: expected --cluster NODESxGPUS, as 1x4, found none")):
            answer = run(*serve, *options, env=environment)
            self.assertEqual((answer.code, answer.err), (wanted, f"tessera: {message}\n"))
        self.write("slurm programs/silent", "")
        answer = run(*serve, "slurm", env=self.environment)
        self.assertEqual((answer.code, answer.err), (3, "tessera: expected an answer of Slurm, found that sinfo ends with exit code 1: "
                                                        "slurm_load: error: Unable to contact slurm controller (connect failure)\n"))
        self.assertFalse(os.path.exists(self.path("live")))

    def test_a_silence_of_slurm_loses_nothing(self):
        self.serve()
        self.submit("a", steps=300)
        self.wait_for(lambda: self.workers() == ["1"])
        silent = self.write("slurm programs/silent", "")
        asked = len(fake_slurm.calls(self.slurm, "squeue"))
        self.wait_for(lambda: len(fake_slurm.calls(self.slurm, "squeue")) > asked + 3)
        self.assertEqual(json.loads(self.ask("explain", "a", "--json").out)["state"], "running")
        os.unlink(silent)
        self.assertEqual(self.server.wait(timeout=60), 0)
        self.assertEqual(len(fake_slurm.calls(self.slurm, "sbatch")), 1)

    def test_another_back_end_is_not_the_journals(self):
        self.serve()
        self.server.kill()
        self.server.wait()
        answer = run("cluster", "serve", "--cluster", "1x2", "--dir", self.path("live"), "--policy", "fifo")
        self.assertEqual((answer.code, answer.err), (2, f"tessera: {self.path('live/journal')}: expected the backend of the journal, \"slurm\", "
                                                        "found \"processes\"\n"))


if __name__ == "__main__":
    main()
