"""What surrounds the commands: version, help, completion, man page, defaults, errors as JSON, progress. How to run it: cli.py."""
import json
import os
import re
import shutil
import subprocess

from cli import CliTest, MODEL, ROOT, SIMULATE, main, program, run


class Surface(CliTest):
    def test_the_version_is_that_of_cmake(self):
        version = re.search(r"project\(tessera VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")).group(1)
        self.assertEqual(self.expect_text("--version"), f"tessera {version}\n")
        self.assertIn(f"## {version}", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))

    def test_without_a_command_the_help_is_printed(self):
        text = self.expect_text()
        self.assertEqual(text, self.expect_text("--help"))
        self.assertEqual(text, self.expect_text("help"))
        self.assertEqual(self.expect_text("help", "plan"), self.expect_text("plan", "--help"))
        self.assertEqual(self.expect_text("help", "cluster", "submit"), self.expect_text("cluster", "submit", "--help"))
        self.expect_error(2, "help: expected no further command, found 'x' after 'tessera plan'", "help", "plan", "x")
        self.expect_error(2, "help: expected one of simulate, speeds, serve, submit, status, explain, cancel, drain, resume, replay, "
                          "found 'submitt' after 'tessera cluster'", "help", "cluster", "submitt")

    def commands(self):
        return re.findall(r"(?m)^  (\w+)  ", self.expect_text("--help").split("Subcommands:")[1].split("MODEL")[0])


