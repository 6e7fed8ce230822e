#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

#include "tessera/base/text.h"
#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/test_graphs.h"
#include "tessera/test/source_dir.h"

namespace tessera::differentiate_test {
namespace {

using test_graphs::kNormal;
using test_graphs::mlp;
using test_graphs::transformer;

OptimizerSpec backward_only() {
  OptimizerSpec spec;
  spec.kind = "none";
  return spec;
}

Graph differentiated(const Graph& forward, const OptimizerSpec& spec) {
  auto graph = differentiate(forward, spec);
  EXPECT_TRUE(graph) << (graph ? "" : graph.error().message);
  return graph ? *graph : Graph{};
}

const Op* find_op(const Graph& graph, std::string_view path) {
  for (const Op& op : graph.ops()) {
    if (op.path == path) return &op;
  }
  return nullptr;
}

// Compares with the expected text, which lies beside the tests; TESSERA_REWRITE_GOLDEN=1 rewrites
// it.
void expect_golden(const std::string& text, const std::string& name) {
  const std::string path = std::string(TESSERA_SOURCE_DIR) + "/tessera/graph/testdata/" + name;
  if (std::getenv("TESSERA_REWRITE_GOLDEN") != nullptr) {
    ASSERT_TRUE(write_file(path, text));
  }
  auto golden = read_file(path);
  ASSERT_TRUE(golden) << golden.error().message;
  EXPECT_EQ(text, *golden) << path;
}

TEST(DifferentiateTest, TwoLayerPerceptronAsText) {
  expect_golden(to_text(differentiated(mlp(), OptimizerSpec{})), "mlp_adamw.graph");
}

TEST(DifferentiateTest, SgdWithoutClipping) {
  OptimizerSpec spec;
  spec.kind = "sgd";
  spec.clip_norm = 0;
  const Graph graph = differentiated(mlp(), spec);
  const Op* update = find_op(graph, "optimizer.up.weight");
  ASSERT_NE(update, nullptr);
  EXPECT_EQ(update->kind, "sgd");
  EXPECT_EQ(update->inputs.size(), 4u);
  EXPECT_TRUE(graph.find_tensor("optimizer.momentum.up.weight").valid());
  for (const Op& op : graph.ops()) EXPECT_NE(op.path.rfind("clip.", 0), 0u) << op.path;
}

TEST(DifferentiateTest, EveryParameterOfATransformerHasAGradientAndAnUpdate) {
  const Graph forward = transformer(2);
  const Graph graph = differentiated(forward, OptimizerSpec{});
  for (const Tensor& tensor : forward.tensors()) {
    if (tensor.role != Role::kParameter) continue;
    const TensorId gradient = graph.find_tensor("grad." + tensor.name);
    ASSERT_TRUE(gradient.valid()) << tensor.name;
    EXPECT_EQ(graph.tensor(gradient).of, tensor.id);
    EXPECT_EQ(graph.tensor(gradient).dims, tensor.dims);
    EXPECT_EQ(graph.tensor(gradient).dtype, tensor.dtype);
    const TensorId updated = graph.find_tensor("updated." + tensor.name);
    ASSERT_TRUE(updated.valid()) << tensor.name;
    EXPECT_EQ(graph.tensor(updated).update_of, tensor.id);
  }
  EXPECT_EQ(parameter_count(graph), parameter_count(forward));
}

TEST(DifferentiateTest, BackwardOpsMirrorForwardOpsAndInheritTheirDimNames) {
  const Graph graph = differentiated(transformer(1), backward_only());
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kBackward || op.kind != "einsum") continue;
    ASSERT_TRUE(op.mirror.valid()) << op.path;
    for (const OpDim& dim : op.annotation.dims) {
      EXPECT_GE(graph.op(op.mirror).annotation.find(dim.name), 0) << op.path << " " << dim.name;
    }
  }
}

