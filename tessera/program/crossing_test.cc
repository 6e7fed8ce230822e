// Crossings between stages on different meshes: one copy of the tensor, shared by the replicas that
// need it, and programs that the verifier accepts.
#include "tessera/program/crossing.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tessera/program/test_programs.h"
#include "tessera/program/verify/verify.h"

namespace tessera {
namespace {

struct Crossed {
  int64_t sent = 0, received = 0;  // elements of one forward and backward pass, on all ranks
  size_t rejections = 0;
};
Crossed crossed(const std::string& first, const std::string& second, const std::string& resharding,
                const std::string& split = "") {
  TestModel model;
  const std::string plan = fmt::format(
      "resharding = \"{}\"\nstage = [\n{{ ops = \"*\", at = 0, mesh = {{ {} }} }},\n"
      "{{ ops = \"{{blocks.1,final,head,loss}}\", at = 1, mesh = {{ {} }} }},\n]\n{}",
      resharding, first, second, split);
  const auto graph = trained(test_transformer(model));
  const auto prepared = prepare(graph, *parse_plan(plan, "plan.toml"));
  EXPECT_TRUE(prepared.has_value()) << prepared.error().message;
  auto lowering = Lowering::create(std::make_shared<Graph>(prepared->graph), prepared->plan);
  EXPECT_TRUE(lowering.has_value()) << lowering.error().message;
  std::vector<Program> programs;
  Crossed out;
  for (int rank = 0; rank < static_cast<int>(prepared->plan.ranks); ++rank) {
    programs.push_back(*lowering->lower(rank));
    for (const auto& [ref, block] : programs.back().blocks) {
      for (const Instruction& instruction : block) {
        const auto hidden = [&](TensorId tensor) {
          return prepared->graph.tensor(tensor).dims.size() == 3;
        };
        if (const auto* send = std::get_if<Send>(&instruction.body); send && hidden(send->tensor))
          out.sent += send->region.volume();
        if (const auto* recv = std::get_if<Recv>(&instruction.body); recv && hidden(recv->tensor))
          out.received += recv->region.volume();
      }
    }
  }
  const auto rejections = verify(prepared->graph, programs);
  EXPECT_TRUE(rejections.empty()) << rejections[0].to_string();
  out.rejections = rejections.size();
  return out;
}

TEST(Crossing, sends_one_copy_however_many_replicas_receive) {
  for (const auto& [first, second] : std::vector<std::pair<std::string, std::string>>{
           {"tp = 4", "dp = 2, tp = 2"}, {"tp = 2", "tp = 3"}, {"tp = 4", "tp = 2"}}) {
    SCOPED_TRACE(first + " -> " + second);
    const Crossed one = crossed("tp = 1", "tp = 1", "direct");  // the tensor, there and back
    const Crossed shared = crossed(first, second, "auto"),
                  direct = crossed(first, second, "direct");
    EXPECT_EQ(shared.sent, one.sent);
    EXPECT_EQ(shared.received, one.sent);
    EXPECT_GT(direct.sent, 2 * one.sent - 1);
  }
}

TEST(Crossing, of_equal_meshes_is_shared_on_demand) {
  const Crossed one = crossed("tp = 1", "tp = 1", "direct");
  EXPECT_EQ(crossed("tp = 2", "tp = 2", "auto").sent, 2 * one.sent);
  EXPECT_EQ(crossed("tp = 2", "tp = 2", "gather").sent, one.sent);
}

// Sequence parallelism: each rank sends its shard to its twin, there and back.
TEST(Crossing, of_shards_between_equal_meshes_sends_each_once) {
  const std::string split =
      "split = [\n{ ops = \"*\", dim = \"seq\", over = \"tp\" },\n"
      "{ ops = \"blocks.*.attn.{q,k,v,core,out}\", dim = \"seq\", over = [] },\n"
      "{ ops = \"blocks.*.mlp.{up,act,down}\", dim = \"seq\", over = [] },\n"
      "{ ops = \"blocks.*.attn\", dim = \"heads\", over = \"tp\" },\n"
      "{ ops = \"blocks.*.mlp\", dim = \"ffn\", over = \"tp\" },\n]\n";
  const Crossed one = crossed("tp = 1", "tp = 1", "auto");
  const Crossed shards = crossed("tp = 2", "tp = 2", "auto", split);
  EXPECT_EQ(shards.sent, one.sent);
  EXPECT_EQ(shards.received, one.sent);
  EXPECT_GT(crossed("tp = 2", "tp = 2", "direct", split).sent, one.sent);
}

TEST(Crossing, landing_cuts_the_dim_that_leaves_the_smallest_share) {
  const Mesh mesh = Mesh::row_major({{"dp", 2}, {"tp", 3}});
  Layout need = Layout::whole(2);
  need.shards[0] = {AxisId(0)};
  const Layout landing = shared_landing(need, mesh, {4, 9});
  EXPECT_EQ(landing.shards[0], need.shards[0]);
  EXPECT_EQ(landing.shards[1], Axes{AxisId(1)});
  EXPECT_EQ(shared_landing(landing, mesh, {4, 9}), landing);  // no axis left
  EXPECT_EQ(shared_landing(Layout::whole(0), mesh, {}), Layout::whole(0));
}

// The tensor is held in pieces over b and needed in pieces over a: replicas of a piece turn to
// different holders.
TEST(Crossing, replicas_are_served_by_different_holders) {
  const Mesh from = Mesh::row_major({{"a", 2}, {"b", 2}}),
             to = Mesh::row_major({{"a", 2}, {"b", 2}}, 4);
  TextCross cross;
  Layout held = Layout::whole(1), needed = Layout::whole(1);
  held.shards[0] = {AxisId(1)};
  needed.shards[0] = {AxisId(0)};
  cross.from.region.layout = held;
  cross.to.region.layout = needed;
  EXPECT_FALSE(crosses_to_twins(cross, from, to));
  std::map<int64_t, std::vector<int64_t>> served;
  for (int64_t rank = 4; rank < 8; ++rank) {
    const auto pieces = cross_sources(cross, from, to, {8}, to.coordinates(rank));
    ASSERT_EQ(pieces.size(), 1U);
    EXPECT_EQ(pieces[0].region.volume(), 4);
    served[from.rank_at(pieces[0].source)].push_back(rank);
    const auto receivers = cross_receivers(cross, from, to, pieces[0].source);
    EXPECT_NE(std::find(receivers.begin(), receivers.end(), to.coordinates(rank)), receivers.end());
  }
  EXPECT_EQ(served,
            (std::map<int64_t, std::vector<int64_t>>{{0, {4}}, {1, {6}}, {2, {5}}, {3, {7}}}));
}

TEST(Crossing, routes_balance_the_holders) {
  const Mesh from = Mesh::row_major({{"tp", 4}}), to = Mesh::row_major({{"dp", 2}, {"tp", 2}}, 4);
  Layout cut = Layout::whole(1);
  cut.shards[0] = {AxisId(0), AxisId(1)};
  const auto routes = plan_routes(from, Layout::whole(1), to, cut, {8});
  ASSERT_NE(routes, nullptr);
  std::map<int64_t, int64_t> sent;
  for (const CrossRoute& route : *routes) sent[route.from] += route.region.volume();
  EXPECT_EQ(sent, (std::map<int64_t, int64_t>{{0, 2}, {1, 2}, {2, 2}, {3, 2}}));
  const Mesh twin = Mesh::row_major({{"tp", 4}}, 4);
  EXPECT_EQ(plan_routes(from, Layout::whole(1), twin, Layout::whole(1), {8}), nullptr);
}

}  // namespace
}  // namespace tessera
