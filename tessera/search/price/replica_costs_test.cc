#include "tessera/search/price/replica_costs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/search/choices/choice.h"

namespace tessera::replica_costs_test {
namespace {

// A style whose host costs nothing and in which transfers and computation do not slow each other down.
Style plain_style() {
  Style out = parse_style("tessera").value();
  out.host_collective_s = out.host_crowd_s = out.host_backward_s = 0;
  out.network_slowdown = out.compute_slowdown = out.collective_slowdown = 1;
  return out;
}

struct Machine {
  explicit Machine(const std::string& text, bool overlaps = true)
      : cluster(load_cluster(text).value()), style(plain_style()) {
    style.overlap_gradients = style.overlap_parameters = overlaps;
  }
  double seconds(CollectiveKind kind, int64_t ranks, int64_t bytes) const {
    std::vector<int64_t> devices;
    for (int64_t i = 0; i < ranks; ++i) devices.push_back(i);
    return moves.collective(kind, place_group(cluster, devices, 1), bytes).seconds();
  }

  Cluster cluster;
  Style style;
  CollectiveCosts moves{cluster, style};
  ReplicaCosts costs{cluster, style, moves};
};

// Returns a unit with one tensor of parameters, which is smaller than a bucket.
UnitPrice unit_of(double bytes) {
  UnitPrice out;
  out.parameter_bytes = out.gradient_bytes = bytes;
  out.state_bytes = 2 * bytes;
  out.parameter_squares = bytes * bytes;
  out.parameters = 1;
  out.update_s = 1e-3;
  return out;
}
constexpr double kBytes = 8e6;

ReplicaCosts::Resting resting(int64_t replicas, int64_t sharded) {
  ReplicaCosts::Resting out;
  out.sharded = sharded;
  out.layout.replicas = replicas;
  return out;
}

TEST(ReplicaCosts, ASumIsAnAllReduce) {
  const Machine machine("dgx-a100:2");
  EXPECT_EQ(machine.costs.seconds_to_sum(1, 1, 1000), 0);
  for (const int64_t replicas : {2, 8, 16}) {
    EXPECT_DOUBLE_EQ(machine.costs.seconds_to_sum(replicas, 1, 12345678),
                     machine.seconds(CollectiveKind::kAllReduce, replicas, 12345678));
  }
  // Eight devices apart, two replicas lie on two nodes.
  const double across =
      machine.moves
          .collective(CollectiveKind::kAllReduce, place_group(machine.cluster, {0, 8}, 8), 1 << 20)
          .seconds();
  EXPECT_DOUBLE_EQ(machine.costs.seconds_to_sum(2, 8, 1 << 20), across);
}

TEST(ReplicaCosts, WithoutReplicasAStepHasItsUpdateAlone) {
  const Machine machine("dgx-a100:1");
  UnitPrice sum = unit_of(kBytes);
  const auto added = machine.costs.add(resting(1, 0), {}, 0, sum);
  EXPECT_DOUBLE_EQ(sum.once_s, 1e-3);
  EXPECT_EQ(sum.state_bytes, 2 * kBytes);
  EXPECT_EQ(added.in_use_bytes, 0);
  EXPECT_EQ(added.library_bytes, 0);
}

TEST(ReplicaCosts, ALongBackwardPassHidesTheSum) {
  const Machine machine("dgx-a100:1");
  const double sum_s = machine.seconds(CollectiveKind::kAllReduce, 4, static_cast<int64_t>(kBytes));
  UnitPrice idle = unit_of(kBytes), half = unit_of(kBytes), busy = unit_of(kBytes);
  half.backward_s = sum_s / 2;
  busy.backward_s = 2 * sum_s;
  for (UnitPrice* one : {&idle, &half, &busy}) machine.costs.add(resting(4, 0), {}, 0, *one);
  EXPECT_DOUBLE_EQ(idle.once_s, 1e-3 + sum_s);
  EXPECT_DOUBLE_EQ(half.once_s, 1e-3 + sum_s / 2);
  EXPECT_DOUBLE_EQ(busy.once_s, 1e-3);
  // Passes that follow at the stage's place hide as much as its own.
  UnitPrice followed = unit_of(kBytes);
  followed.backward_s = sum_s / 4;
  machine.costs.add(resting(4, 0), {}, 3, followed);
  EXPECT_DOUBLE_EQ(followed.once_s, 1e-3);
}

TEST(ReplicaCosts, WithoutOverlapAllIsWaitedForAndSoIsTheHost) {
  const Machine machine("dgx-a100:1", false);
  UnitPrice sum = unit_of(kBytes);
  sum.backward_s = 1;
  machine.costs.add(resting(4, 0), {}, 0, sum);
  // One tensor: itself, and the piece that may be left over (2 * large_parameters + 1), at least one.
  const double launch_s = 2 * machine.cluster.type_of(0).device.launch_s;
  const double all_reduce_s =
      machine.seconds(CollectiveKind::kAllReduce, 4, static_cast<int64_t>(kBytes));
  EXPECT_NEAR(sum.once_s, 1e-3 + launch_s + all_reduce_s, 1e-12);
}

// ZeRO 1: states are divided, gradients are scattered behind the last pass, parameters gathered in front of
// the next one.
TEST(ReplicaCosts, StatesInShardsAreUpdatedInShards) {
  const Machine machine("dgx-a100:1");
  const auto bytes = static_cast<int64_t>(kBytes);
  UnitPrice sum = unit_of(kBytes);
  machine.costs.add(resting(4, 1), {}, 0, sum);
  EXPECT_NEAR(sum.once_s,
              1e-3 / 4 + machine.seconds(CollectiveKind::kReduceScatter, 4, bytes) +
                  machine.seconds(CollectiveKind::kAllGather, 4, bytes),
              1e-12);
  EXPECT_DOUBLE_EQ(sum.state_bytes, 2 * kBytes / 4);
  EXPECT_DOUBLE_EQ(sum.parameter_bytes, kBytes);
}

// ZeRO 3: parameters are gathered in both passes of every micro-batch, gradients scattered in the backward
// pass; two units' parameters are whole at a time.
TEST(ReplicaCosts, ParametersInShardsMoveInEveryPass) {
  const Machine machine("dgx-a100:1");
  const auto bytes = static_cast<int64_t>(kBytes);
  UnitPrice sum = unit_of(kBytes);
  InUse in_use;
  in_use.add(unit_of(kBytes / 2));
  in_use.add(unit_of(kBytes / 4));
  const auto added = machine.costs.add(resting(4, 3), in_use, 0, sum);
  const double gather_s = machine.seconds(CollectiveKind::kAllGather, 4, bytes);
  const double scatter_s = machine.seconds(CollectiveKind::kReduceScatter, 4, bytes);
  EXPECT_NEAR(sum.forward_s, gather_s, 1e-12);
  EXPECT_NEAR(sum.backward_s, gather_s + scatter_s, 1e-12);
  EXPECT_DOUBLE_EQ(sum.once_s, 1e-3 / 4);
  EXPECT_DOUBLE_EQ(sum.parameter_bytes, kBytes / 4);
  EXPECT_DOUBLE_EQ(added.in_use_bytes, 2 * kBytes / 2);
  EXPECT_GT(added.library_bytes, 0);
}

}  // namespace
}  // namespace tessera::replica_costs_test
