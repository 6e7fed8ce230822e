#include "tessera/plan/device_order.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "tessera/cluster/cluster.h"
#include "tessera/plan/plan.h"
#include "tessera/plan/recipes.h"
#include "tessera/plan/test_graphs.h"

namespace tessera {
namespace {

using List = std::vector<int64_t>;
using NamedSizes = std::vector<std::pair<std::string, int64_t>>;

List positions(std::vector<std::string> axes, const NamedSizes& mesh) {
  const auto found = device_positions({std::move(axes), {}}, mesh);
  EXPECT_TRUE(found.has_value()) << (found ? "" : found.error().message);
  return found.value_or(List{});
}

TEST(DeviceOrder, the_last_axis_varies_fastest) {
  const NamedSizes mesh{{"dp", 2}, {"tp", 3}};
  EXPECT_EQ(positions({"dp", "tp"}, mesh), (List{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(positions({"tp", "dp"}, mesh), (List{0, 2, 4, 1, 3, 5}));
}

TEST(DeviceOrder, what_the_list_leaves_out_lies_outside_in_the_order_of_the_mesh) {
  const NamedSizes mesh{{"pp", 2}, {"dp", 2}, {"tp", 2}};
  EXPECT_EQ(positions({"pp"}, mesh), positions({"dp", "tp", "pp"}, mesh));
  EXPECT_EQ(positions({"dp", "pp"}, mesh), (List{0, 4, 2, 6, 1, 5, 3, 7}));
}

// Block (r / 2, c / 2) has four neighbouring devices, row-major inside.
TEST(DeviceOrder, factors_of_axes_make_blocks) {
  const NamedSizes mesh{{"row", 4}, {"col", 4}};
  const List found = positions({"row:2", "col:2"}, mesh);
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t c = 0; c < 4; ++c) {
      EXPECT_EQ(found[static_cast<size_t>(4 * r + c)],
                4 * (2 * (r / 2) + c / 2) + 2 * (r % 2) + c % 2);
    }
  }
  EXPECT_EQ(positions({"row", "col", "row:2", "col:2"}, mesh), found);
  EXPECT_EQ(positions({"row:2", "col:2", "row:2", "col:2"}, mesh), found);
  // The remaining columns change outside the remaining rows.
  EXPECT_EQ(positions({"col", "row", "row:2", "col:2"}, mesh)[4 * 2], 4);
}

TEST(DeviceOrder, says_what_is_wrong_in_one_line) {
  const auto error = [](const std::string& order) {
    const auto plan = parse_plan("mesh = { row = 4, col = 2 }\ndevice_order = " + order, "p.toml");
    if (!plan) return plan.error().message;
    const auto devices = rank_devices(*plan);
    return devices ? std::string() : devices.error().message;
  };
  EXPECT_EQ(error("[\"row\", \"col\"]"), "");
  EXPECT_EQ(error("\"cow\""),
            "p.toml:2: axis 'cow' in 'device_order' is not in the mesh {row=4, col=2}, did you "
            "mean 'row'?");
  EXPECT_EQ(error("[\"row:x\"]"),
            "p.toml:2: expected 'axis' or 'axis:N' with N >= 1 in 'device_order', found 'row:x'");
  EXPECT_EQ(error("[\"row\", \"row\"]"),
            "p.toml:2: axis 'row' is named twice without a size in 'device_order'");
  EXPECT_EQ(error("[\"row:3\"]"),
            "p.toml:2: axis 'row' of size 4 cannot be cut by its factors 3 in 'device_order'");
  EXPECT_EQ(error("[\"row:2\", \"row:4\"]"),
            "p.toml:2: axis 'row' of size 4 cannot be cut by its factors 2 x 4 in 'device_order'");
  EXPECT_EQ(error("[0, 1, 2]"),
            "p.toml:2: expected as many devices in 'device_order' as the plan has ranks, 8, found "
            "3");
  EXPECT_EQ(error("[0, 1, 2, 3, 4, 5, 6, 6]"),
            "p.toml:2: device 6 is named twice in 'device_order'");
  EXPECT_EQ(error("[0, 1, 2, 3, 4, 5, 6, -1]"),
            "p.toml:2: expected devices from 0 to 16777215 in 'device_order', found -1");
  EXPECT_EQ(error("[]"), "p.toml:2: 'device_order' is an empty list: expected axes or devices");
  EXPECT_EQ(error("3"),
            "p.toml:2: 'device_order' in the plan: expected a list of axes or of devices, found an "
            "integer");
  EXPECT_EQ(error("[0, \"row\"]"),
            "p.toml:2: 'device_order' in the plan: expected the number of a device, found a "
            "string");
}

TEST(DeviceOrder, of_a_resolved_plan_changes_no_rank) {
  const Graph graph = test_transformer();
  const std::string text = "mesh = { dp = 2, tp = 2 }\n";
  const auto plain = resolve(*parse_plan(text), graph);
  const auto ordered = resolve(*parse_plan(text + "device_order = [0, 5, 1, 4]\n"), graph);
  ASSERT_TRUE(plain.has_value() && ordered.has_value());
  EXPECT_TRUE(plain->devices.in_order());
  EXPECT_EQ(ordered->devices, RankDevices({0, 5, 1, 4}));
  EXPECT_EQ(ordered->stages[0].mesh, plain->stages[0].mesh);
}

TEST(DeviceOrder, stages_with_meshes_of_their_own_order_their_ranks) {
  const std::string stages =
      "stage = [\n  { ops = \"blocks.0\", at = 0, mesh = { tp = 2 } },\n"
      "  { ops = \"blocks.1\", at = 1, mesh = { row = 2, col = 2 }, device_order = [\"col\", "
      "\"row\"] },\n]\n";
  const auto plan = parse_plan("mesh = {}\n" + stages, "p.toml");
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_EQ(to_toml(*plan), "mesh = {}\n" + stages);
  EXPECT_EQ(rank_devices(*plan).value(), RankDevices({0, 1, 2, 4, 3, 5}));
  const auto error = [&](const std::string& text) {
    const auto found = parse_plan(text, "p.toml");
    return found ? rank_devices(*found).error().message : found.error().message;
  };
  EXPECT_EQ(error("device_order = [5, 4, 3, 2, 1, 0]\n" + stages),
            "p.toml:4: 'device_order' is given for the plan (line 1) and for stage 1; expected one "
            "of them");
  EXPECT_EQ(error("mesh = { tp = 2 }\ndevice_order = \"tp\"\nstage = [\n"
                  "  { ops = \"*\", at = 0 },\n  { ops = \"x\", at = 1, mesh = { a = 3 } },\n]"),
            "p.toml:2: 'device_order' names axes of the mesh {tp=2} of 2 ranks, but the plan has "
            "5; order the ranks of stages with meshes of their own in their entries, or list "
            "devices");
  EXPECT_EQ(error("stage = [ { ops = \"*\", at = 0, device_order = \"tp\" } ]"),
            "p.toml:1: 'device_order' in [[stage]] needs a 'mesh' of the stage's own");
  EXPECT_EQ(error("stage = [ { ops = \"*\", at = 0, mesh = { a = 2 }, device_order = [1, 0] } ]"),
            "p.toml:1: expected axes in the 'device_order' of a stage, found devices; a list of "
            "devices is given for all ranks, beside 'mesh'");
}

TEST(DeviceOrder, is_an_argument_of_every_recipe) {
  const Graph graph = test_transformer();
  const auto line = [&](const std::string& call) {
    const auto text = emit_recipe(call, graph);
    EXPECT_TRUE(text.has_value()) << (text ? "" : text.error().message);
    const size_t begin = text.value_or("").find("device_order", text->find('\n'));
    return begin == std::string::npos ? "" : text->substr(begin, text->find('\n', begin) - begin);
  };
  EXPECT_EQ(line("summa(2, device_order=\"col,row:2\")"), "device_order = [\"col\", \"row:2\"]");
  EXPECT_EQ(line("tensor_parallel(2, device_order=\"1,0\")"), "device_order = [1, 0]");
  // An axis of size 1 is not in the plan's mesh.
  EXPECT_EQ(line("megatron(tp=2, pp=2, device_order=\"tp,dp,pp\")"),
            "device_order = [\"tp\", \"pp\"]");
  EXPECT_EQ(line("megatron(tp=2, pp=2)"), "");
  const auto call = parse_recipe_call("megatron(tp=2, pp=2, device_order=\"tp,pp\")");
  ASSERT_TRUE(call.has_value());
  EXPECT_EQ(to_string(*call), "megatron(tp=2, pp=2, device_order=\"tp,pp\")");
}

TEST(DeviceOrder, tells_which_axes_lie_inside_a_node) {
  const Graph graph = test_transformer();
  const Cluster cluster = load_cluster("dgx-a100:4").value();
  const auto axes = [&](const std::string& order) {
    const auto plan = resolve(
        *parse_plan("mesh = { pp = 2, row = 4, col = 4 }\nstage = [\n"
                    "  { ops = \"*\", at = 0 },\n  { ops = \"{final,head,loss}\", at = 1 } ]\n" +
                    order),
        graph);
    EXPECT_TRUE(plan.has_value()) << (plan ? "" : plan.error().message);
    std::vector<std::array<int64_t, 2>> out;
    for (const AxisOnMachine& axis : axes_on_machine(*plan, cluster)) {
      EXPECT_EQ(axis.mesh, "{pp=2, row=4, col=4}");
      out.push_back({axis.nodes, axis.members_a_node});
    }
    return out;
  };
  using Rows = std::vector<std::array<int64_t, 2>>;  // of pp, row, col
  EXPECT_EQ(axes(""), (Rows{{2, 1}, {2, 2}, {1, 4}}));
  EXPECT_EQ(axes("device_order = [\"col\", \"row\"]"), (Rows{{2, 1}, {1, 4}, {2, 2}}));
  EXPECT_EQ(axes("device_order = [\"row:2\", \"col:2\", \"pp\"]"), (Rows{{1, 2}, {2, 2}, {2, 2}}));
}

RC_GTEST_PROP(DeviceOrder, by_axes_is_a_permutation_and_its_text_parses_back, ()) {
  Plan plan;
  plan.mesh = {{"a", 6}, {"b", 4}, {"c", *rc::gen::inRange<int64_t>(1, 4)}};
  const std::vector<std::string> texts = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("a", "a:2", "a:3", "b", "b:2", "c", "b:4"));
  plan.device_order.axes = texts;
  const auto again = parse_plan(to_toml(plan));
  RC_ASSERT(again.has_value());
  RC_ASSERT(*again == plan);
  const auto found = device_positions(plan.device_order, plan.mesh);
  if (!found) return;
  List sorted = *found;
  std::sort(sorted.begin(), sorted.end());
  List all(static_cast<size_t>(Mesh::row_major(plan.mesh).size()));
  std::iota(all.begin(), all.end(), 0);
  RC_ASSERT(sorted == all);
}

}  // namespace
}  // namespace tessera
