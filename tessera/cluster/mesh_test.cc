#include "tessera/cluster/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tessera {
namespace {

TEST(Mesh, RowMajorLastAxisVariesFastest) {
  const Mesh mesh = Mesh::row_major({{"pp", 2}, {"dp", 3}, {"tp", 4}});
  EXPECT_EQ(mesh.size(), 24);
  EXPECT_EQ(mesh.axes[0].stride, 12);
  EXPECT_EQ(mesh.axes[1].stride, 4);
  EXPECT_EQ(mesh.axes[2].stride, 1);
  EXPECT_EQ(mesh.rank_at({1, 2, 3}), 23);
  EXPECT_EQ(mesh.coordinates(17), (std::vector<int64_t>{1, 1, 1}));
  EXPECT_EQ(mesh.to_string(), "{pp=2, dp=3, tp=4}");
}

TEST(Mesh, FindsAxesByName) {
  const Mesh mesh = Mesh::row_major({{"dp", 2}, {"tp", 2}});
  EXPECT_EQ(mesh.find("tp"), AxisId(1));
  EXPECT_FALSE(mesh.find("pp").valid());
  EXPECT_EQ(mesh.axis(AxisId(0)).name, "dp");
}

TEST(Mesh, EmptyMeshIsOneRank) {
  const Mesh mesh = Mesh::row_major({}, 5);
  EXPECT_EQ(mesh.size(), 1);
  EXPECT_TRUE(mesh.contains(5));
  EXPECT_FALSE(mesh.contains(4));
  EXPECT_FALSE(mesh.contains(6));
  EXPECT_EQ(mesh.group({}, {}), (std::vector<int>{5}));
  EXPECT_EQ(mesh.to_string(), "{}");
}

TEST(Mesh, FixKeepsStridesOfTheOtherAxes) {
  const Mesh mesh = Mesh::row_major({{"dp", 2}, {"pp", 2}, {"tp", 2}});
  const Mesh stage = mesh.fix(mesh.find("pp"), 1);
  EXPECT_EQ(stage.to_string(), "{dp=2, tp=2}");
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < mesh.size(); ++rank) {
    if (stage.contains(rank)) ranks.push_back(rank);
  }
  EXPECT_EQ(ranks, (std::vector<int64_t>{2, 3, 6, 7}));
  EXPECT_EQ(stage.coordinates(6), (std::vector<int64_t>{1, 0}));
}

TEST(Mesh, CoordinatesAndRanksAreInverse) {
  const Mesh whole = Mesh::row_major({{"a", 3}, {"one", 1}, {"b", 2}, {"c", 2}}, 7);
  for (const Mesh& mesh : {whole, whole.fix(AxisId(0), 2), whole.fix(AxisId(2), 1)}) {
    int64_t members = 0;
    for (int64_t rank = 0; rank < 32; ++rank) {
      if (!mesh.contains(rank)) continue;
      ++members;
      EXPECT_EQ(mesh.rank_at(mesh.coordinates(rank)), rank);
    }
    EXPECT_EQ(members, mesh.size());
  }
}

TEST(Mesh, GroupIsRowMajorInTheOrderOfItsAxes) {
  const Mesh mesh = Mesh::row_major({{"pp", 2}, {"dp", 2}, {"tp", 2}});
  EXPECT_EQ(mesh.group({1, 0, 1}, {mesh.find("tp")}), (std::vector<int>{4, 5}));
  EXPECT_EQ(mesh.group({1, 0, 1}, {mesh.find("dp")}), (std::vector<int>{5, 7}));
  EXPECT_EQ(mesh.group({0, 0, 1}, {mesh.find("dp"), mesh.find("tp")}),
            (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(mesh.group({0, 0, 1}, {mesh.find("tp"), mesh.find("dp")}),
            (std::vector<int>{0, 2, 1, 3}));
}

TEST(Mesh, GroupsPartitionTheMesh) {
  const Mesh mesh = Mesh::row_major({{"x", 2}, {"y", 3}, {"z", 2}});
  const Axes axes{mesh.find("x"), mesh.find("z")};
  std::vector<int> seen(static_cast<size_t>(mesh.size()), 0);
  for (int64_t rank = 0; rank < mesh.size(); ++rank) {
    const auto group = mesh.group(mesh.coordinates(rank), axes);
    EXPECT_EQ(group.size(), 4u);
    EXPECT_NE(std::find(group.begin(), group.end(), static_cast<int>(rank)), group.end());
    for (int member : group) ++seen[static_cast<size_t>(member)];
  }
  for (int count : seen) EXPECT_EQ(count, 4);
}

}  // namespace
}  // namespace tessera
