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
        commands = self.commands()
        self.assertIn(["simulate"], commands)
        self.assertIn(["cluster", "submit"], commands)
        for command in commands:
            with self.subTest(command=command):
                text = self.expect_text(*command, "--help")
                options = set(re.findall(r"(?m)^  (?:-\w,)?(--[\w-]+)", text)) - {"--help"}
                rows = "".join(line for line in page.splitlines() if line.startswith(f"| `tessera {' '.join(command)} "))
                self.assertEqual(options, set(re.findall(r"--[a-z][\w-]*", rows)))
                if len(command) > 1:
                    self.assertIn("Example", text)

    def commands(self, *group):
        """The words of each command that has no commands of its own."""
        text = self.expect_text(*group, "--help")
        if "Subcommands:" not in text:
            return [list(group)]
        names = re.findall(r"(?m)^  (\w+)  ", re.split(r"\n(?:MODEL|Example)", text.split("Subcommands:")[1])[0])
        return [command for name in names for command in self.commands(*group, name)]

    def test_the_reference_has_every_key_of_simulate(self):
        found = self.expect_json(*SIMULATE, "--json")
        page = (ROOT / "docs/reference/simulate.md").read_text(encoding="utf-8")
        keys = {*found, *found["roles"][0], *found["roles"][0]["memory"]} - {"model", "plan", "cluster", "style", "batch", "ranks"}
        self.assertEqual([key for key in sorted(keys) if f"`{key}`" not in page], [])
        line = next(line for line in (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8").splitlines()
                    if line.startswith("| `simulate --json`"))
        self.assertEqual([key for key in found if f"`{key}`" not in line], [])

    def test_unknown_commands_and_options_are_one_line(self):
        self.expect_error(2, "unknown command 'trian', did you mean 'train'? (train, verify, inspect, plan, profile, predict, accuracy, simulate, report, diff, reproduce, shard, cluster, probe, export, import, order, check, launch, rescale, sample, evaluate, checkpoint, data, cache, completion, help)", "trian")
        self.expect_error(2, "verify: unknown option '--stpes', did you mean '--steps'?",
                          "verify", MODEL, "--plan", "serial", "--stpes", "2")
        self.expect_error(2, "inspect: unexpected argument 'more'", "inspect", MODEL, "more")
        self.expect_error(2, "verify: --plan is required (tessera verify --help)", "verify", MODEL)
        self.expect_error(2, "verify: --batch: expected a number of at least 1, found '0' (tessera verify --help)",
                          "verify", MODEL, "--plan", "serial", "--batch", "0")


class Copy(CliTest):
    """A copy of the program in a folder of its own finds no library beside it but those that are copied too."""
    copied = ()

    def setUp(self):
        super().setUp()
        self.program = shutil.copy(program(), self.folder)
        for name in self.copied:
            shutil.copy(os.path.join(os.path.dirname(os.path.realpath(program())), name), self.folder)

    def library(self, name):
        return os.path.join(os.path.realpath(self.folder), name)

    def run_copy(self, *arguments):
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
        return done.returncode, done.stdout, done.stderr


class WithoutPlanning(Copy):
    missing = "this build has no planning library: expected the library {}; to get it: make build"

    def test_its_commands_say_how_to_get_it(self):
        for command in (["plan", "--list"], ["simulate", MODEL], ["import", "model.pt2"]):
            message = f"tessera: {command[0]}: {self.missing.format(self.library('libtessera_planning.so'))}\n"
            self.assertEqual(self.run_copy(*command), (2, "", message))

    def test_a_plan_that_is_to_be_found_says_so_too(self):
        code, out, err = self.run_copy("inspect", MODEL, "--plan", "auto", "--cluster", "local:2", "--batch", "4")
        self.assertEqual((code, out), (2, ""))
        self.assertEqual(err, f"tessera: plan auto: {self.missing.format(self.library('libtessera_planning.so'))}\n")

    def test_other_commands_and_the_help_do_without(self):
        self.assertEqual(self.run_copy("inspect", MODEL, "--plan", "serial")[0::2], (0, ""))
        code, out, err = self.run_copy("--help")
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"\n  plan +Not in this build; to get it: make build\n")
        self.assertRegex(out, r"\n  train +Train a model")


class WithoutRuntime(Copy):
    copied = ["libtessera_planning.so"]

    def test_commands_that_execute_say_how_to_get_it(self):
        for command in (["train", "examples/gpt_small.toml"], ["verify", MODEL, "--plan", "serial"], ["profile"]):
            message = f"tessera: {command[0]}: {NO_RUNTIME.format(self.library('libtessera_runtime.so'))}\n"
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
    def loaded(self, *command):
        answer = run(*command, env={"LD_DEBUG": "libs"})
        self.assertEqual(answer.code, 0)
        return set(re.findall(r"calling init: \S*/(\S+?)\.so", answer.err))

    def test_planning_commands_load_neither_libtorch_nor_mpi(self):
        loaded = self.loaded("plan", "--list")
        self.assertIn("libtessera_planning", loaded)
        self.assertEqual({name for name in loaded if re.match("libtorch|libc10|libmpi|libgomp|libtessera_runtime", name)}, set())

    def test_commands_of_the_program_itself_load_no_library_of_ours(self):
        loaded = self.loaded("inspect", MODEL, "--plan", "serial")
        self.assertIn("libstdc++", loaded)
        self.assertEqual({name for name in loaded if name.startswith("libtessera")}, set())


if __name__ == "__main__":
    main()
