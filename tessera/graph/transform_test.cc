#include "tessera/graph/transform.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"

namespace tessera::transform_test {
namespace {

using Names = std::vector<std::string>;

Names paths_of(const Graph& graph, Phase phase) {
  Names out;
  for (const Op& op : graph.ops()) {
    if (op.phase == phase) out.push_back(op.path);
  }
  return out;
}

const Op* find_op(const Graph& graph, std::string_view path) {
  for (const Op& op : graph.ops()) {
    if (op.path == path) return &op;
  }
  return nullptr;
}

Names input_names(const Graph& graph, std::string_view path) {
  Names out;
  const Op* op = find_op(graph, path);
  if (op == nullptr) return {"(no op " + std::string(path) + ")"};
  for (const TensorId input : op->inputs) out.push_back(graph.tensor(input).name);
  return out;
}

std::vector<TensorId> ids(const Graph& graph, const Names& names) {
  std::vector<TensorId> out;
  for (const std::string& name : names) {
    out.push_back(graph.find_tensor(name));
    EXPECT_TRUE(out.back().valid()) << name;
  }
  return out;
}

template <class T>
T expect_value(Result<T> result) {
  EXPECT_TRUE(result) << result.error().message;
  return result ? std::move(*result) : T{};
}

// Makes tokens -> embedding -> layer norm -> tied head -> cross entropy: the parts of a model that
// treat dtypes differently.
Graph language_model(DType dtype = DType::kFloat32) {
  GraphBuilder g("tiny");
  const Dim batch = {"batch", 2}, seq = {"seq", 4}, hidden = {"hidden", 8}, vocab = {"vocab", 16};
  const TensorId tokens = g.input("tokens", {batch, seq}, DType::kInt64);
  const TensorId targets = g.input("targets", {batch, seq}, DType::kInt64);
  const TensorId table = g.parameter("table", {vocab, hidden}, {Init::Kind::kNormal, 0.02}, dtype);
  const TensorId x = g.op1("embed", "embedding", {tokens, table});
  const TensorId gamma = g.parameter("ln.weight", {hidden}, {Init::Kind::kOnes}, dtype);
  const TensorId beta = g.parameter("ln.bias", {hidden}, {Init::Kind::kZeros}, dtype);
  const TensorId y = g.op("ln", "layer_norm", {x, gamma, beta}, {{"eps", 1e-5}})[0];
  const TensorId logits = g.op1("head", "einsum", {y, table},
                                {{"spec", "batch seq hidden+, vocab hidden -> batch seq vocab"}});
  const auto parts = g.op("loss.cross_entropy", "cross_entropy", {logits, targets});
  const TensorId token = g.op1("loss.token", "sub", parts);
  g.graph().loss =
      g.op1("loss.mean", "reduce_sum", {token}, {{"dims", "batch seq"}, {"factor", 1.0 / 8}});
  return expect_value(g.finish());
}

// Makes x -> dropout -> exp -> silu -> mul(w) -> loss, with the backward pass.
Graph chain() {
  GraphBuilder g("chain");
  const Dim batch = {"batch", 4}, width = {"width", 6};
  const TensorId x = g.input("x", {batch, width}, DType::kFloat32);
  const TensorId w = g.parameter("w", {width}, {Init::Kind::kOnes});
  TensorId h = g.op1("scaled", "mul", {x, w});
  h = g.op1("drop", "dropout", {h}, {{"p", 0.5}, {"key", "drop"}});
  h = g.op1("a", "gelu", {h});
  h = g.op1("b", "silu", {h});
  h = g.op1("c", "gelu", {h});
  g.graph().loss = g.op1("loss", "reduce_sum", {h}, {{"dims", "batch width"}, {"factor", 1.0}});
  OptimizerSpec none;
  none.kind = "none";
  return expect_value(differentiate(expect_value(g.finish()), none));
}

TEST(ApplyPrecision, CastsEachParameterOnceAndKeepsItsDtype) {
  const Graph graph = expect_value(apply_precision(language_model(), DType::kBFloat16));
  EXPECT_EQ(paths_of(graph, Phase::kForward),
            (Names{"table.cast", "embed", "ln.weight.cast", "ln.bias.cast", "ln", "head",
                   "loss.cross_entropy", "loss.token", "loss.mean"}));
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::kParameter) {
      EXPECT_EQ(tensor.dtype, DType::kFloat32) << tensor.name;
    }
  }
  EXPECT_EQ(input_names(graph, "embed"), (Names{"tokens", "table.cast"}));
  EXPECT_EQ(input_names(graph, "head")[1], "table.cast");
}

