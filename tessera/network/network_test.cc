#include "tessera/network/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::network {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// Two racks below a core, with names that begin with `prefix`.
Network two_racks(const std::string& prefix, const std::vector<std::string>& first,
                  const std::vector<std::string>& second) {
  Network network;
  const auto add_switch = [&](const std::string& name, const std::string& above) {
    NetworkSwitch& one = network.switches.emplace_back();
    one.name = prefix + name;
    if (!above.empty()) one.above = prefix + above;
  };
  add_switch("core", "");
  add_switch("a", "core");
  add_switch("b", "core");
  const auto add_nodes = [&](const std::vector<std::string>& names, const std::string& below) {
    for (const std::string& name : names) {
      NetworkNode& node = network.nodes.emplace_back();
      node.name = name;
      node.below = prefix + below;
    }
  };
  add_nodes(first, "a");
  add_nodes(second, "b");
  return network;
}

std::string merge_error(const Network& from, Network into) {
  const Status merged = merge(from, "from.conf", "into.yaml", into);
  return merged ? "no error" : merged.error().message;
}

TEST(MergeTest, SwitchesWithOtherNamesAreTheSameIfTheirNodesAre) {
  Network into = two_racks("x-", {"n1", "n2"}, {"n3"});
  Network from = two_racks("y-", {"n2", "n5"}, {"n3", "n4"});
  from.switches[1].uplink = 1e9;
  ASSERT_TRUE(merge(from, "from", "into", into));
  EXPECT_THAT(into.nodes, SizeIs(5));
  EXPECT_THAT(into.switches, SizeIs(3));
  EXPECT_EQ(into.node("n5")->below, "x-a");
  EXPECT_EQ(into.node("n4")->below, "x-b");
  EXPECT_EQ(into.find_switch("x-a")->uplink, 1e9);
}

TEST(MergeTest, WhatOnlyOneSourceKnowsIsKept) {
  Network into = two_racks("", {"n1"}, {"n2"});
  into.switches.erase(into.switches.begin());  // nobody knows what is above
  for (NetworkSwitch& one : into.switches) one.above.clear();
  const Network from = two_racks("", {"n1"}, {"n2"});
  ASSERT_TRUE(merge(from, "from", "into", into));
  EXPECT_EQ(into.find_switch("a")->above, "core");
  EXPECT_THAT(into.switches, SizeIs(3));
}

TEST(MergeTest, ContradictionsAreOneLine) {
  EXPECT_EQ(merge_error(two_racks("y-", {"n1"}, {"n2"}), two_racks("x-", {"n1", "n2"}, {"n3"})),
            "node 'n2' is below switch 'x-a' in into.yaml, but what is below 'x-a' there is below "
            "'y-a' in from.conf");
  EXPECT_EQ(merge_error(two_racks("y-", {"n1", "n3"}, {"n2"}), two_racks("x-", {"n1"}, {"n3"})),
            "node 'n3' is below switch 'y-a' in from.conf, but what is below 'y-a' there is below "
            "'x-a' in into.yaml");
  Network slow = two_racks("", {"n1"}, {"n2"}), fast = slow;
  slow.switches[1].uplink = 25e6;
  fast.switches[1].uplink = 50e6;
  EXPECT_EQ(merge_error(slow, fast),
            "switch 'a' has an uplink of 50 MB/s in into.yaml, but 25 MB/s in from.conf");
  fast.switches[1].uplink = 26e6;
  EXPECT_EQ(merge_error(slow, fast), "no error");
  fast.switches[1].uplink = 35e6;  // within three errors
  fast.switches[1].uplink_error = 0.15;
  EXPECT_EQ(merge_error(slow, fast), "no error");
}

TEST(MergeTest, InsidesOfNodesMustAgree) {
  Network a = two_racks("", {"n1"}, {"n2"}), b = a;
  a.inside.emplace().devices = 8;
  b.inside.emplace().devices = 4;
  EXPECT_EQ(merge_error(a, b), "a node has 4 devices in into.yaml, but 8 in from.conf");
  b.inside->devices = 0;
  ASSERT_TRUE(merge(a, "from", "into", b));
  EXPECT_EQ(b.inside->devices, 8);
}

TEST(OnlyHostsTest, KeepsTheirOrderAndTheSwitchesAbove) {
  const Network network = two_racks("", {"n1", "n2"}, {"n3"});
  const auto some = only_hosts(network, {"n2", "n1"}, "f.yaml");
  ASSERT_TRUE(some);
  EXPECT_THAT(some->nodes, ElementsAre(network.nodes[1], network.nodes[0]));
  EXPECT_THAT(some->switches, ElementsAre(network.switches[0], network.switches[1]));
  const auto none = only_hosts(network, {"n33"}, "f.yaml");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message,
            "host 'n33': expected a node of f.yaml, found none, did you mean 'n3'?");
}

TEST(ClusterTest, NetworkIsTheSameAfterAClusterFile) {
  Network network = two_racks("", {"n1", "n2"}, {"n3"});
  network.switches[1].uplink = 25e6;
  network.switches[1].uplink_error = 0.05;
  network.switches[2].latency_s = 1e-5;
  network.nodes[0].rate = network.nodes[1].rate = 25e6;
  network.nodes[2].rate = 10e6;
  for (NetworkNode& node : network.nodes) node.latency_s = 2e-5;
  network.paths.push_back({{"a", "b"}, 5e6, 1e-3});
  const auto cluster = to_cluster(network, "ours", {local_cluster(1, nullptr).parts.front().type});
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_THAT(cluster->parts, SizeIs(2));  // unequal network cards
  EXPECT_EQ(network_of(*cluster), network);
  const auto again = parse_cluster(to_toml(*cluster), "net.toml");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, *cluster);
}

TEST(ClusterTest, InsideOfNodesGoesIntoTheirType) {
  Network network = two_racks("", {"n1"}, {"n2"});
  network.inside = NodeInside{4, 2, 90, 450e9, 63e9, 4, 50e9};
  const auto preset = load_cluster("dgx-h100:1");
  ASSERT_TRUE(preset);
  const auto cluster = to_cluster(network, "ours", {preset->parts.front().type});
  ASSERT_TRUE(cluster);
  const NodeType& type = cluster->parts.front().type;
  EXPECT_EQ(type.devices, 4);
  EXPECT_EQ(type.nics, 4);
  EXPECT_EQ(type.inner.rate, 450e9);
  EXPECT_TRUE(parse_cluster(to_toml(*cluster), "net.toml"));
}

TEST(CheckTest, NamesMustExistAndBeUnique) {
  const auto error = [](const Network& network) {
    const Status checked = check(network, "f");
    return checked ? "no error" : checked.error().message;
  };
  Network network = two_racks("", {"n1"}, {"n1"});
  EXPECT_EQ(error(network), "f: expected each node once, found 'n1' twice");
  network.nodes.back() = {"n2", "c", 0, 0, 0, ""};
  EXPECT_EQ(error(network), "f: expected a switch above node 'n2', found no 'c'");
  network.nodes.back().below = "b";
  EXPECT_EQ(error(network), "no error");
  network.switches[0].above = "a";
  EXPECT_EQ(error(network), "f: expected a tree of switches, found 'a' above itself");
}

}  // namespace
}  // namespace tessera::network
