"""tessera probe and MPI's ring all-reduce on emulated networks (namespaces.py): usage PROGRAM ALL_REDUCE [unittest options].

Racks must be found in every random placement of the ranks, and rates within 15 % of those that the links were given. The times
of ring all-reduces must follow the model of docs/theory/cloud-collectives.md section 3, and a good order must pay.
"""
import json
import os
import random
import statistics
import sys
import tempfile
import unittest

import namespaces
from namespaces import Network, Rack

PLACEMENTS = 20
CARD, BYTES = 200e6 / 8, 8_000_000  # of the worked example, section 4
RING = ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "4"]
# Orders of the machines {0..3} and {4..7}: four of the worked example, and two with 4 and 6 edges across racks.
ORDERS = [(0, 1, 2, 3, 4, 5, 6, 7), (5, 4, 2, 3, 0, 1, 6, 7), (7, 2, 1, 6, 4, 0, 3, 5), (0, 1, 4, 5, 2, 6, 3, 7), (0, 4, 1, 5, 2, 6, 3, 7),
          (3, 6, 0, 5, 2, 7, 1, 4)]


def seed():
    return int(os.environ.get("TESSERA_SEED", "1"))


def ring_model(order, rack_of, nbytes, card, uplink):
    """Section 3: 2 (N - 1) rounds, each as long as its cards and its ways up need."""
    size = len(order)
    crossing = sum(rack_of[a] != rack_of[b] for a, b in zip(order, order[1:] + order[:1])) / 2  # leave a rack
    return 2 * (size - 1) * max(nbytes / (size * card), crossing * nbytes / (size * uplink))


def kendall_tau(model, measured):
    """Over the pairs that the model tells apart."""
    score = [(a < b) == (x < y) or -1 for i, (a, x) in enumerate(zip(model, measured)) for b, y in list(zip(model, measured))[:i]
             if abs(a - b) > 0.05 * max(a, b)]
    return sum(1 if one is True else -1 for one in score) / len(score)


class Probe(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tessera_probe_")
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "net.toml")
        self.random = random.Random(seed())

    def probe(self, network, *options, **more):
        order = list(range(network.size))
        self.random.shuffle(order)
        done = network.mpirun([PROGRAM, "probe", "-o", self.file, "--json", *options], order=order, timeout=90, **more)
        self.assertEqual(done.code, 0, done.err + done.out)
        return json.loads(done.out), done

    def racks(self, found):
        return {frozenset(members) for members in found["clusters"]}

    def near(self, rates, nominal):
        for rate in rates:
            self.assertLess(abs(rate / nominal - 1), 0.15, rates)

    def test_racks_are_right_in_every_placement(self):
        with Network([Rack(4, "100mbit", "100mbit"), Rack(4, "100mbit", "100mbit")]) as network:
            for _ in range(PLACEMENTS):
                found, done = self.probe(network, "--seconds", "25")
                self.assertEqual(self.racks(found), {frozenset(["h0", "h1", "h2", "h3"]), frozenset(["h4", "h5", "h6", "h7"])}, found["rounds"])
                self.near(found["card_Mbps"], 100)
                self.near(found["uplink_Mbps"], 100)
                self.assertGreater(found["probability"], 0.9)
                print(f"ways up {found['uplink_Mbps']}, cards {min(found['card_Mbps'])} to {max(found['card_Mbps'])} Mb/s, "
                      f"probability {found['probability']:.3f}, {len(found['rounds'])} rounds, {done.seconds:.1f} s", flush=True)

    def test_three_racks_with_unequal_ways_up_and_a_slow_machine(self):
        with Network([Rack(4, "80mbit", "80mbit", nics={1: "20mbit"}), Rack(4, "80mbit", "40mbit"), Rack(3, "80mbit", "120mbit")]) as network:
            found, _ = self.probe(network, "--seconds", "40")
        self.assertIn(frozenset(["h0", "h1", "h2", "h3"]), self.racks(found), found["rounds"])
        self.assertIn(frozenset(["h4", "h5", "h6", "h7"]), self.racks(found))
        uplinks = {members[0]: rate for members, rate in zip(map(sorted, found["clusters"]), found["uplink_Mbps"])}
        self.near([uplinks["h4"]], 40)
        self.assertEqual(found["slow_machines"], ["h1"])

    def test_a_flat_network_is_one_switch(self):
        with Network([Rack(6, "100mbit")]) as network:
            found, _ = self.probe(network, "--seconds", "25")
        self.assertEqual(len(found["clusters"]), 1, found["rounds"])
        self.near(found["card_Mbps"], 100)

    def test_several_ranks_on_a_host_and_a_plan_from_the_file(self):
        with Network([Rack(2, "100mbit", "100mbit"), Rack(2, "100mbit", "100mbit")]) as network:
            found, _ = self.probe(network, "--seconds", "15", ranks_per_host=2)
        self.assertEqual(sorted(found["machines"]), ["h0", "h1", "h2", "h3"])
        with open(self.file, encoding="utf-8") as file:
            self.assertIn("devices = 2", file.read())
        done = namespaces.subprocess.run([PROGRAM, "simulate", "gpt:layers=2,hidden=64,heads=4,seq=32,vocab=128", "--plan", "ddp(8)", "--batch", "8",
                                          "--cluster", self.file, "--json"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


class Orders(unittest.TestCase):
    def test_ring_all_reduces_follow_the_model(self):
        with Network([Rack(4, "200mbit", "200mbit"), Rack(4, "200mbit", "200mbit")]) as network:
            model = [ring_model(order, network.rack_of, BYTES, CARD, CARD) for order in ORDERS]
            measured = []
            for order, expected in zip(ORDERS, model):
                done = network.mpirun([ALL_REDUCE, str(BYTES), "3"], order=order, options=RING, timeout=120)
                self.assertEqual(done.code, 0, done.err)
                measured.append(statistics.median(map(float, done.out.split())))
                print(f"{order}: model {expected:.3f} s, measured {measured[-1]:.3f} s", flush=True)
        tau = kendall_tau(model, measured)
        gain = max(measured) / measured[0]
        print(f"Kendall's tau {tau:.2f}, the best order is {gain:.2f} times as fast as the interleaved one", flush=True)
        self.assertGreaterEqual(tau, 0.8)
        self.assertGreaterEqual(gain, 2.5)


if __name__ == "__main__":
    REASON = namespaces.why_not()
    if REASON:
        print(f"skipped: {REASON}")
        sys.exit(77)
    PROGRAM, ALL_REDUCE = map(os.path.abspath, (sys.argv.pop(1), sys.argv.pop(1)))
    unittest.main()
