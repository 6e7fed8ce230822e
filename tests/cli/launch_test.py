"""tessera launch: a run that loses a process goes on from its checkpoint. How to run it: cli.py."""
import json
import os
import pathlib
import signal
import subprocess
import threading

from cli import LongRuns, MPI_ENVIRONMENT, ROOT, main, program, run


class Launch(LongRuns):
    undisturbed = None  # the last loss of a run that nothing kills, for the tests that kill one

    def children(self, parent):
        """Processes of `tessera train` below a process."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                status = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except (OSError, IndexError):
                continue
            if int(status[1]) != parent:
                continue
            if b"train" in words and words[0].endswith(b"tessera"):
                found.append(int(entry.name))
            else:
                found += self.children(int(entry.name))
        return found

    def launch_and_kill(self, *arguments):
        """Kills one process when the first checkpoint has been written. The launcher's exit code and its log."""
        launcher = subprocess.Popen([program(), "launch", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    text=True, cwd=ROOT, env=MPI_ENVIRONMENT)
        killed = False
        errors = []
        drain = threading.Thread(target=lambda: errors.extend(launcher.stderr), daemon=True)
        drain.start()
        for line in launcher.stdout:
            if killed or not line.startswith("step") or not list(pathlib.Path(self.folder, "ck").glob("step-*")):
                continue
            processes = self.children(launcher.pid)
            if processes:
                os.kill(processes[-1], signal.SIGKILL)
                killed = True
        code = launcher.wait(timeout=120)
        drain.join()
        launcher.stdout.close()
        launcher.stderr.close()
        if "without MPI" in "".join(errors):
            self.skipTest("this build has no MPI: " + "".join(errors))
        self.assertTrue(killed, "no checkpoint was seen before the run ended")
        log = [json.loads(line) for line in pathlib.Path(self.folder, "ck", "launch.jsonl").read_text().splitlines()]
        return code, log, "".join(errors)

    def expect_resumed(self, code, log, errors, file):
        self.assertEqual(code, 0, errors)
        starts = [event for event in log if event["event"] == "start"]
        self.assertEqual(len(starts), 2, log)
        self.assertEqual(starts[0]["resumes_from_step"], -1)
        self.assertGreaterEqual(starts[1]["resumes_from_step"], 5)
        self.assertEqual(log[-1]["event"], "done")
        record = pathlib.Path(self.folder, "record", "metrics.jsonl").read_text().splitlines()
        losses = {line["step"]: line["loss"] for line in map(json.loads, record) if "loss" in line}
        if Launch.undisturbed is None:
            Launch.undisturbed, _ = self.last_loss("train", file, "--set", f"checkpoint.dir={self.folder}/other", "--set",
                                                   f"folder={self.folder}/other")
        self.assertAlmostEqual(losses[max(losses)], Launch.undisturbed, delta=1e-9 * Launch.undisturbed)

    def test_a_killed_process_is_started_again(self):
        file = self.run_file(steps=300)
        code, log, errors = self.launch_and_kill(file)
        self.expect_resumed(code, log, errors, file)
        self.assertEqual([event["signal"] for event in log if event["event"] == "end"][0], signal.SIGKILL)

    def test_a_killed_rank_of_mpi_too_with_fewer_ranks_in_the_end(self):
        self.needs_mpirun()
        file = self.run_file(steps=300)
        code, log, errors = self.launch_and_kill(file, "-n", "2", "--tries", "1", "--plan", "data_parallel(2)",
                                                 "--plan", "serial")
        self.expect_resumed(code, log, errors, file)

    def test_hosts_that_do_not_answer_are_left_out(self):
        self.needs_mpirun()
        file = self.run_file(steps=8)
        answer = run("launch", file, "--host", "localhost:2", "--host", "none.invalid:6", "--plan", "data_parallel(4)", "--plan",
                     "data_parallel(2)", "--plan", "serial", env=MPI_ENVIRONMENT)
        if "without MPI" in answer.err:
            self.skipTest("this build has no MPI: " + answer.err)
        self.assertEqual(answer.code, 0, answer.err)
        log = [json.loads(line) for line in pathlib.Path(self.folder, "ck", "launch.jsonl").read_text().splitlines()]
        self.assertEqual([(event["event"], event["plan"], event["ranks"]) for event in log],
                         [(event, "data_parallel(2)", 2) for event in ("start", "end", "done")])
        self.assertEqual(log[1]["saved_step"], 8)
        answer = run("launch", file, "--host", "none.invalid:6", "--plan", "serial", env=MPI_ENVIRONMENT)
        self.assertEqual((answer.code, answer.err.splitlines()[-1]),
                         (2, "tessera: launch: expected ranks for one of the plans serial (1), found 0; hosts without an answer: "
                             "none.invalid (mpirun cannot start a process there)"))
        answer = run("launch", file, "-n", "2", "--host", "none.invalid:2", "--plan", "data_parallel(2)", env=MPI_ENVIRONMENT)
        self.assertEqual((answer.code, answer.err.splitlines()[-1]),
                         (2, "tessera: launch: expected ranks for one of the plans data_parallel(2) (2), found 0; hosts without an "
                             "answer: none.invalid (mpirun cannot start a process there)"))

    def test_slurm_starts_the_ranks_where_it_gave_the_nodes(self):
        """By a stand-in for srun, which says how it was called and starts as many processes."""
        self.needs_mpirun()
        stand_in = pathlib.Path(self.write("srun", f'#!/bin/sh\necho "$@" >> {self.folder}/calls\nexec mpirun --allow-run-as-root '
                                                   '--oversubscribe -n "$2" "$3" "$4" "$5" "$6" "$7" "$8"\n'))
        stand_in.chmod(0o755)
        file = self.run_file(steps=6)
        answer = run("launch", file, "-n", "2", "--plan", "data_parallel(2)",
                     env={**MPI_ENVIRONMENT, "SLURM_JOB_ID": "7", "PATH": f"{self.folder}:{os.environ['PATH']}"})
        if "without MPI" in answer.err:
            self.skipTest("this build has no MPI: " + answer.err)
        self.assertEqual(answer.code, 0, answer.err)
        calls = pathlib.Path(self.folder, "calls").read_text().splitlines()
        self.assertEqual(len(calls), 1)
        self.assertRegex(calls[0], rf"^--ntasks 2 \S+tessera train {file} --resume --plan data_parallel\(2\)$")
        self.assertEqual(json.loads(pathlib.Path(self.folder, "ck", "launch.jsonl").read_text().splitlines()[-1])["event"], "done")

    def test_wrong_input_is_not_tried_again(self):
        file = self.run_file()
        answer = run("launch", file, "--set", "optimizer.kind=nothing")
        self.assertEqual(answer.code, 2, answer.err)
        answer = run("launch", file, "--set", "memory_limit_bytes=1000")
        self.assertEqual(answer.code, 1, answer.err)
        events = [json.loads(line)["event"] for line in pathlib.Path(self.folder, "ck", "launch.jsonl").read_text().splitlines()]
        self.assertEqual(events, ["start", "end", "stopped"])

    def test_it_needs_checkpoints_and_plans_that_fit(self):
        answer = run("launch", self.run_file(checkpoint=False))
        self.assertEqual(answer.code, 2)
        self.assertIn("expected the key 'checkpoint.dir'", answer.err)
        self.needs_mpirun()
        answer = run("launch", self.run_file(), "-n", "1", "--plan", "data_parallel(2)", "--plan", "data_parallel(3)")
        self.assertEqual(answer.code, 2)
        self.assertEqual(answer.err.splitlines()[-1], "tessera: launch: expected ranks for one of the plans "
                         "data_parallel(2) (2), data_parallel(3) (3), found 1")
        answer = run("launch", self.run_file(), "--host", ":3")
        self.assertEqual(answer.code, 2)
        self.assertIn("--host: expected a host and its ranks", answer.err)


if __name__ == "__main__":
    main()
