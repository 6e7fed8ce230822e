#include "tessera/graph/kinds.h"

#include <gtest/gtest.h>

#include <set>

#include "tessera/base/text.h"
#include "tessera/graph/builder.h"
#include "tessera/graph/kinds/common.h"
#include "tessera/graph/test_kind_cases.h"
#include "tessera/graph/test_kinds.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

using Case = KindCase;

Result<Inferred> call(const Case& c) {
  const Called made = make_inputs(c.inputs);
  Attributes attributes = c.attributes;
  return infer_op(made.graph, c.kind, made.inputs, attributes);
}

// Runs the op through a builder and returns it as it stands in the graph.
Op built(const Case& c) {
  Called made = make_inputs(c.inputs);
  GraphBuilder builder(made.graph);
  builder.op("op", c.kind, made.inputs, c.attributes);
  auto graph = builder.finish();
  EXPECT_TRUE(graph) << c.kind << ": " << (graph ? "" : graph.error().message);
  return graph ? graph->ops().back() : Op{};
}

std::vector<std::string> described(const Inferred& inferred) {
  std::vector<std::string> out;
  for (size_t i = 0; i < inferred.outputs.size(); ++i) {
    out.push_back(std::string(dtype_name(inferred.dtypes[i])) + " " +
                  describe(inferred.outputs[i]));
  }
  return out;
}

TEST(KindsTest, EveryKindInfersAnnotationShapesAndDtypes) {
  std::set<std::string> covered;
  for (const Case& c : good_cases()) {
    covered.insert(c.kind);
    auto inferred = call(c);
    ASSERT_TRUE(inferred) << c.kind << ": " << inferred.error().message;
    EXPECT_EQ(to_string(inferred->annotation), c.annotation) << c.kind;
    EXPECT_EQ(described(*inferred), c.outputs) << c.kind;
    const KindInfo* info = find_kind(c.kind);
    EXPECT_EQ(info->outputs, inferred->outputs.size()) << c.kind;
    EXPECT_GE(op_flops(built(c)), 0) << c.kind;
  }
  for (const KindInfo* info : all_kinds()) EXPECT_TRUE(covered.contains(info->name)) << info->name;
}

