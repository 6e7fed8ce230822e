"""Checkpoints from the command line: train --resume, tessera checkpoint, damage, losses. How to run it: cli.py."""
import hashlib
import json
import math
import os
import pathlib
import re
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

from cli import ALL_CASES, BYTES_MODEL, MPI_ENVIRONMENT, MpiTest, ROOT, main, program, run

class Checkpoints(MpiTest):
    kept = {}  # by number of steps: the folder that an undisturbed run has left, and its losses

    def setUp(self):
        super().setUp()
        self.dir = pathlib.Path(self.folder) / "checkpoints"
        self.toml = self.run_file(steps=12, precision="float64", plan="megatron(tp=2,dp=2,zero=1)")
        with open(self.toml, "a", encoding="utf-8") as file:
            file.write(f'checkpoint = {{ dir = "{self.dir}", every = 4, keep = 2 }}\n')

    def lines(self, answer):
        self.assertEqual(answer.code, 0, answer.err)
        return [json.loads(line) for line in answer.out.splitlines()]

    def train(self, *arguments, before=None):
        return run("train", self.toml, "--json", *arguments, before=before)

    def trained(self, steps=12):
        """Losses of an undisturbed run, and what it leaves in the folder of checkpoints; it runs for the first test that asks."""
        if steps not in Checkpoints.kept:
            losses = self.losses(self.train("--steps", str(steps)))
            folder = tempfile.TemporaryDirectory(prefix="tessera_cli_test_")
            Checkpoints.addClassCleanup(folder.cleanup)
            shutil.copytree(self.dir, folder.name, dirs_exist_ok=True)
            Checkpoints.kept[steps] = folder.name, losses
        else:
            shutil.copytree(Checkpoints.kept[steps][0], self.dir)
        return Checkpoints.kept[steps][1]

    def losses(self, answer):
        return {line["step"]: line["loss"] for line in self.lines(answer)[:-1] if "step" in line}

    def steps(self):
        return sorted(int(path.name.removeprefix("step-")) for path in self.dir.glob("step-*"))

    def step(self, number):
        return self.dir / f"step-{number:012}"

    def test_resume_under_the_same_plan_and_another(self):
        whole = self.trained()
        self.assertEqual(self.steps(), [8, 12])
        shutil.rmtree(self.step(12))
        answer = self.train("--resume")
        self.assertEqual(answer.err, f"note: {self.step(8)}: the run goes on after step 8\n")
        self.assertEqual(self.losses(answer), {step: loss for step, loss in whole.items() if step > 8})
        self.assertEqual(self.lines(answer)[-1]["summary"]["checkpoints"]["resumed_from"], 8)
        shutil.rmtree(self.step(12))
        other = self.losses(self.train("--resume", "--plan", "fsdp(3)"))
        self.assertEqual(list(other), [9, 10, 11, 12])
        for step, loss in other.items():
            self.assertAlmostEqual(loss, whole[step], delta=1e-9 * whole[step])
        self.assertEqual(self.lines(self.train("--resume"))[-1]["summary"]["checkpoints"]["saved"], 0)  # all is done

    def test_states_of_the_published_shape_go_from_plan_to_plan(self):
        """Adafactor's factors and Muon's momentum, written where heads are cut over tp and read where the states are cut over dp."""
        for kind in ("adafactor", "muon", "lamb")[:3 if ALL_CASES else 2]:
            with self.subTest(optimizer=kind):
                whole = self.losses(self.train("--set", f"optimizer={kind}"))
                shutil.rmtree(self.step(12))
                other = self.losses(self.train("--resume", "--set", f"optimizer={kind}", "--plan", "zero(stage=3,dp=3)"))
                self.assertEqual(list(other), [9, 10, 11, 12])
                for step, loss in other.items():
                    self.assertAlmostEqual(loss, whole[step], delta=1e-9 * whole[step])
                shutil.rmtree(self.dir)

    def test_resume_over_mpi(self):
        self.needs_mpirun()
        whole = self.trained()
        shutil.rmtree(self.step(12))
        for step, loss in self.losses(self.mpirun(3, "train", self.toml, "--json", "--resume", "--plan", "zero(2,3)")).items():
            self.assertAlmostEqual(loss, whole[step], delta=1e-9 * whole[step])
        self.assertEqual(self.steps(), [8, 12])
        self.assertEqual(self.expect_json("checkpoint", "ls", str(self.dir), "--json")[-1]["ranks"], 3)

    def test_another_dtype_is_rounded_with_a_note(self):
        self.trained()
        answer = self.train("--resume", "--steps", "13", "--set", "precision=float32")
        self.assertRegex(answer.err, r"^note: \S+step-000000000012: values of \d+ tensors are rounded, as of \S+ "
                                     r"from float64 to float32\n")
        self.assertEqual(list(self.losses(answer)), [13])

    def test_wrong_input_is_one_line(self):
        self.trained()
        before = {path: path.stat().st_mtime_ns for path in self.dir.rglob("*")}
        last = self.step(12)
        self.expect_error(2, f"checkpoint.dir: expected a folder without checkpoints, or --resume, found {last}", "train", self.toml)
        answer = self.train("--resume", "--set", "model=gpt:layers=2,hidden=16,heads=2,seq=16,vocab=256")
        self.assertEqual(answer.code, 2)
        self.assertRegex(answer.err, r"^tessera: \S+step-000000000012: expected the checkpoint's model gpt:layers=1,\S+, "
                                     r"found gpt:layers=2,\S+\n$")
        self.expect_error(2, f"{last}: expected the checkpoint's seed 1, found 2", "train", self.toml, "--resume", "--set", "seed=2")
        answer = self.train("--resume", "--set", "optimizer=lion")
        self.assertEqual(answer.code, 2)
        self.assertRegex(answer.err, r"^tessera: \S+: tensor optimizer\.v\.\S+: expected it in the run's model or optimizer, found none\n$")
        answer = self.train("--resume", "--set", "optimizer=adafactor")
        self.assertEqual(answer.code, 2)
        self.assertRegex(answer.err, r"^tessera: \S+: tensor optimizer\.\S+: expected float64 \[\d+(, \d+)*\], found none\n$")
        self.expect_error(2, "--set checkpoint.keep=0: expected checkpoint.keep to be an integer of at least 1, found 0",
                          "train", self.toml, "--set", "checkpoint.keep=0")
        self.assertEqual(before, {path: path.stat().st_mtime_ns for path in self.dir.rglob("*")})  # nothing was written
        self.expect_error(2, f"{self.toml}: expected the key 'checkpoint.dir' with --resume, for example checkpoint = "
                          '{ dir = "checkpoints" }', "train", self.run_file(), "--resume")

    def test_weights_begin_a_run(self):
        self.trained()
        weights = os.path.join(self.folder, "weights.safetensors")
        copied = self.expect_text("checkpoint", "copy", str(self.dir), "--to", weights, "--parameters")
        self.assertEqual(copied, weights + "\n")
        # A step at rate 0 changes nothing: what is saved after it are the parameters that it began with, bit by bit.
        fresh = self.run_file(steps=1, precision="float64", weights=weights, plan="data_parallel(2)")
        answer = run("train", fresh, "--json", "--set", "optimizer.lr=0", "--set", "optimizer.min_lr=0", "--set",
                     f"checkpoint.dir={self.folder}/fresh")
        self.assertEqual(answer.code, 0, answer.err)
        again = os.path.join(self.folder, "again.safetensors")
        self.expect_text("checkpoint", "copy", f"{self.folder}/fresh", "--to", again, "--parameters")
        self.assertEqual(pathlib.Path(again).read_bytes(), pathlib.Path(weights).read_bytes())
        untrained = run("train", self.run_file(steps=1, precision="float64"), "--json")
        self.assertNotEqual(self.losses(answer), self.losses(untrained))
        with open(weights, "rb") as file:
            head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        self.assertFalse(any(name.startswith("optimizer") for name in head))
        answer = run("train", self.run_file(model="gpt:layers=1,hidden=32,heads=2,seq=16,vocab=256", weights=weights))
        self.assertEqual((answer.code, answer.err),
                         (2, f"tessera: {weights}: tensor embed.token.weight: expected float32 [256, 32], found float64 [256, 16]\n"))
        answer = run("train", self.run_file(model="gpt:layers=2,hidden=16,heads=2,seq=16,vocab=256", weights=weights))
        self.assertEqual(answer.code, 2)
        self.assertRegex(answer.err, r"^tessera: \S+: tensor blocks\.1\.\S+: expected float32 \[\d+\], found none\n$")

    def test_the_run_file_in_a_checkpoint_repeats_the_run(self):
        with open(self.toml, "a", encoding="utf-8") as file:
            file.write('optimizer.group = [{ parameters = "embed", rate = 0.5, weight_decay = 0 }]\n'
                       'change = [{ after = 5, plan = "data_parallel(2)" }]\n')
        whole = self.losses(self.train("--set", "optimizer.lr=3e-3"))
        text = self.expect_json("checkpoint", "show", str(self.dir), "--json")["run"]
        self.assertIn('optimizer.group = [{ parameters = "embed", rate = 0.5, weight_decay = 0.0 }]', text)
        self.assertIn('change = [{ after = 5, plan = "data_parallel(2)" }]', text)
        other = os.path.join(self.folder, "other")
        again = run("train", self.write("again.toml", text), "--json", "--set", f"checkpoint.dir={other}")
        self.assertEqual(self.losses(again), whole)
        repeated = self.expect_json("checkpoint", "show", other, "--json")["run"]
        self.assertEqual(repeated, text.replace(str(self.dir), other))

    def flip(self, path, at):
        with open(path, "r+b") as file:
            file.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))

    def test_damage_is_named_and_the_checkpoint_before_is_used(self):
        whole = self.trained()
        shard = self.step(12) / "rank-00002.safetensors"
        self.flip(shard, -3)
        answer = run("checkpoint", "verify", str(self.dir))
        self.assertEqual(answer.code, 1)
        damage = rf"{re.escape(str(shard))}: damaged: tensor \S+, box \[.*\]: expected checksum [0-9a-f]{{16}}, found [0-9a-f]{{16}}"
        self.assertRegex(answer.out, rf"^{damage}\n$")
        answer = self.train("--resume")
        self.assertRegex(answer.err, rf"^note: {damage}; it is set aside as \S+/damaged-step-000000000012\n"
                                     r"note: \S+step-000000000008: the run goes on after step 8\n$")
        self.assertEqual(self.losses(answer), {step: loss for step, loss in whole.items() if step > 8})
        for path in self.dir.glob("step-*/rank-00001.safetensors"):
            path.unlink()
        answer = self.train("--resume")
        self.assertEqual(answer.code, 3)
        self.assertRegex(answer.err, r"^tessera: \S+step-000000000012/rank-00001.safetensors: damaged: expected a file of \d+ "
                                     r"bytes, found: No such file or directory; no checkpoint before it is whole\n$")

    def test_a_lost_or_changed_manifest_is_a_damage_too(self):
        whole = self.trained()
        for spoil, what in [(lambda path: path.unlink(), "expected a file, found none"),
                            (lambda path: self.flip(path, 2), "expected to begin with its checksum, found text that is cut or changed"),
                            (lambda path: self.flip(path, 60), r"expected checksum [0-9a-f]{16}, found [0-9a-f]{16}")][0 if ALL_CASES else 2:]:
            manifest = self.step(12) / "manifest.json"
            spoil(manifest)
            answer = self.train("--resume")
            self.assertRegex(answer.err, rf"^note: {re.escape(str(manifest))}: damaged: {what}; it is set aside as \S+\n"
                                         r"note: \S+step-000000000008: the run goes on after step 8\n$")
            self.assertEqual(self.losses(answer), {step: loss for step, loss in whole.items() if step > 8})
            self.assertEqual(self.steps(), [8, 12])

    def test_what_bears_the_name_of_a_checkpoint_and_is_none_is_set_aside(self):
        self.trained()
        stray, manifest = self.step(20), self.step(20) / "manifest.json"

        def link_to_itself():
            stray.mkdir()
            manifest.symlink_to("manifest.json")
        for make, what in [(lambda: stray.write_text("x"), f"{stray}: damaged: expected a folder, found a file"),
                           (link_to_itself, f"{manifest}: damaged: expected a file, found a link that leads back to itself"),
                           (lambda: manifest.mkdir(parents=True), f"{manifest}: damaged: expected a file, found a folder"),
                           (lambda: stray.symlink_to("nowhere"), f"{stray}: damaged: expected a folder, found a link that leads nowhere"),
                           (stray.mkdir, f"{manifest}: damaged: expected a file, found none")]:
            make()
            # Looked at by the commands: exit codes as docs/guides/survive.md says.
            found = self.expect_json("checkpoint", "ls", str(self.dir), "--json")
            self.assertEqual([one["damaged"] for one in found], [None, None, what])
            self.assertIn("damaged", self.expect_text("checkpoint", "ls", str(self.dir)))
            for path in (self.dir, stray):
                answer = run("checkpoint", "verify", str(path))
                self.assertEqual((answer.code, answer.out, answer.err), (1, what + "\n", ""))
                answer = run("checkpoint", "verify", str(path), "--json")
                self.assertEqual((answer.code, json.loads(answer.out)["damage"]), (1, [what]))
            for arguments in (["show", str(stray)], ["copy", str(stray), "--to", f"{self.folder}/copy"],
                              ["copy", str(stray), "--to", f"{self.folder}/copy.safetensors"]):
                self.expect_error(1, what, "checkpoint", *arguments)
            if not ALL_CASES and make != link_to_itself:
                if stray.is_dir():
                    shutil.rmtree(stray)
                else:
                    stray.unlink()
                continue
            answer = self.train("--resume", "--steps", "13", "--set", "checkpoint.keep=9")
            self.assertEqual(answer.err, f"note: {what}; it is set aside as {self.dir}/damaged-step-000000000020\n"
                                         f"note: {self.step(12)}: the run goes on after step 12\n")
            self.assertEqual(list(self.losses(answer)), [13])
            aside = self.dir / "damaged-step-000000000020"
            self.assertTrue(aside.exists() or aside.is_symlink())
            if aside.is_dir():
                shutil.rmtree(aside)
            else:
                aside.unlink()
            shutil.rmtree(self.step(13))
        self.assertFalse(list(pathlib.Path(self.folder).glob("copy*")))

    def test_a_copy_of_what_is_damaged_ends_with_exit_code_1_and_leaves_nothing(self):
        self.trained()
        shard = self.step(12) / "rank-00001.safetensors"
        whole = shard.read_bytes()
        for spoil in (lambda: None, lambda: shard.write_bytes(whole[:-1]), lambda: shard.symlink_to("nowhere"),
                      lambda: shard.symlink_to(shard.name), shard.mkdir, lambda: os.mkfifo(shard)):
            if os.path.lexists(shard):
                shard.unlink()
            spoil()
            for to in ("copy", "copy.safetensors"):
                answer = run("checkpoint", "copy", str(self.dir), "--to", f"{self.folder}/{to}")
                self.assertEqual((answer.code, answer.out), (1, ""))
                self.assertRegex(answer.err, rf"^tessera: {re.escape(str(shard))}: damaged: expected a file of \d+ bytes, found.*\n$")
            answer = run("checkpoint", "verify", str(self.dir))
            self.assertEqual((answer.code, answer.err), (1, ""))
            self.assertRegex(answer.out, rf"^{re.escape(str(shard))}: damaged: expected a file of \d+ bytes, found.*\n$")
            self.assertEqual(run("checkpoint", "ls", str(self.dir)).code, 0)
            if shard.is_dir():
                shard.rmdir()
        self.assertFalse(list(pathlib.Path(self.folder).glob("copy*")))

    def test_a_folder_by_the_name_of_another_step_is_refused(self):
        self.trained()
        self.step(12).rename(self.step(20))
        self.expect_error(2, f"{self.step(20)}: expected the checkpoint of step 20, found that of step 12", "train", self.toml, "--resume")

    def test_the_manifest_has_the_plan_of_its_steps(self):
        self.train("--change", "6:data_parallel(2)")
        plans = [self.expect_json("checkpoint", "show", str(self.step(step)), "--json")["plan"] for step in (8, 12)]
        self.assertEqual(plans[0], plans[1])
        self.assertIn("mesh = { dp = 2 }", plans[0])
        # --plan is the plan of all further steps, whatever the run file changes it to.
        with open(self.toml, "a", encoding="utf-8") as file:
            file.write('change = [{ after = 6, plan = "data_parallel(2)" }]\n')
        answer = self.train("--resume", "--steps", "13", "--plan", "serial")
        self.assertEqual(self.lines(answer)[-1]["summary"]["ranks"], 1)

    def test_a_clock_that_jumped_does_not_change_which_is_the_newest(self):
        self.trained()
        for step, time in ((12, 0), (8, 4102444800)):  # 1970 and 2100
            for path in [*self.step(step).iterdir(), self.step(step)]:
                os.utime(path, (time, time))
        answer = self.train("--resume", "--steps", "13")
        self.assertEqual(answer.err, f"note: {self.step(12)}: the run goes on after step 12\n")
        self.assertEqual(self.steps(), [12, 13])

    def test_two_levels(self):
        fast = pathlib.Path(self.folder) / "fast"
        levels = ["--set", f"checkpoint.fast.dir={fast}", "--set", "checkpoint.fast.every=3"]
        record = pathlib.Path(self.folder, "record")
        answer = self.train(*levels, "--set", "checkpoint.keep=9", "--set", f"folder={record}")
        whole = self.losses(answer)
        saved = [line["saved"] for line in self.lines(answer) if "saved" in line]
        written = [json.loads(line) for line in (record / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["saved"] for line in written if "saved" in line], saved)
        self.assertTrue(all(one["seconds"] >= one["waited_s"] > 0 for one in saved))
        self.assertIn("steps 1 to 12, 0 restarts\n", self.expect_text("report", str(record)))
        self.assertEqual(sorted(one["step"] for one in saved if one["path"].startswith(str(fast))), [3, 6, 9])
        self.assertEqual(sorted(one["step"] for one in saved if one["path"].startswith(str(self.dir))), [4, 8, 12])
        summary = self.lines(answer)[-1]["summary"]["checkpoints"]
        self.assertEqual(summary["saved"], 6)
        self.assertEqual(summary["bytes_written"], sum(one["bytes"] for one in saved))
        # A copy of the largest shard for each level; the fast one would be content with less of a large shard.
        self.assertEqual(summary["memory_bytes"], 2 * max(path.stat().st_size for path in self.step(12).glob("rank-*")))
        self.assertEqual(list(fast.iterdir()), [])  # the run is done: its memory is free again
        self.expect_error(2, f"checkpoint.dir: expected a folder without checkpoints, or --resume, found {self.step(12)}",
                          "train", self.toml, *levels)

        # As it stands when the process is killed behind step 9: the fast one is newer.
        def killed():
            for path in [*self.dir.glob("*"), *fast.glob("*")]:
                shutil.rmtree(path)
            made = self.train(*levels, "--steps", "9", "--set", "optimizer.warmup=10")
            shutil.rmtree(self.step(4), ignore_errors=True)
            shutil.move(self.step(9), fast / self.step(9).name)
            return made
        # The rate depends on the number of steps only behind the warm-up.
        self.assertEqual(self.losses(killed()), {step: loss for step, loss in whole.items() if step <= 9})
        self.expect_error(2, f"checkpoint.fast.dir: expected a folder without checkpoints, or --resume, found {fast}/step-000000000009",
                          "train", self.toml, *levels, "--set", f"checkpoint.dir={self.folder}/elsewhere")
        answer = self.train("--resume", *levels)
        self.assertEqual(answer.err, f"note: {fast}/step-000000000009: the run goes on after step 9\n")
        loaded = [line["loaded"] for line in self.lines(answer) if "loaded" in line]
        self.assertEqual([(one["step"], one["path"]) for one in loaded], [(9, f"{fast}/step-000000000009")])
        self.assertEqual(self.losses(answer), {step: loss for step, loss in whole.items() if step > 9})
        # Damaged, or lost with the machine: the durable one is used.
        killed()
        self.flip(fast / "step-000000000009/rank-00001.safetensors", -3)
        answer = self.train("--resume", *levels)
        self.assertRegex(answer.err, r"^note: \S+fast/step-000000000009/rank-00001.safetensors: damaged: tensor .*; it is set aside "
                                     r"as \S+fast/damaged-step-000000000009\n"
                                     r"note: \S+checkpoints/step-000000000008: the run goes on after step 8\n$")
        self.assertEqual(self.losses(answer), {step: loss for step, loss in whole.items() if step > 8})
        killed()
        shutil.rmtree(fast)
        answer = self.train("--resume", *levels)
        self.assertEqual(answer.err, f"note: {self.step(8)}: the run goes on after step 8\n")
        self.assertEqual(self.losses(answer), {step: loss for step, loss in whole.items() if step > 8})

    def test_levels_that_cannot_be(self):
        self.expect_error(2, f"{self.toml}: checkpoint.fast.dir: expected another folder than checkpoint.dir, found '{self.dir}' for both",
                          "train", self.toml, "--set", f"checkpoint.fast.dir={self.dir}")
        answer = self.train("--set", f"checkpoint.fast.dir={self.folder}/fast", "--set", "checkpoint.fast.keep=9000000000000000")
        self.assertEqual((answer.code, json.loads(answer.out)["error"]["code"]), (3, 3))
        self.assertRegex(answer.err, rf"^tessera: {self.folder}/fast: expected room for keep = 9000000000000000 checkpoints of .* "
                                     r"and for the one that is being written, found .* free\n$")
        self.assertFalse(pathlib.Path(self.folder, "fast").exists())
        other = self.run_file()
        self.expect_error(2, f"{other}: checkpoint.fast.dir: expected the key 'checkpoint.dir' too, for what a memory file system "
                          "loses, found none", "train", other, "--set", f"checkpoint.fast.dir={self.folder}/fast")

    def test_a_checkpoint_of_version_1_loads_for_ever(self):
        golden = ROOT / "tests/checkpoints/golden"
        shutil.copytree(golden / "version-1", self.dir)
        self.assertTrue(self.expect_json("checkpoint", "verify", str(self.dir), "--json")["ok"])
        merged = os.path.join(self.folder, "all.safetensors")
        self.expect_text("checkpoint", "copy", str(self.dir), "--to", merged)
        data = pathlib.Path(merged).read_bytes()
        start = 8 + struct.unpack("<Q", data[:8])[0]
        head = json.loads(data[8:start])
        sums = {name: hashlib.sha256(data[start:][slice(*one["data_offsets"])]).hexdigest()[:16] for name, one in head.items()}
        self.assertEqual(len(sums), 40)
        self.assertEqual(hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest(),
                         "080f8a18805503949fcf7b3582b507e43ae78299d8e5a303b6f81ce8e74da60c")
        for plan in ("tensor_parallel(2)", "fsdp(3)")[0 if ALL_CASES else 1:]:
            shutil.rmtree(self.dir)
            shutil.copytree(golden / "version-1", self.dir)
            losses = self.losses(run("train", str(golden / "run.toml"), "--json", "--resume", "--plan", plan, "--set",
                                     f"checkpoint.dir={self.dir}"))
            self.assertEqual(list(losses), [5, 6])
            for step, loss in ((5, 1.791818437511838), (6, 1.7873907159534448)):
                self.assertAlmostEqual(losses[step], loss, delta=1e-9 * loss)

    def test_a_checkpoint_of_a_newer_version_is_refused(self):
        golden = ROOT / "tests/checkpoints/golden"
        manifest = golden / "newer/step-000000000004/manifest.json"
        newer = f"{manifest}: expected format version 1 or older, found 2; a newer Tessera has written it"
        self.expect_error(2, newer, "train", str(golden / "run.toml"), "--resume", "--set", f"checkpoint.dir={golden}/newer")
        for command in ("show", "verify"):
            self.expect_error(2, newer, "checkpoint", command, f"{golden}/newer")
        self.expect_error(2, newer, "train", str(golden / "run.toml"), "--set", f"weights={golden}/newer")

    def test_damage_is_told_wherever_a_checkpoint_is_read(self):
        toml = self.run_file(steps=2, plan="tensor_parallel(2)")
        answer = run("train", toml, "--json", "--set", f"checkpoint.dir={self.dir}")
        self.assertEqual(answer.code, 0, answer.err)
        shard = self.step(2) / "rank-00000.safetensors"
        data = shard.read_bytes()
        start = 8 + struct.unpack("<Q", data[:8])[0]
        head = json.loads(data[8:start])
        name = next(name for name in head if name.startswith("embed.token.weight"))
        self.flip(shard, start + head[name]["data_offsets"][1] - 1)
        damage = (rf"^tessera: {re.escape(str(shard))}: damaged: tensor embed\.token\.weight, box \[.*\]: expected checksum "
                  r"[0-9a-f]{16}, found [0-9a-f]{16}\n$")
        out = os.path.join(self.folder, "out")
        for command in (["train", self.run_file(weights=str(self.dir))],
                        ["train", self.run_file(weights=str(self.dir), plan="fsdp(3)")],
                        ["sample", BYTES_MODEL, "--weights", str(self.dir), "--count", "3"],
                        ["export", str(self.dir), "--to", "hf", "--model", BYTES_MODEL, "--out", out],
                        ["checkpoint", "copy", str(self.dir), "--to", out + ".safetensors"]):
            answer = run(*command)
            if command[0] == "checkpoint":  # which compares first of all, as a check
                self.assertEqual(answer.code, 1, answer.err)
            else:
                self.assertEqual(answer.code, 3, answer.err)
            self.assertRegex(answer.err, damage, command)
            self.assertNotIn("step ", answer.out)
        self.assertFalse(os.path.exists(out) or os.path.exists(out + ".safetensors"))

    def test_a_run_that_is_done_says_so(self):
        self.trained()
        answer = run("train", self.toml, "--resume")
        self.assertEqual(answer.code, 0, answer.err)
        self.assertEqual(answer.out.splitlines()[-1], "all 12 steps were done before")

    def test_checkpoint_commands(self):
        self.trained()
        found = self.expect_json("checkpoint", "ls", str(self.dir), "--json")
        self.assertEqual([(one["step"], one["ranks"], one["damaged"]) for one in found], [(8, 4, None), (12, 4, None)])
        self.assertIn("complete", self.expect_text("checkpoint", "ls", str(self.dir)))
        shown = self.expect_json("checkpoint", "show", str(self.dir), "--json")
        self.assertEqual((shown["step"], shown["seed"]), (12, 1))
        self.assertIn("steps = 12\n", shown["run"])
        sizes = {one["name"]: one for one in shown["tensors"]}
        self.assertEqual(sizes["embed.token.weight"]["shape"], [256, 16])
        self.assertIn("embed.token.weight", self.expect_text("checkpoint", "show", str(self.step(8))))
        self.assertRegex(self.expect_text("checkpoint", "verify", str(self.dir)), r"step-000000000012: whole: .* as they were written\n$")
        copy = os.path.join(self.folder, "copy")
        self.assertEqual(self.expect_text("checkpoint", "copy", str(self.dir), "--to", copy), f"{copy}/step-000000000012\n")
        self.assertTrue(self.expect_json("checkpoint", "verify", copy, "--json")["ok"])
        self.expect_error(2, f"{copy}: expected no checkpoint of step 12, found one", "checkpoint", "copy", str(self.dir), "--to", copy)
        self.expect_error(2, f"checkpoint: expected a checkpoint or a folder of them, found none at '{self.folder}'",
                          "checkpoint", "ls", self.folder)

    def test_bytes_on_disk_are_those_of_the_state(self):
        larger = run("train", self.toml, "--json", "--steps", "1", "--set", "model=gpt:layers=2,hidden=256,heads=4,seq=16,vocab=1024")
        self.assertEqual(larger.code, 0, larger.err)
        shown = self.expect_json("checkpoint", "show", str(self.dir), "--json")
        state = sum(math.prod(one["shape"]) * 8 for one in shown["tensors"])
        written = sum(path.stat().st_size for path in self.step(1).iterdir())
        self.assertLess(written, 1.02 * state)

    def test_a_disk_without_room_leaves_the_last_checkpoint(self):
        whole = self.losses(self.train("--steps", "4", "--set", "optimizer.warmup=0"))
        largest = max(path.stat().st_size for path in self.step(4).glob("rank-*"))

        def no_large_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest - 100, largest - 100))
        answer = self.train("--resume", before=no_large_files)
        self.assertEqual(answer.code, 3, answer.err)
        self.assertRegex(answer.err.splitlines()[-1],
                         r"^tessera: .*writing-step-000000000008/rank-0000\d.safetensors: cannot write: File too large$")
        self.assertEqual(self.steps(), [4])
        self.assertEqual(len(whole), 4)
        self.assertEqual(list(self.losses(self.train("--resume"))), list(range(5, 13)))
        self.assertEqual(self.steps(), [8, 12])

    def test_a_folder_that_cannot_be_written_is_found_before_the_first_step(self):
        place = self.write("file", "")
        answer = self.train("--set", f"checkpoint.dir={place}/below")
        self.assertEqual((answer.code, json.loads(answer.out)["error"]["code"]), (3, 3))
        self.assertEqual(answer.err, f"tessera: {place}: cannot make the folder: File exists\n")

    def kill_after(self, step, command, victim):
        """Starts a run of many steps and kills a process of it when `step` is done."""
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT, env=MPI_ENVIRONMENT)
        try:
            for line in running.stdout:
                if json.loads(line).get("step") == step:
                    os.kill(victim(running.pid), signal.SIGKILL)
                    break
            running.communicate(timeout=60)
        finally:
            if running.poll() is None:
                running.kill()

    def goes_on_as(self, undisturbed):
        answer = self.train("--resume", "--steps", "40")
        found = self.losses(answer)
        self.assertGreaterEqual(self.lines(answer)[-1]["summary"]["checkpoints"]["resumed_from"], 16)
        self.assertEqual(found, {step: loss for step, loss in undisturbed.items() if step >= min(found)})

    def test_kill_9_of_the_process(self):
        undisturbed = self.trained(steps=40)
        shutil.rmtree(self.dir)
        self.kill_after(21, [program(), "train", self.toml, "--json", "--steps", "40"], lambda pid: pid)
        self.goes_on_as(undisturbed)

    def test_kill_9_of_a_rank_of_mpi(self):
        self.needs_mpirun()
        undisturbed = self.trained(steps=40)
        shutil.rmtree(self.dir)
        self.kill_after(21, ["mpirun", "-n", "4", program(), "train", self.toml, "--json", "--steps", "40"],
                        lambda parent: self.process_of_rank(parent, 1))
        self.goes_on_as(undisturbed)


if __name__ == "__main__":
    main()
