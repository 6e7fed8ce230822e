"""tessera probe: what it reads, and what it measures between processes that say they are on different hosts. How to run it: cli.py."""
import json
import os
import shutil
import subprocess
import unittest

from cli import CliTest, MODEL, MPI_ENVIRONMENT, ROOT, main, program, run

DATA = os.path.join(ROOT, "tessera", "network", "testdata")
NEEDS = "probe: expected mpirun or srun with ranks on at least two hosts, or --from FILE, found neither"


def data(name):
    return os.path.join(DATA, name)


class Read(CliTest):
    def path(self, name):
        return os.path.join(self.folder, name)

    def test_a_model_of_topograph_becomes_a_cluster_that_commands_take(self):
        net = self.path("net.toml")
        text = self.expect_text("probe", "--from", data("topograph/small-tree.yaml"), "--like", "dgx-h100", "-o", net)
        self.assertEqual(text, "6 hosts below 3 switches\nS2: I21 I22 I25\nS3: I34 I35 I36\n")
        with open(net, encoding="utf-8") as file:
            cluster = file.read()
        self.assertTrue(cluster.startswith(f"# Read by tessera probe from {data('topograph/small-tree.yaml')}\nname = \"net\"\n"), cluster)
        self.assertIn('hosts = ["I21", "I22", "I25", "I34", "I35", "I36"]', cluster)
        self.assertEqual(run("inspect", net).code, 0)
        found = self.expect_json("simulate", MODEL, "--plan", "ddp(48)", "--batch", "48", "--cluster", net, "--json")
        self.assertGreater(found["step_time_s"], 0)

    def test_all_kinds_are_read(self):
        for name, racks in (("topograph/medium.yaml", 4), ("topograph/large.yaml", 12), ("topograph/nvl72.yaml", 4), ("topology.conf", 3),
                            ("blocks.conf", 4), ("addresses.txt", 2), ("ec2.json", 2), ("gcp.json", 2)):
            found = self.expect_json("probe", "--from", data(name), "--json")
            self.assertEqual(len(found["clusters"]), racks, name)
            self.assertEqual(sum(map(len, found["clusters"])), len(found["machines"]), name)

    def test_files_are_put_together(self):
        first = self.path("first.toml")
        self.expect_text("probe", "--from", data("topology.conf"), "--from", data("nccl.xml"), "--like", "dgx-h100", "-o", first)
        with open(first, encoding="utf-8") as file:
            text = file.read()
        self.assertIn("devices = 2\n", text)  # of the node that NCCL saw
        self.assertIn('rate = "450 GB/s"', text)
        again = self.expect_json("probe", "--from", first, "--from", data("topology.conf"), "--json")
        self.assertEqual(len(again["clusters"]), 3)

    def test_contradictions_are_one_line(self):
        other = self.write("other.conf", "SwitchName=x Nodes=n[0-5,7]\nSwitchName=y Nodes=n6\n")
        message = (f"node 'n7' is below switch 'x' in {other}, but what is below 'x' there is below 's0' in {data('topology.conf')}")
        self.expect_error(2, message, "probe", "--from", data("topology.conf"), "--from", other)

    def test_hosts_choose_order_and_rename(self):
        hosts = self.write("hosts", "a i-3333333333example slots=4\nb i-1111111111example slots=8\n")
        net = self.path("net.toml")
        text = self.expect_text("probe", "--from", data("ec2.json"), "--hosts", hosts, "-o", net)
        self.assertIn("nn-4444444444example: a\n", text)
        with open(net, encoding="utf-8") as file:
            cluster = file.read()
        self.assertIn('hosts = ["a", "b"]', cluster)
        self.assertIn("devices = 4\n", cluster)
        hosts = self.write("hosts", "n3\nn44\n")
        self.expect_error(2, f"host 'n44': expected a node of {data('topology.conf')}, found none, did you mean 'n14'?", "probe", "--from",
                          data("topology.conf"), "--hosts", hosts)

    def test_wrong_input(self):
        self.expect_error(2, NEEDS, "probe")
        self.expect_error(2, NEEDS, "probe", "--json")
        text = self.write("a.txt", "hello = world")
        self.expect_error(2, f"{text}: expected a cluster file (.toml), a topograph model (.yaml), Slurm's topology.conf or SLURM_TOPOLOGY_ADDR, "
                          "the JSON of EC2 or GCP, or NCCL's XML, found another text", "probe", "--from", text)
        self.expect_error(2, f"probe: {data('nccl.xml')}: expected the hosts by --hosts or another --from, found none", "probe", "--from",
                          data("nccl.xml"))
        self.expect_error(2, "probe: --bytes: expected a size as '80 GB', found 'many'", "probe", "--bytes", "many")