// Makes y = w x (twice, the first pass without gradient): only the second product is
// differentiated.
Graph two_passes(bool first_uses_more) {
  GraphBuilder g("recycled");
  const std::vector<Dim> dims = {{"h", 4}};
  TensorId x = g.input("x", dims, DType::kFloat32);
  for (const char* pass : {"pass.0", ""}) {
    g.push_shared(pass);
    g.push("block");
    x = g.op1("scaled", "mul", {x, g.parameter("weight", dims, kNormal)});
    g.pop();
    if (*pass != '\0') {
      if (first_uses_more) x = g.op1("more", "mul", {x, g.parameter("more", dims, kNormal)});
      x = g.op1("stop", "stop_gradient", {x});
    }
    g.pop();
  }
  g.graph().loss = g.op1("loss", "reduce_sum", {x}, {{"dims", "h"}});
  auto graph = g.finish();
  EXPECT_TRUE(graph) << (graph ? "" : graph.error().message);
  return graph ? *graph : Graph{};
}

TEST(DifferentiateTest, NothingIsTrainedThroughAStoppedGradient) {
  const Graph forward = two_passes(false);
  EXPECT_EQ(parameter_count(forward), 4);  // shared by both passes
  EXPECT_TRUE(forward.find_tensor("pass.0.block.scaled").valid());
  EXPECT_TRUE(forward.find_tensor("block.weight").valid());
  const Graph graph = differentiated(forward, backward_only());
  for (const Op& op : graph.ops()) {
    if (op.phase == Phase::kBackward) {
      EXPECT_FALSE(op.path.starts_with("pass.")) << op.path;
    }
  }
  const Op* dw = find_op(graph, "block.scaled.db");
  ASSERT_NE(dw, nullptr);
  EXPECT_EQ(graph.tensor(dw->outputs[0]).name, "grad.block.weight");
}

TEST(DifferentiateTest, AParameterBehindAStoppedGradientIsAnError) {
  const auto graph = differentiate(two_passes(true), backward_only());
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().message, "parameter 'more' does not influence the loss 'loss'");
}

TEST(DifferentiateTest, WhatIsNotTrainedHasNeitherGradientNorState) {
  Graph graph = mlp();
  const TensorId up = graph.find_tensor("up.weight");
  graph.tensor(up).trained = false;
  const std::string text = to_text(graph);
  EXPECT_NE(text.find("trained=0"), std::string::npos);
  const auto parsed = parse_graph(text);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, graph);
  const Graph training = differentiated(graph, OptimizerSpec{});
  EXPECT_FALSE(training.find_tensor("grad.up.weight").valid());
  EXPECT_FALSE(training.find_tensor("optimizer.m.up.weight").valid());
  EXPECT_EQ(find_op(training, "optimizer.up.weight"), nullptr);
  EXPECT_TRUE(training.find_tensor("grad.down.weight").valid());
  EXPECT_TRUE(training.find_tensor("optimizer.m.down.weight").valid());
}

TEST(DifferentiateTest, ScalarsOfAnUpdateHaveTheDtypeOfWhatIsTrained) {
  GraphBuilder g("mixed");
  const std::vector<Dim> dims = {{"h", 4}};
  const TensorId x = g.input("x", dims, DType::kFloat32);
  const TensorId y = g.op1("scaled", "mul", {x, g.parameter("weight", dims, kNormal)});
  g.set_trains(false);
  const TensorId table = g.parameter("table", dims, kNormal, DType::kFloat64);
  g.set_trains(true);
  const TensorId wide = g.op1("wide", "cast", {y}, {{"dtype", "float64"}});
  const TensorId product = g.op1("product", "mul", {wide, table});
  g.graph().loss = g.op1("loss", "reduce_sum", {product}, {{"dims", "h"}});
  const auto forward = g.finish();
  ASSERT_TRUE(forward) << forward.error().message;
  const Graph graph = differentiated(*forward, OptimizerSpec{});
  EXPECT_EQ(graph.tensor(graph.find_tensor("lr")).dtype, DType::kFloat32);
}

