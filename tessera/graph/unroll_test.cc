#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/graph/builder.h"
#include "tessera/graph/transform.h"
#include "tessera/graph/within.h"

namespace tessera::unroll_test {
namespace {

template <class T>
T expect_value(Result<T> result) {
  EXPECT_TRUE(result) << result.error().message;
  return result ? std::move(*result) : T{};
}

// Makes x -> up -> act -> down (with bias) -> loss.
Graph mlp() {
  GraphBuilder g("mlp");
  const TensorId x = g.input("x", {{"batch", 2}, {"in", 4}}, DType::kFloat32);
  const TensorId up = g.parameter("up.weight", {{"in", 4}, {"ffn", 6}}, {});
  const TensorId down = g.parameter("down.weight", {{"ffn", 6}, {"out", 3}}, {});
  const TensorId bias = g.parameter("down.bias", {{"out", 3}}, {});
  TensorId h = g.op1("up", "einsum", {x, up}, {{"spec", "batch in+, in ffn -> batch ffn"}});
  h = g.op1("act", "relu", {h});
  h = g.op1("down", "einsum", {h, down, bias}, {{"spec", "batch ffn+, ffn out, out -> batch out"}});
  g.graph().loss = g.op1("loss", "reduce_sum", {h}, {{"dims", "batch out"}});
  return expect_value(g.finish());
}

std::vector<bool> all(const Graph& graph) { return std::vector<bool>(graph.ops().size(), true); }

std::string error_of(const Graph& graph, const Unrolling& how) {
  const auto result = unroll(graph, all(graph), how);
  return result ? "" : result.error().message;
}

TEST(Unroll, StepsOverASummedDim) {
  const Graph graph = mlp();
  const Graph looped = expect_value(
      unroll(graph, all(graph), {.dim = "ffn", .sizes = {4, 2}, .blocks = 2, .recompute = true}));
  EXPECT_EQ(to_text(looped), R"(graph "mlp"
input %x [batch=2, in=4] float32
parameter %up.weight [in=4, ffn=6] float32
parameter %down.weight [ffn=6, out=3] float32
parameter %down.bias [out=3] float32
activation %"up@part1#0" [in=4, ffn=4] float32 recompute=1
forward op "up@part1#0" %"up@part1#0" = slice(%up.weight) {begin=0, blocks=2, dim="ffn", size=2} : in (ffn ffn.in^) -> in (ffn ffn.out^)
activation %"up#0" [batch=2, ffn=4] float32 recompute=1
forward op "up#0" %"up#0" = einsum(%x, %"up@part1#0") {spec="batch in+, in ffn -> batch ffn"} : batch in+, in ffn -> batch ffn
activation %"act#0" [batch=2, ffn=4] float32 recompute=1
forward op "act#0" %"act#0" = relu(%"up#0") : batch ffn -> batch ffn
activation %"down@part1#0" [ffn=4, out=3] float32 recompute=1
forward op "down@part1#0" %"down@part1#0" = slice(%down.weight) {begin=0, blocks=2, dim="ffn", size=2} : (ffn ffn.in^) out -> (ffn ffn.out^) out
activation %"down#0" [batch=2, out=3] float32 recompute=1
forward op "down#0" %"down#0" = einsum(%"act#0", %"down@part1#0", %down.bias) {spec="batch ffn+, ffn out, out -> batch out"} : batch ffn+, ffn out, out -> batch out
activation %"up@part1#1" [in=4, ffn=2] float32 recompute=1
forward op "up@part1#1" %"up@part1#1" = slice(%up.weight) {begin=2, blocks=2, dim="ffn", size=1} : in (ffn ffn.in^) -> in (ffn ffn.out^)
activation %"up#1" [batch=2, ffn=2] float32 recompute=1
forward op "up#1" %"up#1" = einsum(%x, %"up@part1#1") {spec="batch in+, in ffn -> batch ffn"} : batch in+, in ffn -> batch ffn
activation %"act#1" [batch=2, ffn=2] float32 recompute=1
forward op "act#1" %"act#1" = relu(%"up#1") : batch ffn -> batch ffn
activation %"down@part1#1" [ffn=2, out=3] float32 recompute=1
forward op "down@part1#1" %"down@part1#1" = slice(%down.weight) {begin=2, blocks=2, dim="ffn", size=1} : (ffn ffn.in^) out -> (ffn ffn.out^) out
activation %"down#1" [batch=2, out=3] float32 recompute=1
forward op "down#1" %"down#1" = einsum(%"act#1", %"down@part1#1") {spec="batch ffn+, ffn out -> batch out"} : batch ffn+, ffn out -> batch out
activation %down [batch=2, out=3] float32
forward op "down" %down = add_n(%"down#0", %"down#1") : batch out, batch out -> batch out
activation %loss [] float32
forward op "loss" %loss = reduce_sum(%down) {dims="batch out", factor=1.0} : batch+ out+ -> ()
loss %loss
)");
  EXPECT_EQ(expect_value(parse_graph(to_text(looped))), looped);
}

Graph causal(int64_t is_causal) {
  GraphBuilder g("attention");
  const Dim batch{"batch", 1}, seq{"seq", 6}, heads{"heads", 2}, group{"group", 1},
      d{"head_dim", 4};
  const TensorId q = g.parameter("q", {batch, seq, heads, group, d}, {});
  const TensorId k0 = g.parameter("k0", {batch, seq, heads, d}, {});
  const TensorId k = g.op1("k", "exp", {k0});
  const TensorId o = g.op("core", "attention", {q, k, k}, {{"causal", is_causal}})[0];
  g.graph().loss = g.op1("loss", "reduce_sum", {o}, {{"dims", "batch seq heads group head_dim"}});
  return expect_value(g.finish());
}

TEST(Unroll, CausalKeysAreThoseOfTheStepsSoFar) {
  const Graph graph = causal(1);
  const Unrolling how{.dim = "seq", .sizes = {3, 2, 1}, .stages = true};
  const Graph looped = expect_value(unroll(graph, all(graph), how));
  const std::vector<int64_t> keys = {3, 5, 6};
  for (int step = 0; step < 3; ++step) {
    const auto path = "core#" + std::to_string(step);
    const auto op = std::find_if(looped.ops().begin(), looped.ops().end(),
                                 [&](const Op& o) { return o.path == path; });
    ASSERT_NE(op, looped.ops().end());
    EXPECT_EQ(op->step, step);
    const Tensor& read = looped.tensor(op->inputs[1]);
    EXPECT_EQ(read.dims[1].size, keys[static_cast<size_t>(step)]);
    EXPECT_EQ(read.recompute, step > 0);  // joined anew; in step 0 it is the piece itself
  }
  EXPECT_EQ(looped.tensor(looped.loss).name, "loss");
  EXPECT_EQ(looped.op(looped.tensor(looped.loss).producer).step, 2);
}

TEST(Unroll, Errors) {
  EXPECT_EQ(error_of(mlp(), {.dim = "ffn", .sizes = {4, 1}}),
            "dim 'ffn' of op 'up' (einsum) has size 6, but the sizes of the steps add up to 5");
  EXPECT_EQ(error_of(causal(1), {.dim = "head_dim", .sizes = {2, 2}}),
            "dim 'head_dim' of op 'core' (attention) cannot be cut");
  EXPECT_EQ(error_of(causal(1), {.dim = "seq", .sizes = {4, 2}, .blocks = 2}),
            "dim 'seq' of op 'core' (attention) is in causal order: its steps are intervals, not "
            "parts of blocks");
  EXPECT_EQ(error_of(causal(0), {.dim = "seq", .sizes = {4, 2}, .stages = true}),
            "op 'core' (attention) reads 'k' of all steps over dim 'seq': steps that are stages "
            "may read earlier steps only (attention: causal = 1)");
  GraphBuilder g("ids");
  const TensorId logits = g.input("logits", {{"seq", 4}, {"vocab", 8}}, DType::kFloat32);
  const TensorId targets = g.input("targets", {{"seq", 4}}, DType::kInt64);
  g.op("loss", "cross_entropy", {logits, targets});
  EXPECT_EQ(error_of(expect_value(g.finish()), {.dim = "vocab", .sizes = {4, 4}}),
            "dim 'vocab' of op 'loss' (cross_entropy) cannot be cut in time: the result depends "
            "on places in the whole");
}

// Look-ups of a piece of a table say which rows the piece has. Other readers of the table must read
// the same pieces, in the loop, or the table stays whole; a copy in another dtype is made in
// pieces.
TEST(Unroll, TablesRestInPiecesThatAllOfTheirReadersRead) {
  GraphBuilder g("tied");
  const Dim seq{"seq", 4}, hidden{"hidden", 2};
  const TensorId ids = g.input("ids", {seq}, DType::kInt64);
  const TensorId table = g.parameter("table", {{"vocab", 8}, hidden}, {});
  const TensorId copy = g.op1("copy", "cast", {table}, {{"dtype", "bfloat16"}});
  const TensorId x = g.op1("embed", "embedding", {ids, copy});
  const TensorId y = g.op1("wide", "cast", {x}, {{"dtype", "float32"}});
  g.op1("head", "einsum", {y, table}, {{"spec", "seq hidden+, vocab hidden+ -> seq vocab"}});
  const Graph graph = expect_value(g.finish());
  const auto parameters = [&](const std::vector<std::string>& looped) {
    std::vector<bool> ops(graph.ops().size());
    for (const Op& op : graph.ops())
      ops[op.id.index()] = std::find(looped.begin(), looped.end(), op.path) != looped.end();
    const Graph made = expect_value(unroll(graph, ops, {.dim = "vocab", .sizes = {3, 5}}));
    std::string out;
    for (const Tensor& tensor : made.tensors()) {
      if (tensor.role == Role::kParameter)
        out += fmt::format("{} {} ", tensor.name, tensor.dims[0].size);
    }
    for (const Op& op : made.ops()) {
      if (op.kind == "embedding") out += op.text("within") + " ";
    }
    return out;
  };
  EXPECT_EQ(parameters({"embed", "head"}), "table#0 3 table#1 5 vocab=0/8/1 vocab=3/8/1 ");
  EXPECT_EQ(parameters({"embed"}), "table 8 vocab=0/8/1 vocab=3/8/1 ");
}

// Slots are numbered among the slots of all experts, and a mean divides by the whole.
TEST(Unroll, WhatDependsOnTheWholeIsRefused) {
  GraphBuilder g("experts");
  const TensorId y =
      g.input("y", {{"experts", 2}, {"batch", 2}, {"capacity", 2}, {"hidden", 3}}, DType::kFloat32);
  const TensorId slot = g.input("slot", {{"batch", 2}, {"seq", 4}, {"choice", 1}}, DType::kInt64);
  g.op1("combine", "moe_combine", {y, slot});
  EXPECT_EQ(error_of(g.graph(), {.dim = "experts", .sizes = {1, 1}}),
            "dim 'experts' of op 'combine' (moe_combine) cannot be cut in time: the result depends "
            "on places in the whole");
  GraphBuilder mean("mean");
  const TensorId logits =
      mean.input("logits", {{"batch", 2}, {"seq", 4}, {"experts", 2}}, DType::kFloat32);
  mean.op1("z", "moe_z_loss", {logits});
  EXPECT_EQ(
      error_of(mean.graph(), {.dim = "seq", .sizes = {2, 2}}),
      "dim 'seq' of op 'z' (moe_z_loss) cannot be cut in time: the result depends on the size "
      "of the whole");
}

std::vector<int64_t> sizes_of(const Graph& graph, const std::string& name, size_t dim, int steps) {
  std::vector<int64_t> sizes;
  for (int step = 0; step < steps; ++step) {
    const TensorId id = graph.find_tensor(name + "#" + std::to_string(step));
    sizes.push_back(id.valid() ? graph.tensor(id).dims[dim].size : -1);
  }
  return sizes;
}

// Windows stand behind the heads: 3 heads are 12 in the op that counts windows.
TEST(Unroll, OpsThatPassPiecesOnAreCutInProportion) {
  GraphBuilder g("windows");
  const TensorId x = g.parameter("x", {{"rows", 8}, {"heads", 3}}, {});
  const TensorId windows = g.op1("windows", "rearrange", {x},
                                 {{"spec", "(window row) heads -> row (heads window)"},
                                  {"sizes", "row=2"},
                                  {"dims", "row heads"}});
  const TensorId y = g.op1("act", "relu", {windows});
  const TensorId z = g.parameter("z", {{"heads", 5}}, {});
  const TensorId apart = g.op1("apart", "relu", {z});
  g.graph().loss = g.op1("loss", "add",
                         {g.op1("sum", "reduce_sum", {y}, {{"dims", "row heads"}}),
                          g.op1("other", "reduce_sum", {apart}, {{"dims", "heads"}})});
  const Graph graph = expect_value(g.finish());
  const Graph looped = expect_value(unroll(graph, all(graph), {.dim = "heads", .steps = 2}));
  EXPECT_EQ(sizes_of(looped, "windows", 1, 2), (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(sizes_of(looped, "act", 1, 2), (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(sizes_of(looped, "apart", 0, 2), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(error_of(graph, {.dim = "heads", .steps = 4}),
            "steps = 4: dim 'heads' of op 'windows' has only 3 elements");
}

// 6 elements in 4 blocks: 2, 2, 1, 1. The extra elements stand at the end, so in the last step.
TEST(Unroll, StepsTakePartsOfUnevenBlocks) {
  const Graph graph = mlp();
  const Unrolling how{.dim = "ffn", .blocks = 4, .steps = 2};
  const Graph looped = expect_value(unroll(graph, all(graph), how));
  EXPECT_EQ(sizes_of(looped, "up", 1, 2), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(expect_value(parse_graph(to_text(looped))), looped);
  const Graph trained = expect_value(differentiate(looped, OptimizerSpec{}));
  EXPECT_TRUE(trained.verify());
  EXPECT_EQ(expect_value(parse_graph(to_text(trained))), trained);
  EXPECT_EQ(error_of(graph, {.dim = "ffn", .blocks = 4, .even_blocks = "must be even", .steps = 1}),
            "dim 'ffn' of op 'up' (einsum) must be even");
  EXPECT_EQ(error_of(graph, {.dim = "ffn", .sizes = {3, 3}, .blocks = 4}),
            "expected sizes that are multiples of 4 (the last one 2 more), as the plan splits dim "
            "'ffn' over so many ranks, found 3");
  EXPECT_EQ(error_of(graph, {.dim = "ffn", .blocks = 4, .steps = 3}),
            "steps = 3: dim 'ffn' of op 'up' has only 2 elements in each of 4 shards");
}

TEST(Within, CountsPlacesInUnevenBlocks) {
  // In blocks of 4, 4, 3 of 11 elements, the elements from 1 on are: 3, 3, 2.
  const Within place{"ffn", 1, 11, 3};
  std::vector<int64_t> places;
  for (int64_t i = 0; i < 8; ++i) places.push_back(place.index(i, 8));
  EXPECT_EQ(places, (std::vector<int64_t>{1, 2, 3, 5, 6, 7, 9, 10}));
}

TEST(Unroll, SaysWhereAPieceLies) {
  GraphBuilder g("waves");
  const TensorId x = g.input("x", {{"seq", 4}, {"h", 2}}, DType::kFloat32);
  g.op1("y", "sinusoid_add", {x}, {{"dim", "seq"}});
  const Graph looped = expect_value(unroll(g.graph(), {true}, {.dim = "seq", .sizes = {1, 3}}));
  std::vector<std::string> within;
  for (const Op& op : looped.ops()) {
    if (op.kind == "sinusoid_add") within.push_back(op.text("within"));
  }
  EXPECT_EQ(within, (std::vector<std::string>{"seq=0/4/1", "seq=1/4/1"}));
  EXPECT_EQ(
      error_of(g.graph(), {.dim = "h", .sizes = {1, 1}}),
      "dim 'h' of op 'y' (sinusoid_add) cannot be cut in time: the result depends on places in "
      "the whole");
}

TEST(Unroll, WithoutCausalOrderAllKeysAreMadeFirst) {
  const Graph graph = causal(0);
  const Graph looped = expect_value(unroll(graph, all(graph), {.dim = "seq", .sizes = {4, 2}}));
  std::vector<std::string> paths;
  for (const Op& op : looped.ops()) paths.push_back(op.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"k@part0#0", "k#0", "k@part0#1", "k#1", "k",
                                             "core@part0#0", "core#0", "loss#0", "core@part0#1",
                                             "core#1", "loss#1", "loss"}));
}

}  // namespace
}  // namespace tessera::unroll_test
