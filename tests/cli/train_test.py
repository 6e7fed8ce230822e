"""tessera train, on threads and over MPI. How to run it: cli.py."""
import array
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import threading
import time

from cli import ALL_CASES, MPI_ENVIRONMENT, MpiTest, ROOT, RuntimeTest, main, program, run


class Train(RuntimeTest):
    def losses(self, *arguments):
        lines = [json.loads(line) for line in self.expect_text("train", *arguments, "--json").splitlines()]
        self.assertEqual(len(lines), 4)
        self.assertEqual(lines[0].pop("schema"), 1)
        for index, line in enumerate(lines[:3]):
            self.assertEqual(list(line), ["step", "loss", "step_time_s", "tokens_per_s"])
            self.assertEqual(line["step"], index + 1)
        self.assertEqual(list(lines[3]), ["summary"])
        return [line["loss"] for line in lines[:3]], lines[3]["summary"]

    def test_json_and_equal_losses_under_a_plan(self):
        run_file = self.run_file()
        serial, summary = self.losses(run_file)
        self.assertEqual(list(summary), ["steps", "ranks", "transport", "parameters", "first_loss", "last_loss",
                                         "tokens_per_s", "peak_memory_bytes", "process_peak_bytes", "bytes_sent"])
        self.assertEqual((summary["ranks"], summary["bytes_sent"]), (1, {}))
        plan, summary = self.losses(run_file, "--plan", "megatron(tp=2,dp=2)")
        self.assertEqual(summary["ranks"], 4)
        self.assertGreater(summary["bytes_sent"]["all_reduce"], 0)
        for a, b in zip(serial, plan):
            self.assertAlmostEqual(a, b, delta=1e-5 * a)

    def test_equal_losses_with_state_on_disk(self):
        run_file = self.run_file()
        serial, _ = self.losses(run_file)
        for call in ("offload(2,gradients=true,to=disk)", "offload(2,zero=3,parameters=1,activations=true)")[:2 if ALL_CASES else 1]:
            plan, _ = self.losses(run_file, "--plan", call)
            for a, b in zip(serial, plan):
                self.assertAlmostEqual(a, b, delta=1e-5 * a)

    def test_a_disk_without_room_is_a_fault_of_one_line(self):
        def no_large_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        answer = run("train", self.run_file(), "--plan", "offload(zero=0,to=disk)", before=no_large_files)
        self.assertEqual(answer.code, 3, answer.err)
        self.assertRegex(answer.err, r"^tessera: rank 0: disk tier: \S+: expected room for .*: File too large\n$")

    def test_text_where_there_is_no_terminal(self):
        text = self.expect_text("train", self.run_file())
        self.assertNotIn("\r", text)
        self.assertRegex(text, r"(?m)^step 3/3  loss \d\.\d{4} +[\d,]+ tokens/s  0:00 left$")
        self.assertRegex(text, r"(?m)^loss \d\.\d{4} -> \d\.\d{4} in 3 steps, \d:\d\d; median [\d,]+ tokens/s$")

    def test_set_and_its_errors(self):
        run_file = self.run_file()
        _, summary = self.losses(run_file, "--set", "optimizer.lr=0.1", "--set", "plan=data_parallel(2)")
        self.assertEqual(summary["ranks"], 2)
        self.expect_error(2, "--set step=3: unknown key 'step', did you mean 'steps'?", "train", run_file, "--set", "step=3")
        self.expect_error(2, "cannot read 'none.toml': No such file or directory", "train", "none.toml")

    def test_numbers_of_an_optimizer_have_ranges(self):
        """Which they are is tested by the unit tests of graph/differentiate.h and runtime/run_config.h; here that the commands ask."""
        run_file = self.run_file()
        share, least = "a number of at least 0 and below 1", "a number of at least 0"
        quick = [("train", "beta1", "2"), ("verify", "lr", "-1e-3"), ("own", "nesterov", "0.5")]
        for key, value, wanted in (("beta1", "2", share), ("beta1", "1", share), ("beta2", "1.0", share), ("beta2", "-0.1", share),
                                   ("momentum", "1", share), ("momentum", "nan", share), ("lr", "-1e-3", least), ("lr", "inf", least),
                                   ("min_lr", "-1", least), ("eps", "-1e-8", least), ("eps", "nan", least),
                                   ("weight_decay", "-0.1", least), ("clip", "-1", least), ("nesterov", "0.5", "0 or 1"),
                                   ("nesterov", "2", "0 or 1")):
            with self.subTest(key=key, value=value):
                if ALL_CASES or ("train", key, value) in quick:
                    answer = run("train", run_file, "--set", f"optimizer.{key}={value}")
                    self.assertEqual((answer.code, answer.out), (2, ""))
                    self.assertRegex(answer.err, rf"^tessera: --set optimizer\.{key}={re.escape(value)}: expected optimizer\.{key} to be "
                                                 rf"{wanted}, found \S+\n$")
                if ALL_CASES or ("verify", key, value) in quick:
                    answer = run("verify", "mlp", "--plan", "serial", "--set", f"optimizer.{key}={value}")
                    self.assertEqual((answer.code, answer.out), (2, ""))
                if ALL_CASES or ("own", key, value) in quick:
                    with open(run_file, encoding="utf-8") as file:
                        text = file.read()
                    own = self.write("own.toml", f"optimizer.{key} = {value}\n" + text)
                    answer = run("train", own)
                    self.assertEqual((answer.code, answer.out), (2, ""))
                    self.assertRegex(answer.err, rf"^tessera: \S+own\.toml:1: expected optimizer\.{key} to be {wanted}, found \S+\n$")

    def test_weight_decay_is_for_what_is_published_with_two_dims(self):
        """GPT-2 by transformers 5.24.0: five steps as torch.optim.AdamW takes them in float64, by which biases do not decay, those of
        queries, keys and values neither."""
        case = ROOT / "tests/cli/gpt2_weight_decay"
        self.expect_text("import", str(case), "--out", f"{self.folder}/ours")
        run_file = self.write("decay.toml", f"""model = "{self.folder}/ours/config.json"
weights = "{self.folder}/ours"
data = {{ arrays = {{ tokens = "{case}/tokens.npy", targets = "{case}/targets.npy" }} }}
batch = 3
steps = 5
precision = "float64"
optimizer = {{ lr = 1e-2, min_lr = 1e-2, warmup = 0, beta2 = 0.95, weight_decay = 0.1 }}
""")
        expected = [float(line) for line in (case / "expected_train.txt").read_text().split()]
        for plan in ("serial", "tensor_parallel(2)", "zero(stage=3,dp=3)") if ALL_CASES else ("zero(stage=3,dp=3)",):
            lines = self.expect_text("train", run_file, "--plan", plan, "--json").splitlines()
            losses = [line["loss"] for line in map(json.loads, lines) if "loss" in line]
            for found, right in zip(losses, expected, strict=True):
                self.assertAlmostEqual(found, right, delta=1e-6)

    def test_missing_data(self):
        run_file = self.run_file(data=["nowhere/*.txt"])
        self.expect_error(2, f"data: no file matches 'nowhere/*.txt' ({run_file}:2)", "train", run_file)

    def test_short_data(self):
        short = self.write("short.txt", "too short")
        run_file = self.run_file(data=[short])
        self.expect_error(2, f"data: expected a file of more than 16 bytes (seq = 16), the longest of 1, '{short}', has 9 "
                             f"({run_file}:2)", "train", run_file)

    def test_a_mesh_larger_than_the_ranks(self):
        self.expect_error(2, "megatron(tp=2,dp=2): its mesh {dp=2, tp=2} needs 4 ranks, found 2 (--ranks)",
                          "train", self.run_file(), "--plan", "megatron(tp=2,dp=2)", "--ranks", "2")

    def test_a_model_for_bytes(self):
        run_file = self.run_file(model="gpt:layers=1,hidden=16,heads=2,seq=16,vocab=128")
        self.expect_error(2, "data: bytes are the tokens, so the model needs vocab >= 256, found vocab = 128 "
                             f"({run_file}:2)", "train", run_file)

    def test_token_files_and_a_token_that_the_vocabulary_lacks(self):
        path = os.path.join(self.folder, "tokens.bin")
        tokens = array.array("H", [i * i % 251 for i in range(400)])
        pathlib.Path(path).write_bytes(tokens.tobytes())
        data = f'data={{ files = "{path}", format = "uint16" }}'
        _, summary = self.losses(self.run_file(), "--set", data)
        self.assertEqual(summary["steps"], 3)
        tokens[17] = 999
        pathlib.Path(path).write_bytes(tokens.tobytes())
        self.expect_error(2, f"data: '{path}', token 17: expected a token below 256 (vocab = 256), found 999 (--set data)",
                          "train", self.run_file(), "--set", data)


