"""Graph networks whose nodes lie on several ranks, from the command line: equality, bytes, bad input. How to run it: cli.py."""
import json
import os
import re

from cli import ALL_CASES, CliTest, MpiTest, main, run, slow

CORA = "data/graphs/cora"
SAMPLERS = ("none", "bucket", "stride", "quadratic", "permutation")


def exchanged(text):
    """The counted bytes of the line `exchange` of tessera verify."""
    return int(re.search(r"(?m)^  exchange +([\d,]+)$", text).group(1).replace(",", ""))


class Partitions(MpiTest):
    def setUp(self):
        super().setUp()
        # A ring of 13 nodes with chords, and a hub; classes in turn.
        edges = sorted({tuple(sorted((i, (i + step) % 13))) for i in range(13) for step in (1, 5)} | {(0, i) for i in range(2, 12)})
        self.graph = os.path.join(self.folder, "ring")
        self.write("ring_edges.tsv", "".join(f"{a}\t{b}\n" for a, b in edges))
        self.write("ring_features.tsv", "".join(f"{i}\t{i % 7} {7 + i % 3}\n" for i in range(13)))
        self.write("ring_labels.tsv", "".join(f"{i}\t{i % 3}\n" for i in range(13)))
        self.write("ring_split.tsv", "".join(f"{i}\t{'train' if i < 8 else 'val' if i < 10 else 'test'}\n" for i in range(13)))
        self.data = f"{{ nodes = '{self.graph}', part = 'train' }}"

    def network(self, prefix, kind, sampler="none", width=2):
        path = os.path.join(self.folder, f"{kind}-{sampler}.graph")
        options = [] if sampler == "none" else ["--sampler", sampler, "--widths", str(width)]
        self.expect_text("data", "graph", prefix, "--network", kind, "--out", path, *options)
        return path

    def plan(self, ranks):
        return self.write(f"nodes{ranks}.toml", f'mesh = {{ dp = {ranks} }}\nsplit = [ {{ ops = "*", dim = "nodes", over = "dp" }} ]\n')

    def verify(self, model, ranks, *options):
        text = self.expect_text("verify", model, "--plan", self.plan(ranks), "--data", self.data, *options)
        bytes_ = re.search(r"(?m)^bytes sent +([\d,]+) +([\d,]+)$", text)
        self.assertEqual(bytes_.group(1), bytes_.group(2))
        self.assertIn("equal: the plan computes what the serial plan computes", text)
        self.assertNotRegex(text, "all_gather|reduce_scatter")
        return exchanged(text)

    def test_every_sampler_on_2_3_4_and_6_ranks(self):
        for i, kind in enumerate(("gcn", "graphsage")):
            for k, sampler in enumerate(SAMPLERS):
                if not ALL_CASES and k % 2 != i:
                    continue
                model = self.network(self.graph, kind, sampler)
                for ranks in (2, 3, 4, 6) if ALL_CASES else ((2, 3, 4, 6)[k % 4],):
                    with self.subTest(kind=kind, sampler=sampler, ranks=ranks):
                        self.assertGreater(self.verify(model, ranks, "--steps", "2"), 0)

    def test_samples_send_fewer_rows_than_all_edges_and_these_fewer_than_all_rows(self):
        """Of Cora on four ranks, both layers, forward and backward, in float64."""
        self.data = f"{{ nodes = '{CORA}', part = 'train' }}"
        whole = 2 * 3 * 2708 * (16 + 7) * 8
        all_edges = self.verify(self.network(CORA, "gcn"), 4, "--steps", "1")
        samples = self.verify(self.network(CORA, "gcn", "bucket", 4), 4, "--steps", "1")
        self.assertEqual((all_edges, samples), (1590496, 1130496))  # docs/strategies/graph-partitions.md
        self.assertLess(all_edges, 0.54 * whole)

    def simulated(self, model, ranks, *options):
        """Bytes that all ranks exchange in a step."""
        found = self.expect_json("simulate", model, "--plan", self.plan(ranks), "--cluster", "dgx-a100:1", "--precision", "float32",
                                 "--json", *options)
        return sum(role["ranks"] * row["bytes"] for role in found["roles"] for row in role["traffic"] if row["kind"] == "exchange")

    def test_what_is_simulated_from_the_matrix_is_counted(self):
        for prefix, sampler in ((CORA, "none"), (CORA, "stride"), (self.graph, "none"), (self.graph, "permutation")):
            if not ALL_CASES and (prefix, sampler) not in ((CORA, "none"), (self.graph, "permutation")):
                continue
            model = self.network(prefix, "gcn", sampler)
            self.data = f"{{ nodes = '{prefix}', part = 'train' }}"
            for ranks in (2, 3) if ALL_CASES else (2,) if prefix == CORA else (3,):
                counted = self.verify(model, ranks, "--steps", "1") // 2  # float64
                self.assertEqual(self.simulated(model, ranks, "--data", self.data), counted)
        # Without the data: even draws of columns, a few per cent more than Cora's, whose edges have hubs.
        model = self.network(CORA, "gcn")
        expected, counted = self.simulated(model, 2), self.simulated(model, 2, "--data", self.data.replace(self.graph, CORA))
        self.assertTrue(counted < expected < 1.3 * counted, f"{expected}, {counted}")

    def losses(self, answer):
        self.assertEqual((answer.code, answer.err), (0, ""))
        steps = [json.loads(line) for line in answer.out.splitlines()]
        return [(step["loss"], step.get("eval_accuracy")) for step in steps if "loss" in step]

    def test_ranks_of_threads_and_of_processes_learn_as_one_does(self):
        model = self.network(CORA, "gcn", "permutation", 4)  # other samples in each step
        options = ["examples/cora.toml", "--set", f"model={model}", "--set", "precision=float64", "--steps", "12", "--set", "eval.every=4",
                   "--json"]
        serial = self.losses(run("train", *options))
        for ranks in (2, 4) if ALL_CASES else (2,):
            plan = f"examples/cora_nodes{ranks}.toml"
            threads = self.losses(run("train", *options, "--plan", plan))
            for (a, right), (b, also_right) in zip(serial, threads, strict=True):
                self.assertAlmostEqual(a, b, delta=1e-9)
                self.assertEqual(right, also_right)
            self.assertEqual(self.losses(self.mpirun(ranks, "train", *options, "--plan", plan)), threads)

    @slow
    def test_two_and_four_ranks_reach_the_accuracy_of_one(self):
        model = self.network(CORA, "gcn")
        found = []
        for plan in ("serial", "examples/cora_nodes2.toml", "examples/cora_nodes4.toml"):
            answer = run("train", "examples/cora.toml", "--set", f"model={model}", "--plan", plan, "--json")
            self.assertEqual((answer.code, answer.err), (0, ""))
            summary = json.loads(answer.out.splitlines()[-1])["summary"]
            found.append(summary["eval_accuracy"])
            self.assertNotIn("all_gather", summary["bytes_sent"])
        self.assertAlmostEqual(found[0], 0.815, delta=0.02)
        for accuracy in found[1:]:
            self.assertAlmostEqual(accuracy, found[0], delta=0.003)


