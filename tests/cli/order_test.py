"""tessera order, and train --network: times, orders, files for launchers, wrong input. How to run it: cli.py."""
import json
import os

from cli import CliTest, MODEL, MpiTest, main, run


def cluster(hosts, racks, devices=1, uplink="200 Mb/s"):
    """A cluster file: machines with one card of 200 Mbit/s; racks lists the numbers of the machines below each switch."""
    named = f"hosts = {json.dumps(hosts)}\n" if hosts else ""
    nodes = sum(len(rack) for rack in racks)
    switches = "".join(f'[[switch]]\nname = "rack{i}"\nnodes = "{",".join(map(str, rack))}"\nuplink = "{uplink}"\n'
                       for i, rack in enumerate(racks))
    return (f'name = "net"\n{named}[[part]]\nlike = "dgx-a100"\nname = "machine"\ndevices = {devices}\nnodes = {nodes}\n'
            f'[part.nic]\ncount = 1\nrate = "200 Mb/s"\nlatency = "0 us"\n{switches}')


class Order(CliTest):
    DEALT = [[0, 2, 4, 6], [1, 3, 5, 7]]  # two racks whose machines were dealt in turn

    def network(self, hosts=None, racks=None, **keys):
        return self.write("net.toml", cluster(hosts, racks or self.DEALT, **keys))

    def test_the_worked_example_as_it_comes_and_as_it_is_found(self):
        network = self.network([f"node{i + 1}" for i in range(8)])
        for algorithm, now, best in (("ring", 2.24, .56), ("halving_doubling", 1.52, .8)):
            found = self.expect_json("order", "--network", network, "--algorithm", algorithm, "--bytes", "8000000", "--json")
            self.assertAlmostEqual(found["now_s"], now, 9)
            self.assertAlmostEqual(found["found_s"], best, 9)
            self.assertEqual(found["proof"], "all orders were tried")
            self.assertFalse(found["kept"])
            self.assertEqual(sorted(found["hosts"][:4]), ["node1", "node3", "node5", "node7"])
        text = self.expect_text("order", "--network", network, "--algorithm", "ring", "--bytes", "8 MB")
        self.assertRegex(text, r"(?m)^now +2\.24 s\nfound +560 ms \(4\.00 times as fast\)\nhosts +node1 node3 ")

    def test_launchers_that_sort_by_spelling_are_told(self):
        # In natural order the racks are side by side; node10 to node12 come before node2 by spelling.
        hosts = [f"node{i + 1}" for i in range(12)]
        network = self.network(hosts, [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]])
        found = self.expect_json("order", "--network", network, "--algorithm", "ring", "--bytes", "12 MB", "--json")
        self.assertTrue(found["kept"])
        self.assertEqual(found["hosts"], hosts)
        self.assertAlmostEqual(found["sorted_by_number_s"], found["now_s"], 12)
        self.assertGreater(found["sorted_by_text_s"], 1.9 * found["now_s"])
        text = self.expect_text("order", "--network", network, "--algorithm", "ring", "--bytes", "12 MB")
        self.assertIn("sorted by text  1.76 s (node10 before node2, as many launchers do)\n", text)
        self.assertIn("kept            the present order: the best found gains 0.0 %, less than 5 %\n", text)

    def test_hosts_may_be_a_part_of_the_network(self):
        network = self.network([f"node{i + 1}" for i in range(8)])
        hosts = self.write("hosts.txt", "node8\nnode1 slots=1\nnode2\nnode3\n")
        found = self.expect_json("order", "--network", network, "--hosts", hosts, "--algorithm", "ring", "--bytes", "8 MB",
                                 "--json")
        self.assertEqual(set(found["hosts"]), {"node8", "node1", "node2", "node3"})
        self.assertAlmostEqual(found["now_s"], 2 * found["found_s"], 9)

    def test_pairs_by_direction(self):
        # Fast from each machine to the next but one, slow the other way and elsewhere.
        matrix = [[1 if (j - i) % 5 == 2 else 100 for j in range(5)] for i in range(5)]
        pairs = self.write("pairs.json", json.dumps({"latency_us": matrix}))
        found = self.expect_json("order", "--network", pairs, "--algorithm", "ring", "--tour", "--bytes", "5", "--json")
        self.assertEqual(found["order"], [0, 2, 4, 1, 3])
        self.assertAlmostEqual(found["found_s"], 5e-6, 12)
        self.assertNotIn("sorted_by_text_s", found)  # nobody names the machines

    def test_1024_machines_within_two_seconds(self):
        network = self.network(None, [[i for i in range(1024) if i % 32 == rack] for rack in range(32)])
        for algorithm in ("halving_doubling", "double_tree"):
            found = self.expect_json("order", "--network", network, "--algorithm", algorithm, "--bytes", "100 MB", "--json")
            self.assertLess(found["found_s"], 0.9 * found["now_s"])

    def test_a_plan_and_the_files_for_launchers(self):
        network = self.network(["a", "b", "c", "d"], [[0, 2], [1, 3]], devices=2, uplink="50 Mb/s")
        files = {form: os.path.join(self.folder, form) for form in ("hostfile", "rankfile", "slurm", "torchrun", "json")}
        out = os.path.join(self.folder, "plan.toml")
        plan = ["--plan", "megatron(tp=4,dp=2)", "--batch", "64", "--network", network]
        writes = [word for form, path in files.items() for word in ("--write", f"{form}={path}")]
        found = self.expect_json("order", MODEL, *plan, *writes, "--out", out, "--json")
        self.assertFalse(found["kept"])
        self.assertLess(found["found_s"], 0.5 * found["now_s"])
        self.assertEqual(sorted(found["hosts"][:2]), ["a", "c"])
        kinds = {kind["what"]: kind for kind in found["kinds"]}
        self.assertGreater(kinds["all_reduce over tp"]["now_s"], kinds["all_reduce over tp"]["found_s"])
        self.assertAlmostEqual(sum(kind["found_s"] for kind in found["kinds"]), found["found_s"], 9)
        texts = {form: open(path, encoding="utf-8").read() for form, path in files.items()}
        self.assertEqual(texts["hostfile"], "".join(f"{host} slots=2\n" for host in found["hosts"]))
        ranks = json.loads(texts["json"])["ranks"]
        self.assertEqual(texts["slurm"], "".join(f"{rank['host']}\n" for rank in ranks))
        self.assertEqual(texts["rankfile"],
                         "".join(f"rank {rank['rank']}={rank['host']} slot={rank['local_rank']}\n" for rank in ranks))
        self.assertIn(f"--node_rank=3 --nproc_per_node=2 --master_addr={found['hosts'][0]}", texts["torchrun"])
        self.assertEqual(set(json.loads(texts["json"])["hosts"]), set(found["hosts"]))
        # The plan that was written is ordered already: with hosts in the order found, nothing can be gained.
        hosts = self.write("hosts.txt", "\n".join(found["hosts"]))
        again = self.expect_json("order", MODEL, "--plan", out, "--batch", "64", "--network", network, "--hosts", hosts, "--json")
        self.assertTrue(again["kept"])
        self.assertAlmostEqual(again["now_s"], found["found_s"], 12)
        text = self.expect_text("order", MODEL, *plan)
        self.assertRegex(text, r"traffic of a step +sent +now +then +bound by\n")

    def test_wrong_input_is_one_line(self):
        network = self.network(["a", "b", "c", "d"], [[0, 2], [1, 3]])
        ring = ["--algorithm", "ring", "--bytes", "8 MB"]
        both = "order: expected MODEL with --plan, or --algorithm with --bytes, found neither or a part of both"
        self.expect_error(2, both, "order", "--network", network)
        self.expect_error(2, both, "order", MODEL, "--network", network)
        self.expect_error(2, both, "order", MODEL, "--plan", "ddp(4)", "--network", network, *ring)
        self.expect_error(2, "order: --bytes: expected a size above 0 (8000000, 8 MB), found '8 apples'", "order", "--network",
                          network, "--algorithm", "ring", "--bytes", "8 apples", "--json")
        self.expect_error(2, f"order: {network}: expected a network with the 8 devices of the plan, found 4 on 4 machines",
                          "order", MODEL, "--plan", "data_parallel(8)", "--network", network)
        twice = self.write("twice.txt", "a\nb\n\na\n")
        self.expect_error(2, f"{twice}:4: expected each host once, found 'a'", "order", "--network", network,
                          "--hosts", twice, *ring)
        other = self.write("other.txt", "a\ne\n")
        self.expect_error(2, f"{other}: expected hosts of {network}, found 'e', did you mean 'a'?", "order", "--network",
                          network, "--hosts", other, *ring)
        nameless = self.write("nameless.toml", cluster(None, [[0], [1], [2]]))
        self.expect_error(2, f"{other}: expected a host for each of the 3 machines of {nameless}, found 2", "order",
                          "--network", nameless, "--hosts", other, *ring)
        self.expect_error(2, f"order: --write: expected names of hosts in {nameless} (hosts = [...]) or in --hosts, found none",
                          "order", "--network", nameless, "--write", "slurm=x", *ring)
        self.expect_error(2, "order: --write: expected FORM=FILE with a form of hostfile, rankfile, slurm, torchrun, json, "
                          "found 'pbs=x'", "order", "--network", network, "--write", "pbs=x", *ring)
        pairs = self.write("pairs.json", '{"latency_us": [[0, 1], [NaN, 0]]}')
        self.expect_error(2, f"{pairs}: expected a JSON object with latency_us or rate_Mbps, found no JSON", "order",
                          "--network", pairs, *ring)
        pairs = self.write("pairs.json", '{"latency_us": [[0, 1], [-3, 0]]}')
        self.expect_error(2, f"{pairs}: latency_us: row 1, column 0: expected a number of at least 0, found -3", "order",
                          "--network", pairs, *ring)
        pairs = self.write("pairs.json", '{"latency_us": [[0, 1], [3, 0]]}')
        self.expect_error(2, f"order: {pairs}: expected a cluster file for a plan, found a table of pairs", "order", MODEL,
                          "--plan", "data_parallel(2)", "--network", pairs)
        self.expect_error(2, "order: hierarchical: expected a group size that divides the 4 ranks, found 3", "order",
                          "--network", network, "--algorithm", "hierarchical", "--group", "3", "--bytes", "8 MB")