class TrainOverMpi(MpiTest):
    def lose_rank_1(self, sent, timeout):
        """Three ranks train; rank 1 gets the signal. Exit code of mpirun, and the lines of the other ranks."""
        self.needs_mpirun()
        run_file = self.run_file(plan="data_parallel(3)", batch=9, steps=1000000)
        world = subprocess.Popen(["mpirun", "-n", "3", program(), "train", run_file, "--json", "--timeout", timeout],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
                                 env=MPI_ENVIRONMENT)
        drain = threading.Thread(target=lambda: [None for _ in world.stdout], daemon=True)
        try:
            if not world.stdout.readline():  # all ranks train
                self.skipTest("this build has no MPI: " + world.stderr.read())
            drain.start()
            os.kill(self.process_of_rank(world.pid, 1), sent)
            errors = world.stderr.read()
            code = world.wait(timeout=60)
            drain.join()
            world.stdout.close()
            world.stderr.close()
        finally:
            if world.poll() is None:
                world.kill()
        return code, [line for line in errors.splitlines() if line.startswith("tessera")], errors

    def test_what_one_rank_finds_wrong_ends_all_at_once(self):
        place = self.write("file", "x")
        began = time.monotonic()
        answer = self.mpirun(2, "train", self.run_file(plan="data_parallel(2)", folder=f"{place}/below"))
        self.assertEqual(answer.code, 2, answer.err)
        self.assertEqual([line for line in answer.err.splitlines() if line.startswith("tessera")],
                         [f"tessera: folder: cannot make '{place}/below': Not a directory"])
        self.assertLess(time.monotonic() - began, 30)  # half of what a rank would wait for another

    def test_a_killed_rank_stops_the_others_with_a_line_each(self):
        code, lines, errors = self.lose_rank_1(signal.SIGKILL, timeout="20")
        self.assertNotEqual(code, 0)
        self.assertTrue(lines, errors)
        for line in lines:
            self.assertRegex(line, r"^tessera: rank [02]: (op \S+, tensor \S+.*, axis dp: |.*)stopped", errors)

    def test_a_rank_that_hangs_ends_the_others_with_code_3(self):
        code, lines, errors = self.lose_rank_1(signal.SIGSTOP, timeout="1")
        self.assertEqual(code, 3, errors)
        self.assertTrue(any(re.match(r"tessera: rank [02]: op \S+, tensor \S+.*, axis dp: no answer from ranks "
                                     r"\{.*1.*\} within 1 s$", line) for line in lines), errors)

    def test_the_losses_are_those_of_threads(self):
        arguments = ["train", self.run_file(plan="data_parallel(2)"), "--json"]
        answer = self.mpirun(2, *arguments)
        self.assertEqual(answer.code, 0, answer.err)
        lines = [json.loads(line) for line in answer.out.splitlines()]
        if lines[-1]["summary"]["transport"] != "mpi":
            self.skipTest("this build has no MPI")
        threads = [json.loads(line) for line in self.expect_text(*arguments).splitlines()]
        self.assertEqual(len(lines), len(threads))  # rank 0 alone prints
        for a, b in zip(lines[:-1], threads):
            self.assertAlmostEqual(a["loss"], b["loss"], delta=1e-5 * b["loss"])
        self.assertEqual(lines[-1]["summary"]["bytes_sent"], threads[-1]["summary"]["bytes_sent"])

    def test_wrong_input_is_reported_once(self):
        answer = self.mpirun(2, "train", self.run_file(plan="data_parallel(4)"))
        if "no runtime" in answer.err or answer.code == 0:
            self.skipTest("this build has no MPI")
        self.assertEqual([line for line in answer.err.splitlines() if line.startswith("tessera")],
                         ["tessera: data_parallel(4): its mesh {dp=4} needs 4 ranks, found 2 (mpirun)"])


if __name__ == "__main__":
    main()
