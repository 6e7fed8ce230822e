#include "tessera/cluster/subcluster.h"

#include <gtest/gtest.h>

namespace tessera::subcluster_test {
namespace {

// Two campuses of two racks each, and a node of its own at a third place.
Cluster campuses() {
  return parse_cluster(R"(
name = "campuses"
hosts = ["h0", "h1", "h2", "h3", "h4", "h5"]
[[part]]
like = "t4"
nodes = 3
[[part]]
like = "a10g"
nodes = 3
[[switch]]
name = "west"
[[switch]]
name = "east"
[[switch]]
name = "rack0"
nodes = "0"
above = "west"
[[switch]]
name = "rack1"
nodes = "1,4"
above = "west"
[[switch]]
name = "rack2"
nodes = "2-3"
above = "east"
[[switch]]
name = "alone"
nodes = "5"
[[path]]
between = ["west", "east"]
rate = "1 Gb/s"
latency = "1 ms"
)",
                       "campuses.toml")
      .value();
}

TEST(Subcluster, SitesAreWhatLinesJoin) {
  EXPECT_EQ(sites_of(campuses()), (std::vector<std::vector<int64_t>>{{0, 1, 4}, {2, 3}, {5}}));
  EXPECT_EQ(sites_of(load_cluster("two_sites:3").value()),
            (std::vector<std::vector<int64_t>>{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(sites_of(load_cluster("dgx-a100:2").value()),
            (std::vector<std::vector<int64_t>>{{0, 1}}));
}

TEST(Subcluster, KeepsTheSwitchesAboveTheNodes) {
  const Cluster west = only_nodes(campuses(), {0, 1, 4});
  ASSERT_EQ(west.parts.size(), 2U);
  EXPECT_EQ(west.parts[0].nodes, 2);
  EXPECT_EQ(west.parts[1].nodes, 1);
  EXPECT_EQ(west.hosts, (std::vector<std::string>{"h0", "h1", "h4"}));
  ASSERT_EQ(west.switches.size(), 3U);
  EXPECT_EQ(west.switches[0].name, "west");
  EXPECT_EQ(west.switches[2].name, "rack1");
  EXPECT_EQ(west.switches[2].nodes, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(west.switches[2].above, 0);
  EXPECT_TRUE(west.paths.empty());
  EXPECT_EQ(parse_cluster(to_toml(west), "west.toml").value(), west);
}

TEST(Subcluster, OfAllNodesIsTheClusterItself) {
  for (const Cluster& cluster : {campuses(), load_cluster("regions_us").value()}) {
    std::vector<int64_t> all;
    for (int64_t node = 0; node < cluster.nodes(); ++node) all.push_back(node);
    EXPECT_EQ(only_nodes(cluster, all), cluster);
  }
}

}  // namespace
}  // namespace tessera::subcluster_test
