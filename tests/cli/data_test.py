"""tessera data. How to run it: cli.py."""
import json
import os
import struct

from cli import ROOT, CliTest, has_runtime, main, run


class Data(CliTest):
    SAMPLE = str(ROOT / "data/ctr/criteo_sample.txt")
    REUSE = str(ROOT / "data/dlrm/locality_stats.txt")

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_criteo_logs_become_clicks(self):
        out = self.path("a.clicks")
        made = self.expect_json("data", "criteo", self.SAMPLE, "--rows", "1000", "--out", out, "--json")
        self.assertEqual(made, {"out": out, "samples": 200})
        shown = self.expect_json("data", "show", out, "--json")
        self.assertEqual((shown["samples"], shown["clicks"], shown["dense"], shown["rows"]), (200, 49, 13, 26000))
        self.assertEqual([feature["name"] for feature in shown["features"]], [f"C{f}" for f in range(1, 27)])
        # Categories that are not missing, and different ones but for collisions, counted in the text.
        with open(self.SAMPLE, encoding="utf-8") as file:
            columns = list(zip(*(line.rstrip("\n").split(",") for line in file.readlines()[1:])))
        for feature, column in zip(shown["features"], columns[14:]):
            given = [value for value in column if value]
            self.assertEqual(feature["ids"], len(given))
            self.assertLessEqual(feature["rows_used"], len(set(given)))
            self.assertGreaterEqual(feature["rows_used"], 0.85 * len(set(given)))

    def npy(self, name, kind, shape, numbers):
        head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        with open(self.path(name), "wb") as file:
            file.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + numbers)
        return self.path(name)

    def test_arrays_become_datasets_that_a_run_reads_by_its_pieces(self):
        images = self.npy("x.npy", "<i2", (6, 1, 8, 8, 8), struct.pack("<3072h", *range(3072)))
        labels = self.npy("y.npy", "<f4", (6, 2), struct.pack("<12f", *range(12)))
        out = self.path("u.h5")
        made = self.run_hdf5("data", "hdf5", f"volumes={images}", f"labels={labels}", "--out", out)
        if made is None:
            return
        self.assertEqual(made, f"{out}:volumes: int16 [6, 1, 8, 8, 8]\n{out}:labels: float32 [6, 2]\n")
        self.expect_error(2, "data: hdf5: expected NAME=FILE.npy with another name for each dataset, found 'x'", "data", "hdf5",
                          "x", "--out", out)
        if not has_runtime():
            print("a run that reads the datasets is skipped: this build has no runtime (libtorch)")
            return
        config = ('model = "cosmoflow:width=8,channels=1,filters=2,outputs=2"\nbatch = 2\nsteps = 2\n'
                  'data = {{ hdf5 = "{}", inputs = "{}", labels = "labels", scale = 0.001 }}\n')
        answer = run("train", self.write("run.toml", config.format(out, "volumes")), "--plan", "spatial(d=2)", "--json")
        self.assertEqual(answer.code, 0, answer.err)
        read = json.loads(answer.out.strip().split("\n")[-1])["summary"]["data_bytes_read"]
        # Four volumes of 1,024 bytes; of the border two planes of 128 bytes twice; four labels of 8.
        self.assertEqual(read, {"all_ranks": 4 * (1024 + 2 * 128) + 32, "of_a_rank": 4 * (512 + 128) + 16})
        wrong = self.write("wrong.toml", config.format(out, "volume"))
        self.expect_error(2, f"data: '{out}': expected a dataset 'volume', found labels, volumes ({wrong}:4)", "train", wrong)

    # None: the program was built without HDF5, and says so.
    def run_hdf5(self, *arguments):
        answer = run(*arguments)
        if answer.code == 2 and "built without libhdf5-dev" in answer.err:
            print("skipped: built without HDF5")
            return None
        self.assertEqual(answer.code, 0, answer.err)
        return answer.out

    def test_a_bad_line_leaves_no_file(self):
        line = "\t".join(["0"] + ["1"] * 13 + ["ab"] * 26)
        logs = self.write("day.txt", f"{line}\n{line}\tmore\n")
        self.expect_error(2, f"{logs}:2: expected 40 fields, found 41", "data", "criteo", logs, "--rows", "10", "--out",
                          self.path("a.clicks"))
        self.assertEqual(os.listdir(self.folder), ["day.txt"])

    def test_generated_clicks_are_the_same_each_time_and_depend_on_the_seed(self):
        def made(name, *options):
            self.expect_text("data", "generate", "--samples", "3000", "--rows", "1000,50", "--bags", "3,1", "--jagged", "--out",
                             self.path(name), *options)
            with open(self.path(name), "rb") as file:
                return file.read()
        self.assertEqual(made("a"), made("b"))
        self.assertNotEqual(made("a"), made("b", "--seed", "2"))
        self.assertNotEqual(made("a"), made("b", "--reuse", self.REUSE))
        found = self.expect_json("data", "generate", "--samples", "20000", "--rows", "1000", "--signal", "0", "--bias", "0",
                                 "--out", self.path("a"), "--json")
        self.assertAlmostEqual(found["normalized_entropy"], 1, delta=1e-3)
        self.assertAlmostEqual(found["clicks"], 10000, delta=400)

    def test_clicks_become_arrays(self):
        out, folder = self.path("a.clicks"), self.path("arrays")
        self.expect_text("data", "generate", "--samples", "5", "--rows", "7,8", "--bags", "2,1", "--dense", "3", "--out", out)
        self.assertEqual(self.expect_text("data", "arrays", out, "--out", folder), f"{folder}: 5 samples\n")
        self.assertEqual(sorted(os.listdir(folder)), ["dense.npy", "ids.0.npy", "ids.1.npy", "targets.npy"])
        with open(os.path.join(folder, "ids.0.npy"), "rb") as file:
            ids = struct.unpack("<10q", file.read()[-80:])
        self.assertTrue(all(0 <= row < 7 for row in ids))

    def test_show_names_what_is_damaged(self):
        out = self.path("a.clicks")
        self.expect_text("data", "generate", "--samples", "10", "--rows", "7", "--dense", "0", "--out", out)
        with open(out, "r+b") as file:
            file.seek(-4, os.SEEK_END)
            file.write(struct.pack("<I", 7))
        self.expect_error(2, f"'{out}': feature 'C1', sample 9: expected ids below 7 (rows of its table), found row 7",
                          "data", "show", out)

    def test_wrong_input_is_one_line(self):
        self.expect_error(2, "data: generate: expected --out FILE, found none", "data", "generate", "--samples", "3")
        self.expect_error(2, "data: generate: expected --samples N, found none", "data", "generate", "--out", "x")
        self.expect_error(2, "data: generate: expected --rows of the tables, found none", "data", "generate", "--samples", "3",
                          "--out", "x")
        self.expect_error(2, "data: generate: expected --bags of 2 features, or one number for all, found 3", "data", "generate",
                          "--samples", "3", "--out", "x", "--rows", "5,6", "--bags", "1,2,3")
        self.expect_error(2, "data: generate: feature 'C1': expected bags of 1 to 65535 ids at most, found 70000", "data",
                          "generate", "--samples", "3", "--out", "x", "--rows", "5", "--bags", "70000")
        self.expect_error(2, "data: generate: expected no files, found 'y'", "data", "generate", "y", "--samples", "3", "--out", "x")
        self.expect_error(2, "data: criteo: expected files, found none", "data", "criteo", "--out", "x")
        self.expect_error(2, "data: show: expected one file, found 0", "data", "show")
        self.expect_error(2, "expected rows of 26 tables, or one number for all, found 2", "data", "criteo", self.SAMPLE, "--rows",
                          "3,4", "--out", self.path("x"))
        text = self.write("x.txt", "no clicks")
        self.expect_error(2, f"'{text}': expected a file of clicks (TSRCLCK1), found another head", "data", "show", text)


if __name__ == "__main__":
    main()
