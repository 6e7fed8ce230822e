"""What holds for every command: help, the reference page, unknown options; the program without its runtime. How to run it: cli.py."""
import os
import re
import shutil
import subprocess

from cli import CliTest, MODEL, NO_RUNTIME, ROOT, SIMULATE, main, program, run


class TheProgram(CliTest):
    def test_help_has_an_example_for_every_command(self):
        for command in ([], ["train"], ["verify"], ["inspect"], ["plan"], ["predict"], ["accuracy"], ["reproduce"]):
            with self.subTest(command=command):
                text = self.expect_text(*command, "--help")
                self.assertRegex(text, r"Examples?:\n  (mpirun .* )?tessera ")
                self.assertIn(" ".join(["Usage: tessera", *command]), text)

    def test_the_reference_has_every_option(self):
        page = (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8")
        commands = re.findall(r"(?m)^  (\w+)  ", self.expect_text("--help").split("Subcommands:")[1].split("MODEL")[0])
        self.assertIn("simulate", commands)
        for command in commands:
            with self.subTest(command=command):
                options = set(re.findall(r"(?m)^  (?:-\w,)?(--[\w-]+)", self.expect_text(command, "--help"))) - {"--help"}
                rows = "".join(line for line in page.splitlines() if line.startswith(f"| `tessera {command} "))
                self.assertEqual(options, set(re.findall(r"--[a-z][\w-]*", rows)))

    def test_the_reference_has_every_key_of_simulate(self):
        found = self.expect_json(*SIMULATE, "--json")
        page = (ROOT / "docs/reference/simulate.md").read_text(encoding="utf-8")
        keys = {*found, *found["roles"][0], *found["roles"][0]["memory"]} - {"model", "plan", "cluster", "style", "batch", "ranks"}
        self.assertEqual([key for key in sorted(keys) if f"`{key}`" not in page], [])
        line = next(line for line in (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8").splitlines()
                    if line.startswith("| `simulate --json`"))
        self.assertEqual([key for key in found if f"`{key}`" not in line], [])

    def test_unknown_commands_and_options_are_one_line(self):
        self.expect_error(2, "expected a command: train, verify, inspect, plan, profile, predict, accuracy, simulate, report, diff, reproduce, shard, export, import, launch, rescale, sample, evaluate, checkpoint, data, cache (tessera --help)")
        self.expect_error(2, "unknown command 'trian': expected one of train, verify, inspect, plan, profile, predict, accuracy, simulate, report, diff, reproduce, shard, export, import, launch, rescale, sample, evaluate, checkpoint, data, cache", "trian")
        self.expect_error(2, "verify: unknown option '--stpes', did you mean '--steps'?",
                          "verify", MODEL, "--plan", "serial", "--stpes", "2")
        self.expect_error(2, "inspect: unexpected argument 'more'", "inspect", MODEL, "more")
        self.expect_error(2, "verify: --plan is required (tessera verify --help)", "verify", MODEL)
        self.expect_error(2, "verify: --batch: expected a number of at least 1, found '0' (tessera verify --help)",
                          "verify", MODEL, "--plan", "serial", "--batch", "0")


class WithoutRuntime(CliTest):
    """A copy of the program in a folder of its own finds no runtime library beside it."""

    def setUp(self):
        super().setUp()
        self.program = shutil.copy(program(), self.folder)
        self.library = os.path.join(os.path.realpath(self.folder), "libtessera_runtime.so")

    def run_copy(self, *arguments):
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
        return done.returncode, done.stdout, done.stderr

    def test_commands_that_execute_say_how_to_get_it(self):
        for command in (["train", "examples/gpt_small.toml"], ["verify", MODEL, "--plan", "serial"], ["profile"]):
            message = f"tessera: {command[0]}: {NO_RUNTIME.format(self.library)}\n"
            self.assertEqual(self.run_copy(*command), (2, "", message))

    def test_planning_commands_do_not_need_it(self):
        code, out, err = self.run_copy("plan", "--list")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("megatron", out)

    def test_a_library_that_cannot_be_loaded_is_one_line(self):
        self.write("libtessera_runtime.so", "no library")
        code, out, err = self.run_copy("verify", MODEL, "--plan", "serial")
        self.assertEqual((code, out, err.count("\n")), (2, "", 1))
        self.assertRegex(err, "^tessera: verify: the runtime cannot be loaded: .*; to get it: scripts/setup, then make build")


class PlanningStart(CliTest):
    def test_planning_commands_load_neither_libtorch_nor_mpi(self):
        answer = run("plan", "--list", env={"LD_DEBUG": "libs"})
        self.assertEqual(answer.code, 0)
        loaded = set(re.findall(r"calling init: \S*/(\S+?)\.so", answer.err))
        self.assertIn("libstdc++", loaded)
        self.assertEqual({name for name in loaded if re.match("libtorch|libc10|libmpi|libgomp|libtessera", name)}, set())


if __name__ == "__main__":
    main()