// An op that reads little of a table converts the rows that it looked up, and not the table.
TEST(ApplyPrecision, BagsAreSummedInTheDtypeOfTheirTable) {
  GraphBuilder g("bags");
  const TensorId table =
      g.parameter("table", {{"rows", 100}, {"width", 4}}, {Init::Kind::kNormal, 1});
  const TensorId ids = g.input("ids", {{"batch", 2}, {"bag", 3}}, DType::kInt64);
  const TensorId y = g.op1("bags", "embedding_bag", {ids, table});
  const TensorId h = g.op1("act", "gelu", {y});
  g.graph().loss = g.op1("loss", "reduce_sum", {h}, {{"dims", "batch width"}});
  const Graph graph = expect_value(apply_precision(expect_value(g.finish()), DType::kBFloat16));
  EXPECT_EQ(paths_of(graph, Phase::kForward), (Names{"bags", "bags.cast", "act", "loss"}));
  EXPECT_EQ(input_names(graph, "bags"), (Names{"ids", "table"}));
  EXPECT_EQ(graph.tensor(graph.find_tensor("bags")).dtype, DType::kFloat32);
  EXPECT_EQ(input_names(graph, "act"), (Names{"bags.cast"}));
  OptimizerSpec rows;
  rows.kind = "adagrad";
  EXPECT_NE(find_op(expect_value(differentiate(graph, rows)), "optimizer.table"), nullptr);
}

TEST(ApplyPrecision, ActivationsAreComputeAndTheLossStaysFloat32) {
  const Graph graph = expect_value(apply_precision(language_model(), DType::kBFloat16));
  const auto dtype = [&](std::string_view path) {
    const Op* op = find_op(graph, path);
    return op == nullptr ? DType::kBool : graph.tensor(op->outputs[0]).dtype;
  };
  EXPECT_EQ(dtype("embed"), DType::kBFloat16);
  EXPECT_EQ(dtype("ln"), DType::kBFloat16);
  EXPECT_EQ(dtype("head"), DType::kBFloat16);
  EXPECT_EQ(dtype("loss.cross_entropy"), DType::kFloat32);
  EXPECT_EQ(dtype("loss.token"), DType::kFloat32);
  EXPECT_EQ(graph.tensor(graph.loss).name, "loss.mean");
  EXPECT_EQ(graph.tensor(graph.loss).dtype, DType::kFloat32);
}

TEST(ApplyPrecision, GradientsOfTheParametersAreFloat32) {
  const Graph forward = expect_value(apply_precision(language_model(), DType::kBFloat16));
  const Graph graph = expect_value(differentiate(forward, OptimizerSpec{}));
  size_t gradients = 0;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role != Role::kGradient || !tensor.of.valid()) continue;
    if (graph.tensor(tensor.of).role != Role::kParameter) continue;
    EXPECT_EQ(tensor.dtype, DType::kFloat32) << tensor.name;
    ++gradients;
  }
  EXPECT_EQ(gradients, 3U);
}

TEST(ApplyPrecision, ChangesNothingIfAllIsInThatDtype) {
  const Graph graph = language_model();
  EXPECT_EQ(expect_value(apply_precision(graph, DType::kFloat32)), graph);
}

TEST(ApplyPrecision, MeetingWiderActivationsCastsTheRestToThem) {
  GraphBuilder g("mixed");
  const Dim batch = {"batch", 4};
  const TensorId x = g.input("x", {batch}, DType::kFloat32);
  const TensorId narrow = g.op1("narrow", "gelu", {x});
  const TensorId wide = g.op1("wide", "cast", {narrow}, {{"dtype", "float32"}});
  g.graph().loss = g.op1("loss", "reduce_sum", {g.op1("both", "mul", {wide, narrow})},
                         {{"dims", "batch"}, {"factor", 1.0}});
  const Graph graph = expect_value(apply_precision(expect_value(g.finish()), DType::kBFloat16));
  EXPECT_EQ(input_names(graph, "narrow"), Names{"x.cast"});
  EXPECT_EQ(input_names(graph, "both"), (Names{"wide", "narrow.cast.float32"}));
}

TEST(ApplyPrecision, RejectsABackwardPassAndIntegers) {
  EXPECT_EQ(apply_precision(language_model(), DType::kInt64).error().message,
            "expected a floating dtype to compute in, found int64");
  const auto result = apply_precision(chain(), DType::kBFloat16);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message.find("expected a forward graph, found backward op '"), 0U)
      << result.error().message;
}

