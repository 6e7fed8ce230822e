#include "tessera/orchestrate/share/switch_cost.h"

#include <gtest/gtest.h>

#include "tessera/orchestrate/share/controller.h"
#include "tessera/orchestrate/workloads/rated_job.h"

namespace tessera::share {
namespace {

constexpr double kNode = 20e9, kGpu = 200e9, kState = 8e9;

SwitchCost by_bytes() { return {.seconds = 5, .live_seconds = 1, .links = {kNode, kGpu}}; }

Switch live(std::vector<Switch::NodeGpus> nodes, StateBytes before, StateBytes after) {
  return {.nodes = std::move(nodes),
          .before = before,
          .after = after,
          .was_running = true,
          .is_live = true};
}

TEST(SwitchCost, ReplicasGoToNewGpusOnly) {
  const StateBytes replica{kState, kState};
  // A second node with four GPUs: each of them gets the whole, over one node's cards.
  Pause pause = by_bytes().of(live({{4, 4}, {0, 4}}, replica, replica));
  EXPECT_DOUBLE_EQ(pause.moved_bytes, 4 * kState);
  EXPECT_DOUBLE_EQ(pause.seconds, 4 * kState / kNode);
  // Two nodes get it from two that have it.
  pause = by_bytes().of(live({{4, 4}, {4, 4}, {0, 4}, {0, 4}}, replica, replica));
  EXPECT_DOUBLE_EQ(pause.seconds, 4 * kState / kNode);
  // Three get it from one, which sends all.
  pause = by_bytes().of(live({{4, 4}, {0, 4}, {0, 4}, {0, 4}}, replica, replica));
  EXPECT_DOUBLE_EQ(pause.seconds, 12 * kState / kNode);
  // Inside a node it goes from two GPUs to two others at once.
  pause = by_bytes().of(live({{2, 4}}, replica, replica));
  EXPECT_DOUBLE_EQ(pause.moved_bytes, 2 * kState);
  EXPECT_DOUBLE_EQ(pause.seconds, kState / kGpu);
  // A job that shrinks moves nothing.
  pause = by_bytes().of(live({{4, 4}, {4, 0}}, replica, replica));
  EXPECT_DOUBLE_EQ(pause.moved_bytes, 0);
  EXPECT_DOUBLE_EQ(pause.seconds, 0);
}

TEST(SwitchCost, ShardsOfAnotherSizeGoToAllGpus) {
  const StateBytes fourth{kState, kState / 4}, eighth{kState, kState / 8};
  // The first node holds all of it, the second nothing.
  Pause pause = by_bytes().of(live({{4, 4}, {0, 4}}, fourth, eighth));
  EXPECT_DOUBLE_EQ(pause.moved_bytes, kState);
  EXPECT_DOUBLE_EQ(pause.seconds, kState / 2 / kNode);
  // Each of two nodes holds half; the four GPUs of the first get a quarter each.
  pause = by_bytes().of(live({{4, 4}, {4, 0}}, eighth, fourth));
  EXPECT_DOUBLE_EQ(pause.moved_bytes, kState);
  EXPECT_DOUBLE_EQ(pause.seconds, kState / 2 / kNode);
}

TEST(SwitchCost, AStartElsewhereWritesAndReads) {
  const StateBytes replica{kState, kState}, eighth{kState, kState / 8};
  // No node is kept: restart, the whole over the cards of two nodes, four replicas over one node's.
  Switch change = live({{4, 0}, {4, 0}, {0, 4}}, eighth, replica);
  Pause pause = by_bytes().of(change);
  EXPECT_DOUBLE_EQ(pause.seconds, 5 + kState / (2 * kNode) + 4 * kState / kNode);
  EXPECT_DOUBLE_EQ(pause.moved_bytes, kState + 4 * kState);
  // The policy stops jobs for each change.
  change = live({{4, 4}}, replica, replica);
  change.is_live = false;
  EXPECT_DOUBLE_EQ(by_bytes().of(change).seconds, 5 + kState / kNode + 4 * kState / kNode);
  // It was stopped before: only the reading is left. A first start has nothing to read.
  change = {.nodes = {{0, 4}}, .before = {}, .after = replica};
  EXPECT_DOUBLE_EQ(by_bytes().of(change).seconds, 5 + 4 * kState / kNode);
  change.has_state = false;
  EXPECT_DOUBLE_EQ(by_bytes().of(change).seconds, 5);
  EXPECT_DOUBLE_EQ(by_bytes().of(change).moved_bytes, 0);
}

TEST(SwitchCost, WithoutBytesOrLinksItIsTheConstant) {
  const StateBytes replica{kState, kState};
  SwitchCost cost = by_bytes();
  EXPECT_DOUBLE_EQ(cost.of(live({{4, 8}}, {}, replica)).seconds, 1);
  EXPECT_DOUBLE_EQ(cost.of(live({{4, 8}}, replica, {})).seconds, 1);
  cost.links = {};
  EXPECT_DOUBLE_EQ(cost.of(live({{4, 8}}, replica, replica)).seconds, 1);
  EXPECT_DOUBLE_EQ(cost.of(live({{4, 0}, {0, 4}}, replica, replica)).seconds, 5);
  cost.live_seconds = -1;
  EXPECT_DOUBLE_EQ(cost.of(live({{4, 8}}, replica, replica)).seconds, 5);
}

TEST(SwitchCost, NodesOfAChangeAreMatched) {
  const auto text = [](const std::vector<Switch::NodeGpus>& nodes) {
    std::string out;
    for (const auto& node : nodes)
      out += std::to_string(node.before) + ">" + std::to_string(node.after) + " ";
    return out;
  };
  EXPECT_EQ(text(nodes_of_change(Allocation{{{3, 4}, {1, 2}}}, Allocation{{{1, 4}, {7, 1}}})),
            "4>0 2>4 0>1 ");
  EXPECT_EQ(text(nodes_of_change(Shape{{2, 4}}, Shape{{4, 4, 4}})), "4>4 2>4 0>4 ");
}

// One step a second and GPU, with replicas on all GPUs.
class Replicas : public Speeds {
 public:
  double steps_per_s(const Shape& shape, BatchRule) const override { return shape.total(); }
  int most_gpus(BatchRule) const override { return 64; }
  StateBytes state_bytes(const Shape&, BatchRule) const override { return {kState, kState}; }
};

// Has one node, two from the second minute on, and another one from the third.
class Grower : public Policy {
 public:
  explicit Grower(bool is_live) : is_live_(is_live) {}
  bool changes_live() const override { return is_live_; }
  Decision decide(const View& view) override {
    if (view.now_s < 120) return {{Allocation{{{0, 4}}}}};
    if (view.now_s < 180) return {{Allocation{{{0, 4}, {1, 4}}}}};
    return {{Allocation{{{2, 4}}}}};
  }