TEST(GraphTextTest, OnlyParametersAreTrained) {
  const auto parsed = parse_graph("graph \"g\"\ninput %x [batch=2] float32 trained=0\n", "g.graph");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().message, "g.graph:2: trained=0 is for parameters, 'x' is none");
}

TEST(GraphBuilderTest, ASharedParameterKeepsItsDims) {
  GraphBuilder g("shared");
  g.push_shared("pass.0");
  g.parameter("weight", {{"h", 4}}, kNormal);
  g.parameter("weight", {{"h", 5}}, kNormal);
  const auto graph = g.finish();
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().message,
            "expected the shared parameter 'weight' with dims [h=5], found 'weight' [h=4] float32");
}

TEST(DifferentiateTest, ATiedEmbeddingAddsUpBothContributions) {
  const Graph graph = differentiated(transformer(1), backward_only());
  const TensorId gradient = graph.find_tensor("grad.embed.weight");
  ASSERT_TRUE(gradient.valid());
  const Op& sum = graph.op(graph.tensor(gradient).producer);
  EXPECT_EQ(sum.kind, "add_n");
  EXPECT_EQ(sum.path, "embed.weight.grad");
  EXPECT_FALSE(sum.mirror.valid());
  ASSERT_EQ(sum.inputs.size(), 2u);
  EXPECT_EQ(graph.tensor(sum.inputs[0]).name, "grad.embed.weight.from.head");
  EXPECT_EQ(graph.tensor(sum.inputs[1]).name, "grad.embed.weight.from.embed");
}

TEST(DifferentiateTest, ResidualBranchesAddUpAtTheTensorThatForks) {
  const Graph graph = differentiated(transformer(1), backward_only());
  const Op* sum = find_op(graph, "embed.grad");
  ASSERT_NE(sum, nullptr);
  EXPECT_EQ(sum->kind, "add_n");
  EXPECT_EQ(graph.op(sum->mirror).path, "embed");
  EXPECT_EQ(graph.tensor(sum->outputs[0]).name, "grad.embed");
}

TEST(DifferentiateTest, AGradientPassedOnIsSharedByActivationsButNotByParameters) {
  GraphBuilder g("shared");
  const TensorId p = g.parameter("p", {{"a", 2}}, kNormal);
  const TensorId q = g.parameter("q", {{"a", 2}}, kNormal);
  const TensorId sum = g.op1("sum", "add", {p, q});
  g.graph().loss = g.op1("loss", "reduce_sum", {sum}, {{"dims", "a"}});
  const Graph graph = differentiated(*g.finish(), backward_only());
  EXPECT_EQ(graph.tensor(graph.find_tensor("grad.sum")).of, sum);
  for (const char* name : {"p", "q"}) {
    const TensorId gradient = graph.find_tensor(std::string("grad.") + name);
    ASSERT_TRUE(gradient.valid());
    EXPECT_EQ(graph.op(graph.tensor(gradient).producer).kind, "scale");
  }
}

TEST(DifferentiateTest, AnOpThatReadsATensorTwiceContributesTwice) {
  GraphBuilder g("square");
  const TensorId p = g.parameter("p", {{"a", 2}}, kNormal);
  const TensorId square = g.op1("square", "mul", {p, p});
  g.graph().loss = g.op1("loss", "reduce_sum", {square}, {{"dims", "a"}});
  const Graph graph = differentiated(*g.finish(), backward_only());
  const Op* sum = find_op(graph, "p.grad");
  ASSERT_NE(sum, nullptr);
  EXPECT_EQ(graph.tensor(sum->inputs[0]).name, "grad.p.from.square");
  EXPECT_EQ(graph.tensor(sum->inputs[1]).name, "grad.p.from.square.1");
}

