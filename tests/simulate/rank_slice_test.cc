// Classes that are found on a slice of the ranks (simulate/rank_slice.h) are those that all ranks
// give, and their groups lie alike on the machine, on drawn plans and clusters.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "support/seed.h"
#include "tessera/compile/compile.h"
#include "tessera/simulate/classes.h"

namespace tessera::rank_slice_test {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  int64_t of(const std::vector<int64_t>& some) { return some[random_() % some.size()]; }
  std::mt19937_64& random() { return random_; }

 private:
  std::mt19937_64 random_;
};

Cluster drawn_cluster(Draw& draw, int64_t devices) {
  Cluster cluster = load_cluster("dgx-a100").value();
  NodeType& type = cluster.parts[0].type;
  type.devices = draw.of({1, 2, 3, 4, 6, 8});
  type.sockets = draw.of({1, 1, 2});
  cluster.parts[0].nodes = (devices + type.devices - 1) / type.devices + draw.of({0, 0, 1, 3});
  cluster.tiers.clear();
  for (int64_t tiers = draw.of({0, 1, 2, 2}); tiers > 0; --tiers) {
    const bool last = tiers == 1;
    cluster.tiers.push_back(
        {last ? 0 : draw.of({2, 3, 4, 8}), static_cast<double>(draw.of({1, 1, 2})), 1e-6});
  }
  return cluster;
}

// Returns an order in which the axes of the ranks are permuted.
RankDevices drawn_order(Draw& draw, std::vector<int64_t> sizes) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (draw.of({0, 1}) == 0) std::shuffle(order.begin(), order.end(), draw.random());
  std::vector<int64_t> strides(sizes.size());
  int64_t all = 1;
  for (const size_t axis : order) {
    strides[axis] = all;
    all *= sizes[axis];
  }
  std::vector<int64_t> devices;
  for (int64_t rank = 0; rank < all; ++rank) {
    int64_t device = 0, rest = rank;
    for (size_t a = 0; a < sizes.size(); rest /= sizes[a++]) device += rest % sizes[a] * strides[a];
    devices.push_back(device);
  }
  return RankDevices(std::move(devices));
}

struct Drawn {
  std::string plan;
  int64_t batch = 0;
  std::vector<int64_t> sizes;  // of the axes of all ranks, from the fastest
};
Drawn drawn_plan(Draw& draw) {
  const int64_t tp = draw.of({1, 2, 3, 6}), dp = draw.of({1, 2, 3, 4, 6, 8, 12, 16});
  const int64_t pp = draw.of({1, 2, 4}), micro_batches = draw.of({1, 2, 4});
  if (draw.of({0, 0, 1}) == 1 && dp > 1) return {fmt::format("fsdp({})", dp), 2 * dp, {dp}};
  return {fmt::format("megatron(tp={},pp={},dp={},micro_batches={},zero={})", tp, pp, dp,
                      micro_batches, dp > 1 ? draw.of({0, 1, 2, 3}) : 0),
          dp * micro_batches * 2,
          {tp, dp, pp}};
}

std::vector<int64_t> described(const Classes& classes) {
  std::vector<int64_t> out(classes.of_rank.begin(), classes.of_rank.end());
  for (const PlayedClass& one : classes.all) {
    out.insert(out.end(), {one.representative, one.ranks});
    for (const StageId stage : one.stages) out.push_back(stage.value);
  }
  return out;
}

TEST(RankSlice, has_the_classes_of_all_ranks) {
  SCOPED_TRACE(seed_text());
  Draw draw(test_seed(11));
  Compiler compiler;
  int shorter = 0, tried = 0;
  for (int i = 0; i < 150; ++i) {
    const Drawn drawn = drawn_plan(draw);
    const auto compiled =
        compiler.compile({fmt::format("gpt:layers=4,hidden={},heads=6,seq=12,vocab={}",
                                      draw.of({24, 36, 60}), draw.of({48, 50, 97})),
                          drawn.plan, drawn.batch});
    if (!compiled) continue;
    const Lowering& lowering = *compiled->lowering;
    SCOPED_TRACE(drawn.plan);
    const Cluster cluster = drawn_cluster(draw, lowering.plan().ranks);
    Lowered lowered(lowering);
    lowered.devices = drawn_order(draw, drawn.sizes);
    NodeSharing sharing(lowering.plan(), lowered.devices, cluster);
    NodeSharing of_all(lowering.plan(), lowered.devices, cluster);
    const Classes found = make_classes(lowered, cluster, RankFold::kExact, {}, sharing).value();
    // With a slow device, which no rank has here, each rank stands for itself.
    const Classes all = make_classes(lowered, cluster, RankFold::kExact, {-1}, of_all).value();
    EXPECT_EQ(described(found), described(all));
    ASSERT_EQ(static_cast<int64_t>(all.slice.ranks().size()), lowering.plan().ranks);
    ++tried;
    shorter += found.slice.ranks().size() < all.slice.ranks().size() ? 1 : 0;
    for (const PlayedClass& one : found.all) {
      for (const Group& group : lowered.programs.at(one.representative).groups) {
        EXPECT_EQ(sharing.placement(group.place, group.axes, one.representative, found.slice),
                  of_all.placement(group.place, group.axes, one.representative, all.slice));
      }
    }
  }
  EXPECT_GT(tried, 100);
  EXPECT_GT(shorter, tried / 3);
}

TEST(RankSlice, one_replica_stands_for_a_million_ranks) {
  ResolvedPlan plan;
  plan.plan = parse_plan("mesh = { dp = 131072, tp = 8 }\n").value();
  plan.ranks = plan.plan.ranks();
  make_places(plan, stage_meshes(plan.plan).value());
  const Cluster cluster = load_cluster("dgx-h100:131072").value();
  std::vector<int32_t> roles(static_cast<size_t>(plan.ranks), 0);
  const RankSlice slice(plan, roles, {}, cluster, {false, false});
  EXPECT_EQ(slice.ranks(), std::vector<int64_t>{0});
  EXPECT_EQ(slice.alike(), 1'048'576);
  roles[8 * 4096 + 3] = 1;  // a rank of its own
  const RankSlice other(plan, roles, {}, cluster, {false, false});
  EXPECT_EQ(other.alike(), 1);
}

TEST(RankSlice, axes_along_which_messages_go_keep_all_their_ranks) {
  ResolvedPlan plan;
  plan.plan = parse_plan("mesh = { dp = 16, tp = 8 }\n").value();
  plan.ranks = plan.plan.ranks();
  make_places(plan, stage_meshes(plan.plan).value());
  const std::vector<int32_t> roles(static_cast<size_t>(plan.ranks), 0);
  const RankSlice slice(plan, roles, {}, load_cluster("dgx-h100:16").value(), {true, false});
  EXPECT_EQ(slice.ranks().size(), 16U);
  EXPECT_EQ(slice.index(8 * 5), 5U);
  EXPECT_EQ(slice.spread(std::vector<int32_t>(16, 7)), std::vector<int32_t>(128, 7));
}

}  // namespace
}  // namespace tessera::rank_slice_test