TEST(KindsTest, ErrorsSayWhatWasExpectedAndWhatWasFound) {
  const std::string q = "batch=2 seq=6 heads=3 group=2 head_dim=4";
  const std::string k = "batch=2 seq=6 heads=3 head_dim=4";
  const std::vector<Case> cases = {
      {"matmul",
       {},
       {},
       "expected an op kind (docs/reference/ops.md), found 'matmul'; nearest: 'mul'",
       {}},
      {"add", {"a=2"}, {}, "expected 2 inputs, found 1", {}},
      {"add_n", {}, {}, "expected at least 1 input, found 0", {}},
      {"einsum", {"", "", "", ""}, {}, "expected 1 to 3 inputs, found 4", {}},
      {"scale", {"a=2"}, {}, "expected attribute 'factor', found none", {}},
      {"scale", {"a=2"}, {{"factor", "two"}}, "expected attribute 'factor' to be a number", {}},
      {"softmax",
       {"a=2"},
       {{"dim", "a"}, {"axis", 1}},
       "expected attributes (dim), found 'axis'",
       {}},
      {"einsum",
       {"a=2 b=3", "b=4"},
       {{"spec", "a b, b -> a"}},
       "expected dim 'b' of size 3, found 4 in input 1 'x1' [b=4] float32",
       {}},
      {"einsum",
       {"a=2"},
       {{"spec", "a b -> a"}},
       "expected input 0 with dims (a b) as in the spec, found 'x0' [a=2] float32",
       {}},
      {"einsum", {"a=2"}, {{"spec", "a, b -> a"}}, "the spec has 2 operands, found 1 inputs", {}},
      {"einsum",
       {"a=2"},
       {{"spec", "a -> a b"}},
       "expected dim 'b' of the spec in the first or second operand",
       {}},
      {"einsum",
       {"a=2", "a=2", "a=2"},
       {{"spec", "a, a, a -> ()"}},
       "expected the bias dims among the output dims, found 'a'",
       {}},
      {"einsum",
       {"a=2"},
       {{"spec", "(a b) -> a b"}},
       "expected a spec of named dims only (no bracket, number, window, causal pair or combiner)",
       {}},
      {"einsum",
       {"a=2"},
       {{"spec", "a => a"}},
       "annotation column 3: unexpected character '='",
       {}},
      {"einsum",
       {"a=2", "bfloat16 a=2"},
       {{"spec", "a, a -> a"}},
       "expected equal dtypes, found 'x0' [a=2] float32 and 'x1' [a=2] bfloat16",
       {}},
      {"add",
       {"a=2 b=3", "b=3 a=2"},
       {},
       "expected the dims of one input among those of the other in the same order, found 'x0' "
       "[a=2, b=3] float32 and 'x1' [b=3, a=2] float32",
       {}},
      {"add", {"a=2 b=3", "b=4"}, {}, "dim 'b' is 3 in input 0 but 4 in input 1", {}},
      {"gelu", {"int64 a=2"}, {}, "expected a floating dtype, found 'x0' [a=2] int64", {}},
      {"cast",
       {"a=2"},
       {{"dtype", "int64"}},
       "expected a cast of a floating dtype or int64 to a floating dtype, found 'x0' [a=2] float32 "
       "to int64",
       {}},
      {"dropout", {"a=2"}, {{"p", 1}, {"key", "k"}}, "expected 0 <= p < 1, found 1", {}},
      {"sinusoid_add",
       {"a=2 b=2"},
       {{"dim", "b"}},
       "expected a dim of the input before its last, found 'b' for 'x0' [a=2, b=2] float32",
       {}},
      {"sinusoid_add",
       {"a=2 b=2"},
       {{"dim", "a"}, {"base", 1}},
       "expected a base above 1, found 1",
       {}},
      {"embedding",
       {"batch=2", "v=3 h=4"},
       {},
       "expected ids of dtype int64, found 'x0' [batch=2] float32",
       {}},
      {"layer_norm",
       {"b=2 h=4", "h=3", "h=4"},
       {},
       "expected gamma of dims [h=4], found 'x1' [h=3] float32",
       {}},
      {"layer_norm",
       {"", "h=3", "h=4"},
       {},
       "expected x with at least 1 dims, found 'x0' [] float32",
       {}},
      {"rms_norm_grad",
       {"b=2 h=4", "b=2 h=4", "h=4", "c=2"},
       {},
       "expected rstd of dims [b=2], found 'x3' [c=2] float32",
       {}},
      {"norm_grad_apply",
       {"b=2 h=4", "b=2 h=4", "h=4", "b=2", "b=2", "b=2 sums=2"},
       {{"features", 8}},
       "expected features 4, found 8",
       {}},
      {"softmax",
       {"a=2"},
       {{"dim", "b"}},
       "expected a dim of the input, found 'b' for 'x0' [a=2] float32",
       {}},
      {"cross_entropy",
       {"b=2 v=5", "int64 c=2"},
       {},
       "expected targets of dims [b=2], found 'x1' [c=2] int64",
       {}},
      {"reorder",
       {"b=2 seq=3"},
       {{"dim", "seq"}, {"order", "zigzag:3"}},
       "expected an order 'zigzag:P' with an even P or 'striped:P', found 'zigzag:3'",
       {}},
      {"causal_mask",
       {"seq=4 kv=5"},
       {},
       "expected a dim 'seq' and, last, a dim 'kv' of the same size, found 'x0' [seq=4, kv=5] "
       "float32",
       {}},
      {"attention",
       {"b=2", "b=2", "b=2"},
       {},
       "expected q with dims (batch seq heads group head_dim), found 'x0' [b=2] float32",
       {}},
      {"attention",
       {q, "batch=2 seq=5 heads=3 head_dim=4", "batch=2 seq=5 heads=3 head_dim=4"},
       {{"causal", 1}},
       "expected at least as many keys as queries in causal attention, found 5 and 6",
       {}},
      {"attention",
       {q, "batch=2 seq=5 heads=3 head_dim=4", "batch=2 seq=5 heads=3 head_dim=4"},
       {{"window", 2}},
       "expected at least as many keys as queries in attention with a window, found 5 and 6",
       {}},
      {"attention",
       {q, k, k},
       {{"window", -1}},
       "expected a window of at least 1 (0: none), found -1",
       {}},
      {"attention", {q, k, k}, {{"p", 1.0}}, "expected 0 <= p < 1, found 1", {}},
      {"attention",
       {q, k, k},
       {{"p", 0.5}},
       "expected a key of the weights that are dropped, found none",
       {}},
      {"attention",
       {q, k, k},
       {{"p", 0.5}, {"key", "k"}, {"order", "zigzag:4"}},
       "expected no order where weights are dropped by their indices (p = 0.5), found 'zigzag:4'",
       {}},
      {"attention",
       {q, k, k, "seq=6 kv=5"},
       {},
       "expected bias with dims among [batch=2, seq=6, heads=3, group=2, kv=6], found 'x3' [seq=6, "
       "kv=5] float32",
       {}},
      {"attention",
       {q, k, k, "int64 batch=2", "int64 batch=2 seq=6"},
       {},
       "expected segments of the queries with the dim 'seq', found 'x3' [batch=2] int64",
       {}},
      {"attention",
       {q, k, k, "batch=2 seq=6", "int64 batch=2 seq=6"},
       {},
       "expected segments of the queries of dtype int64, found 'x3' [batch=2, seq=6] float32",
       {}},
      {"segment_mask",
       {"seq=4 kv=4", "int64 seq=4", "int64 seq=5"},
       {},
       "expected dims of the scores [seq=4, kv=4], found 'x2' [seq=5] int64",
       {}},
      {"attention",
       {q, "batch=2 seq=6 heads=1 head_dim=4", "batch=2 seq=6 heads=1 head_dim=4"},
       {},
       "expected k to fit q 'x0' [batch=2, seq=6, heads=3, group=2, head_dim=4] float32, found "
       "'x1' [batch=2, seq=6, heads=1, head_dim=4] float32",
       {}},
      {"rotary",
       {"b=2 seq=3 d=4", "seq=3 half=3", "seq=3 half=3"},
       {},
       "expected cos with dims (a dim of x, at most half of the last dim of x) for x 'x0' [b=2, "
       "seq=3, "
       "d=4] float32, found 'x1' [seq=3, half=3] float32",
       {}},
      {"reduce_sum",
       {"a=2"},
       {{"dims", "a a"}},
       "expected dims of the input, each once, found 'a' for 'x0' [a=2] float32",
       {}},
      {"broadcast_to",
       {"a=2"},
       {{"dims", "b=2"}},
       "expected the dims of the input among [b=2] in the same order, found 'x0' [a=2] float32",
       {}},
      {"broadcast_to", {"a=2"}, {{"dims", "a"}}, "expected dims as name=size, found 'a'", {}},
      {"group",
       {"a=2 b=3"},
       {{"first", 1}, {"count", 2}, {"name", "c"}},
       "expected dims 1 to 2 within the input, found 'x0' [a=2, b=3] float32",
       {}},
      {"ungroup",
       {"a=6"},
       {{"dim", "a"}, {"names", "b=2 c=4"}},
       "expected names whose product is 6, found [b=2, c=4]",
       {}},
      {"transpose",
       {"a=2 b=3"},
       {{"dims", "b"}},
       "expected all 2 dims of the input, found 'b'",
       {}},
      {"rearrange",
       {"a=6 b=2"},
       {{"spec", "(c d) b -> c d b"}, {"sizes", "c=4"}, {"dims", "c d b"}},
       "expected sizes of all but one dim of each bracket that divide the input, found c=4 for "
       "'x0' [a=6, b=2] float32",
       {}},
      {"rearrange",
       {"a=6 b=2"},
       {{"spec", "(c d) b -> c b"}, {"sizes", "c=3"}, {"dims", "c b"}},
       "expected the same dims on both sides, found '(c d) b -> c b'",
       {}},
      {"rearrange",
       {"a=6 b=2"},
       {{"spec", "(c d) b -> c d b"}, {"sizes", "e=3"}, {"dims", "c d b"}},
       "expected sizes of dims of the spec, found 'e'",
       {}},
      {"rearrange",
       {"a=6 b=2"},
       {{"spec", "(c d) b -> c d b"}, {"sizes", "c=3"}, {"dims", "c d"}},
       "expected a spec from the 2 dims of the input to the dims 'c d', found '(c d) b -> c d b'",
       {}},
      {"roll",
       {"a=5"},
       {{"dim", "b"}, {"shift", 1}},
       "expected a dim of the input, found 'b' for 'x0' [a=5] float32",
       {}},
      {"slice",
       {"a=5"},
       {{"dim", "a"}, {"begin", 4}, {"size", 2}},
       "expected a part of dim 'a' of size 5, found begin 4 and size 2",
       {}},
      {"concat",
       {"a=2 b=3", "a=4 b=2"},
       {{"dim", "a"}},
       "expected input 1 of dims [a=4, b=3], found 'x1' [a=4, b=2] float32",
       {}},
      {"fill",
       {},
       {{"value", 0}, {"dims", ""}, {"dtype", "halb"}},
       "expected a dtype (float64, float32, bfloat16, float16, int64, int32, uint8, bool), found "
       "'halb'",
       {}},
      {"sgd",
       {"a=2", "a=2", "a=2", "a=1"},
       {},
       "expected lr of dims [], found 'x3' [a=1] float32",
       {}},
      {"row_sgd",
       {"rows=7 width=4", "int64 batch=2 bag=3", "batch=3 width=4", ""},
       {{"modes", "sum"}},
       "expected a floating dy with the dims of ids, but that of a bag, and then width=4, found "
       "'x2' [batch=3, width=4] float32 for 'x1' [batch=2, bag=3] int64",
       {}},
      {"row_sgd",
       {"rows=7 width=4", "int64 batch=2 bag=3", "batch=2 width=4", ""},
       {{"modes", "sum sum"}},
       "expected ids and dy for each of 2 look-up(s) (attribute modes), found 3 operand(s)",
       {}},
      {"row_squares",
       {"rows=7 width=4", "int64 batch=2 bag=3", "batch=2 width=4", ""},
       {{"modes", "sum"}},
       "expected 3 operands, found 4",
       {}},
      {"row_sums",
       {"rows=7", "int64 batch=2 bag=3", "all_ids=5"},
       {{"modes", "ids"}, {"width", 4}},
       "expected squares of dims [all_ids=6], found 'x2' [all_ids=5] float32",
       {}},
      {"rowwise_step",
       {"rows=7 width=4", "rows=7", "int64 batch=2 bag=3", "batch=2 width=4", "", "", "", ""},
       {{"modes", "sum"}},
       "expected 1 to 3 scalars behind the look-ups, found 4",
       {}},
      {"row_adagrad",
       {"rows=7 width=4", "rows=7", "int64 batch=2 bag=3", "batch=2 width=4", ""},
       {{"modes", "sum"}},
       "expected sum of dims [rows=7, width=4], found 'x1' [rows=7] float32",
       {}},
      {"row_sum_squares",
       {"rows=7 width=4", "int64 batch=2 bag=3", "batch=2 width=4"},
       {{"modes", "max"}},
       "expected mode \"sum\", \"mean\" or \"weighted\", found \"max\"",
       {}},
      {"row_sgd",
       {"rows=7 width=4", "int64 batch=2 bag=3", "batch=2 width=4", "batch=2", ""},
       {{"modes", "weighted"}},
       "expected floating weights with the dims of ids, found 'x3' [batch=2] float32 for 'x1' "
       "[batch=2, bag=3] int64",
       {}},
      {"embedding_bag",
       {"int64 batch=2 bag=3", "rows=7 width=4", "batch=2 bag=3"},
       {{"mode", "mean"}},
       "expected mode \"sum\" of a bag with weights, found \"mean\"",
       {}},
      {"embedding_bag",
       {"int64 batch=2 bag=3", "rows=7 width=4", "batch=2 bag=4"},
       {},
       "expected weights of dims [batch=2, bag=3], found 'x2' [batch=2, bag=4] float32",
       {}},
      {"moe_route",
       {"b=2 s=6 e=4"},
       {{"top_k", 5}, {"capacity", 3}},
       "expected top_k from 1 to the number of experts 4, found 5",
       {}},
      {"moe_route",
       {"b=2 s=6 e=4"},
       {{"top_k", 2}, {"capacity", 0}},
       "expected a capacity of at least 1, found 0",
       {}},
      {"moe_route",
       {"b=2 s=6 e=4"},
       {{"top_k", 2}, {"capacity", 3}, {"normalize", 2}},
       "expected normalize of 0 or 1, found 2",
       {}},
      {"moe_dispatch",
       {"b=2 s=6 h=8", "int64 b=2 s=5 choice=2"},
       {{"experts", 4}, {"capacity", 3}},
       "expected slot with dims (batch seq choice) for tokens 'x0' [b=2, s=6, h=8] float32, found "
       "'x1' [b=2, s=5, choice=2] int64",
       {}},
      {"moe_slot_weight",
       {"b=2 s=6 choice=2", "int64 b=2 s=6 choice=1"},
       {{"experts", 4}, {"capacity", 3}},
       "expected slot of dims [b=2, s=6, choice=2], found 'x1' [b=2, s=6, choice=1] int64",
       {}},
      {"moe_slot_weight_grad",
       {"experts=4 b=2 capacity=3", "int64 b=1 s=6 choice=2"},
       {},
       "expected slot with dims (batch seq choice) for values 'x0' [experts=4, b=2, capacity=3] "
       "float32, found 'x1' [b=1, s=6, choice=2] int64",
       {}},
      {"moe_combine",
       {"experts=4 b=2 capacity=3", "int64 b=2 s=6 choice=2"},
       {},
       "expected floating slots with dims (experts batch capacity hidden), found 'x0' [experts=4, "
       "b=2, capacity=3] float32",
       {}},
      {"clip_coefficient", {""}, {{"max_norm", 0}}, "expected a positive max_norm, found 0", {}},
  };
  for (const Case& c :
       with(with(with(cases, vision_errors()), state_space_errors()), imported_errors())) {
    auto inferred = call(c);
    ASSERT_FALSE(inferred) << c.kind << " " << c.annotation;
    EXPECT_EQ(inferred.error().message, c.annotation) << c.kind;
  }
}

