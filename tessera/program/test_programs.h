// Lowered programs for the tests of this module.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tessera/graph/builder.h"
#include "tessera/plan/prepare.h"
#include "tessera/plan/recipes.h"
#include "tessera/plan/test_graphs.h"
#include "tessera/program/lower.h"

namespace tessera {

struct TestPrograms {
  Graph graph;
  std::vector<Program> programs;
};

inline Graph trained(const Graph& forward, const OptimizerSpec& optimizer = {}) {
  auto graph = differentiate(forward, optimizer);
  EXPECT_TRUE(graph.has_value()) << (graph ? "" : graph.error().message);
  return graph ? *graph : Graph();
}

// Returns a graph with a loss like the mean squared error over two products.
inline Graph test_perceptron() {
  GraphBuilder g("perceptron");
  const Dim batch{"batch", 8}, in{"in", 4}, ffn{"ffn", 8}, out{"out", 4};
  const Init init{Init::Kind::kNormal, 0.02};
  const auto x = g.input("x", {batch, in}, DType::kFloat64);
  const auto up = g.parameter("up.weight", {in, ffn}, init, DType::kFloat64);
  const auto down = g.parameter("down.weight", {ffn, out}, init, DType::kFloat64);
  auto h =
      g.op1("up", "einsum", {x, up}, {{"spec", std::string("batch in+, in ffn -> batch ffn")}});
  h = g.op1("act", "gelu", {h});
  h = g.op1("down", "einsum", {h, down},
            {{"spec", std::string("batch ffn+, ffn out -> batch out")}});
  const auto square = g.op1("square", "mul", {h, h});
  g.graph().loss = g.op1("loss", "reduce_sum", {square},
                         {{"dims", std::string("batch out")}, {"factor", 1.0 / 32}});
  auto graph = g.finish();
  EXPECT_TRUE(graph.has_value()) << (graph ? "" : graph.error().message);
  return graph ? *graph : Graph();
}

// Returns a graph with look-ups of a table beside a dense product, trained.
inline Graph test_table(const std::string& optimizer = "rowwise_adagrad") {
  GraphBuilder g("table");
  const Dim batch{"batch", 8}, rows{"rows", 1000}, width{"width", 4};
  const Init init{Init::Kind::kNormal, 1};
  const TensorId table = g.parameter("table", {rows, width}, init, DType::kFloat64);
  const TensorId weight = g.parameter("weight", {width, {"out", 4}}, init, DType::kFloat64);
  const TensorId ids = g.input("ids", {batch, {"bag", 2}}, DType::kInt64);
  const TensorId x = g.input("x", {batch, width}, DType::kFloat64);
  const TensorId bottom = g.op1("bottom", "einsum", {x, weight},
                                {{"spec", std::string("batch width+, width out -> batch out")}});
  const TensorId half = g.op1("half", "reduce_sum", {bottom}, {{"dims", std::string("batch out")}});
  const TensorId y = g.op1("look_up", "embedding_bag", {ids, table});
  const TensorId sum = g.op1("sum", "reduce_sum", {y}, {{"dims", std::string("batch width")}});
  g.graph().loss = g.op1("loss", "add_n", {half, sum});
  OptimizerSpec spec;
  spec.kind = optimizer;
  return trained(*g.finish(), spec);
}

// Lowers the graph for all ranks. `plan`: TOML, or a recipe call.
inline TestPrograms lower_all(const Graph& graph, const std::string& plan) {
  TestPrograms out;
  const auto text = plan.find('=') != std::string::npos && plan.find("mesh") != std::string::npos
                        ? Result<std::string>(plan)
                        : emit_recipe(plan, graph);
  EXPECT_TRUE(text.has_value()) << plan << ": " << (text ? "" : text.error().message);
  if (!text) return out;
  const auto parsed = parse_plan(*text, "plan.toml");
  EXPECT_TRUE(parsed.has_value()) << plan << ": " << (parsed ? "" : parsed.error().message);
  if (!parsed) return out;
  const auto prepared = prepare(graph, *parsed);
  EXPECT_TRUE(prepared.has_value()) << plan << ": " << (prepared ? "" : prepared.error().message);
  if (!prepared) return out;
  out.graph = prepared->graph;
  const auto lowering = Lowering::create(std::make_shared<Graph>(prepared->graph), prepared->plan);
  EXPECT_TRUE(lowering.has_value()) << plan << ": " << (lowering ? "" : lowering.error().message);
  if (!lowering) return out;
  for (int rank = 0; rank < static_cast<int>(prepared->plan.ranks); ++rank) {
    auto program = lowering->lower(rank);
    EXPECT_TRUE(program.has_value()) << plan << ": " << (program ? "" : program.error().message);
    if (program) out.programs.push_back(std::move(*program));
  }
  return out;
}

}  // namespace tessera
