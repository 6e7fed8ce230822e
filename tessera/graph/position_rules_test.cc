// Tests the promises of a kind's row about places, on every dim of every kind's cases.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/test_kind_cases.h"
#include "tessera/graph/transform.h"

namespace tessera {
namespace {

TEST(PositionRules, EveryKindSaysWhatAPlanHasToKnow) {
  for (const KindInfo* info : all_kinds()) {
    EXPECT_TRUE(info->work.has_value()) << info->name;
    EXPECT_LT(info->statistics, static_cast<int>(info->outputs)) << info->name;
    EXPECT_EQ(info->family == FamilyRule::kNamed, !info->sizes.empty()) << info->name;
    EXPECT_EQ(info->added_once >= 0, info->without_added != nullptr) << info->name;
    EXPECT_TRUE(info->work != WorkClass::kAttention || info->query_key) << info->name;
    EXPECT_TRUE(!info->optimizer || info->outputs == 1 + info->optimizer->states.size());
    for (const std::string& sizes : info->size_attributes) {
      EXPECT_TRUE(std::any_of(info->attributes.begin(), info->attributes.end(),
                              [&](const AttributeInfo& a) { return a.name == sizes; }))
          << info->name;
    }
  }
}

Graph alone(const KindCase& c) {
  Called made = make_inputs(c.inputs);
  GraphBuilder builder(made.graph);
  builder.op("op", c.kind, made.inputs, c.attributes);
  auto graph = builder.finish();
  EXPECT_TRUE(graph) << c.kind << ": " << (graph ? "" : graph.error().message);
  return graph.value_or(Graph());
}

// Loops cut the dims that the row allows, and give the result of the whole op; other dims are
// refused by name.
TEST(PositionRules, EveryDimIsLoopedOverOrRefusedByName) {
  int looped = 0, refused = 0;
  for (const KindCase& c : good_cases()) {
    const Graph graph = alone(c);
    const Op& op = graph.ops()[0];
    for (size_t d = 0; d < op.annotation.dims.size(); ++d) {
      const OpDim& dim = op.annotation.dims[d];
      if (dim.size < 2 || dim.literal()) continue;
      EXPECT_NE(position_rule(op, static_cast<int>(d)), PositionRule::kUnknown)
          << c.kind << " " << dim.name;
      const Status may = check_loopable(op, static_cast<int>(d));
      const auto out = unroll(graph, {true}, {.dim = dim.name, .sizes = {1, dim.size - 1}});
      EXPECT_EQ(out.has_value(), may.has_value())
          << c.kind << " " << dim.name << ": "
          << (out ? may : out.map([](auto&) {})).error().message;
      ++(out ? looped : refused);
      if (!out && may) continue;
      if (!may) {
        EXPECT_EQ(out.error().message, fmt::format("dim '{}' of op 'op' ({}) {}", dim.name, c.kind,
                                                   may.error().message));
        continue;
      }
      for (const TensorId id : op.outputs) {
        const Tensor& whole = graph.tensor(id);
        const TensorId piece = out->find_tensor(whole.name + "#0");
        ASSERT_TRUE(piece.valid()) << c.kind << " " << dim.name;
        EXPECT_EQ(out->tensor(piece).dtype, whole.dtype) << c.kind << " " << dim.name;
        const int at = kinds::find_dim(whole.dims, dim.name);
        if (at < 0 || whole.dims[static_cast<size_t>(at)].size != dim.size) continue;
        EXPECT_EQ(out->tensor(piece).dims[static_cast<size_t>(at)].size, 1)
            << c.kind << " " << dim.name;
      }
    }
  }
  EXPECT_GT(looped, 150);
  EXPECT_GT(refused, 50);
}

// A piece reads its place by its rule, or because a bias is added once to a sum over the dim.
TEST(PositionRules, WhoReadsPositions) {
  const auto reads = [](const KindCase& c, const char* dim) {
    const Graph graph = alone(c);
    const Op& op = graph.ops()[0];
    return reads_position(op, op.annotation.find(dim));
  };
  const KindCase plain{"einsum", {"m=2 k=4", "k=4 n=3"}, {{"spec", "m k, k n -> m n"}}, "", {}};
  const KindCase biased{
      "einsum", {"m=2 k=4", "k=4 n=3", "n=3"}, {{"spec", "m k, k n, n -> m n"}}, "", {}};
  EXPECT_FALSE(reads(plain, "k"));
  EXPECT_TRUE(reads(biased, "k"));
  EXPECT_FALSE(reads(biased, "m"));
  EXPECT_FALSE(reads(biased, "n"));
  const std::string q = "batch=2 seq=6 heads=3 group=2 head_dim=4";
  const std::string k = "batch=2 seq=6 heads=3 head_dim=4";
  const KindCase causal{"attention", {q, k, k}, {{"causal", 1}}, "", {}};
  EXPECT_TRUE(reads(causal, "seq"));
  EXPECT_FALSE(reads(causal, "batch"));
}

// A dim is reordered if the row allows it, else refused by name.
TEST(PositionRules, EveryDimIsReorderedOrRefusedByName) {
  for (const KindCase& c : good_cases()) {
    const Graph graph = alone(c);
    const Op& op = graph.ops()[0];
    std::set<std::string> names;
    for (const TensorId input : op.inputs) {
      for (const Dim& dim : graph.tensor(input).dims) names.insert(dim.name);
    }
    for (const std::string& name : names) {
      const auto out = reorder_dim(graph, name, "striped:2");
      if (!out) {
        EXPECT_EQ(
            out.error().message,
            fmt::format("dim '{}' cannot be reordered: what op 'op' ({}) does with an element "
                        "depends on its place",
                        name, c.kind));
        continue;
      }
      const int d = op.annotation.find(name);
      if (d < 0) continue;
      const PositionRule rule = position_rule(op, d);
      EXPECT_TRUE(rule == PositionRule::kFree || rule == PositionRule::kSize ||
                  rule == PositionRule::kOrder || rule == PositionRule::kCausal)
          << c.kind << " " << name;
    }
  }
}

}  // namespace
}  // namespace tessera
