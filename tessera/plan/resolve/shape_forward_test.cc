#include <gtest/gtest.h>

#include <set>

#include "tessera/graph/transform.h"
#include "tessera/plan/prepare.h"
#include "tessera/plan/test_graphs.h"

namespace tessera::shape_forward_test {
namespace {

std::string error_of(const std::string& plan_text) {
  const auto plan = parse_plan(plan_text, "p.toml");
  if (!plan) return plan.error().message;
  TestModel model;
  model.layers = 2;
  const auto shaped = shape_forward(test_transformer(model), *plan, std::nullopt);
  return shaped ? "" : shaped.error().message;
}

std::string loop(const std::string& entry) { return "loop = [ { " + entry + " } ]"; }

TEST(ShapeForward, ErrorsNameThePlansLine) {
  EXPECT_EQ(error_of(loop("ops = 'blocs.*', dim = 'seq', steps = 2")),
            "p.toml:1: ops = \"blocs.*\" selects no forward op, did you mean 'blocks'?");
  EXPECT_EQ(error_of(loop("ops = 'blocks.*.mlp', dim = 'fnn', steps = 2")),
            "p.toml:1: no op that ops = \"blocks.*.mlp\" selects has the dim 'fnn', did you mean "
            "'ffn'?");
  EXPECT_EQ(error_of(loop("ops = '*', dim = 'seq', sizes = [1, 2]")).substr(0, 39),
            "p.toml:1: expected sizes that add up to");
  EXPECT_EQ(error_of("micro_batches = 2\n" + loop("ops = '*', dim = 'batch', steps = 2")),
            "p.toml:2: micro_batches = 2 cut dim 'batch' already: a loop over it needs "
            "micro_batches = 1");
}

TEST(ShapeForward, StepsTakeAPartOfEveryShard) {
  const auto plan = parse_plan(R"(mesh = { tp = 2 }
split = [ { ops = "blocks.*.mlp", dim = "ffn", over = "tp" } ]
loop = [ { ops = "blocks.*.mlp", dim = "ffn", steps = 2 } ])");
  ASSERT_TRUE(plan);
  const auto shaped = shape_forward(test_transformer(), *plan, std::nullopt);
  ASSERT_TRUE(shaped) << shaped.error().message;
  int slices = 0;
  for (const Op& op : shaped->ops()) {
    if (op.kind != "slice") continue;
    EXPECT_EQ(op.integer("blocks"), 2) << op.path;
    ++slices;
  }
  EXPECT_GT(slices, 0);
}

// Shards of one axis may be uneven; shards that several axes cut must not.
TEST(ShapeForward, StepsTakeAPartOfUnevenShards) {
  TestModel model;
  model.layers = 1;
  model.ffn = 11;
  const std::string entries = R"(
loop = [ { ops = "blocks.*.mlp", dim = "ffn", steps = 2 } ]
split = [ { ops = "blocks.*.mlp", dim = "ffn", over = )";
  const auto shaped_by = [&](const std::string& mesh, const std::string& over) {
    return shape_forward(test_transformer(model), *parse_plan(mesh + entries + over + " } ]"),
                         std::nullopt);
  };
  const auto shaped = shaped_by("mesh = { tp = 3 }", "\"tp\"");
  ASSERT_TRUE(shaped) << shaped.error().message;
  std::vector<int64_t> sizes;  // 4, 4, 3: two steps of 2, 2, 2 and of 2, 2, 1
  for (const Op& op : shaped->ops()) {
    if (op.path.starts_with("blocks.0.mlp.up#"))
      sizes.push_back(op.annotation.dims[static_cast<size_t>(op.annotation.find("ffn"))].size);
  }
  EXPECT_EQ(sizes, (std::vector<int64_t>{6, 5}));
  const auto by_two = shaped_by("mesh = { a = 2, b = 2 }", "[\"a\", \"b\"]");
  ASSERT_FALSE(by_two);
  EXPECT_EQ(by_two.error().message,
            "<plan>:2: dim 'ffn' of op 'blocks.0.mlp.up' (einsum) is split over 4 ranks by several "
            "axes, and they do not divide it: a loop over it needs equal shards, or shards over "
            "one axis");
}

// If every stage has a mesh of its own, no stage has the plan's.
TEST(ShapeForward, OnlyMeshesOfStagesCutShards) {
  const std::string text = R"(mesh = { tp = 2 }
split = [ { ops = "blocks.*.mlp", dim = "ffn", over = "tp" } ]
loop = [ { ops = "blocks.*.mlp", dim = "ffn", steps = 2 } ]
stage = [
  { ops = "{embed,blocks.0}", at = 0, mesh = { tp = 1 } },
  { ops = "blocks.1", at = 1, mesh = { tp = 1 } },
  { ops = "{final,head,loss}", at = 1 },
])";
  const auto blocks_of_slices = [](const std::string& plan_text) {
    const auto plan = parse_plan(plan_text, "p.toml");
    const auto shaped = shape_forward(test_transformer(), *plan, std::nullopt);
    std::set<int64_t> blocks;
    for (const Op& op : shaped->ops()) {
      if (op.kind == "slice") blocks.insert(op.integer("blocks"));
    }
    return blocks;
  };
  EXPECT_EQ(blocks_of_slices(text), std::set<int64_t>{1});
  std::string shared = text;  // stage 1 has the plan's mesh
  shared.replace(shared.find("at = 1, mesh = { tp = 1 }"), 25, "at = 1");
  EXPECT_EQ(blocks_of_slices(shared), std::set<int64_t>{2});
}

TEST(ShapeForward, WithoutLoopsTheGraphIsUnchanged) {
  EXPECT_EQ(*shape_forward(test_transformer(), Plan{}, std::nullopt), test_transformer());
}

// A gradient dtype that the plan leaves open is the dtype of the parameters at rest.
TEST(TrainingGraph, AddsGradientsInTheDtypeOfParameters) {
  const Graph wide = in_one_dtype(test_transformer(), DType::kFloat32);
  const auto dtypes = [&](const Precision& precision) {
    std::set<DType> found;
    const auto graph = training_graph(wide, Plan(), precision, {});
    if (!graph) return found;
    for (const Tensor& tensor : graph->tensors()) {
      if (tensor.role == Role::kGradient && tensor.of.valid() &&
          graph->tensor(tensor.of).name.ends_with(".cast") &&
          graph->tensor(graph->op(graph->tensor(tensor.of).producer).inputs[0]).role ==
              Role::kParameter)
        found.insert(tensor.dtype);
    }
    return found;
  };
  using Dtypes = std::set<DType>;
  Precision precision;
  precision.compute = DType::kBFloat16;
  EXPECT_EQ(dtypes(precision), Dtypes{DType::kFloat32});
  precision.gradient = DType::kBFloat16;
  EXPECT_EQ(dtypes(precision), Dtypes{DType::kBFloat16});
  precision.gradient.reset();
  precision.parameter = DType::kBFloat16;  // then no copy is made, and none has a gradient
  EXPECT_EQ(dtypes(precision), Dtypes{});
}

}  // namespace
}  // namespace tessera::shape_forward_test
