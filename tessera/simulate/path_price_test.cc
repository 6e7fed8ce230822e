#include "tessera/simulate/path_price.h"

#include <gtest/gtest.h>

#include "tessera/plan/layout/reshard_spec.h"

namespace tessera {
namespace {

const std::vector<int64_t> kShape = {4096, 4096};

std::vector<StepPrice> priced(const std::string& from, const std::string& to,
                              const std::string& mesh_text, const Cluster* cluster,
                              std::vector<ConversionStep>* steps = nullptr) {
  const Mesh mesh = parse_mesh_sizes(mesh_text).value();
  const Layout a = normalise(parse_layout_spec(from, mesh, 2).value(), mesh, kShape);
  const Layout b = normalise(parse_layout_spec(to, mesh, 2).value(), mesh, kShape);
  const auto path = conversion_path(a, b, mesh, kShape);
  if (steps != nullptr) *steps = path;
  return price_path(a, path, mesh, kShape, DType::kFloat32, cluster, parse_style("tessera").value())
      .value();
}

constexpr int64_t kBytes = 4096 * 4096 * 4;

// The bytes that a rank sends are those of the closed forms of docs/theory/superscaler.md section
// 6.
TEST(PathPrice, BytesAreThoseOfTheClosedForms) {
  const auto bytes = [](const std::string& from, const std::string& to) {
    const auto prices = priced(from, to, "2x4", nullptr);
    EXPECT_EQ(prices.size(), 1U) << from << " " << to;
    return prices.front().bytes;
  };
  EXPECT_EQ(bytes("RRP1", "RR"), 2 * 3 * kBytes / 4);
  EXPECT_EQ(bytes("S1R", "RR"), 3 * kBytes / 4);
  EXPECT_EQ(bytes("S1R", "RS1"), 3 * kBytes / 4 / 4);
  EXPECT_EQ(bytes("RRP1", "S1R"), 3 * kBytes / 4);
  EXPECT_EQ(bytes("RR", "S1R"), 0);
  EXPECT_FALSE(priced("RR", "S1R", "2x4", nullptr).front().cost.has_value());
}

// Seconds are those of the collective on the groups that the axis has on the machine.
TEST(PathPrice, SecondsAreThoseOfTheSlowestGroup) {
  const Cluster cluster = load_cluster("dgx-a100:2").value();
  const Style style = parse_style("tessera").value();
  const CollectiveCosts costs(cluster, style);
  // Axis 1 lies inside a node: one group of eight on each.
  const auto inside = priced("S1R", "RR", "2x8", &cluster);
  ASSERT_EQ(inside.size(), 1U);
  EXPECT_EQ(inside[0].members, 8);
  const GroupPlacement node = place_group(cluster, {0, 1, 2, 3, 4, 5, 6, 7}, 1);
  EXPECT_DOUBLE_EQ(inside[0].cost->seconds(),
                   costs.collective(CollectiveKind::kAllGather, node, kBytes).seconds());
  // Axis 0 joins both nodes: eight groups share their cards.
  const auto across = priced("S0R", "RR", "2x8", &cluster);
  const GroupPlacement pair = place_group(cluster, {0, 8}, 8);
  EXPECT_DOUBLE_EQ(across[0].cost->seconds(),
                   costs.collective(CollectiveKind::kAllGather, pair, kBytes).seconds());
  EXPECT_GT(across[0].cost->seconds(), 0);
}

TEST(PathPrice, AMeshLargerThanTheClusterIsRefused) {
  const Cluster cluster = load_cluster("dgx-a100:1").value();
  const Mesh mesh = parse_mesh_sizes("16").value();
  const auto prices = price_path(Layout::whole(2), {}, mesh, kShape, DType::kFloat32, &cluster,
                                 parse_style("tessera").value());
  ASSERT_FALSE(prices.has_value());
  EXPECT_EQ(prices.error().message,
            "mesh of 16 ranks: expected at most 8, the devices of dgx-a100");
}

}  // namespace
}  // namespace tessera
