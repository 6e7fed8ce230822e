#include "tessera/network/readers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tessera/base/text.h"
#include "tessera/test/source_dir.h"

namespace tessera::network {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string data(const std::string& name) {
  return std::string(TESSERA_SOURCE_DIR) + "/tessera/network/testdata/" + name;
}

Network network_in(const std::string& name) {
  const auto network = read_network(data(name));
  EXPECT_TRUE(network) << network.error().message;
  return network.value_or(Network{});
}

// Returns the nodes below each leaf switch, by its name.
std::map<std::string, std::vector<std::string>> racks(const Network& network) {
  std::map<std::string, std::vector<std::string>> out;
  for (const NetworkNode& node : network.nodes) out[node.below].push_back(node.name);
  return out;
}

// Returns the switches from the node to the top.
std::vector<std::string> way_up(const Network& network, const std::string& node) {
  std::vector<std::string> out;
  for (std::string at = network.node(node)->below; !at.empty(); at = network.find_switch(at)->above)
    out.push_back(at);
  return out;
}

template <class T>
std::string message(const Result<T>& result) {
  return result ? "no error" : result.error().message;
}

TEST(NamesTest, RangesKeepTheirZerosAndMayBeSeveral) {
  const auto names = [](std::string_view text) { return expand_names(text, "x").value(); };
  EXPECT_THAT(names("I[21-22],I25"), ElementsAre("I21", "I22", "I25"));
  EXPECT_THAT(names("n[08-10,12]"), ElementsAre("n08", "n09", "n10", "n12"));
  EXPECT_THAT(names("[1101-1102]"), ElementsAre("1101", "1102"));
  EXPECT_THAT(names("r[0-1]n[1-2]"), ElementsAre("r0n1", "r0n2", "r1n1", "r1n2"));
  EXPECT_THAT(names("a"), ElementsAre("a"));
}

TEST(NamesTest, WrongRangesAreOneLine) {
  const auto error = [](std::string_view text) { return message(expand_names(text, "f:3")); };
  EXPECT_EQ(error("n[1-2"), "f:3: expected ranges as n[1-3,5], found 'n[1-2'");
  EXPECT_EQ(error("n[2-1]"), "f:3: expected ranges of rising numbers as [1-3,5], found '[2-1]'");
  EXPECT_EQ(error("n[a]"), "f:3: expected ranges of rising numbers as [1-3,5], found '[a]'");
  EXPECT_EQ(error("a,,b"), "f:3: expected names separated by commas, found 'a,,b'");
  EXPECT_THAT(error("n[0-999999999]"), HasSubstr("expected at most 1048576 names"));
  EXPECT_THAT(error("n[0-9999][0-999]"), HasSubstr("expected at most 1048576 names"));
}

TEST(TopographTest, SmallTreeHasItsNodesSwitchesAndDomains) {
  const Network network = network_in("topograph/small-tree.yaml");
  EXPECT_THAT(racks(network),
              ElementsAre(std::pair("S2", std::vector<std::string>{"I21", "I22", "I25"}),
                          std::pair("S3", std::vector<std::string>{"I34", "I35", "I36"})));
  EXPECT_THAT(way_up(network, "I22"), ElementsAre("S2", "S1"));
  EXPECT_EQ(network.node("I25")->domain, "nvl2");
}

TEST(TopographTest, AllModelsHaveAsManyNodesAndRacksAsTheirCommentsSay) {
  struct Case {
    const char* file;
    size_t nodes, racks, height;
  };
  for (const Case& one : {Case{"medium", 8, 4, 3},
                          {"large", 96, 12, 3},
                          {"nvl72", 72, 4, 3},
                          {"dual-xclr-regular", 96, 12, 3},
                          {"dual-xclr-irregular", 255, 29, 3}}) {
    const Network network = network_in(std::string("topograph/") + one.file + ".yaml");
    EXPECT_THAT(network.nodes, SizeIs(one.nodes)) << one.file;
    EXPECT_THAT(racks(network), SizeIs(one.racks)) << one.file;
    EXPECT_THAT(way_up(network, network.nodes.front().name), SizeIs(one.height)) << one.file;
    std::set<std::string> tops;
    for (const NetworkNode& node : network.nodes) tops.insert(way_up(network, node.name).back());
    EXPECT_THAT(tops, SizeIs(1)) << one.file;
  }
}

TEST(TopographTest, OtherYamlIsRefusedInOneLine) {
  EXPECT_EQ(
      message(read_topograph("a: 1", "f.yaml")),
      "f.yaml: expected a topograph model with 'switches' and 'blocks', found another document");
  EXPECT_EQ(message(read_topograph(
                "blocks:\n- switch: a\n  nodes: [n1]\n- switch: b\n  nodes: [n1]\n", "f.yaml")),
            "f.yaml:5: expected node 'n1' below one switch, found 'a' and 'b'");
  EXPECT_THAT(message(read_topograph("blocks: [", "f.yaml")),
              HasSubstr("f.yaml:1: expected YAML, found: "));
  EXPECT_EQ(message(read_topograph("switches:\n  a:\n    switches: [b]\n  b:\n    switches: "
                                   "[a]\nblocks:\n- {switch: a, nodes: n}\n",
                                   "f")),
            "f: expected a tree of switches, found 'a' above itself");
}

TEST(SlurmTest, TreeHasItsSwitches) {
  const Network network = network_in("topology.conf");
  EXPECT_THAT(network.nodes, SizeIs(18));
  EXPECT_THAT(way_up(network, "n17"), ElementsAre("s2", "s3"));
  EXPECT_THAT(racks(network).at("s1"), ElementsAre("n6", "n7", "n8", "n9", "n10", "n11"));
}

TEST(SlurmTest, BlocksAreJoinedAsTheirSizesSay) {
  const Network network = network_in("blocks.conf");
  EXPECT_THAT(network.nodes, SizeIs(72));
  EXPECT_THAT(way_up(network, "node20"), ElementsAre("b2", "b1..b2", "b1..b4"));
  EXPECT_EQ(network.node("node72")->domain, "b4");
}

TEST(SlurmTest, AddressesAreChainsFromTheTop) {
  const Network network = network_in("addresses.txt");
  EXPECT_THAT(racks(network).at("rack1"), ElementsAre("node3", "node10"));
  EXPECT_THAT(way_up(network, "node1"), ElementsAre("rack0", "core"));
}

TEST(SlurmTest, WrongLinesAreNamed) {
  EXPECT_EQ(message(read_slurm("SwitchName=a\n", "t.conf")),
            "t.conf:1: expected Nodes= or Switches= of switch 'a', found none");
  EXPECT_EQ(
      message(read_slurm("# x\nSwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n2\n", "t.conf")),
      "t.conf:3: expected node 'n2' below one switch, found 'a' and 'b'");
  EXPECT_EQ(message(read_slurm("BlockName=a Nodes=n1\nBlockSizes=4,6\n", "t.conf")),
            "t.conf:2: expected BlockSizes of rising multiples, found '4,6'");
  EXPECT_EQ(message(read_slurm("SwitchName=a Nodes\n", "t.conf")),
            "t.conf:1: expected KEY=VALUE, found 'Nodes'");
}

TEST(CloudTest, Ec2AndGcpGivePathsFromTheTop) {
  const Network ec2 = network_in("ec2.json");
  EXPECT_THAT(way_up(ec2, "i-3333333333example"),
              ElementsAre("nn-4444444444example", "nn-2222222222example", "nn-1111111111example"));
  const Network gcp = network_in("gcp.json");
  EXPECT_THAT(racks(gcp), SizeIs(2));  // sub-block s1 of block b1 is not s1 of b2
  EXPECT_THAT(way_up(gcp, "vm-03"),
              ElementsAre("europe-west1-cluster-x/b2/s1", "europe-west1-cluster-x/b2",
                          "europe-west1-cluster-x"));
  const auto host =
      read_gcp(R"([{"name": "a", "resourceStatus": {"physicalHost": "/b/s/h"}}])", "g.json");
  ASSERT_TRUE(host) << message(host);
  EXPECT_THAT(way_up(*host, "a"), ElementsAre("b/s", "b"));
}

TEST(CloudTest, WrongJsonIsOneLine) {
  EXPECT_EQ(message(read_ec2("{", "e.json")), "e.json: expected JSON, found another text");
  EXPECT_EQ(message(read_ec2(R"({"Instances": [{"NetworkNodes": []}]})", "e.json")),
            "e.json: expected a text 'InstanceId' of an instance, found none");
  EXPECT_EQ(message(read_gcp(R"([{"name": "a", "resourceStatus": {}}])", "g.json")),
            "g.json: expected a text 'physicalHost' of instance 'a', found none");
  EXPECT_EQ(message(read_gcp("3", "g.json")), "g.json: expected a list of instances, found 3");
}

TEST(NcclTest, InsideOfANode) {
  const Network network = network_in("nccl.xml");
  ASSERT_TRUE(network.inside);
  NodeInside inside = *network.inside;
  EXPECT_DOUBLE_EQ(inside.pcie, 32e9 / 8 * 16 * 128 / 130);
  inside.pcie = 0;
  EXPECT_EQ(inside, (NodeInside{2, 2, 90, 18 * 25e9, 0, 2, 400e9 / 8}));
  EXPECT_EQ(message(read_nccl("<system/>", "n.xml")),
            "n.xml: expected a topology of NCCL with gpu and net, found none");
  EXPECT_THAT(message(read_nccl("<system>\n<a", "n.xml")),
              HasSubstr("n.xml:2: expected XML, found: "));
}

TEST(ReadersTest, UnknownTextsAndMissingFilesAreOneLine) {
  const std::string path = ::testing::TempDir() + "/unknown.txt";
  ASSERT_TRUE(write_file(path, "hello = world\n"));
  EXPECT_EQ(
      message(read_network(path)),
      path +
          ": expected a cluster file (.toml), a topograph model (.yaml), Slurm's topology.conf or "
          "SLURM_TOPOLOGY_ADDR, the JSON of EC2 or GCP, or NCCL's XML, found another text");
  EXPECT_FALSE(read_network("/nonexistent/a.yaml"));
}

TEST(HostsTest, LinesMayHaveSlotsAndAnotherName) {
  const auto hosts =
      read_hosts("# all\nnode1 slots=8\nnode2 i-0abc slots=4  # new\n\nnode10\n", "hosts");
  ASSERT_TRUE(hosts) << message(hosts);
  ASSERT_THAT(*hosts, SizeIs(3));
  EXPECT_EQ((*hosts)[0].slots, 8);
  EXPECT_EQ((*hosts)[1].known_as, "i-0abc");
  const auto spaced = read_hosts("b slots=8\n\n  a\t slots=8 # comment\r\n", "hosts");
  ASSERT_TRUE(spaced) << message(spaced);
  EXPECT_EQ((*spaced)[1].name, "a");
  EXPECT_EQ((*spaced)[1].slots, 8);
  EXPECT_EQ(message(read_hosts("a\na\n", "hosts")), "hosts:2: expected each host once, found 'a'");
  EXPECT_EQ(message(read_hosts("a slots=0\n", "hosts")),
            "hosts:1: expected slots from 1 to 1048576, found 'slots=0'");
  EXPECT_EQ(message(read_hosts("# nobody\n", "hosts")),
            "hosts: expected hosts, one a line, found none");
}

}  // namespace
}  // namespace tessera::network