TEST(DifferentiateTest, BroadcastOperandsAreSummedOverTheMissingDims) {
  GraphBuilder g("broadcast");
  const TensorId x = g.input("x", {{"b", 2}, {"a", 3}}, DType::kFloat32);
  const TensorId p = g.parameter("p", {{"a", 3}}, kNormal);
  const TensorId q = g.parameter("q", {{"b", 2}}, kNormal);
  const TensorId product = g.op1("product", "mul", {x, p});
  const TensorId y = g.op1("y", "sub", {product, q});
  g.graph().loss = g.op1("loss", "reduce_sum", {y}, {{"dims", "a b"}});
  const Graph graph = differentiated(*g.finish(), backward_only());
  EXPECT_EQ(to_string(find_op(graph, "product.db")->annotation), "b+ a -> a");
  EXPECT_EQ(find_op(graph, "product.db.product")->kind, "mul");
  EXPECT_EQ(to_string(find_op(graph, "y.db.sum")->annotation), "b a+ -> b");
  EXPECT_EQ(find_op(graph, "product.da"), nullptr);  // x needs no gradient
}

// Some dims of the operands are neither in the output nor in the other operand, and some operands'
// tensor dims have other names than the spec.
TEST(DifferentiateTest, EinsumGradientsBroadcastAndRename) {
  GraphBuilder g("einsum");
  const TensorId a = g.parameter("a", {{"i", 2}, {"j", 3}, {"l", 4}}, kNormal);
  const TensorId b = g.parameter("b", {{"r", 3}, {"s", 5}}, kNormal);
  const TensorId y = g.op1("y", "einsum", {a, b}, {{"spec", "m k x, k n^ -> n m"}});
  g.graph().loss = g.op1("loss", "reduce_sum", {y}, {{"dims", "m n"}});
  const Graph graph = differentiated(*g.finish(), backward_only());
  EXPECT_EQ(to_string(find_op(graph, "y.dx")->annotation), "n^ m, k n -> m k");
  EXPECT_EQ(find_op(graph, "y.dx.broadcast")->kind, "broadcast_to");
  EXPECT_EQ(to_string(find_op(graph, "y.dw")->annotation), "m+ k x+, n^ m -> k n");
  EXPECT_EQ(graph.tensor(graph.find_tensor("grad.a")).dims, graph.tensor(a).dims);
  EXPECT_EQ(graph.tensor(graph.find_tensor("grad.b")).dims, graph.tensor(b).dims);
}

TEST(DifferentiateTest, EveryDifferentiableShapeKindGivesAGradientOfTheRightDims) {
  GraphBuilder g("shapes");
  const TensorId p = g.parameter("p", {{"a", 2}, {"b", 3}, {"c", 4}}, kNormal);
  const TensorId grouped =
      g.op1("group", "group", {p}, {{"first", 1}, {"count", 2}, {"name", "bc"}});
  const TensorId turned = g.op1("turn", "transpose", {grouped}, {{"dims", "bc a"}});
  const TensorId renamed = g.op1("name", "rename", {turned}, {{"from", "a"}, {"to", "e"}});
  const TensorId cut = g.op1("cut", "slice", {renamed}, {{"dim", "e"}, {"begin", 1}, {"size", 1}});
  const TensorId joined = g.op1("join", "concat", {cut, renamed}, {{"dim", "e"}});
  const TensorId parts = g.op1("parts", "ungroup", {joined}, {{"dim", "bc"}, {"names", "b=3 c=4"}});
  const TensorId soft = g.op1("soft", "softmax", {parts}, {{"dim", "c"}});
  const TensorId wide = g.op1("wide", "broadcast_to", {soft}, {{"dims", "z=2 b=3 c=4 e=3"}});
  const TensorId narrow = g.op1("narrow", "cast", {wide}, {{"dtype", "bfloat16"}});
  const TensorId grown = g.op1("exp", "exp", {narrow});
  const TensorId kept = g.op1("drop", "dropout", {grown}, {{"p", 0.5}, {"key", "drop"}});
  const TensorId total =
      g.op1("total", "reduce_sum", {kept}, {{"dims", "z b c e"}, {"factor", 0.5}});
  g.graph().loss = g.op1("loss", "cast", {total}, {{"dtype", "float32"}});
  auto forward = g.finish();
  ASSERT_TRUE(forward) << forward.error().message;
  const Graph graph = differentiated(*forward, backward_only());
  EXPECT_EQ(graph.tensor(graph.find_tensor("grad.p")).dims, graph.tensor(p).dims);
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role != Role::kGradient || !tensor.of.valid()) continue;
    EXPECT_EQ(tensor.dims, graph.tensor(tensor.of).dims) << tensor.name;
    EXPECT_EQ(tensor.dtype, graph.tensor(tensor.of).dtype) << tensor.name;
  }
}

