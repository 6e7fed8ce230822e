// Checks which nodes share the ways between switches.
#include "tessera/simulate/classes.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

ResolvedPlan placed(const std::string& mesh) {
  ResolvedPlan out;
  out.plan = parse_plan("mesh = { " + mesh + " }\n").value();
  out.ranks = out.plan.ranks();
  make_places(out, stage_meshes(out.plan).value());
  return out;
}

// Four nodes of one device: three in a rack, one in another.
Cluster three_and_one() {
  Cluster cluster;
  NodeType type;
  type.nics = 1;
  type.nic.rate = 1e9;
  cluster.parts = {{type, 4}};
  cluster.switches = {{"a", {0, 1, 2}, -1, 1e8, 0, 0}, {"b", {3}, -1, 1e8, 0, 0}};
  return cluster;
}

TEST(NodeSharing, only_nodes_whose_groups_cross_share_a_way) {
  const ResolvedPlan plan = placed("x = 2, dp = 2");
  const Cluster cluster = three_and_one();
  const RankDevices devices;
  NodeSharing sharing(plan, devices, cluster);
  // The groups over dp are {0, 1}, which stays in its rack, and {2, 3}; those over x are {0, 2} and
  // {1, 3}.
  EXPECT_EQ(*sharing.nodes_with({"dp"}), (std::vector<bool>{false, false, true, true}));
  EXPECT_EQ(*sharing.nodes_with({"x"}), (std::vector<bool>{false, true, false, true}));
  EXPECT_EQ(*sharing.nodes_with({"x", "dp"}), (std::vector<bool>(4, true)));
  EXPECT_EQ(*sharing.nodes_of(PlaceId(0)), (std::vector<bool>(4, true)));
  const GroupPlacement across = place_group(cluster, {2, 3}, 1, sharing.nodes_with({"dp"}));
  EXPECT_EQ(across.nodes_an_uplink, 1);
  const RankDevices swapped({0, 3, 2, 1});
  NodeSharing other(plan, swapped, cluster);
  EXPECT_EQ(*other.nodes_with({"dp"}), (std::vector<bool>{true, false, false, true}));
}

TEST(NodeSharing, without_narrow_ways_nothing_is_counted) {
  const ResolvedPlan plan = placed("dp = 4");
  Cluster cluster = three_and_one();
  cluster.switches.clear();
  const RankDevices devices;
  NodeSharing sharing(plan, devices, cluster);
  EXPECT_EQ(sharing.nodes_with({"dp"}), nullptr);
}

}  // namespace
}  // namespace tessera
