"""Runs a live controller on a real Slurm with emulated nodes: whoever is killed, nothing is lost.

One of the slow tests, label `slurm`. Where it cannot run it says why and ends with code 77: scripts/setup --slurm.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

import slurm_cluster
from cli import MPI_ENVIRONMENT, OF_ITS_OWN, RuntimeTest, main, program, run

ONLY_SLOW = True  # for tests/cli/CMakeLists.txt: a start of Slurm and its rounds take their time
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


def seed():
    return int(os.environ.get("TESSERA_SEED", "1"))


class Slurm(RuntimeTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory(prefix="tessera_slurm_")
        cls.addClassCleanup(folder.cleanup)
        cls.cluster = slurm_cluster.SlurmCluster(folder.name)
        cls.addClassCleanup(cls.cluster.stop)
        cls.environment = {**cls.cluster.environment, **OF_ITS_OWN, **LOOPBACK}

    def setUp(self):
        super().setUp()
        self.server = None
        self.cluster.heal()
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
        for node in range(1, 16):  # one node is left for three jobs
            self.assertEqual(self.ask("drain", f"n{node}").out, f"drained node n{node}\n")
        for name in ("a", "b", "c"):
            self.submit(name, "--gpus", "4", "--plan", "data_parallel({})", steps=400)
        self.cluster.wait_for("a job that was resized", lambda: any(self.job(name)["changes"] for name in ("a", "b", "c")), 120)
        self.wait_until_idle()
        for name in ("a", "b", "c"):
            self.expect_loss(name, 400)
        self.expect_equal_replay()
        self.expect_no_jobs_left()

    def test_jobs_of_fixed_size_wait_and_say_why(self):
        self.serve()
        for node in range(1, 16):
            self.ask("drain", str(node))
        nasty = self.path("a b; touch pwned $(touch pwned) `touch pwned` 'x\" %j")
        os.makedirs(nasty)
        self.submit("a", "--gpus", "4", "--plan", "data_parallel(4)", steps=150, folder=f"{nasty}/checkpoints".replace('"', '\\"'))
        self.submit("b", "--gpus", "2", "--plan", "data_parallel(2)", steps=30)
        self.cluster.wait_for("a reason", lambda: "0 are free" in self.ask("explain", "b").out)
        self.assertIn("b is waiting: ", self.ask("explain", "b").out)
        self.wait_until_idle()
        self.expect_loss("a", 150)
        self.expect_loss("b", 30)
        self.assertFalse([folder for folder, _, names in os.walk(self.folder) if "pwned" in names])

    def test_a_drained_node_is_left(self):
        self.serve()
        self.submit("a", "--gpus", "2", "--plan", "data_parallel({})", steps=300)
        self.wait_for_step("a", 20)
        [(_, node)] = self.workers("a")
        self.assertEqual(self.ask("drain", node).out, f"drained node {node}\n")
        self.cluster.wait_for("a worker job elsewhere", lambda: [where for _, where in self.workers("a") if where != node])
        self.wait_until_idle()
        self.expect_loss("a", 300)
        self.expect_equal_replay()

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

    def test_a_node_that_slurm_drains_is_left_until_it_is_back(self):
        self.serve()
        self.submit("a", "--gpus", "2", "--plan", "data_parallel({})", steps=600)
        self.wait_for_step("a", 20)
        [(_, node)] = self.workers("a")
        self.cluster.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
        self.cluster.wait_for("a worker job elsewhere", lambda: [where for _, where in self.workers("a") if where != node])
        self.cluster.resume()
        self.cluster.wait_for("the node", lambda: json.loads(self.ask("status", "--json").out)["nodes"] == [4] * 16)
        self.wait_until_idle()
        self.expect_loss("a", 600)
        self.expect_equal_replay()

    def test_a_wide_job_that_loses_a_node_begins_anew_on_all(self):
        self.serve()
        self.submit("wide", "--gpus", "8", "--plan", "data_parallel({})", "--least", "8", steps=80)
        self.wait_for_step("wide", 20)
        before = dict(self.workers("wide"))
        self.cluster.run("scancel", max(before))  # ids grow from the last part to the first
        self.cluster.run("scancel", min(before))
        self.cluster.wait_for("two other worker jobs", lambda: len(set(dict(self.workers("wide"))) - set(before)) == 2)
        self.wait_until_idle()
        self.expect_loss("wide", 80)
        self.expect_no_jobs_left()

    def test_the_agent_of_a_node_is_killed_and_its_job_goes_on(self):
        self.serve()
        self.submit("a", "--gpus", "2", "--plan", "data_parallel({})", steps=400)
        self.wait_for_step("a", 20)
        [(number, node)] = self.workers("a")
        self.cluster.kill(node)
        self.wait_for_step("a", self.job("a")["step"] + 20)
        self.cluster.start_node(int(node[1:]))
        self.wait_until_idle()
        self.assertIn((number, "COMPLETED"), [tuple(line.split("|")) for line in self.cluster.run(
            "squeue", "--noheader", "--states=all", "--format=%A|%T").splitlines()])
        self.expect_loss("a", 400)

    def test_a_node_that_loses_all_its_processes_starts_the_job_again(self):
        self.serve()
        self.submit("a", "--gpus", "2", "--plan", "data_parallel({})", steps=300)
        self.wait_for_step("a", 20)
        [(number, node)] = self.workers("a")
        self.cluster.kill(node)
        killed = slurm_cluster.kill_processes_of(self.cluster.folder, number)
        self.assertGreaterEqual(killed, 2)
        # An agent that starts does not miss a job that may be about to start: Slurm gives it some time.
        self.cluster.wait_for("a job that Slurm may miss", lambda: self.cluster.run(
            "squeue", "--noheader", "--jobs", number, "--format=%M").strip() >= "0:15")
        self.cluster.start_node(int(node[1:]))
        self.cluster.wait_for("another worker job", lambda: [w for w in self.workers("a") if w[0] != number], 120)
        self.wait_until_idle()
        self.expect_loss("a", 300)
        self.expect_equal_replay()

    def test_the_controller_of_slurm_is_killed_and_nothing_is_lost(self):
        self.serve()
        self.submit("a", "--gpus", "2", "--plan", "data_parallel({})", steps=400)
        self.wait_for_step("a", 20)
        self.cluster.kill("slurmctld")
        self.cluster.start("slurmctld", "slurmctld", "-D")
        # Slurm goes on from its last saved state: it may have forgotten the job, and drain its node when it gives the same number
        # again, or hold the job anew. Then the job begins anew.
        self.wait_until_idle()
        self.expect_loss("a", 400)
        self.expect_equal_replay()

    def test_killed_at_random_moments_nothing_is_lost(self):
        draw = random.Random(seed())
        self.serve()
        for name in ("a", "b"):
            self.submit(name, "--gpus", "1", "--plan", "data_parallel({})", steps=500)
        kills, in_a_row = 0, 0
        while kills < 14:
            try:
                self.assertEqual(self.server.wait(timeout=draw.uniform(0.2, 2.5)), 0)
                break
            except subprocess.TimeoutExpired:
                kills += 1
            numbers = {name: [number for number, _ in self.workers(name)] for name in ("a", "b")}
            self.assertLessEqual(max(map(len, numbers.values())), 1, numbers)
            victims = numbers["a"] + numbers["b"]
            what = draw.choice(("controller", "worker", "agent"))
            if what == "worker" and victims and in_a_row < 2:  # a job that is lost three times without a step has failed
                self.cluster.run("scancel", draw.choice(victims))
                in_a_row += 1
                continue
            in_a_row = 0
            if what == "agent":
                node = draw.randrange(2)
                self.cluster.kill(f"n{node}")
                self.cluster.start_node(node)
            else:
                self.serve()
        print(f"{kills} kills")
        self.wait_until_idle()
        for name in ("a", "b"):
            self.expect_loss(name, 500)
        self.expect_equal_replay()
        self.expect_no_jobs_left()


if __name__ == "__main__":
    if why := slurm_cluster.why_not():
        print(why)
        sys.exit(77)
    main()
