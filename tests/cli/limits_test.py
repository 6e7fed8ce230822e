"""What no user can break: memory that is exhausted, files without an end, numbers of ranks, and texts that would write to a
terminal. How to run it: cli.py."""
import json
import os
import pathlib
import resource
import signal
import struct
import subprocess
import threading
import unittest

from cli import ALL_CASES, BYTES_MODEL, CliTest, MODEL, ROOT, RuntimeTest, main, program

GIB = 1 << 30
EVIL = "a\nb\x1b[31mc\r\u009b2J\u202ed"  # of a name: a new line, a colour, a screen that is wiped, another direction
# Bytes that no line of a message may have; characters beyond ASCII that change a terminal are in EVIL.
CONTROLS = {*range(32), 127}


def address_space(limit):
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


class Limits(CliTest):
    def run_bytes(self, *arguments, before=None, timeout=120):
        """As run(), with output in bytes: messages may quote bytes that are no UTF-8."""
        return subprocess.run([program(), *arguments], capture_output=True, check=False, cwd=ROOT, timeout=timeout,
                              preexec_fn=before, stdin=subprocess.DEVNULL)

    def expect_one_line(self, code, *arguments, **how):
        """The message, which is one line of printable text."""
        done = self.run_bytes(*arguments, **how)
        shown = [argument[:100] for argument in arguments]
        self.assertEqual(done.returncode, code, (shown, done.stderr[:2000]))
        if "--json" in arguments:  # the same message as an object
            self.assertEqual(list(json.loads(done.stdout)["error"]), ["code", "message"], shown)
        else:
            self.assertEqual(done.stdout, b"", shown)
        self.assertTrue(done.stderr.startswith(b"tessera: ") and done.stderr.endswith(b"\n"), (shown, done.stderr[:2000]))
        line = done.stderr[len(b"tessera: "):-1]
        self.assertFalse(CONTROLS.intersection(line), (shown, line[:2000]))
        text = line.decode("utf-8")
        self.assertFalse({"\u009b", "\u202e", "\u2028"}.intersection(text), (shown, line[:2000]))
        self.assertLess(len(line), 20000, shown)
        return text

    # ---- files without an end
    def commands_with_a_text(self, path):
        run_file = self.write("run.toml", f'model = "{MODEL}"\ndata = "random"\nplan = "{path}"\n')
        return [
            ["inspect", MODEL, "--plan", path], ["inspect", path], ["verify", MODEL, "--plan", path], ["verify", path, "--plan", "serial"],
            ["plan", MODEL, "--cluster", path, "--batch", "8"], ["plan", MODEL, "--cluster", "local:2", "--batch", "8", "--with", path],
            ["simulate", MODEL, "--plan", path, "--cluster", "local:1"], ["report", MODEL, "--plan", path, "--cluster", "local:1"],
            ["train", path], ["train", run_file], ["launch", path], ["rescale", path, "--at", "2", "--to", "serial"],
            ["export", MODEL, "--plan", path, "--to", "megatron"], ["export", MODEL, "--from", path, "--ranks", "4", "--to", "megatron"],
            ["export", path, "--to", "hf", "--model", MODEL, "--out", self.folder + "/out"],
            ["import", path, "--out", self.folder + "/out"], ["predict", path], ["accuracy", path], ["shard", path, "--devices", "2",
             "--memory", "1 GiB"], ["reproduce", "alpa", path], ["diff", path, path], ["cache", path, "--slots", "4"],
            ["data", "graph", path], ["data", "show", path], ["data", "criteo", path, "--rows", "5", "--out", self.folder + "/out"],
            ["data", "hdf5", "a=" + path, "--out", self.folder + "/out.h5"], ["checkpoint", "verify", path], ["checkpoint", "ls", path],
            ["sample", BYTES_MODEL, "--weights", path], ["evaluate", MODEL, "--weights", path, "--data", "random"],
            ["inspect", MODEL, "--plan", "serial", "--program", path],
        ]

    def test_a_file_without_an_end_is_refused(self):
        commands = self.commands_with_a_text("/dev/zero")
        if not ALL_CASES:  # each reads hundreds of megabytes; that all use the reader of base/text_file.h is seen by pipes, below
            quick = (["inspect", "/dev/zero"], ["predict", "/dev/zero"], ["checkpoint", "ls"], ["data", "hdf5"])
            commands = [one for one in commands if one[:2] in quick]
            self.assertEqual(len(commands), len(quick))
        for arguments in commands:
            with self.subTest(arguments=arguments):
                self.expect_one_line(2, *arguments, before=address_space(12 * GIB))
        self.assertFalse(list(pathlib.Path(self.folder).glob("out*")))

    def test_a_pipe_that_nobody_writes_to_is_refused(self):
        pipe = self.folder + "/pipe"
        os.mkfifo(pipe)
        commands = self.commands_with_a_text(pipe)
        messages = {}

        def ask(arguments):
            messages[tuple(arguments)] = self.expect_one_line(2, *arguments)
        threads = [threading.Thread(target=ask, args=(arguments,)) for arguments in commands]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(map(tuple, commands)), set(messages))
        self.assertFalse(list(pathlib.Path(self.folder).glob("out*")))

    def test_a_pipe_may_hold_a_plan(self):
        pipe = self.folder + "/pipe.toml"
        os.mkfifo(pipe)
        writer = threading.Thread(target=lambda: pathlib.Path(pipe).write_text("mesh = { dp = 2 }\n"))
        writer.start()
        self.assertIn("2 ranks", self.expect_text("inspect", "--plan", pipe, MODEL))
        writer.join()

    def test_what_a_file_claims_is_compared_with_its_size(self):
        array = pathlib.Path(self.folder, "huge.npy")
        head = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 100), }"
        array.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        tensors = pathlib.Path(self.folder, "huge.safetensors")
        text = json.dumps({"a": {"dtype": "F64", "shape": [1 << 40, 1 << 20], "data_offsets": [0, 1 << 62]}}).encode()
        tensors.write_bytes(struct.pack("<Q", len(text)) + text)
        head_only = pathlib.Path(self.folder, "head.safetensors")
        head_only.write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
        for arguments in (["data", "hdf5", f"a={array}", "--out", self.folder + "/out.h5"],
                          ["export", str(tensors), "--to", "hf", "--model", MODEL, "--out", self.folder + "/out"],
                          ["export", str(head_only), "--to", "hf", "--model", MODEL, "--out", self.folder + "/out"]):
            with self.subTest(arguments=arguments):
                self.expect_one_line(2, *arguments, before=address_space(4 * GIB))
        self.assertFalse(list(pathlib.Path(self.folder).glob("out*")))

    def test_what_is_written_replaces_no_device_and_no_folder(self):
        array = pathlib.Path(self.folder, "a.npy")
        head = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }"
        array.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + bytes(48))
        os.mkfifo(self.folder + "/pipe")
        os.mkdir(self.folder + "/made")
        for name, what in (("pipe", "a device or a pipe"), ("made", "a folder")):
            out = f"{self.folder}/{name}"
            self.expect_error(2, f"cannot write '{out}': expected a file or none, found {what}",
                              "data", "generate", "--samples", "5", "--rows", "3", "--out", out)
            self.expect_error(2, f"data: hdf5: cannot write '{out}': expected a file or none, found {what}",
                              "data", "hdf5", f"a={array}", "--out", out)
        self.assertEqual(sorted(os.listdir(self.folder)), ["a.npy", "made", "pipe"])
        message = self.expect_one_line(2, "data", "generate", "--samples", str(2 ** 62), "--rows", "3", "--out", self.folder + "/a.clicks")
        self.assertRegex(message, "^data: generate: expected --samples for which '.*/a.clicks' has room, at most \\d+, found \\d+$")

    def test_texts_that_say_nothing_or_are_nested_without_end(self):
        keys = self.write("keys.toml", ".".join(["a"] * 50000) + " = 1\n")
        self.expect_error(2, f"{keys}:1: expected a key of at most 65 parts", "inspect", MODEL, "--plan", keys)
        sizes = self.write("sizes.toml", 'loop = [ { ops = "*", dim = "seq", sizes = [9223372036854775807, 9223372036854775807] } ]\n')
        self.expect_error(2, f"{sizes}:1: expected 'sizes' in [[loop]] of at most 1099511627776, found 9223372036854775807",
                          "inspect", MODEL, "--plan", sizes)
        edges = self.write("edges.txt", "")
        self.assertRegex(self.expect_one_line(2, "data", "graph", edges), "expected edges, found the end of the file$")

    def test_a_full_disk_is_a_fault_and_leaves_nothing_in_half(self):
        """By a limit on the size of files, as a full disk needs rights to make one."""
        def no_large_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
        array = pathlib.Path(self.folder, "a.npy")
        head = "{'descr': '<f8', 'fortran_order': False, 'shape': (100, 30), }"
        array.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + bytes(24000))
        out = self.folder + "/out"
        for arguments in (["data", "generate", "--samples", "5000", "--rows", "30", "--out", out],
                          ["data", "hdf5", f"a={array}", "--out", out],
                          ["simulate", MODEL, "--plan", "megatron(tp=2)", "--cluster", "dgx-a100:1", "--trace", out],
                          ["report", MODEL, "--plan", "megatron(tp=2)", "--cluster", "dgx-a100:1", "--out", out],
                          ["export", MODEL, "--plan", "megatron(tp=2,dp=2)", "--to", "megatron", "--out", out]):
            with self.subTest(arguments=arguments):
                self.assertRegex(self.expect_one_line(3, *arguments, before=no_large_files), f"cannot write '{out}'")
                self.assertEqual(os.listdir(self.folder), ["a.npy"])

    # ---- numbers of ranks
    def test_ranks_are_bounded_wherever_they_are_given(self):
        self.expect_error(2, "data_parallel(10000000):2: expected a mesh of at most 1048576 ranks, found dp = 10000000",
                          "inspect", MODEL, "--plan", "data_parallel(10000000)")
        plan = self.write("plan.toml", "mesh = { dp = 2048, tp = 2048 }\n")
        self.expect_error(2, f"{plan}:1: expected a mesh of at most 1048576 ranks, found tp = 2048 times 2048", "inspect", MODEL,
                          "--plan", plan)
        self.expect_error(2, "cluster 'dgx-a100:131073': expected a number of nodes from 1 to 131072 after ':', found '131073'",
                          "inspect", "dgx-a100:131073")
        self.expect_error(2, "cluster 'local:1048577': expected a number of ranks from 1 to 1048576 after ':', found '1048577'",
                          "inspect", "local:1048577")
        cluster = self.write("c.toml", 'name = "c"\n[[part]]\nlike = "dgx-a100"\nnodes = 9000000000000000000\n')
        self.expect_error(2, f"{cluster}:2: expected a cluster of at most 1048576 devices, found 9000000000000000000 nodes of 8 "
                          "devices", "inspect", cluster)
        few = "expected a number of ranks from 1 to 1048576, found"
        self.expect_error(2, f"verify: --ranks: {few} '10000000' (tessera verify --help)",
                          "verify", MODEL, "--plan", "serial", "--ranks", "10000000")
        self.expect_error(2, f"train: --ranks: {few} '0' (tessera train --help)", "train", "run.toml", "--ranks", "0")
        self.expect_error(2, f"launch: --ranks: {few} '99999999999999999999' (tessera launch --help)",
                          "launch", "run.toml", "-n", "99999999999999999999")
        self.expect_error(2, f"export: --ranks: {few} '1048577' (tessera export --help)", "export", MODEL, "--from", "job.sh",
                          "--ranks", "1048577", "--to", "megatron")
        self.expect_error(2, f"profile: --ranks: {few} '1048577' (tessera profile --help)", "profile", "--ranks", "2,1048577")

    def test_every_recipe_refuses_ten_million_ranks_in_one_line(self):
        recipes = json.loads(self.expect_text("plan", "--list", "--json"))["recipes"]
        for recipe in recipes:
            for argument in recipe["arguments"]:
                if argument["name"] not in ("dp", "tp", "pp", "cp", "sp", "ep", "q", "depth", "replicas", "cols"):
                    continue
                with self.subTest(recipe=recipe["name"], argument=argument["name"]):
                    needed = [f"{other['name']}=2" for other in recipe["arguments"]
                              if other.get("default") is None and other["name"] != argument["name"]]
                    call = f"{recipe['name']}({','.join([argument['name'] + '=10000000', *needed])})"
                    self.expect_one_line(2, "inspect", MODEL, "--plan", call, before=address_space(4 * GIB))

    # ---- memory
    def test_memory_exhausted_is_one_line(self):
        model = "gpt:layers=5000"
        for limit in (96 << 20, 112 << 20, 128 << 20)[:3 if ALL_CASES else 1]:  # the program alone takes 70 MiB of addresses
            for arguments in (["inspect", model], ["inspect", model, "--plan", "data_parallel(64)"],
                              ["simulate", model, "--plan", "megatron(tp=4,dp=64)", "--cluster", "dgx-a100:32"],
                              ["plan", model, "--cluster", "local:2", "--batch", "2"]):
                with self.subTest(limit=limit, arguments=arguments):
                    message = self.expect_one_line(2, *arguments, before=address_space(limit))
                    self.assertRegex(message, "^memory is exhausted while ")

    # ---- texts that would write to a terminal
    def names_of_users(self, name):
        """Commands whose message quotes the name."""
        plan = self.write("plan.toml", "mesh = { tp = 2 }\nsplit = [ { ops = " + json.dumps(name) + ', dim = "ffn", over = "tp" } ]\n')
        dim = self.write("dim.toml", "mesh = { tp = 2 }\nsplit = [ { ops = \"*\", dim = " + json.dumps(name) + ', over = "tp" } ]\n')
        key = self.write("key.toml", json.dumps(name) + " = 1\n")
        run_file = self.write("run.toml", f'model = "{MODEL}"\ndata = "random"\n{json.dumps(name)} = 1\n')
        model = self.write("model.toml", f'model = {json.dumps(name)}\ndata = "random"\n')
        config = pathlib.Path(self.folder, "config.json")
        config.write_text(json.dumps({"model_type": name}), encoding="utf-8")
        rows = self.write("rows.csv", f"{name.replace(chr(10), '')},b\n1,2\n")
        instance = self.write("instance.json", json.dumps({name: 1}))
        return [
            ["inspect", MODEL, "--plan", plan], ["inspect", MODEL, "--plan", dim], ["inspect", MODEL, "--plan", key],
            ["train", run_file], ["train", model], ["inspect", str(config)], ["predict", rows], ["reproduce", "alpa", instance],
            ["inspect", "--plan", key, MODEL, "--json"], ["plan", MODEL, "--cluster", key, "--batch", "8", "--json"],
        ]

    def arguments_of_users(self, name):
        return [
            [name], ["inspect", name], ["inspect", MODEL, "--plan", name], ["inspect", MODEL, "--plan", f"/tmp/{name}.toml"],
            ["inspect", MODEL, "--plan", f"megatron(tp=2,{name}=1)"], ["inspect", f"gpt:{name}=2"], ["inspect", f"gpt:layers={name}"],
            ["inspect", MODEL, "--plan", "serial", "--op", name], ["inspect", MODEL, "--" + name], ["inspect", MODEL, "--batch", name],
            ["plan", MODEL, "--cluster", name, "--batch", "8"], ["plan", MODEL, "--cluster", "local:2", "--batch", "8", "--planner", name],
            ["plan", MODEL, "--cluster", "local:2", "--batch", "8", "--fix", name], ["reproduce", name], ["checkpoint", "ls", name],
            ["train", "run.toml", "--set", name], ["export", MODEL, "--plan", "serial", "--to", name], ["cache", name, "--slots", "4"],
            ["import", f"/tmp/{name}", "--out", self.folder + "/out"], ["shard", name, "--devices", "2", "--memory", "1 GiB"],
            ["simulate", MODEL, "--plan", "serial", "--cluster", "local:1", "--what-if", name, "--json"], ["diff", name, name],
            ["data", "show", name], ["data", "graph", name], ["predict", name], ["launch", name], ["verify", name, "--plan", "serial"],
        ]

    def test_names_are_escaped(self):
        """Of arguments also bytes that are no UTF-8: 0xff and 0xfe."""
        for arguments in [*self.names_of_users(EVIL), *self.arguments_of_users("a\udcff" + EVIL + "\udcfeb")]:
            with self.subTest(arguments=arguments):
                self.expect_one_line(2, *arguments)

    def test_long_names_are_cut(self):
        for arguments in self.names_of_users("n" * (1_000_000 if ALL_CASES else 100_000)):
            with self.subTest(arguments=arguments):
                self.assertLess(len(self.expect_one_line(2, *arguments)), 5000)
        for arguments in self.arguments_of_users("n" * (100_000 if ALL_CASES else 10_000)):  # Linux takes no longer words
            with self.subTest(arguments=[argument[:20] for argument in arguments]):
                self.assertLess(len(self.expect_one_line(2, *arguments)), 5000)
        self.assertFalse(os.path.exists(self.folder + "/out"))

    def test_json_stays_json(self):
        plan = os.fsencode(self.folder) + b"/plan\xff\x1b.toml"
        pathlib.Path(os.fsdecode(plan)).write_text("mesh = { dp = 2 }\n")
        for arguments in (["simulate", MODEL, "--cluster", "dgx-a100:1", "--batch", "8", "--json", "--plan", plan],
                          ["inspect", MODEL, "--json", "--plan", plan]):
            done = self.run_bytes(*arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            json.loads(done.stdout.decode("utf-8"))

    def test_names_of_tensors_in_files_are_escaped(self):
        path = pathlib.Path(self.folder, "weights.safetensors")
        text = json.dumps({EVIL: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
        self.expect_one_line(2, "export", str(path), "--to", "hf", "--model", MODEL, "--out", self.folder + "/out")


class RunLimits(RuntimeTest):
    expect_one_line = Limits.expect_one_line
    run_bytes = Limits.run_bytes

    def test_a_run_that_is_larger_than_the_machine_is_refused(self):
        model = "gpt:layers=8,hidden=65536,heads=64,seq=16,vocab=256"
        message = self.expect_one_line(2, "verify", model, "--plan", "data_parallel(2)", "--batch", "2")
        self.assertRegex(message, r"^plan \S+: expected arenas of at most [\d.]+ GiB, the memory of this machine, found [\d.]+ GiB of "
                                  r"\d rank")
        message = self.expect_one_line(2, "train", self.run_file(model=model, batch=2, plan="serial"))
        self.assertRegex(message, r"^plan serial: expected arenas of at most [\d.]+ GiB, the memory of this machine, found [\d.]+ GiB of "
                                  r"1 rank")


if __name__ == "__main__":
    unittest.TestCase.maxDiff = None
    main()