TEST(DifferentiateTest, AMissingGradientOfCrossEntropyIsFilledWithZeros) {
  GraphBuilder g("half");
  const TensorId p = g.parameter("p", {{"b", 2}, {"v", 3}}, kNormal);
  const TensorId targets = g.input("targets", {{"b", 2}}, DType::kInt64);
  const auto ce = g.op("ce", "cross_entropy", {p, targets});
  g.graph().loss = g.op1("loss", "reduce_sum", {ce[0]}, {{"dims", "b"}});
  const Graph graph = differentiated(*g.finish(), backward_only());
  ASSERT_NE(find_op(graph, "ce.dpicked"), nullptr);
  EXPECT_EQ(find_op(graph, "ce.dpicked")->kind, "fill");
}

TEST(DifferentiateTest, ClippingSumsByGroup) {
  const Graph graph = differentiated(transformer(2), OptimizerSpec{});
  for (const char* path : {"clip.blocks.0", "clip.blocks.1", "clip.total", "clip.coefficient",
                           "clip.embed.weight.sum_squares"}) {
    EXPECT_NE(find_op(graph, path), nullptr) << path;
  }
  const auto last_term = [&](const char* path) {
    return graph.tensor(find_op(graph, path)->inputs.back()).name;
  };
  EXPECT_EQ(find_op(graph, "clip.embed"), nullptr);  // the first group makes the total
  EXPECT_EQ(find_op(graph, "clip.total")->inputs.size(), 2u);
  EXPECT_EQ(last_term("clip.total"), "clip.blocks.0");
  EXPECT_EQ(last_term("clip.blocks.0"), "clip.blocks.1");
  EXPECT_EQ(last_term("clip.blocks.1"), "clip.norm");
}

// A table that is looked up in a narrow copy counts as looked up too: Muon leaves it to AdamW.
TEST(DifferentiateTest, MuonTakesNoTableForAMatrix) {
  for (const bool narrow : {false, true}) {
    GraphBuilder g("table");
    const Dim batch{"batch", 4}, vocab{"vocab", 6}, hidden{"hidden", 3};
    const TensorId tokens = g.input("tokens", {batch}, DType::kInt64);
    const TensorId table = g.parameter("table", {vocab, hidden}, kNormal);
    const TensorId read = narrow ? g.op1("copy", "cast", {table}, {{"dtype", "bfloat16"}}) : table;
    const TensorId x = g.op1("rows", "embedding", {tokens, read});
    g.graph().loss = g.op1("loss", "reduce_sum", {x}, {{"dims", "batch hidden"}});
    OptimizerSpec muon;
    muon.kind = "muon";
    const auto forward = g.finish();
    ASSERT_TRUE(forward) << forward.error().message;
    const Graph graph = differentiated(*forward, muon);
    ASSERT_NE(find_op(graph, "optimizer.table"), nullptr);
    EXPECT_EQ(find_op(graph, "optimizer.table")->kind, "adamw") << (narrow ? "narrow" : "as it is");
  }
}

