"""The data store of a run (data.store): threads and processes, plans that share and plans that cut samples. How to run it: cli.py."""
import json
import random
import shutil
import struct

from cli import ALL_CASES, MpiTest, main, run

SAMPLES = 12
# By plan: the bytes that a rank keeps of volumes of 1,024 bytes and labels of 8.
KEPT = {
    "data_parallel(dp=2)": 6 * (1024 + 8),
    "spatial(d=2)": SAMPLES * 512 + 6 * 8,
    "data_parallel(dp=4)": 3 * (1024 + 8),
    "spatial(d=2,dp=2)": 6 * 512 + 3 * 8,
    "spatial(d=2,h=2)": SAMPLES * 256 + 3 * 8,
}


class Store(MpiTest):
    def setUp(self):
        super().setUp()
        numbers = random.Random(7)
        volumes = self.npy("x.npy", "<i2", (SAMPLES, 1, 8, 8, 8),
                           struct.pack(f"<{SAMPLES * 512}h", *(numbers.randrange(-1000, 1000) for _ in range(SAMPLES * 512))))
        labels = self.npy("y.npy", "<f4", (SAMPLES, 2), struct.pack(f"<{2 * SAMPLES}f", *(numbers.random() for _ in range(2 * SAMPLES))))
        self.arrays = f'arrays = {{ volume = "{volumes}", targets = "{labels}" }}, scale = 0.001'

    def npy(self, name, kind, shape, numbers):
        head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        path = f"{self.folder}/{name}"
        with open(path, "wb") as file:
            file.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + numbers)
        return path

    def run_of(self, name, plan, store, checkpoint=""):
        kept = f', store = "{store}"' if store else ""
        return self.write(name, 'model = "cosmoflow:width=8,channels=1,filters=2,outputs=2"\nbatch = 4\nsteps = 7\n'
                                f'plan = "{plan}"\nprecision = "float64"\ndata = {{ {self.arrays}{kept} }}\n{checkpoint}')

    def read(self, answer):
        self.assertEqual(answer.code, 0, answer.err)
        lines = [json.loads(line) for line in answer.out.splitlines() if line.startswith("{")]
        return {line["step"]: line["loss"] for line in lines if "loss" in line}, lines[-1]["summary"]

    def test_processes_keep_and_move_what_threads_do_and_see_what_files_hold(self):
        for plan, kept in KEPT.items():
            if not ALL_CASES and plan != "spatial(d=2)":  # the test below has four ranks that cut and share
                continue
            with self.subTest(plan=plan):
                with_store = self.run_of("store.toml", plan, "1 MiB")
                ranks = 2 if plan in ("data_parallel(dp=2)", "spatial(d=2)") else 4
                threads = self.read(run("train", with_store, "--json"))[1]
                losses, summary = self.read(self.mpirun(ranks, "train", with_store, "--json"))
                plain = self.read(self.mpirun(ranks, "train", self.run_of("plain.toml", plan, ""), "--json"))[0]
                self.assertEqual(losses, plain)  # to the last bit
                self.assertEqual(len(losses), 7)
                self.assertEqual(summary["data_store"], threads["data_store"])
                self.assertEqual(summary["data_store"]["bytes_of_a_rank"], kept)
                self.assertEqual(summary["data_bytes_read"], {"all_ranks": SAMPLES * (1024 + 8), "of_a_rank": kept})

    def test_a_run_that_goes_on_takes_the_samples_of_its_later_steps(self):
        plan, folder = "spatial(d=2,dp=2)", f"{self.folder}/checkpoints"
        file = self.run_of("store.toml", plan, "1 MiB", f'checkpoint = {{ dir = "{folder}", every = 4, keep = 2 }}\n')
        whole = self.read(self.mpirun(4, "train", file, "--json"))[0]
        shutil.rmtree(f"{folder}/step-{7:012}")
        rest = self.read(self.mpirun(4, "train", file, "--json", "--resume"))[0]
        self.assertEqual(rest, {step: loss for step, loss in whole.items() if step > 4})

    def test_what_does_not_fit_is_said_once(self):
        file = self.run_of("store.toml", "data_parallel(dp=2)", "2 KiB")
        answer = self.mpirun(2, "train", file, "--json")
        self.assertEqual(answer.code, 2)
        self.assertEqual([line for line in answer.err.splitlines() if line.startswith("tessera: ")],
                         ["tessera: data.store: expected at least 6.05 KiB (6,192 bytes), which rank 0 keeps of the samples, found "
                          f"2.00 KiB (2,048 bytes) ({file}:6)"])


if __name__ == "__main__":
    main()