class Completion(Surface):
    def complete(self, *words):
        """What bash offers for the last word, by the function that the script registers."""
        script = self.write("tessera.bash", self.expect_text("completion", "bash"))
        line = " ".join(words)
        asked = (f"source {script}; complete -p tessera >&2; COMP_WORDS=({' '.join(repr(word) for word in words)}); "
                 f"COMP_CWORD={len(words) - 1}; _tessera; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, "complete -o default -F _tessera tessera\n", line)
        return done.stdout.split()

    def test_bash_completes_commands_options_and_values(self):
        self.assertEqual(set(self.complete("tessera", "")), {*self.commands(), "--help", "--version"})
        self.assertEqual(self.complete("tessera", "sim"), ["simulate"])
        options = set(re.findall(r"(?m)^  (?:-\w,)?(--[\w-]+)", self.expect_text("simulate", "--help")))
        self.assertLessEqual(options - {"--help"}, set(self.complete("tessera", "simulate", "--")))
        self.assertIn("dgx-h100", self.complete("tessera", "simulate", "--cluster", "dgx-"))
        self.assertEqual(set(self.complete("tessera", "plan", "--precision", "")), {"float32", "float64", "bfloat16", "float16"})
        self.assertIn("zero3", self.complete("tessera", "verify", "--plan", "zero"))

    def test_other_shells(self):
        for shell in ("zsh", "fish"):
            script = self.write(f"tessera.{shell}", self.expect_text("completion", shell))
            for command in self.commands():
                self.assertIn(command, open(script, encoding="utf-8").read())
            if shutil.which(shell):
                subprocess.run([shell, "-n", script], check=True)
        self.expect_error(2, "completion: expected one of bash, zsh, fish, found 'ksh'", "completion", "ksh")


class ManPage(Surface):
    def test_it_has_every_command_and_option_and_is_sound(self):
        page = self.expect_text("help", "--man")
        self.assertTrue(page.startswith(".TH TESSERA 1 "))
        for command in self.commands():
            self.assertIn(f"\n.SS {command}\n", page)
        self.assertIn(r"\fB\-\-what\-if\fR", page)
        lint = [["man", "--warnings", "-l", "-"], ["groff", "-man", "-Tutf8", "-ww", "-z"], ["mandoc", "-T", "lint", "-W", "error"]]
        tools = [command for command in lint if shutil.which(command[0])]
        if not tools:
            self.skipTest("neither man, groff nor mandoc is installed")
        done = subprocess.run(tools[0], input=page, capture_output=True, text=True, check=False, env={**os.environ, "MANPAGER": "cat"})
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class Defaults(Surface):
    def setUp(self):
        super().setUp()
        self.simulate = ["simulate", MODEL, "--plan", "ddp(8)", "--batch", "8"]
        os.makedirs(os.path.join(self.folder, "config", "tessera"))
        self.env = {"XDG_CONFIG_HOME": os.path.join(self.folder, "config")}
        self.user = os.path.join(self.folder, "config", "tessera", "defaults.toml")

    def run_here(self, *arguments):
        return run(*arguments, cwd=self.folder, env=self.env)

    def test_the_folder_goes_before_the_user_and_options_before_both(self):
        self.write("config/tessera/defaults.toml", 'cluster = "dgx-a100:1"\nprecision = "bf16"\n')
        answer = self.run_here(*self.simulate)
        self.assertEqual((answer.code, answer.err), (0, ""))
        self.assertEqual(answer.out.splitlines()[0], f"defaults: cluster dgx-a100:1 of {self.user}, precision bf16 of {self.user}")
        self.assertIn(" in bfloat16 on dgx-a100 ", answer.out)
        self.write("tessera.toml", 'cluster = "8xH100"\n')
        answer = self.run_here(*self.simulate, "--precision", "float32")
        self.assertEqual(answer.out.splitlines()[:2], ["defaults: cluster 8xH100 of tessera.toml", "8xH100 is dgx-h100:1"])
        self.assertIn(" in float32 on dgx-h100 ", answer.out)
        notes = json.loads(self.run_here(*self.simulate, "--json", "--cluster=dgx-a100:1").out)["notes"]
        self.assertEqual(notes, [f"defaults: precision bf16 of {self.user}"])

    def test_a_bad_file_is_one_line(self):
        self.write("tessera.toml", '\nclutser = "dgx-a100"\n')
        answer = self.run_here(*self.simulate)
        self.assertEqual((answer.code, answer.out), (2, ""))
        self.assertRegex(answer.err, r"^tessera: tessera.toml:\d+: unknown key 'clutser', did you mean 'cluster'\? "
                                     r"\(a file of defaults has cluster, style, precision\)\n$")
        self.write("tessera.toml", "cluster = 8\n")
        answer = self.run_here(*self.simulate)
        self.assertEqual((answer.code, answer.out, answer.err.count("\n")), (2, "", 1))
        self.assertTrue(answer.err.startswith("tessera: tessera.toml:1: "), answer.err)
        self.write("tessera.toml", 'cluster = "dgx-z100"\n')
        self.assertIn("(with cluster dgx-z100 of tessera.toml)\n", self.run_here(*self.simulate).err)


class Json(CliTest):
    def test_answers_have_a_schema_number_first(self):
        for command in (SIMULATE, ["plan", "--list"], ["inspect", MODEL], ["inspect", "dgx-a100"], ["reproduce", "--list"]):
            with self.subTest(command=command[0]):
                found = json.loads(run(*command, "--json").out)
                self.assertEqual(next(iter(found.items())), ("schema", 1))

    def test_errors_are_an_object_too(self):
        for arguments, message in ((["simulate", "gptt", "--plan", "serial", "--cluster", "local", "--json"], "unknown model 'gptt'"),
                                   (["simulate", MODEL, "--plan", "serial", "--json"], "--cluster is required"),
                                   (["trian", "--json"], "unknown command 'trian'")):
            answer = run(*arguments)
            self.assertEqual((answer.code, answer.err.count("\n")), (2, 1))
            found = json.loads(answer.out)
            self.assertEqual(list(found), ["schema", "error"])
            self.assertEqual(found["error"]["code"], 2)
            self.assertIn(message, found["error"]["message"])
            self.assertEqual(answer.err, f"tessera: {found['error']['message']}\n")


class Progress(CliTest):
    def test_a_log_gets_lines_with_the_share_that_is_over(self):
        search = ["plan", "gpt:layers=24,hidden=1024,heads=16,seq=1024,vocab=50304", "--cluster", "dgx-a100:2", "--batch", "256",
                  "--seconds", "2"]
        answer = run(*search, env={"TESSERA_PROGRESS_S": "0.2"})
        lines = answer.err.splitlines()
        self.assertGreater(len(lines), 1)
        for line in lines:
            self.assertRegex(line, r"^tessera: plan: .+, \d+ s \(\d+ % of the time\)$")
        self.assertEqual(run(*search).err, "")


class WhatIf(CliTest):
    def test_before_after_and_the_difference(self):
        change = ["--what-if", "link:inner*0.5"]
        before, after = (self.expect_json(*SIMULATE, "--json", *more) for more in ([], change))
        self.assertEqual(after["before"]["step_time_s"], before["step_time_s"])
        line = self.expect_text(*SIMULATE, *change).splitlines()[0]
        found = re.match(r"what if link:inner\*0.5: step (\S+) (\S+) -> (\S+) (\S+) \(([+-][0-9.]+) %\), MFU .* -> .*, memory .*\)$", line)
        self.assertIsNotNone(found, line)
        self.assertEqual(found.group(5), f"{100 * (after['step_time_s'] / before['step_time_s'] - 1):+.1f}")


class LowRank(CliTest):
    def test_products_with_frozen_parameters_count_twice(self):
        """Without low-rank factors each product counts three times; with them the frozen ones two times. The factors' own
        products, and those that are trained whole, count three times."""
        model = "llama:layers=2,hidden=64,heads=4,seq=32,vocab=128,ffn=128"
        arguments = ["--plan", "serial", "--cluster", "dgx-a100:1", "--batch", "1", "--json"]
        whole = self.expect_json("simulate", model, *arguments)["model_flops"]
        tuned = self.expect_json("simulate", model + ",lora=4", *arguments)["model_flops"]
        blocks, hidden, ffn, seq, rank = 2, 64, 128, 32, 4
        frozen = blocks * (4 * hidden * hidden + 3 * hidden * ffn) + hidden * 128  # weights of products, with the head's
        factors = blocks * 4 * 2 * rank * hidden  # of q, k, v and out
        self.assertEqual(whole - tuned, 2 * seq * (frozen - 3 * factors))


if __name__ == "__main__":
    main()