TEST(ExpandOps, ReplacesTheOpUnderItsNames) {
  const Graph before = language_model();
  const Op norm = *find_op(before, "ln");
  const Graph graph = expect_value(expand_ops(before, {norm.id, norm.id}));
  EXPECT_EQ(find_op(graph, "ln"), nullptr);
  for (const TensorId output : norm.outputs) {
    const TensorId now = graph.find_tensor(before.tensor(output).name);
    ASSERT_TRUE(now.valid()) << before.tensor(output).name;
    EXPECT_EQ(graph.tensor(now).dims, before.tensor(output).dims);
    const Op& maker = graph.op(graph.tensor(now).producer);
    EXPECT_TRUE(maker.path.starts_with("ln.")) << maker.path;
    EXPECT_EQ(maker.phase, Phase::kForward);
  }
  EXPECT_GT(graph.ops().size(), before.ops().size());
  EXPECT_EQ(graph.tensor(graph.loss).name, "loss.mean");
  EXPECT_EQ(input_names(graph, "head"), input_names(before, "head"));
  EXPECT_EQ(parameter_count(graph), parameter_count(before));
}

TEST(ExpandOps, TheExpansionFreesTheDim) {
  const Graph before = language_model();
  const Graph graph = expect_value(expand_ops(before, {find_op(before, "ln")->id}));
  for (const Op& op : graph.ops()) {
    const int hidden = op.annotation.find("hidden");
    if (hidden < 0) continue;
    EXPECT_NE(op.annotation.dims[static_cast<size_t>(hidden)].mark, Mark::kFrozen) << op.path;
  }
}

// Expands layer norm and its derivative; the backward ops keep mirrors, which now are parts of the
// forward expansion.
TEST(ExpandOps, BackwardOpsHaveAMirrorWithTheirDims) {
  const Graph before = expect_value(differentiate(language_model(), OptimizerSpec{}));
  std::vector<OpId> norms;
  for (const Op& op : before.ops()) {
    if (op.kind == "layer_norm" || op.kind == "layer_norm_grad") norms.push_back(op.id);
  }
  ASSERT_EQ(norms.size(), 2U);
  const Graph graph = expect_value(expand_ops(before, norms));
  size_t mirrored = 0;
  for (const Op& op : graph.ops()) {
    if (op.kind.find("norm_grad") == std::string::npos) continue;
    ASSERT_TRUE(op.mirror.valid()) << op.path;
    EXPECT_EQ(op.phase, Phase::kBackward);
    const Op& mirror = graph.op(op.mirror);
    EXPECT_TRUE(mirror.path.starts_with("ln.")) << mirror.path;
    for (const char* dim : {"batch", "seq", "hidden"}) {
      if (op.annotation.find(dim) >= 0) {
        EXPECT_GE(mirror.annotation.find(dim), 0) << op.path;
      }
    }
    ++mirrored;
  }
  EXPECT_GE(mirrored, 2U);
}

TEST(ExpandOps, GradientsAndUpdatesKeepTheirLinks) {
  const Graph before = expect_value(differentiate(language_model(), OptimizerSpec{}));
  std::vector<OpId> norms;
  for (const Op& op : before.ops()) {
    if (op.kind == "layer_norm_grad") norms.push_back(op.id);
  }
  const Graph graph = expect_value(expand_ops(before, norms));
  using Link = std::pair<std::string, std::string>;
  const auto links = [](const Graph& of_graph) {
    std::set<Link> out;
    for (const Tensor& tensor : of_graph.tensors()) {
      if (tensor.of.valid()) out.insert({tensor.name, of_graph.tensor(tensor.of).name});
      if (tensor.update_of.valid())
        out.insert({tensor.name, of_graph.tensor(tensor.update_of).name});
    }
    return out;
  };
  const std::set<Link> kept = links(graph);
  for (const Link& link : links(before)) EXPECT_TRUE(kept.contains(link)) << link.first;
}

// In float64 the sums that a precision widens are float64 too, so that an op expands to ops of its
// own dtypes.
TEST(InOneDtype, SumsWithADtypeOfTheirOwnExpand) {
  const Graph forward =
      expect_value(apply_precision(language_model(), DType::kBFloat16, std::nullopt));
  OptimizerSpec optimizer;
  optimizer.precision.gradient = DType::kFloat32;
  const Graph graph =
      in_one_dtype(expect_value(differentiate(forward, optimizer)), DType::kFloat64);
  std::vector<OpId> norms;
  for (const Op& op : graph.ops()) {
    if (op.kind != "layer_norm_grad") continue;
    EXPECT_EQ(sum_dtype(op), DType::kFloat64);
    norms.push_back(op.id);
  }
  ASSERT_FALSE(norms.empty());
  const Graph expanded = expect_value(expand_ops(graph, norms));
  for (const Tensor& tensor : expanded.tensors())
    EXPECT_TRUE(!is_floating(tensor.dtype) || tensor.dtype == DType::kFloat64) << tensor.name;
}

