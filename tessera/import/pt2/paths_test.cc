#include "tessera/import/pt2/paths.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tessera/graph/builder.h"

namespace tessera::pt2 {
namespace {

// Makes blocks of two products, in a list of modules of this name.
Graph stack(const std::string& list, int blocks, const std::string& inner) {
  GraphBuilder g("stack");
  TensorId x = g.input("x", {{"batch", 4}, {"hidden", 8}}, DType::kFloat32);
  for (int i = 0; i < blocks; ++i) {
    const std::string at = fmt::format("{}.{}.net.", list, i);
    const TensorId up = g.parameter(at + "0.weight", {{"hidden", 8}, {inner, 16}}, {});
    const TensorId down = g.parameter(at + "2.weight", {{inner, 16}, {"hidden", 8}}, {});
    const TensorId y =
        g.op1(at + "0", "einsum", {x, up},
              {{"spec", fmt::format("batch hidden, hidden {0} -> batch {0}", inner)}});
    x = g.op1(at + "2", "einsum", {y, down},
              {{"spec", fmt::format("batch {0}, {0} hidden -> batch hidden", inner)}});
  }
  g.graph().loss = g.op1("loss.sum", "reduce_sum", {x}, {{"dims", "batch hidden"}});
  auto graph = g.finish();
  EXPECT_TRUE(graph) << graph.error().message;
  return std::move(*graph);
}

std::vector<std::string> paths_of(const Graph& graph) {
  std::vector<std::string> out;
  for (const Op& op : graph.ops()) out.push_back(op.path);
  return out;
}

TEST(PathsTest, TheListOfModulesGivesTheBlocks) {
  const Graph graph = with_block_paths(stack("model.layers", 2, "ffn"));
  EXPECT_EQ(paths_of(graph),
            (std::vector<std::string>{"blocks.0.mlp.net.0", "blocks.0.mlp.net.2",
                                      "blocks.1.mlp.net.0", "blocks.1.mlp.net.2", "loss.sum"}));
  EXPECT_EQ(graph.ops()[2].block, 1);
  EXPECT_TRUE(graph.find_tensor("model.layers.1.net.0.weight").valid());
  EXPECT_TRUE(graph.verify());
}

TEST(PathsTest, OneModuleIsNoList) {
  EXPECT_EQ(paths_of(with_block_paths(stack("model.layers", 1, "ffn")))[0], "model.layers.0.net.0");
  // A scope that is not a block is not called one.
  EXPECT_EQ(paths_of(with_block_paths(stack("blocks", 1, "ffn")))[0], "layers.0.net.0");
}

TEST(PathsTest, PathsStayWhereTheContractWouldBreak) {
  // An op outside attention has no queries and keys: the dim 'experts' belongs to moe.
  EXPECT_EQ(paths_of(with_block_paths(stack("blocks", 2, "experts")))[0], "layers.0.net.0");
}

}  // namespace
}  // namespace tessera::pt2
