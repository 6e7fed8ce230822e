"""scripts/calibrate on a few rows: it finds the constant with which their step times were made, also without each source.

Usage: calibrate_test.py PROGRAM [unittest options]
"""
import csv
import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib
import unittest

PROGRAM = ""
ROOT = pathlib.Path(__file__).resolve().parents[2]
KEY = "dgx-a100.matmul_efficiency"
TRUE = 0.74  # the start value is .84
SOURCES = ("Megatron-LM SC21 Table 1 (weak scaling)", "Megatron-LM README Jan 2021 (non-interleaved)",
           "llm-foundry benchmarking table",
           "Korthikanti et al. 2022 (sequence parallelism + selective recompute)")
ROWS_A_SOURCE = 2
MOST_GPUS = 1024  # rows that are priced quickly


class Calibrate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tessera_calibrate_test_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_program(self, *command):
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def sample(self, wrong_source):
        """Rows whose step times are predicted ones with the constant at TRUE; half as long in one source."""
        with open(ROOT / "data/published-throughput.csv", newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            rows = [row for row in reader if row["source"] in SOURCES and row["gpu"] == "A100-80GB"
                    and row["n_gpus"] and int(row["n_gpus"]) <= MOST_GPUS]
        rows = [row for source in SOURCES for row in [r for r in rows if r["source"] == source][:ROWS_A_SOURCE]]
        path = self.write(reader.fieldnames, rows)
        machine, constant = KEY.split(".")
        (self.folder / "true.toml").write_text(
            f'[[constants]]\nkind = "assumption"\nreason = "the truth of this test"\n'
            f'machines = ["{machine}"]\n{constant} = {TRUE}\n', encoding="utf-8")
        out = self.run_program(PROGRAM, "predict", path, "--constants", str(self.folder / "true.toml"))
        steps = {row["row_id"]: float(row["step_time_s"]) for row in csv.DictReader(out.splitlines())}
        for row in rows:
            row["step_time_s"] = steps[row["row_id"]] * (0.5 if row["source"] == wrong_source else 1)
            row["quality"] = "A"
        return self.write(reader.fieldnames, rows)

    def write(self, columns, rows):
        path = self.folder / "rows.csv"
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        return str(path)

    def test_finds_the_constant_and_keeps_sources_apart(self):
        wrong = SOURCES[2]
        rows, out = self.sample(wrong), str(self.folder / "fitted.toml")
        self.run_program(sys.executable, "scripts/calibrate", PROGRAM, rows, "--constants", "scripts/calibration/constants.toml",
                         "--constant", KEY, "--out", out)
        with open(out, "rb") as file:
            fitted = tomllib.load(file)
        machine, key = KEY.split(".")
        found = {table.get("without"): table[key] for table in fitted["constants"]
                 if machine in table["machines"] and key in table}
        self.assertEqual(set(found), {None, *SOURCES})
        # Without the source that is wrong all others agree; with it most do, and it pulls a little.
        self.assertAlmostEqual(found[wrong], TRUE, delta=0.02)  # pulled to the start a little
        for source, value in found.items():
            if source != wrong:
                self.assertGreater(value, found[wrong] - 1e-3, source)
                self.assertAlmostEqual(value, TRUE, delta=0.08, msg=source)
        self.assertGreater(found[None], found[wrong])
        # The file is one of those that the program takes.
        scores = self.run_program(PROGRAM, "accuracy", rows, "--constants", out)
        self.assertIn("| " + wrong, scores)

    def test_wrong_names_are_one_line(self):
        for option, value, what in (("--only", "nobody", "a source"), ("--constant", "dgx-a100.speed", "a constant")):
            done = subprocess.run([sys.executable, "scripts/calibrate", PROGRAM, "data/published-throughput.csv", "--constants",
                                   "scripts/calibration/constants.toml", "--out", str(self.folder / "x.toml"), option, value],
                                  capture_output=True, text=True, check=False, cwd=ROOT)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, rf"^calibrate: expected {what} of .*, found '{value}'\n$")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