TEST(ExpandOps, WithoutOpsTheGraphIsTheSame) {
  const Graph graph = expect_value(differentiate(language_model(), OptimizerSpec{}));
  EXPECT_EQ(expect_value(expand_ops(graph, {})), graph);
}

TEST(ExpandOps, AKindWithoutExpansionIsAnError) {
  const Graph graph = language_model();
  EXPECT_EQ(expand_ops(graph, {find_op(graph, "head")->id}).error().message,
            "op 'head': kind einsum has no expansion");
}

TEST(RecomputeOps, WithoutTensorsTheGraphIsTheSame) {
  const Graph graph = chain();
  EXPECT_EQ(expect_value(recompute_ops(graph, {})), graph);
}

TEST(RecomputeOps, AChainIsClonedOnceFromWhatIsKept) {
  const Graph before = chain();
  const Graph graph = expect_value(recompute_ops(before, ids(before, {"a", "b"})));
  EXPECT_EQ(paths_of(graph, Phase::kForward), paths_of(before, Phase::kForward));
  EXPECT_EQ(input_names(graph, "a@recompute"), Names{"drop"});
  EXPECT_EQ(input_names(graph, "b@recompute"), Names{"a@recompute"});
  const Names paths = paths_of(graph, Phase::kBackward);
  EXPECT_EQ(std::count(paths.begin(), paths.end(), "a@recompute"), 1);
  EXPECT_EQ(std::count(paths.begin(), paths.end(), "b@recompute"), 1);
  EXPECT_EQ(graph.ops().size(), before.ops().size() + 2);
}

TEST(RecomputeOps, BackwardOpsReadTheClones) {
  const Graph before = chain();
  const Graph graph =
      expect_value(recompute_ops(before, ids(before, {"scaled", "drop", "a", "b"})));
  for (const Op& op : graph.ops()) {
    for (const TensorId input : op.inputs) {
      const std::string& name = graph.tensor(input).name;
      const bool dropped = name == "scaled" || name == "drop" || name == "a" || name == "b";
      EXPECT_FALSE(dropped && op.phase != Phase::kForward) << op.path << " reads " << name;
    }
  }
}

TEST(RecomputeOps, ClonesAreBackwardOpsThatMirrorTheirOriginals) {
  const Graph before = chain();
  const Graph graph = expect_value(recompute_ops(before, ids(before, {"scaled", "drop", "a"})));
  size_t clones = 0;
  for (const Op& op : graph.ops()) {
    if (!op.path.ends_with("@recompute")) continue;
    ++clones;
    const Op& original = graph.op(op.mirror);
    EXPECT_EQ(op.path, original.path + "@recompute");
    EXPECT_EQ(op.phase, Phase::kBackward);
    EXPECT_EQ(original.phase, Phase::kForward);
    EXPECT_EQ(op.kind, original.kind);
    EXPECT_EQ(op.attributes, original.attributes);  // a dropout has the same key
    EXPECT_EQ(op.annotation, original.annotation);
    const std::string& name = graph.tensor(original.outputs[0]).name;
    EXPECT_EQ(graph.tensor(op.outputs[0]).name, name + "@recompute");
  }
  EXPECT_EQ(clones, 3U);
}

TEST(RecomputeOps, AKeptTensorEndsTheChain) {
  const Graph before = chain();
  const Graph graph = expect_value(recompute_ops(before, ids(before, {"drop", "b"})));
  EXPECT_EQ(input_names(graph, "b@recompute"), Names{"a"});
  EXPECT_EQ(input_names(graph, "drop@recompute"), Names{"scaled"});
  EXPECT_EQ(find_op(graph, "a@recompute"), nullptr);
}

TEST(RecomputeOps, ACloneStandsRightBeforeItsFirstReader) {
  const Graph before = chain();
  const Graph graph = expect_value(recompute_ops(before, ids(before, {"drop", "a", "b"})));
  const auto readers = graph.consumers();
  for (const Op& op : graph.ops()) {
    if (!op.path.ends_with("@recompute")) continue;
    const OpId first = readers[op.outputs[0].index()].at(0);
    for (size_t i = op.id.index() + 1; i < first.index(); ++i) {
      EXPECT_TRUE(graph.ops()[i].path.ends_with("@recompute")) << graph.ops()[i].path;
    }
  }
}

TEST(RecomputeOps, TensorsThatNoBackwardOpNeedsAreNotCloned) {
  const Graph before = chain();
  // The last activation is read by the loss only; parameters are passed over.
  const Graph graph = expect_value(recompute_ops(before, ids(before, {"c", "w", "x"})));
  EXPECT_EQ(graph, before);
}

}  // namespace
}  // namespace tessera::transform_test
