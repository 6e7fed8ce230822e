"""What the import of .pt2 archives refuses, in one line and with nothing left behind; mutated archives.

Usage: pt2_refusals_test.py PROGRAM STEPS [unittest options].
"""
import json
import random
import re
import shutil
import struct
import unittest
import zipfile

from pt2_case import ALL_CASES, Pt2Case, main, read_arrays, run, torch
import models


class Refusals(Pt2Case):
    def test_messages_name_what_is_wrong(self):
        class Sorted(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(4, 4)

            def forward(self, x):
                return torch.sort(self.inner(x))[0].sum()

        class Logits(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(4, 3)

            def forward(self, x):
                return self.inner(x)

        x = torch.randn(2, 4)
        self.assertEqual(
            self.refused(self.exported(Sorted(), (x,))),
            "bad.pt2: node 'sort' (aten.sort) in the outermost module: an op without a counterpart, which makes [2, 4] float32")
        path = self.exported(Logits(), (x,))
        self.assertEqual(
            self.refused(path),
            "bad.pt2: expected a module that returns its loss, a scalar, found [2, 3]; with loss=cross_entropy the outputs are logits "
            "(--set of import; elsewhere model.pt2:loss=cross_entropy)")
        self.assertEqual(self.refused(path, "--set", "loss=squares"), "import: loss: expected module or cross_entropy, found 'squares'")
        answer = run(self.program, "import", path, "--set", "loss=cross_entropy", "--out", self.folder / "logits")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn("input %targets [batch=2] int64", (self.folder / "logits" / "model.graph").read_text())
        answer = run(self.program, "import", path, "--set", "loss=cross_entropy", "--out", self.folder / "logits")
        self.assertEqual(answer.returncode, 2, answer.stderr)

        def node(program):
            return program["graph_module"]["graph"]["nodes"][0]

        changes = {
            "schema_version: major: expected version 8 of the format, found 9":
                lambda program: program["schema_version"].update(major=9),
            "node 'linear': inputs [0]: expected a field 'arg', found none":
                lambda program: node(program)["inputs"][0].pop("arg"),
            'node \'linear\': inputs [0]: arg: expected an argument of a known tag, found \'as_riddle\'':
                lambda program: node(program)["inputs"][0].update(arg={"as_riddle": 1}),
            "graph_module: graph: expected a field 'nodes', found none":
                lambda program: program["graph_module"]["graph"].pop("nodes"),
            "graph_module: graph: tensor_values: linear: dtype: expected the number of a floating dtype, an integer dtype or bool, found 9":
                lambda program: program["graph_module"]["graph"]["tensor_values"]["linear"].update(dtype=9),
        }
        for message, change in changes.items():
            self.assertEqual(self.refused(self.rewritten(path, change)), f"changed.pt2: models/model.json: {message}")
        text = self.folder / "text.pt2"
        text.write_text("no archive")
        self.assertEqual(self.refused(text), "text.pt2: expected a .pt2 archive (a zip file), found: Not a zip archive")
        self.assertEqual(self.refused(self.folder / "none.pt2"), "none.pt2: expected a .pt2 archive, found no file that can be read")

    def test_autocast_is_refused_by_its_name(self):
        class Cast(torch.nn.Module):
            def __init__(self, enabled):
                super().__init__()
                self.inner, self.enabled = torch.nn.Linear(4, 3), enabled

            def forward(self, x):
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.enabled):
                    y = self.inner(x)
                return y.float().mean()

        x = torch.randn(4, 4)
        found = self.refused(self.exported(Cast(True), (x,)))
        self.assertRegex(found, r"^bad.pt2: models/model.json: node '.*': expected a module that is exported without torch.autocast "
                                r"\(--precision says in which dtype a run computes\), found a region of "
                                r"torch.ops.higher_order.wrap_with_autocast$")
        answer = run(self.program, "import", self.exported(Cast(False), (x,)), "--out", self.folder / "off")
        self.assertEqual(answer.returncode, 0, answer.stderr)

    def test_ops_with_other_graphs_are_refused_by_their_name(self):
        class Either(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(4, 3)

            def forward(self, x):
                y = self.inner(x)
                return torch.cond(y.sum() > 0, lambda z: z.sin(), lambda z: z.cos(), (y,)).mean()

        found = self.refused(self.exported(Either(), (torch.randn(4, 4),)))
        self.assertRegex(found, r"^bad.pt2: models/model.json: node '.*': expected ops without graphs of their own, found 'cond'$")

    def test_sizes_that_are_not_open_are_not_stated(self):
        class Mean(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(4, 3)

            def forward(self, x):
                return self.inner(x).mean()

        path = self.folder / "dynamic.pt2"
        batch = torch.export.Dim("batch", min=2, max=16)
        torch.export.save(torch.export.export(Mean(), (torch.randn(4, 4),), dynamic_shapes=({0: batch},)), path)
        self.assertEqual(self.refused(path, "--set", "seq=8"),
                         "dynamic.pt2: seq=8: expected a module whose seq is open (dynamic_shapes of torch.export), found one that fixes it")
        self.assertEqual(self.refused(path, "--set", "batch=17"),
                         "dynamic.pt2: batch=17: expected a size from 2 to 16, the range that the module was exported for")
        self.assertEqual(self.refused(path, "--set", "batch=some"), "import: batch: expected a size, as 8, found 'some'")

    def test_values_that_the_graph_depends_on_must_be_there(self):
        class Masked(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(4, 4)
                self.register_buffer("mask", torch.ones(4))

            def forward(self, x):
                return (self.inner(x) * self.mask).mean()

        path = self.folder / "meta.pt2"
        with torch.device("meta"):
            torch.export.save(torch.export.export(Masked(), (torch.zeros(2, 4),)), path)
        self.assertEqual(self.refused(path),
                         "meta.pt2: 'mask': expected its 4 elements in the archive, found none: the module was exported under meta or fake "
                         "tensors, and the graph depends on their values")

    def test_changes_in_place_that_would_be_lost_are_refused(self):
        class Changed(torch.nn.Module):
            def __init__(self, change):
                super().__init__()
                self.inner, self.change = torch.nn.Linear(4, 4), change
                self.register_buffer("count", torch.zeros(4))

            def forward(self, x):
                return self.change(self, self.inner(x))

        def every_second(module, y):
            y[:, ::2].add_(1)
            return y.sum()

        def flat(module, y):
            y.view(-1).mul_(2)
            return y.sum()

        def base(module, y):
            view = y.transpose(0, 1)
            y.add_(1)
            return view.pow(2).sum()

        def counter(module, y):
            module.count.add_(1)
            return (y * module.count).sum()

        def teacher(module, y):
            loss = (y - module.count).pow(2).sum()
            module.count.mul_(0.9)
            return loss

        def decay(module, y):
            with torch.no_grad():
                module.inner.weight.mul_(0.9)
            return y.sum()

        end = " afterwards, or in the next step; write x = x.add(y) for x.add_(y)"
        start = "an op without a counterpart: it changes elements in place that node "
        x = torch.randn(2, 4)
        for change, message in {
                every_second: "node 'add_' (aten.add_) in the outermost module: " + start + "'sum_1' reads through 'linear' [2, 4]",
                flat: "node 'mul_' (aten.mul_) in the outermost module: " + start + "'sum_1' reads through 'linear' [2, 4]",
                base: "node 'add_' (aten.add_) in the outermost module: " + start + "'pow_1' reads through 'transpose' [4, 2]",
                teacher: "node 'mul_' (aten.mul_) in the outermost module: " + start.replace("node ", "the module reads through 'mul_' [4]"),
                decay: "node 'mul_' (aten.mul_) in the outermost module: " + start.replace("node ", "the module reads through 'mul_' [4, 4]"),
                counter: "node 'add_' (aten.add_) in the outermost module: " + start + "'mul' reads through 'add_' [4]",
        }.items():
            with self.subTest(change.__name__):
                self.assertEqual(self.refused(self.exported(Changed(change), (x,))), "bad.pt2: " + message + end)

    def test_integers_of_the_inputs_without_a_counterpart_are_refused(self):
        class Reads(torch.nn.Module):
            def __init__(self, read):
                super().__init__()
                self.inner, self.table, self.read = torch.nn.Linear(4, 4), torch.nn.Embedding(8, 4), read

            def forward(self, x, ids):
                return self.read(self, self.inner(x), ids).sum()

        start, chosen = "an op without a counterpart: ", "it reads what a top k or a sort has chosen"
        x, ids = torch.randn(8, 3, 4), torch.randint(8, (8, 3))

        def scores(y):
            return torch.softmax(y, -1).topk(2)

        def by_expert(y):
            order = scores(y).indices.reshape(-1).sort().indices
            return y.reshape(-1, 4)[order // 2]

        for name, (read, message) in {
                "rounded": (lambda m, y, ids: m.table(y.abs().long()),
                            "node 'to' (aten.to) in the outermost module: " + start + "expected no conversion of float32 to int64"),
                "less": (lambda m, y, ids: m.table(ids) * (ids < 3).unsqueeze(-1),
                         "node 'lt' (aten.lt) in the outermost module: an op without a counterpart, which makes [8, 3] bool"),
                "equal numbers": (lambda m, y, ids: y * (y == 1), "node 'eq' (aten.eq) in the outermost module: " + start
                                  + "expected integers or truths, found float32"),
                "two": (lambda m, y, ids: y[ids[:, 0] // 8, ids[:, 1] // 8], "node 'floor_divide' (aten.floor_divide) in the outermost module: "
                        "an op without a counterpart, which makes [8] int64"),
                "pairs": (lambda m, y, ids: y[ids[:, 0], ids[:, 1] * 0], "node 'index' (aten.index) in the outermost module: " + start
                          + "expected an index into one dim"),
                "roots": (lambda m, y, ids: y * ids.sqrt().unsqueeze(-1), "node 'sqrt' (aten.sqrt) in the outermost module: " + start
                          + "expected a floating dtype, found int64"),
                "least": (lambda m, y, ids: y.topk(2, largest=False).values, "node 'topk' (aten.topk) in the outermost module: " + start
                          + "expected the largest floating elements of the last of several dims"),
                "places": (lambda m, y, ids: m.table(scores(y).indices), "node 'embedding' (aten.embedding) in module 'table': " + start + chosen),
                "first rows": (lambda m, y, ids: by_expert(y)[:5], "node 'slice_1' (aten.slice) in the outermost module: " + start + chosen),
                "numbered rows": (lambda m, y, ids: by_expert(y) * torch.arange(48).unsqueeze(-1),
                                  "node 'mul' (aten.mul) in the outermost module: " + start + chosen),
                "summed rows": (lambda m, y, ids: by_expert(y).cumsum(0), "node 'cumsum' (aten.cumsum) in the outermost module: " + start + chosen),
        }.items():
            with self.subTest(name):
                self.assertEqual(self.refused(self.exported(Reads(read), (x, ids))), "bad.pt2: " + message)

    def test_deep_json_is_refused(self):
        path = self.exported(torch.nn.Linear(4, 4), (torch.ones(2, 4),))
        for depth in (100, 1000000):
            deep = "[" * depth + "]" * depth
            with zipfile.ZipFile(path) as old, zipfile.ZipFile(self.folder / "deep.pt2", "w") as new:
                for entry in old.infolist():
                    new.writestr(entry.filename, deep if entry.filename.endswith("model.json") else old.read(entry))
            self.assertEqual(self.refused(self.folder / "deep.pt2"),
                             "deep.pt2: entry 'models/model.json': expected JSON of at most 64 levels, found other text")

    def test_constants_have_a_budget(self):
        class Filled(torch.nn.Module):
            def __init__(self, make):
                super().__init__()
                self.inner, self.make = torch.nn.Linear(4, 4), make

            def forward(self, x):
                return self.inner(x).sum() + self.make().sum()

        def kept():
            tables = [torch.arange(1 << 23) + i for i in range(12)]
            return torch.stack([table[:2] for table in tables])

        def many():
            y = torch.zeros(1 << 24)
            for _ in range(40):
                y = y + 1
            return y[:2]

        for make, message in {
                lambda: torch.full((10**6, 10**6), 0.5): "node 'full' (aten.full) in the outermost module: expected a tensor that is known at "
                "import to have at most 16777216 elements, found [1000000, 1000000]",
                lambda: torch.arange(10**10): "node 'arange' (aten.arange) in the outermost module: expected a tensor that is known at import to "
                "have at most 16777216 elements, found [10000000000]",
                kept: "expected at most 536870912 elements of tensors that are known at import, of which at most 67108864 are needed at a time, "
                "found 8388608 more",
                many: "expected at most 536870912 elements of tensors that are known at import, of which at most 67108864 are needed at a time, "
                "found 16777216 more",
        }.items():
            path = self.exported(Filled(make), (torch.ones(2, 4),))
            answer = run(self.program, "import", path, "--out", self.folder / "refused", memory=1 << 30)
            self.assertEqual((answer.returncode, answer.stderr.count("\n")), (2, 1), answer.stderr)
            self.assertTrue(answer.stderr.rstrip().endswith(message), answer.stderr)

    def test_a_folder_is_written_completely_or_not_at_all(self):
        path = self.exported(torch.nn.Linear(4, 3), (torch.ones(2, 4),))
        mine = self.folder / "out.partial"
        mine.mkdir()
        (mine / "precious").write_text("text")
        out = f"{self.folder}/deep/out/"
        answer = run(self.program, "import", path, "--out", out, "--set", "loss=cross_entropy")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        answer = run(self.program, "import", path, "--out", self.folder / "out", "--set", "loss=cross_entropy")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual((mine / "precious").read_text(), "text")
        for folder in (self.folder / "deep" / "out", self.folder / "out"):
            self.assertEqual(sorted(entry.name for entry in folder.iterdir()), ["model.graph", "module.safetensors", "weights.safetensors"])
        self.assertEqual([entry.name for entry in (self.folder / "deep").iterdir()], ["out"])

    def test_a_flipped_byte_of_a_large_weight_is_found(self):
        class Large(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.randn(1500, 1024))  # 6 MB

            def forward(self, x):
                return (x @ self.weight).sum()

        path = self.exported(Large(), (torch.ones(2, 1500),))
        with zipfile.ZipFile(path) as archive:
            entry = archive.getinfo("bad/data/weights/weight_0")
        raw = bytearray(path.read_bytes())
        names, extra = struct.unpack("<HH", raw[entry.header_offset + 26:entry.header_offset + 30])
        raw[entry.header_offset + 30 + names + extra + 5 * 1000 * 1000] ^= 1
        path.write_bytes(raw)
        self.assertEqual(self.refused(path), "bad.pt2: entry 'data/weights/weight_0': expected 6144000 bytes that can be read, found: CRC error")

    def test_parameters_that_overlap_are_refused(self):
        class Overlap(torch.nn.Module):
            def __init__(self, first, second, buffer=False):
                super().__init__()
                self.first = torch.nn.Parameter(first)
                if buffer:
                    self.register_buffer("second", second)
                else:
                    self.second = torch.nn.Parameter(second)

            def forward(self, x):
                return (x * self.first.sum() * self.second.sum()).sum()

        storage, x = torch.randn(6, 4), torch.ones(2, 4)
        shared = "expected elements of their own, or all of them shared by two parameters, found bytes "
        for module, message in (
                (Overlap(storage[:3], storage[2:]), f"'first' and 'second': {shared}0 to 48 and 32 to 96 of entry 'data/weights/weight_0'"),
                (Overlap(storage, storage.t()), f"'first' and 'second': {shared}0 to 96 and 0 to 96 of entry 'data/weights/weight_0'"),
                (Overlap(storage, storage[1], True), f"'first' and 'second': {shared}0 to 96 and 16 to 32 of entry 'data/weights/weight_0'"),
                (Overlap(torch.randn(1, 4).expand(3, 4), storage),
                 "parameter 'first': expected each of its 12 elements once in entry 'data/weights/weight_0', found 16 bytes")):
            self.assertEqual(self.refused(self.exported(module, (x,))), f"bad.pt2: {message}")
        # Buffers may share what they like; parts that only touch are parameters of their own.
        for module in (Overlap(storage[:3], storage[3:]), Overlap(storage[:3], storage[3:], True)):
            answer = run(self.program, "import", self.exported(module, (x,)), "--out", self.folder / "fine")
            self.assertEqual(answer.returncode, 0, answer.stderr)
            shutil.rmtree(self.folder / "fine")

    def test_sizes_strides_and_offsets_that_overflow_are_refused(self):
        path = self.exported(torch.nn.Linear(4, 3), (torch.ones(2, 4),))
        most = 1 << 48

        def weights(**changed):
            def change(config):
                for key, numbers in changed.items():
                    one = config["config"]["weight"]["tensor_meta"]
                    one[key] = {"as_int": numbers} if isinstance(numbers, int) else [{"as_int": n} for n in numbers]
            return change

        elements = "parameter 'weight': expected its {} elements in entry 'data/weights/weight_0', found 48 bytes"
        for change, message in (
                (weights(strides=[most, most]), elements.format(12)),
                (weights(storage_offset=most), elements.format(12)),
                (weights(sizes=[most, 1], strides=[most, 1]), elements.format(most)),
                (weights(strides=[2**62, 1]), None), (weights(sizes=[2**62, 4]), None), (weights(sizes=[most, most]), None),
                (weights(sizes=[-1, 4]), None), (weights(strides=[-4, 1]), None), (weights(storage_offset=-1), None)):
            found = self.refused(self.rewritten(path, change, "model_weights_config.json"))
            if message is not None:
                self.assertEqual(found, f"changed.pt2: {message}")
            else:
                self.assertTrue(found.startswith("changed.pt2: data/weights/model_weights_config.json: config: weight: tensor_meta: "), found)


    def test_numbers_of_windows_that_do_not_fit_are_refused(self):
        class Pooled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = torch.nn.Conv2d(3, 4, 3, stride=2, padding=1)

            def forward(self, x):
                return self.conv(x).mean()

        path = self.exported(Pooled(), (torch.ones(2, 3, 8, 8),))

        def stride(*numbers):
            def change(program):
                node = next(node for node in program["graph_module"]["graph"]["nodes"] if "conv2d" in node["target"])
                argument = next(item for item in node["inputs"] if item["name"] == "stride")
                argument["arg"] = {"as_ints": list(numbers)}
            return change

        start = "node 'conv2d' (aten.conv2d) in module 'conv': argument 'stride': expected 2 numbers from 1 to 2147483648, found "
        for numbers, message in {
                (2**62, 1): f"{start}(4611686018427387904 1)",
                (0, 0): f"{start}(0 0)",
                (1, 2, 3): f"{start}(1 2 3)",
                (1, 1): "'conv.conv': expected a result of sizes (2 4 4 4), found 'conv.conv' [batch=2, filters=4, height=8, width=8] float32",
        }.items():
            self.assertEqual(self.refused(self.rewritten(path, stride(*numbers))), f"changed.pt2: {message}")


# Each makes other bytes of an archive's, or another text of its program's; the archive then has right checksums.
def flipped(numbers, raw):
    data = bytearray(raw)
    for _ in range(numbers.randint(1, 20)):
        data[numbers.randrange(len(data))] ^= 1 << numbers.randrange(8)
    return data


def cut(numbers, raw):
    place = numbers.randrange(len(raw))
    return raw[:place] if numbers.random() < 0.5 else raw[:place] + raw[place + numbers.randint(1, 4000):]


def directory(numbers, raw):
    data = bytearray(raw)
    place = numbers.choice([match.start() for match in re.finditer(b"PK\x01\x02", raw)]) + numbers.choice([10, 20, 24, 28, 30, 42])
    data[place:place + 4] = struct.pack("<I", numbers.choice([0, 1, 0x7fffffff, 0xffffffff, numbers.getrandbits(32)]))
    return data


def letters(numbers, program):
    text = bytearray(program)
    places = [match.start() for match in re.finditer(rb"[0-9{}\[\]_]", program)]
    for _ in range(numbers.randint(1, 4)):
        text[numbers.choice(places)] = numbers.choice(b"0123456789-{}[]_e")
    return bytes(text)


def extremes(numbers, program):
    for _ in range(numbers.randint(1, 2)):
        match = numbers.choice(list(re.finditer(rb'"as_int": (-?\d+)|(?<=[\[ ])-?\d+(?=[,\]])', program)))
        begin, end = match.span(1) if match.group(1) else match.span()
        number = numbers.choice([0, 1, -1, 2, 3, 7, 1 << 24, (1 << 31) + 1, 1 << 47, 1 << 48, 1 << 62, (1 << 63) - 1, -(1 << 63)])
        program = program[:begin] + str(number).encode() + program[end:]
    return program


class MutationCase(Pt2Case):
    def originals(self, names):
        """Archives, where they lie and what is imported of them."""
        for name in names:
            module, arguments = models.cases()[name][:2]
            path, out = self.folder / f"{name}.pt2", self.folder / f"original_{name}"
            self.exported(module, arguments).rename(path)
            answer = run(self.program, "import", path, "--out", out)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            yield path, out, read_arrays(out / "weights.safetensors")[0]

    def mutate(self, count):
        numbers = random.Random(7)
        originals = list(self.originals(("manual", "grouped", "convolutions", "windows", "padded")))
        kinds = [(flipped, False), (cut, False), (directory, False), (letters, True), (extremes, True)]
        path, out, refused = self.folder / "mutated.pt2", self.folder / "out", 0
        for case in range(count):
            change, of_program = kinds[case % len(kinds)]
            source, expected, arrays = originals[case // len(kinds) % len(originals)]
            what = f"case {case}: {change.__name__} {source.name}"
            if of_program:
                with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
                    for entry in old.infolist():
                        data = old.read(entry)
                        new.writestr(entry.filename, change(numbers, data) if entry.filename.endswith("model.json") else data)
            else:
                path.write_bytes(change(numbers, source.read_bytes()))
            answer = run(self.program, "import", path, "--out", out, memory=1 << 30)
            self.assertIn(answer.returncode, (0, 2), f"{what}: {answer.stderr}")
            if answer.returncode == 0:
                self.check_same(expected, out, arrays, what, of_program)
                shutil.rmtree(out)
                continue
            refused += 1
            self.assertEqual(answer.stderr.count("\n"), 1, f"{what}: {answer.stderr}")
            self.assertIn("mutated.pt2", answer.stderr, what)
            self.assertEqual(list(self.folder.glob("out*")), [], what)
        self.assertGreater(refused, count // 2)

    def check_same(self, expected, found, original, what, program_changed):
        """An accepted archive has the weights of the original; bytes that no entry depends on change nothing at all."""
        if not program_changed:
            for name in ("model.graph", "weights.safetensors", "module.safetensors"):
                self.assertEqual((expected / name).read_bytes(), (found / name).read_bytes(), f"{what}: {name}")
            return
        # Another number in the program is another program, but its parameters are the archive's.
        arrays = read_arrays(found / "weights.safetensors")[0]
        parameters = [name for name in arrays if not name.startswith("constants.")]
        self.assertTrue(parameters, what)
        for name in parameters:
            self.assertIn(name, original, what)
            self.assertTrue(torch.equal(arrays[name].flatten(), original[name].flatten()), f"{what}: {name}")


class Mutations(MutationCase):
    def test_mutated_archives_are_refused_in_one_line_or_the_same(self):
        self.mutate(100)


@unittest.skipUnless(ALL_CASES, "one of the slow tests (make test-slow)")
class ManyMutations(MutationCase):
    def test_many_mutated_archives_are_refused_in_one_line_or_the_same(self):
        self.mutate(1000)


if __name__ == "__main__":
    main()