@unittest.skipUnless(shutil.which("mpirun"), "no mpirun on this machine")
class Measured(CliTest):
    """Processes on one machine that say they are on different hosts: what is measured is this machine's memory."""
    def probe(self, ranks, *options, name="n$OMPI_COMM_WORLD_RANK", address=""):
        script = f'export SLURMD_NODENAME={name} SLURM_TOPOLOGY_ADDR={address}; exec "$0" probe "$@"'
        return subprocess.run(["mpirun", "-n", str(ranks), "sh", "-c", script, program(), "--seconds", "2", *options], capture_output=True, text=True,
                              check=False, timeout=100, env=MPI_ENVIRONMENT, cwd=self.folder)

    def setUp(self):
        super().setUp()
        done = subprocess.run(["mpirun", "-n", "2", program(), "probe"], capture_output=True, text=True, check=False, env=MPI_ENVIRONMENT)
        if NEEDS in done.stderr:
            self.skipTest("this build has no MPI")

    def test_hosts_become_a_cluster_file(self):
        done = self.probe(4, "-o", "net.toml", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual(found["machines"], ["n0", "n1", "n2", "n3"])
        self.assertTrue(all(latency > 0 for i, row in enumerate(found["latency_us"]) for j, latency in enumerate(row) if i != j))
        self.assertTrue(found["rounds"])
        with open(os.path.join(self.folder, "net.toml"), encoding="utf-8") as file:
            self.assertIn('hosts = ["n0", "n1", "n2", "n3"]', file.read())
        self.assertEqual(run("inspect", os.path.join(self.folder, "net.toml")).code, 0)

    def test_racks_of_slurm_and_of_files_are_not_searched(self):
        done = self.probe(4, "--json", address="core.r$((OMPI_COMM_WORLD_RANK%2)).n$OMPI_COMM_WORLD_RANK")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["clusters"], [["n0", "n2"], ["n1", "n3"]])
        self.write("t.conf", "SwitchName=a Nodes=n[0-1]\nSwitchName=b Nodes=n[2-3]\n")
        done = self.probe(4, "--json", "--from", "t.conf", "-o", "net.toml")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["clusters"], [["n0", "n1"], ["n2", "n3"]])
        with open(os.path.join(self.folder, "net.toml"), encoding="utf-8") as file:
            self.assertIn('name = "a"', file.read())

    def test_wrong_input_ends_all_ranks(self):
        done = self.probe(2, name="same")
        self.assertEqual(done.returncode, 2)
        self.assertIn("tessera: probe: expected ranks on at least two hosts, found 2 on 'same' (mpirun -n N --host ...)\n", done.stderr)
        self.write("hosts", "n0\nn1\nn7\n")
        done = self.probe(2, "--hosts", "hosts")
        self.assertEqual(done.returncode, 2)
        self.assertIn("tessera: probe: host 'n7' of hosts: expected a rank on it, found none\n", done.stderr)
        self.write("t.conf", "SwitchName=a Nodes=n0\n")
        done = self.probe(2, "--from", "t.conf")
        self.assertEqual(done.returncode, 2)
        self.assertIn("tessera: host 'n1': expected a node of t.conf, found none, did you mean 'n0'?\n", done.stderr)


if __name__ == "__main__":
    main()