// Returns the parameters whose squares the op at `path` adds up, with those of the groups behind
// it.
std::set<std::string> summed_by(const Graph& graph, const std::string& path) {
  std::set<std::string> out;
  const Op* op = find_op(graph, path);
  EXPECT_NE(op, nullptr) << path;
  for (const TensorId input : op == nullptr ? std::vector<TensorId>{} : op->inputs) {
    const Op& part = graph.op(graph.tensor(input).producer);
    if (part.kind == "sum_squares") {
      out.insert(graph.tensor(graph.tensor(part.inputs[0]).of).name);
    } else {
      out.merge(summed_by(graph, part.path));
    }
  }
  return out;
}

// Makes layers of two products and a norm; `name` names the parameter `which` of layer `i`.
Graph clipped_layers(const std::function<std::string(int i, const std::string& which)>& name) {
  GraphBuilder g("layers");
  const Dim batch{"batch", 4}, hidden{"hidden", 6}, ffn{"ffn", 8};
  const Init init{Init::Kind::kNormal, 0.1};
  TensorId x = g.input("x", {batch, hidden}, DType::kFloat32);
  x = g.op1("n", "mul", {x, g.parameter("first", {hidden}, init)});
  for (int i = 0; i < 3; ++i) {
    const auto at = [&](const char* op) { return "n" + std::to_string(i) + op; };
    const TensorId up = g.parameter(name(i, "up"), {hidden, ffn}, init),
                   down = g.parameter(name(i, "down"), {ffn, hidden}, init);
    TensorId h = g.op1(at("up"), "einsum", {x, up},
                       {{"spec", std::string("batch hidden+, hidden ffn -> batch ffn")}});
    h = g.op1(at("down"), "einsum", {g.op1(at("act"), "gelu", {h}), down},
              {{"spec", std::string("batch ffn+, ffn hidden -> batch hidden")}});
    x = g.op1(at("sum"), "add", {x, h});
  }
  g.graph().loss = g.op1("loss", "reduce_sum", {x}, {{"dims", std::string("batch hidden")}});
  const auto forward = g.finish();
  EXPECT_TRUE(forward) << forward.error().message;
  const auto graph = differentiate(*forward, OptimizerSpec{});
  EXPECT_TRUE(graph) << graph.error().message;
  return graph.value_or(Graph());
}

TEST(DifferentiateTest, SquaresAreSummedByBlockWhateverTheBlocksAreCalled) {
  using Names = std::set<std::string>;
  const Graph numbered = clipped_layers([](int i, const std::string& which) {
    return "transformer.h." + std::to_string(i) + "." + which + ".weight";
  });
  EXPECT_EQ(summed_by(numbered, "clip.transformer.h.1"),
            (Names{"transformer.h.1.up.weight", "transformer.h.1.down.weight",
                   "transformer.h.2.up.weight", "transformer.h.2.down.weight"}));
  EXPECT_EQ(find_op(numbered, "clip.total")->inputs.size(), 2U);  // first, and the three layers
  const Graph nameless = clipped_layers([](int i, const std::string& which) {
    return which + std::string(1, static_cast<char>('a' + i));
  });
  EXPECT_EQ(summed_by(nameless, "clip.block.1"), (Names{"upb", "downb", "upc", "downc"}));
  EXPECT_EQ(summed_by(nameless, "clip.block.2"), (Names{"upc", "downc"}));
  EXPECT_EQ(find_op(nameless, "clip.total")->inputs.size(), 2U);
  EXPECT_EQ(summed_by(nameless, "clip.total"),
            (Names{"first", "upa", "downa", "upb", "downb", "upc", "downc"}));
}

TEST(DifferentiateTest, WeightDecayIsForMatricesOnly) {
  const Graph graph = differentiated(transformer(1), OptimizerSpec{});
  EXPECT_EQ(find_op(graph, "optimizer.embed.weight")->number("weight_decay"), 0.1);
  EXPECT_EQ(find_op(graph, "optimizer.norm.weight")->number("weight_decay"), 0.0);
}

std::string error_of(const Graph& forward, const OptimizerSpec& spec = {}) {
  auto graph = differentiate(forward, spec);
  EXPECT_FALSE(graph);
  return graph ? "" : graph.error().message;
}

