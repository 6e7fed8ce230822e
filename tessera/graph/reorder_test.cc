#include <gtest/gtest.h>

#include "tessera/graph/builder.h"
#include "tessera/graph/transform.h"

namespace tessera::reorder_test {
namespace {

Result<Graph> forward(double dropout) {
  GraphBuilder g("small");
  const Dim b{"batch", 2}, s{"seq", 6}, h{"heads", 2}, d{"head_dim", 4};
  const TensorId x = g.input("x", {b, s, h, {"group", 1}, d}, DType::kFloat32);
  const TensorId k = g.input("k", {b, s, h, d}, DType::kFloat32);
  const Init init{Init::Kind::kNormal, 1};
  TensorId q = g.op1("shift", "add", {x, g.parameter("table", {s, h, {"group", 1}, d}, init)});
  if (dropout > 0) q = g.op1("drop", "dropout", {q}, {{"p", dropout}, {"key", std::string("a")}});
  const TensorId o = g.op("core", "attention", {q, k, k}, {{"causal", int64_t{1}}})[0];
  g.graph().loss =
      g.op1("loss", "reduce_sum", {o}, {{"dims", std::string("batch seq heads group head_dim")}});
  return g.finish();
}

std::string error_of(const Graph& graph, const std::string& dim, const std::string& order) {
  const auto out = reorder_dim(graph, dim, order);
  return out ? "" : out.error().message;
}

TEST(Reorder, WhatIsReadPassesAReorderAndAttentionKnowsTheOrder) {
  const auto out = reorder_dim(*forward(0), "seq", "zigzag:4");
  ASSERT_TRUE(out.has_value()) << out.error().message;
  std::vector<std::string> paths;
  for (const Op& op : out->ops()) paths.push_back(op.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"x.reorder", "table.reorder", "shift", "k.reorder",
                                             "core", "loss"}));
  const Op& core = out->ops()[4];
  EXPECT_EQ(core.text("order"), "zigzag:4");
  EXPECT_EQ(core.inputs[1], core.inputs[2]) << "one reorder a tensor";
  EXPECT_EQ(core.annotation.dims[static_cast<size_t>(core.annotation.find("kv"))].causal_of, -1);
  EXPECT_TRUE(differentiate(*out, OptimizerSpec{}).has_value());
}

TEST(Reorder, ErrorsSayWhichOpDependsOnThePlace) {
  EXPECT_EQ(error_of(*forward(0), "sq", "zigzag:4"), "no tensor of the graph has the dim 'sq'");
  EXPECT_EQ(error_of(*forward(0.5), "seq", "zigzag:4"),
            "dim 'seq' cannot be reordered: what op 'drop' (dropout) does with an element depends "
            "on its place");
  EXPECT_EQ(error_of(*forward(0), "head_dim", "zigzag:4"),
            "dim 'head_dim' cannot be reordered: what op 'core' (attention) does with an element "
            "depends on its place");
  const auto once = reorder_dim(*forward(0), "seq", "zigzag:4");
  EXPECT_EQ(error_of(*once, "seq", "zigzag:4"),
            "dim 'seq' cannot be reordered: what op 'x.reorder' (reorder) does with an element "
            "depends on its place");
}

// Another op may give the dim another name: the elements still stand in the order.
TEST(Reorder, ADimStaysInTheOrderUnderAnotherName) {
  GraphBuilder g("renamed");
  const TensorId x = g.input("x", {{"batch", 2}, {"seq", 4}}, DType::kFloat32);
  const TensorId y = g.op1("y", "rename", {x}, {{"from", "seq"}, {"to", "place"}});
  const auto fine = reorder_dim(g.graph(), "seq", "striped:2");
  EXPECT_TRUE(fine.has_value());
  g.op1("drop", "dropout", {y}, {{"p", 0.5}, {"key", "a"}});
  EXPECT_EQ(error_of(g.graph(), "seq", "striped:2"),
            "dim 'seq' cannot be reordered: what op 'drop' (dropout) does with an element depends "
            "on its place");
}

// An op refuses two operands that do not stand in the same order.
TEST(Reorder, OperandsInTwoOrdersAreRefused) {
  GraphBuilder g("two");
  const TensorId x = g.input("x", {{"seq", 4}, {"h", 3}}, DType::kFloat32);
  const TensorId table = g.parameter("table", {{"place", 4}, {"h", 3}}, {});
  const TensorId y = g.op1("y", "rename", {table}, {{"from", "place"}, {"to", "seq"}});
  g.op1("sum", "add", {x, y});
  EXPECT_EQ(
      error_of(g.graph(), "seq", "striped:2"),
      "dim 'seq' cannot be reordered: what op 'sum' (add) does with an element depends on its "
      "place");
}

}  // namespace
}  // namespace tessera::reorder_test