TEST(KindsTest, TheBuilderNamesTheOpInItsFirstError) {
  GraphBuilder g("bad");
  g.push("blocks.0");
  const TensorId x = g.input("x", {{"a", 2}}, DType::kFloat32);
  const TensorId y = g.op1("act", "geluu", {x});
  EXPECT_FALSE(g.ok());
  EXPECT_TRUE(g.tensor(y).dims.empty());
  g.op1("more", "gelu", {y});
  g.pop();
  auto graph = g.finish();
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().message,
            "op 'blocks.0.act' (geluu): expected an op kind (docs/reference/ops.md), found "
            "'geluu'; nearest: 'gelu'");
}

int64_t flops(const std::string& kind, const std::vector<std::string>& inputs,
              const Attributes& attributes) {
  return op_flops(built({kind, inputs, attributes, "", {}}));
}

TEST(KindsTest, FlopsOfContractionsAndAttention) {
  EXPECT_EQ(flops("einsum", {"m=2 k=3", "k=3 n=5"}, {{"spec", "m k, k n -> m n"}}), 2 * 2 * 3 * 5);
  EXPECT_EQ(flops("einsum", {"m=2 k=3", "k=3 n=5", "n=5"}, {{"spec", "m k, k n, n -> m n"}}),
            2 * 2 * 3 * 5);
  const std::string q = "batch=2 seq=6 heads=3 group=2 head_dim=4";
  const std::string k = "batch=2 seq=6 heads=3 head_dim=4";
  const int64_t full = 4 * 2 * 6 * 6 * 3 * 2 * 4;
  EXPECT_EQ(flops("attention", {q, k, k}, {}), full);
  EXPECT_EQ(flops("attention", {q, k, k}, {{"causal", 1}}), full / 2);
  // In a causal op each query's own key counts half.
  EXPECT_EQ(flops("attention", {q, k, k}, {{"causal", 1}, {"window", 3}}),
            full / 36 * (1 + 2 + 3 + 3 + 3 + 3) - full / 12);
  EXPECT_EQ(flops("attention", {q, k, k}, {{"window", 3}}), full / 36 * (3 + 4 + 5 + 5 + 4 + 3));
  const std::vector<std::string> grad = {q, q, k, k, q, "batch=2 seq=6 heads=3 group=2"};
  EXPECT_EQ(flops("attention_grad", grad, {}), full * 5 / 2);
  EXPECT_EQ(flops("attention_grad", grad, {{"causal", 1}}), full * 5 / 4);
  EXPECT_EQ(flops("add", {"a=2 b=3", "b=3"}, {}), 6);
  EXPECT_EQ(flops("add_n", {"a=2", "a=2", "a=2"}, {}), 4);
  EXPECT_EQ(flops("transpose", {"a=2 b=3"}, {{"dims", "b a"}}), 0);
  EXPECT_EQ(flops("norm_moments", {"b=2 h=4"}, {}), flops("rms_square", {"b=2 h=4"}, {}) / 2);
  EXPECT_EQ(flops("rotary", {"seq=3 d=4", "seq=3 half=2", "seq=3 half=2"}, {}), 3 * 2 * 6);
}

