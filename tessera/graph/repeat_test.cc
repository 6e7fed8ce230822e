// Tests that repeated blocks of a graph are found from its structure, not from its ops' paths.
#include "tessera/graph/repeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/graph/builder.h"

namespace tessera::repeat_test {
namespace {

const Dim kBatch{"batch", 4}, kIn{"in", 5}, kHidden{"hidden", 6}, kFfn{"ffn", 8};

TensorId product(GraphBuilder& g, const std::string& name, TensorId x, const Dim& from,
                 const Dim& to) {
  const TensorId w = g.parameter(name + ".w", {from, to}, {Init::Kind::kNormal, 0.1});
  return g.op1(name, "einsum", {x, w},
               {{"spec", "batch " + from.name + "+, " + from.name + " " + to.name + " -> batch " +
                             to.name}});
}

// Makes layers with names that have no order: "alpha", "omega", ...
Graph chain(const std::vector<std::string>& names, bool odd_last = false) {
  GraphBuilder g("chain");
  TensorId x = product(g, "in", g.input("x", {kBatch, kIn}, DType::kFloat32), kIn, kHidden);
  for (const std::string& name : names) {
    TensorId h = product(g, name + "_up", x, kHidden, kFfn);
    const bool odd = odd_last && name == names.back();
    h = g.op1(name + "_act", odd ? "tanh" : "gelu", {h});
    h = g.op1(name + "_drop", "dropout", {h}, {{"p", 0.5}, {"key", name}});
    x = g.op1(name + "_sum", "add", {x, product(g, name + "_down", h, kFfn, kHidden)});
  }
  g.graph().loss = g.op1("loss", "reduce_sum", {x}, {{"dims", std::string("batch hidden")}});
  auto graph = g.finish();
  EXPECT_TRUE(graph) << graph.error().message;
  return graph.value_or(Graph());
}

std::vector<std::string> first_ops(const Graph& graph) {
  std::vector<std::string> paths;
  for (const auto& block : repeated_blocks(graph)) paths.push_back(graph.op(block.front()).path);
  return paths;
}

TEST(RepeatTest, BlocksAreFoundByWhatTheyCompute) {
  EXPECT_THAT(first_ops(chain({"alpha", "omega", "beta"})),
              testing::ElementsAre("alpha_up", "omega_up", "beta_up"));
}

// Each layer has a mixer and an MLP, with sums around both. Three of four mixers are equal.
TEST(RepeatTest, BlocksOfUnlikeLayersAreCutIntoThem) {
  const Dim wide{"wide", 9};
  GraphBuilder g("hybrid");
  TensorId x = product(g, "in", g.input("x", {kBatch, kIn}, DType::kFloat32), kIn, kHidden);
  const auto part = [&](const std::string& name, const char* act, const Dim& inner) {
    const TensorId h = g.op1(name + "_act", act, {product(g, name + "_up", x, kHidden, inner)});
    x = g.op1(name + "_sum", "add", {x, product(g, name + "_down", h, inner, kHidden)});
  };
  for (int layer = 0; layer < 13; ++layer) {
    const std::string name = "l" + std::to_string(layer);
    part(name + "_mixer", layer % 4 == 3 ? "tanh" : "gelu", kFfn);
    part(name + "_mlp", "gelu", wide);
  }
  g.graph().loss = g.op1("loss", "reduce_sum", {x}, {{"dims", std::string("batch hidden")}});
  const Graph graph = g.finish().value();
  const auto blocks = repeated_blocks(graph);
  ASSERT_EQ(blocks.size(), 3U);
  ASSERT_EQ(blocks.front().size(), 32U);
  const BlockLayers found = layers_of_blocks(graph, blocks);
  EXPECT_THAT(found.begins, testing::ElementsAre(0, 8, 16, 24));
  EXPECT_THAT(found.kinds, testing::ElementsAre(0, 0, 0, 1));
  ASSERT_EQ(found.beside.size(), 1U);  // the thirteenth layer
  EXPECT_EQ(found.beside[0].kind, 0);
  EXPECT_EQ(graph.op(found.beside[0].ops.front()).path, "l12_mixer_up");
  EXPECT_EQ(found.beside[0].ops.size(), 8U);
  // The layers of a plain chain are whole.
  const Graph plain = chain({"alpha", "omega", "beta"});
  EXPECT_THAT(layers_of_blocks(plain, repeated_blocks(plain)).begins, testing::ElementsAre(0));
}

TEST(RepeatTest, AnotherKindInOneOpEndsTheRepetition) {
  EXPECT_THAT(first_ops(chain({"alpha", "omega", "beta"}, /*odd_last=*/true)),
              testing::ElementsAre("alpha_up", "omega_up"));
}

TEST(RepeatTest, OneBlockIsNoRepetition) {
  EXPECT_THAT(first_ops(chain({"alpha"})), testing::IsEmpty());
}

// The third of four layers adds the input of the first, the others add their own: then two layers
// together are a block.
TEST(RepeatTest, BlocksReadInTheSameWay) {
  for (const bool skips : {false, true}) {
    GraphBuilder g("skips");
    const TensorId start =
        product(g, "in", g.input("x", {kBatch, kIn}, DType::kFloat32), kIn, kHidden);
    TensorId x = start;
    for (int i = 0; i < 4; ++i) {
      const std::string name = "layer" + std::to_string(i);
      const TensorId h = product(g, name + "up", x, kHidden, kFfn);
      x = g.op1(name + "sum", "add",
                {product(g, name + "down", h, kFfn, kHidden), skips && i == 2 ? start : x});
    }
    g.graph().loss = g.op1("loss", "reduce_sum", {x}, {{"dims", std::string("batch hidden")}});
    const auto graph = g.finish();
    ASSERT_TRUE(graph) << graph.error().message;
    EXPECT_EQ(repeated_blocks(*graph).size(), skips ? 2U : 4U);
  }
}

}  // namespace
}  // namespace tessera::repeat_test