class BadInput(CliTest):
    def test_data_for_the_counts_of_a_simulation(self):
        model = os.path.join(self.folder, "gcn.graph")
        self.expect_text("data", "graph", CORA, "--network", "gcn", "--out", model)
        def refused(message, data, network=model, plan="examples/cora_nodes2.toml"):
            self.expect_error(2, f"simulate: --data: {message}", "simulate", network, "--plan", plan, "--cluster", "dgx-a100:1",
                              "--data", data)
        refused("expected the nodes of a graph (\"{ nodes = 'data/graphs/cora' }\"), found 'random'", "'random'")
        refused("expected data.part to be one of train, val, test, found 'all'", "{ nodes = 'data/graphs/cora', part = 'all' }")
        refused("cannot read './none_labels.tsv': No such file or directory", "{ nodes = 'none' }")
        with open(model, encoding="utf-8") as file:
            other = self.write("other.graph", file.read().replace("edges=13264", "edges=13000"))
        refused("expected a model with sparse products, found none", f"{{ nodes = '{CORA}' }}", "mlp:in=4", "data_parallel(2)")
        refused(f"'{CORA}': expected 13000 numbers for the model's input 'edges.columns', found 13264", f"{{ nodes = '{CORA}' }}", other)


if __name__ == "__main__":
    main()