TEST(KindsTest, LinearOpsAreThoseWithoutBroadcast) {
  EXPECT_TRUE(is_linear(built({"add", {"a=2", "a=2"}, {}, "", {}})));
  EXPECT_FALSE(is_linear(built({"add", {"a=2 b=2", "a=2"}, {}, "", {}})));
  EXPECT_TRUE(is_linear(built({"scale", {"a=2"}, {{"factor", 2}}, "", {}})));
  EXPECT_FALSE(is_linear(built({"gelu", {"a=2"}, {}, "", {}})));
}

TEST(KindsTest, OnlySomeOutputsOfNormGradientsAccumulate) {
  const Op op = built({"rms_norm_grad", {"b=2 h=4", "b=2 h=4", "h=4", "b=2"}, {}, "", {}});
  EXPECT_FALSE(accumulates(op, 0));
  EXPECT_TRUE(accumulates(op, 1));
  EXPECT_TRUE(accumulates(built({"add_n", {"a=2", "a=2"}, {}, "", {}}), 0));
  EXPECT_FALSE(accumulates(built({"gelu", {"a=2"}, {}, "", {}}), 0));
}

TEST(KindsTest, AttributesAreCompletedAndConverted) {
  const Op scale = built({"scale", {"a=2"}, {{"factor", 2}}, "", {}});
  EXPECT_EQ(scale.attributes, (Attributes{{"factor", 2.0}}));
  const Op norm = built({"rms_norm", {"b=2 h=4", "h=4"}, {}, "", {}});
  EXPECT_EQ(norm.attributes, (Attributes{{"eps", 1e-5}}));
}