class Applied(MpiTest):
    """train --network: other processes for the ranks, the same numbers."""

    def losses(self, answer):
        self.assertEqual(answer.code, 0, answer.err)
        return [json.loads(line)["loss"] for line in answer.out.splitlines() if '"step":' in line]

    def test_losses_are_equal_to_the_last_bit_and_ranks_are_elsewhere(self):
        self.needs_mpirun()
        config = self.run_file(plan="megatron(tp=2,dp=2)", steps=2)
        network = self.write("net.toml", cluster(None, [[0, 1], [2, 3]], uplink="50 Mb/s"))
        plain = self.mpirun(4, "train", config, "--json")
        ordered = self.mpirun(4, "train", config, "--json", "--network", network)
        self.assertEqual(len(self.losses(plain)), 2)
        self.assertEqual(self.losses(ordered), self.losses(plain))
        text = self.mpirun(4, "train", config, "--network", network)
        self.assertIn("megatron(tp=2,dp=2), ordered for", text.out)

    def test_a_network_that_is_not_the_launchers(self):
        self.needs_mpirun()
        config = self.run_file(plan="data_parallel(2)", steps=1)
        network = self.write("net.toml", cluster(["a", "b"], [[0], [1]]))
        answer = self.mpirun(2, "train", config, "--network", network)
        self.assertEqual(answer.code, 2)
        self.assertRegex(answer.err, r"tessera: the hosts of the processes: expected hosts of \S+net.toml, found '")
        hosts = self.write("hosts.txt", "b\na\n")
        self.assertEqual(self.mpirun(2, "train", config, "--network", network, "--hosts", hosts).code, 0)
        three = self.write("three.toml", cluster(None, [[0], [1], [2]]))
        answer = self.mpirun(2, "train", config, "--network", three)
        self.assertEqual((answer.code, answer.err.count("expected 3 processes, one for each device, found 2")), (2, 1))


if __name__ == "__main__":
    main()