 private:
  bool is_live_;
};

TEST(SwitchCost, TheSimulatorPausesJobsByTheirBytes) {
  JobSpec job;
  job.name = "a";
  job.gpus = 4;
  job.model = rated_job(std::make_shared<Replicas>(), 2000);
  const Machines machines = *parse_machines("3x4");
  ControllerOptions options;
  options.switching = by_bytes();
  for (const bool is_live : {true, false}) {
    Grower policy(is_live);
    const auto outcome = simulate_jobs({job}, machines, policy, options);
    ASSERT_TRUE(outcome.has_value());
    const double grow = 4 * kState / kNode + (is_live ? 0 : 5 + kState / kNode);
    const double move = 5 + kState / (2 * kNode) + 4 * kState / kNode;
    const double done = 4 * (60 - 5) + 8 * (60 - grow);
    const Usage& usage = outcome->jobs[0].usage;
    EXPECT_NEAR(outcome->jobs[0].end_s, 180 + move + (2000 - done) / 4, 1e-6) << is_live;
    EXPECT_NEAR(usage.switching_gpu_seconds, 4 * 5 + 8 * grow + 4 * move, 1e-6);
    EXPECT_DOUBLE_EQ(usage.moved_bytes, kState * ((is_live ? 4 : 9) + 5));
  }
}

}  // namespace
}  // namespace tessera::share