// Expansions make tensors with the dims and dtypes of the outputs, and free the dims that they
// name.
TEST(KindsTest, ExpansionsMakeTheSameTensorsWithFewerFrozenDims) {
  size_t expanded = 0;
  for (const Case& c : good_cases()) {
    const KindInfo* info = find_kind(c.kind);
    if (!info->expand) continue;
    ++expanded;
    Called made = make_inputs(c.inputs);
    GraphBuilder builder(made.graph);
    builder.op("op", c.kind, made.inputs, c.attributes);
    const Op op = builder.graph().ops()[0];
    const std::vector<TensorId> outputs = info->expand(builder, op);
    auto graph = builder.finish();
    ASSERT_TRUE(graph) << c.kind << ": " << graph.error().message;
    ASSERT_EQ(outputs.size(), op.outputs.size()) << c.kind;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].valid()) {
        EXPECT_EQ(info->output_names[i], "lse") << "all others are made";
        continue;
      }
      EXPECT_EQ(graph->tensor(outputs[i]).dims, graph->tensor(op.outputs[i]).dims) << c.kind;
      EXPECT_EQ(graph->tensor(outputs[i]).dtype, graph->tensor(op.outputs[i]).dtype) << c.kind;
    }
    if (info->expandable == nullptr) continue;  // only where a plan asks for it
    for (const std::string& name : info->expandable(op)) {
      for (size_t i = 1; i < graph->ops().size(); ++i) {
        const Annotation& part = graph->ops()[i].annotation;
        const int dim = part.find(name);
        if (dim < 0) continue;
        EXPECT_NE(part.dims[static_cast<size_t>(dim)].mark, Mark::kFrozen) << graph->ops()[i].path;
      }
    }
  }
  EXPECT_EQ(expanded, 6u + 3u + 7u + 1u)
      << "norms and softmax, batch norm, attention, row-wise Adagrad";
}

// Compares the kinds of the table with the first cells of the tables of docs/reference/ops.md.
TEST(KindsTest, TheDocumentationListsTheKindsOfTheTable) {
  auto text = read_file(std::string(TESSERA_SOURCE_DIR) + "/docs/reference/ops.md");
  ASSERT_TRUE(text) << text.error().message;
  std::set<std::string> documented;
  for (const std::string& line : split_text(*text, '\n')) {
    if (line.rfind("| `", 0) != 0) continue;
    const std::vector<std::string> quoted = split_text(line.substr(0, line.find('|', 1)), '`');
    for (size_t i = 1; i < quoted.size(); i += 2) documented.insert(quoted[i]);
  }
  std::set<std::string> known;
  for (const KindInfo* info : all_kinds()) known.insert(info->name);
  EXPECT_EQ(documented, known);
  const std::string count = "the same " + std::to_string(known.size()) + " kinds";
  EXPECT_NE(text->find(count), std::string::npos) << "expected '" << count << "'";
}

}  // namespace
}  // namespace tessera