bool reads(const char* kind, std::string_view attribute) {
  const auto& attributes = find_kind(kind)->attributes;
  return std::any_of(attributes.begin(), attributes.end(),
                     [&](const AttributeInfo& one) { return one.name == attribute; });
}

TEST(DifferentiateTest, NumbersOfAnOptimizerHaveRanges) {
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  const struct {
    double OptimizerSpec::*key;
    std::vector<double> wrong;
    const char *name, *wanted;
  } cases[] = {
      {&OptimizerSpec::beta1, {2, 1, -0.1, nan}, "beta1", "a number of at least 0 and below 1"},
      {&OptimizerSpec::beta2, {2, 1, -0.1, nan}, "beta2", "a number of at least 0 and below 1"},
      {&OptimizerSpec::momentum, {1, -1, nan}, "momentum", "a number of at least 0 and below 1"},
      {&OptimizerSpec::eps, {-1e-8, nan, infinity}, "eps", "a number of at least 0"},
      {&OptimizerSpec::weight_decay, {-1, nan, infinity}, "weight_decay", "a number of at least 0"},
      {&OptimizerSpec::nesterov, {0.5, 2, nan}, "nesterov", "0 or 1"},
  };
  for (const auto& [key, wrong, name, wanted] : cases) {
    for (const double value : wrong) {
      for (const char* kind : {"adamw", "sgd"}) {
        OptimizerSpec spec;
        spec.kind = kind;
        if (!spec.value(name) || !reads(kind, name)) continue;
        spec.*key = value;
        EXPECT_NE(error_of(mlp(), spec)
                      .find(fmt::format("expected attribute '{}' to be {}, found {}", name, wanted,
                                        value)),
                  std::string::npos)
            << name << " " << value;
      }
    }
  }
}

TEST(DifferentiateTest, Errors) {
  GraphBuilder g("errors");
  const TensorId x = g.input("x", {{"a", 2}}, DType::kFloat32);
  const TensorId p = g.parameter("p", {{"a", 2}}, kNormal);
  const TensorId y = g.op1("y", "mul", {x, p});
  EXPECT_EQ(error_of(g.graph()), "expected a graph with a loss, found none");
  g.graph().loss = y;
  EXPECT_EQ(error_of(g.graph()),
            "expected a loss that is a floating scalar made by an op, found 'y' [a=2] float32");
  GraphBuilder same(g.graph());
  const TensorId equal = same.op1("same", "equal", {y, p});
  same.graph().loss = same.op1("loss", "reduce_sum", {equal}, {{"dims", "a"}});
  EXPECT_EQ(error_of(same.graph()),
            "op 'same' (equal) lies between a parameter and the loss, but has no derivative");
  g.graph().loss = g.op1("loss", "reduce_sum", {y}, {{"dims", "a"}});
  OptimizerSpec adan;
  adan.kind = "adan";
  EXPECT_EQ(error_of(g.graph(), adan),
            "expected an optimizer (adafactor, adagrad, adamw, lamb, lars, lion, muon, row_adam, "
            "row_sgd, "
            "rowwise_adagrad, sgd, none), found "
            "'adan'");
  g.parameter("unused.weight", {{"a", 2}}, kNormal);
  EXPECT_EQ(error_of(g.graph()), "parameter 'unused.weight' does not influence the loss 'loss'");
}

TEST(DifferentiateTest, AnInputNamedLrMustBeAScalar) {
  GraphBuilder g("lr");
  const TensorId lr = g.input("lr", {{"a", 2}}, DType::kFloat32);
  const TensorId p = g.parameter("p", {{"a", 2}}, kNormal);
  const TensorId y = g.op1("y", "mul", {lr, p});
  g.graph().loss = g.op1("loss", "reduce_sum", {y}, {{"dims", "a"}});
  EXPECT_EQ(error_of(g.graph()),
            "expected 'lr' to be a scalar input of dtype float32, found input 'lr' [a=2] float32");
}

}  // namespace
}  // namespace tessera::differentiate_test
