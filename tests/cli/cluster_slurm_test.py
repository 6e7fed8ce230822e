"""Runs a live controller on a real Slurm with emulated nodes: whoever is killed, nothing is lost.

With the slow tests only, and where Slurm is installed (scripts/setup --slurm); label `slurm`.
"""
import json
import os
import signal
import subprocess
import tempfile

import slurm_cluster
from cli import MPI_ENVIRONMENT, OF_ITS_OWN, RuntimeTest, main, program, run, slow

RUN = """model = "gpt:layers=2,hidden=32,heads=2,seq=16,vocab=256,dtype=float64"
data = "random"
precision = "float64"
batch = 8
steps = {steps}
checkpoint = {{ dir = "{folder}", every = 10, keep = 2 }}
"""
# All emulated nodes are this machine: it may have no network but loopback, and shared memory of one node is that of all.
LOOPBACK = {name: value for name, value in MPI_ENVIRONMENT.items() if name.startswith("OMPI_")}
LOOPBACK.update(OMPI_MCA_btl="self,tcp", OMPI_MCA_btl_tcp_if_include="lo", OMPI_MCA_oob_tcp_if_include="lo")


@slow
class Slurm(RuntimeTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if why := slurm_cluster.why_not():
            print(f"skipped: {why}")
            cls.skipTest(cls, why)
        folder = tempfile.TemporaryDirectory(prefix="tessera_slurm_")
        cls.addClassCleanup(folder.cleanup)
        cls.cluster = slurm_cluster.SlurmCluster(folder.name)
        cls.addClassCleanup(cls.cluster.stop)
        cls.environment = {**cls.cluster.environment, **OF_ITS_OWN, **LOOPBACK}

    def setUp(self):
        super().setUp()
        self.server = None
        self.addCleanup(self.end)
        self.addCleanup(lambda: self.cluster.run("scancel", "--me"))

    def end(self):
        if self.server is not None:
            self.server.kill()
            self.server.wait()
            self.server.stderr.close()
            self.server = None

    def path(self, name):
        return os.path.join(self.folder, name)

    def serve(self, policy="fifo", *options):
        self.end()
        self.server = subprocess.Popen(
            [program(), "cluster", "serve", "--backend", "slurm", "--dir", self.path("live"), "--policy", policy, "--round", "0.3", "--until-idle",
             *options], stderr=subprocess.PIPE, cwd=self.folder, text=True, env=self.environment)
        line = self.server.stderr.readline()
        self.assertIn(f"16 nodes with 64 GPUs of slurm under {policy}, listening on", line)

    def wait_until_idle(self, seconds=240):
        self.assertEqual(self.server.wait(timeout=seconds), 0, self.server.stderr.read())

    def ask(self, action, *arguments):
        return run("cluster", action, *arguments, "--dir", self.path("live"), env=self.environment)

    def submit(self, name, *options, steps, folder=None):
        path = self.write(f"{name}.toml", RUN.format(folder=folder or self.path(f"checkpoints-{name}"), steps=steps))
        answer = self.ask("submit", path, *options)
        self.assertEqual((answer.code, answer.out), (0, f"submitted {name}\n"), answer.err)

    def job(self, name):
        return json.loads(self.ask("explain", name, "--json").out)

    def wait_for_step(self, name, step):
        self.cluster.wait_for(f"step {step} of {name}", lambda: self.job(name)["step"] >= step, 120)

    def workers(self, name):
        """The worker jobs of a job: a list of (number, node)."""
        return [(number, node) for number, node, state, comment in self.cluster.jobs() if state == "RUNNING" and f" {name} " in comment]

    def expect_loss(self, name, steps):
        with open(self.path(f"live/{name}.log"), encoding="utf-8") as file:
            found = [json.loads(line)["loss"] for line in file if line.startswith("{") and '"loss":' in line and line.endswith("}\n")][-1]
        path = self.write(f"alone-{name}.toml", RUN.format(folder=self.path(f"alone-{name}"), steps=steps))
        alone = json.loads(run("train", path, "--json").out.splitlines()[-1])["summary"]["last_loss"]
        self.assertAlmostEqual(found, alone, delta=1e-9)

    def expect_equal_replay(self):
        answer = self.ask("replay")
        self.assertEqual(answer.code, 0, answer.err)
        self.assertIn("all are decided again as recorded", answer.out)

    def expect_no_jobs_left(self):
        self.cluster.wait_for("an empty queue", lambda: not self.cluster.jobs())

    def test_three_jobs_wait_run_and_are_resized(self):
        self.serve("optimus")
        for name in ("a", "b", "c"):
            self.submit(name, "--gpus", "4", "--most", "4", "--plan", "data_parallel({})", steps=300)
        for node in range(1, 16):  # one node is left for three jobs
            self.assertEqual(self.ask("drain", f"n{node}").out, f"drained node n{node}\n")
        self.wait_until_idle()
        for name in ("a", "b", "c"):
            self.expect_loss(name, 300)
        self.expect_equal_replay()
        self.expect_no_jobs_left()

    def test_a_job_over_several_nodes(self):
        """mpirun reaches the second node by srun; both worker jobs end together."""
        self.serve()
        self.submit("wide", "--gpus", "8", "--plan", "data_parallel({})", "--least", "8", steps=60)
        self.cluster.wait_for("two worker jobs", lambda: len(self.workers("wide")) == 2)
        self.wait_until_idle()
        self.expect_loss("wide", 60)
        self.expect_equal_replay()
        self.expect_no_jobs_left()

    def test_the_controller_is_killed_and_its_jobs_go_on(self):
        self.serve()
        self.submit("a", "--gpus", "2", "--plan", "data_parallel({})", steps=600)
        self.wait_for_step("a", 20)
        before = self.workers("a")
        self.assertEqual(len(before), 1)
        self.end()
        self.assertEqual(self.workers("a"), before)
        self.serve()
        self.assertEqual(self.workers("a"), before)
        self.wait_until_idle()
        self.expect_loss("a", 600)
        self.expect_equal_replay()
        self.expect_no_jobs_left()

    def test_a_worker_job_that_is_cancelled_is_started_again(self):
        self.serve()
        self.submit("a", "--gpus", "2", "--plan", "data_parallel({})", steps=400)
        self.wait_for_step("a", 20)
        [(number, node)] = self.workers("a")
        self.cluster.run("scancel", number)
        self.cluster.wait_for("another worker job", lambda: [w for w in self.workers("a") if w[0] != number])
        self.wait_until_idle()
        self.expect_loss("a", 400)
        self.expect_equal_replay()


if __name__ == "__main__":
    main()
