"""Runs a live controller: jobs wait, start, move and end; whoever is killed, nothing is lost."""
import json
import os
import random
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess

from cli import RuntimeTest, main, program, run

RUN = """model = "gpt:layers=2,hidden=32,heads=2,seq=16,vocab=256,dtype=float64"
data = "random"
precision = "float64"
batch = 8
steps = {steps}
checkpoint = {{ dir = "{folder}", every = {every}, keep = 2 }}
"""
LOSSES = {}  # Live.loss_alone
KILLS = 80 if "TESSERA_ALL_CASES" in os.environ else 20


def children_of(parent):
    out = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                if int(file.read().rsplit(")", 1)[1].split()[1]) == parent:
                    out.append(int(entry))
        except OSError:
            pass  # it has ended meanwhile
    return out


class Live(RuntimeTest):
    def setUp(self):
        super().setUp()
        self.server = None
        self.addCleanup(self.end)

    def end(self):
        if self.server is not None and self.server.poll() is None:
            self.server.kill()
            self.server.wait()
        if self.server is not None:
            self.server.stderr.close()

    def serve(self, *options, cluster="1x2", policy="fifo", before=None):
        """Starts a controller and waits until it listens."""
        self.end()
        self.server = subprocess.Popen(
            [program(), "cluster", "serve", "--dir", self.path("live"), "--cluster", cluster, "--policy", policy, "--round", "0.1",
             "--until-idle", *options], stderr=subprocess.PIPE, cwd=self.folder, text=True, preexec_fn=before, restore_signals=False)
        return self.server.stderr.readline()

    def path(self, name):
        return os.path.join(self.folder, name)

    def job(self, name, steps=40, every=5):
        return self.write(f"{name}.toml", RUN.format(folder=self.path(f"checkpoints-{name}"), steps=steps, every=every))

    def ask(self, action, *arguments):
        return run("cluster", action, *arguments, "--dir", self.path("live"))

    def submit(self, name, *options, **keys):
        answer = self.ask("submit", self.job(name, **keys), *options)
        said = "" if self.server.poll() is None else self.server.stderr.read()
        self.assertEqual((answer.code, answer.out), (0, f"submitted {name}\n"), answer.err + said)

    def last_loss(self, name):
        """The loss of the last step. A process that starts behind it has none of its own."""
        with open(self.path(f"live/{name}.log"), encoding="utf-8") as file:
            return [json.loads(line)["loss"] for line in file if line.startswith("{") and '"loss":' in line and line.endswith("}\n")][-1]

    def loss_alone(self, steps=40):
        """The last loss of a run of so many steps by itself; each is run once."""
        if steps not in LOSSES:
            path = self.write(f"alone-{steps}.toml", RUN.format(folder=self.path(f"alone-{steps}"), every=1000, steps=steps))
            LOSSES[steps] = json.loads(run("train", path, "--json").out.splitlines()[-1])["summary"]["last_loss"]
        return LOSSES[steps]

    def expect_equal_replay(self):
        answer = self.ask("replay")
        self.assertEqual(answer.code, 0, answer.err)
        self.assertIn("all are decided again as recorded", answer.out)

    def test_jobs_wait_start_and_end(self):
        self.assertIn("1x2 under fifo, listening on", self.serve())
        self.submit("a", "--gpus", "2", "--plan", "data_parallel({})")
        self.submit("b", steps=20)
        status = json.loads(self.ask("status", "--json").out)
        self.assertEqual([job["name"] for job in status["jobs"]], ["a", "b"])
        self.assertEqual(self.server.wait(timeout=60), 0)
        self.assertAlmostEqual(self.last_loss("a"), self.loss_alone(), delta=1e-9)
        self.assertAlmostEqual(self.last_loss("b"), self.loss_alone(steps=20), delta=1e-9)
        self.expect_equal_replay()

    def test_a_job_that_is_resized_computes_the_same(self):
        self.serve(cluster="1x4", policy="optimus")
        for name in ("a", "b", "c"):
            self.submit(name, "--gpus", "4", "--plan", "data_parallel({})", steps=150, every=10)
        self.assertEqual(self.server.wait(timeout=100), 0)
        alone = self.loss_alone(steps=150)
        for name in ("a", "b", "c"):
            self.assertAlmostEqual(self.last_loss(name), alone, delta=1e-9)
        self.expect_equal_replay()

    def test_a_job_changes_its_size_without_a_restart(self):
        self.serve(cluster="1x4", policy="optimus")
        self.submit("a", "--gpus", "4", "--plan", "data_parallel({})", steps=20000, every=1000)
        self.wait_for("a", lambda text: text.count('{"step":') > 20)
        self.submit("b", "--gpus", "4", "--plan", "data_parallel({})", steps=300)
        self.wait_for("b", lambda text: '"summary"' in text)
        text = self.wait_for("a", lambda text: text.count('{"change":') >= 2)
        self.ask("cancel", "a")
        self.assertEqual(self.server.wait(timeout=60), 0)
        self.assertNotIn('{"loaded":', text)  # nothing was read from a checkpoint
        changes = [json.loads(line)["change"] for line in text.splitlines() if line.startswith('{"change":')]
        self.assertEqual([one["bytes"]["counted"] for one in changes], [one["bytes"]["predicted"] for one in changes])
        self.expect_equal_replay()

    def test_predicted_speeds_decide_before_anything_is_measured(self):
        table = self.write("speeds.csv", "exec_plan,placement,iter_time,plan\nga,1,0.1,data_parallel(1)\nga,2,0.05,data_parallel(2)\n"
                                         "ga,4,0.4,data_parallel(4)\nzero,4,0.01,\"zero(stage=3,dp=4)\"\n")
        self.serve(cluster="1x4", policy="default")
        self.submit("a", "--gpus", "4", "--plan", "data_parallel({})", "--speeds", table)
        self.assertEqual(self.server.wait(timeout=60), 0)
        with sqlite3.connect(self.path("live/journal")) as journal:
            decided = [json.loads(body)["decided"] for (body,) in journal.execute("SELECT body FROM event WHERE kind = 'round'")]
        self.assertEqual([change for changes in decided for change in changes][0], [0, [[0, 2]]])
        self.expect_equal_replay()
        wrong = self.ask("submit", self.job("b"), "--plan", "serial", "--speeds", table)
        self.assertEqual((wrong.code, wrong.err), (2, f"tessera: {table}: expected rows whose column plan is 'serial', found none of 4\n"))

    def test_twenty_small_jobs_under_each_elastic_policy(self):
        for policy in ("ones", "default"):
            self.serve(cluster="2x4", policy=policy)
            self.submit(f"{policy}-open", steps=1000000)  # keeps the controller from being idle before all are submitted
            for k in range(20):
                self.submit(f"{policy}{k}", "--gpus", str(2 ** (k % 3)), "--plan", "data_parallel({})", steps=30 + 10 * (k % 4), every=10)
            self.ask("cancel", f"{policy}-open")
            self.assertEqual(self.server.wait(timeout=300), 0)
            alone = [self.loss_alone(steps=30 + 10 * k) for k in range(4)]
            for k in range(20):
                self.assertAlmostEqual(self.last_loss(f"{policy}{k}"), alone[k % 4], delta=1e-9)
            self.expect_equal_replay()
            shutil.rmtree(self.path("live"))

    def wait_for(self, name, is_there):
        """Reads the log of a job until it has what is wanted. Returns it."""
        with subprocess.Popen(["tail", "-F", "-n", "+1", "--pid", str(self.server.pid), self.path(f"live/{name}.log")], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True) as tail:
            text = ""
            while not is_there(text):
                line = tail.stdout.readline()
                self.assertNotEqual(line, "", f"the controller has ended; the log of {name}: {text[-300:]}")
                text += line
            tail.terminate()
        return text

    def test_killed_at_random_moments_nothing_is_lost(self):
        draw = random.Random(KILLS)
        alone = self.loss_alone(steps=600)
        self.serve(policy="fifo")
        for name in ("a", "b"):
            self.submit(name, "--gpus", "1", "--plan", "data_parallel({})", steps=600, every=10)
        kills = in_a_row = 0
        while True:
            try:
                self.assertEqual(self.server.wait(timeout=draw.uniform(0.05, 0.7) if kills < KILLS else 120), 0)
                break
            except subprocess.TimeoutExpired:
                workers = children_of(self.server.pid)
                # A job that is lost three times without a step between them has failed.
                if workers and in_a_row < 2 and draw.random() < 0.4:
                    os.kill(draw.choice(workers), signal.SIGKILL)
                    in_a_row += 1
                else:
                    in_a_row = 0
                    self.server.kill()
                    self.server.wait()
                    self.assertIn("listening on", self.serve(policy="fifo"))
                kills += 1
        print(f"{kills} kills")
        for name in ("a", "b"):
            self.assertAlmostEqual(self.last_loss(name), alone, delta=1e-9)
        self.expect_equal_replay()

    def test_cancel_and_drain(self):
        self.serve(cluster="2x1")
        for name in ("a", "b", "c"):
            self.submit(name, steps=100000)
        self.assertEqual(self.ask("drain", "7").err, "tessera: expected a node from 0 to 1, found 7\n")
        self.assertEqual(self.ask("resume", "0").err, "tessera: expected a node that is drained, found 0\n")
        self.assertEqual(self.ask("drain", "0").out, "drained node 0\n")
        self.assertEqual(json.loads(self.ask("status", "--json").out)["drained"], [0])
        while "c is waiting: " not in (said := self.ask("explain", "c").out):
            self.assertIsNone(self.server.poll())
        self.assertRegex(said, "; node 0 is drained\n$")
        self.assertEqual(self.ask("drain", "1").out, "drained node 1\n")
        self.assertEqual(self.ask("resume", "0").out, "resumed node 0\n")
        self.assertEqual(self.ask("cancel", "x").err, "tessera: expected a job of a, b, c, found 'x'\n")
        for name in ("a", "b", "c"):
            self.assertEqual(self.ask("cancel", name).out, f"cancelled {name}\n")
        self.assertEqual(self.server.wait(timeout=60), 0)
        self.expect_equal_replay()

    def test_failures_say_why(self):
        self.serve()
        answer = self.ask("submit", self.job("a"), "--plan", "data_parallel({}); touch here", "--gpus", "1")
        self.assertEqual((answer.code, answer.err), (2, "tessera: 'data_parallel(1); touch here': expected ')' at the end\n"))
        self.submit("b", steps=1000000)
        # A client of another kind may skip that check.
        self.raw({"do": "submit", "name": "a", "run": self.path("a.toml"), "folder": self.folder, "plan": "data_parallel({}); touch here"})
        self.wait_for("a", lambda text: "tessera: " in text)
        while "failed" not in self.ask("explain", "a").out:
            self.assertIsNone(self.server.poll())
        self.assertIn("expected ')' at the end", self.ask("explain", "a").out)
        self.ask("cancel", "b")
        self.assertEqual(self.server.wait(timeout=60), 0)
        self.assertFalse(os.path.exists(self.path("here")))

    def raw(self, request):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(self.path("live/socket"))
            client.sendall(json.dumps(request).encode() + b"\n")
            return json.loads(client.makefile().readline())

    def test_a_job_runs_on_sizes_of_its_plan_only(self):
        self.serve(cluster="1x4", policy="optimus")
        for options, message in ((["--gpus", "1", "--plan", "data_parallel(4)"], "plan data_parallel(4): expected as many ranks as GPUs, 1, found 4"),
                                 (["--gpus", "2"], "plan serial: expected as many ranks as GPUs, 2, found 1"),
                                 (["--gpus", "2", "--plan", "megatron(tp={},dp=2)"], "plan megatron(tp=2,dp=2): expected as many ranks as GPUs, 2, found 4"),
                                 (["--gpus", "2", "--plan", "data_parallel({})", "--most", "9"], "most: expected at most the cluster's 4, found 9")):
            answer = self.ask("submit", self.job("a"), *options)
            self.assertEqual((answer.code, answer.err.splitlines()[-1]), (2, f"tessera: {message}"))
        # The model has two heads: on three and four GPUs the plan does not run, so the job does not get them.
        answer = self.ask("submit", self.job("a", steps=60), "--gpus", "2", "--most", "4", "--plan", "tensor_parallel({})")
        self.assertEqual((answer.code, answer.out), (0, "submitted a\n"))
        self.assertRegex(answer.err, "^note: the job will not run on 3 GPUs: .*\nnote: the job will not run on 4 GPUs: .*\n$")
        self.assertEqual(self.server.wait(timeout=60), 0)
        self.assertAlmostEqual(self.last_loss("a"), self.loss_alone(steps=60), delta=1e-9)

    def test_two_names_of_one_folder(self):
        os.mkdir(self.path("real"))
        os.symlink("real", self.path("link"))
        self.serve()
        run_file = RUN.replace("{{", "{").replace("}}", "}").replace("{steps}", "100000").replace("{every}", "5")
        for name, folder in (("a", "real"), ("b", "link")):
            answer = self.ask("submit", self.write(f"{name}.toml", run_file.replace("{folder}", self.path(folder))))
            self.assertEqual(answer.code, 0 if name == "a" else 2, answer.err)
        self.assertIn("expected a folder of its own, found that of job 'a'", answer.err)

    def test_bad_input_is_one_line(self):
        self.assertIn("found none: No such file or directory", self.ask("status").err)
        self.serve()
        second = run("cluster", "serve", "--dir", self.path("live"), "--cluster", "1x2", "--policy", "fifo")
        self.assertEqual((second.code, second.err),
                         (2, f"tessera: {self.path('live/journal')}: expected a journal that no other controller has open, found that one has\n"))
        for options, message in ((["--gpus", "3", "--plan", "data_parallel({})"], "gpus: expected at most the cluster's 2, found 3"),
                                 (["--name", "../a"], "name: expected 1 to 64 letters, digits, '-', '_' and '.', found \"../a\""),
                                 (["--least", "1", "--gpus", "2", "--plan", "data_parallel(2)"],
                                  "plan: expected {} for the number of GPUs in the plan of a job of several sizes, found none")):
            answer = self.ask("submit", self.job("a"), *options)
            self.assertEqual((answer.code, answer.err), (2, f"tessera: {message}\n"))
        self.submit("a")
        answer = self.ask("submit", self.path("a.toml"), "--name", "b")
        self.assertEqual((answer.code, answer.err), (2, f"tessera: {self.path('a.toml')}: checkpoint.dir: expected a folder of its own, found "
                                                        f"that of job 'a', {self.path('checkpoints-a')}\n"))
        bare = self.write("bare.toml", 'model = "gpt:layers=1"\nsteps = 3\n')
        self.assertIn("expected checkpoint = { dir = ..., every = ... }", self.ask("submit", bare).err)

    def test_a_journal_with_a_gap_or_none_at_all(self):
        self.serve()
        for name in ("a", "b"):
            self.submit(name, steps=3)
        self.assertEqual(self.server.wait(timeout=60), 0)
        journal = self.path("live/journal")
        with sqlite3.connect(journal) as database:
            database.execute("DELETE FROM event WHERE number = 2")
        database.close()
        for answer in (self.ask("replay"), run("cluster", "serve", "--dir", self.path("live"), "--cluster", "1x2", "--policy", "fifo")):
            self.assertEqual(answer.code, 2)
            self.assertRegex(answer.err, f"^tessera: {journal}: expected event 2 with a time that is not before the one before, found event 3 at .* s\n$")
        for path, found in ((self.write("empty", ""), "an empty file"), (self.folder, "a folder")):
            answer = self.ask("replay", path)
            self.assertEqual((answer.code, answer.err), (2, f"tessera: {path}: expected a journal of tessera cluster, found {found}\n"))

    def test_wrong_words_leave_nothing_behind(self):
        token, short = self.write("token", "0123456789abcdef\n"), self.write("short", "a\n")
        for listen, file, message in (("somewhere:7", token, "--listen: expected an address and a port, as 127.0.0.1:7000, found 'somewhere:7'"),
                                      ("127.0.0.1:0", short, "--token: expected a token of at least 16 bytes to listen on TCP, found 1")):
            answer = run("cluster", "serve", "--dir", self.path("live"), "--cluster", "1x2", "--listen", listen, "--token", file)
            self.assertEqual((answer.code, answer.err), (2, f"tessera: {message}\n"))
            self.assertFalse(os.path.exists(self.path("live")))

    def test_a_full_disk_ends_the_controller_and_loses_nothing(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (60000, 60000))
        self.serve(before=limit)
        code = self.server.poll()
        for i in range(40):
            answer = self.ask("submit", self.job(f"job{i}"), "--plan", "data_parallel({})" + " " * 3000)
            if answer.code != 0:
                break
        code = self.server.wait(timeout=60)
        self.assertEqual(code, 3)
        self.assertRegex(self.server.stderr.read(), r"^tessera: .*/journal: cannot write the journal: ")
        self.serve()
        jobs = json.loads(self.ask("status", "--json").out)["jobs"]
        self.assertEqual([job["name"] for job in jobs], [f"job{k}" for k in range(i)])

    def test_raw_bytes_on_the_socket(self):
        self.serve()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(self.path("live/socket"))
            client.sendall(b"\xff{[\n")
            self.assertIn(b"expected a request that is a JSON object", client.recv(1000))
        self.submit("a", steps=5)
        self.assertEqual(self.server.wait(timeout=60), 0)


if __name__ == "__main__":
    main()
