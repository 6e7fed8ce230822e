// Facts that lowering knows before its walk: blocks, homes, and the splits of ops that follow a
// tensor at rest.
#include <gtest/gtest.h>

#include "tessera/program/test_programs.h"
#include "tessera/program/walk.h"

namespace tessera {
namespace {

struct Analysed {
  Prepared prepared;
  Result<Analysis> analysis;
  const Analysis& get() const { return *analysis; }
  const Graph& graph() const { return prepared.graph; }
  std::string home(const std::string& tensor) const {
    const TensorId id = graph().find_tensor(tensor);
    EXPECT_TRUE(id.valid()) << tensor;
    const Stage& home = prepared.plan.stages[prepared.plan.tensors[id.index()].home.index()];
    return to_string(get().homes[id.index()].at(home.place), home.mesh, graph().tensor(id).dims);
  }
  const Op& op(const std::string& path, Phase phase) const {
    for (const Op& found : graph().ops()) {
      if (found.path == path && found.phase == phase) return found;
    }
    ADD_FAILURE() << "no op " << path;
    return graph().ops()[0];
  }
  BlockKind block(const std::string& path, Phase phase) const {
    return get().blocks[op(path, phase).id.index()].kind;
  }
};
std::unique_ptr<Analysed> analysed(const Graph& graph, const std::string& plan) {
  const auto parsed = parse_plan(plan, "plan.toml");
  EXPECT_TRUE(parsed.has_value()) << (parsed ? "" : parsed.error().message);
  auto prepared = prepare(graph, *parsed);
  EXPECT_TRUE(prepared.has_value()) << (prepared ? "" : prepared.error().message);
  auto out = std::make_unique<Analysed>(Analysed{std::move(*prepared), tl::unexpected(Error{})});
  out->analysis = analyse(out->prepared.graph, out->prepared.plan);
  return out;
}
Graph perceptron() { return trained(test_perceptron()); }

const std::string kDp =
    "mesh = { dp = 2, tp = 2 }\nsplit = [\n"
    "  { ops = \"*\", dim = \"batch\", over = \"dp\" },\n  { ops = \"*\", dim = \"ffn\", over = "
    "\"tp\" },\n]\n";

TEST(Homes, are_as_the_first_reader_needs_them) {
  const auto found = analysed(perceptron(), kDp);
  EXPECT_EQ(found->home("up.weight"), "[in: -, ffn: tp]");
  EXPECT_EQ(found->home("down.weight"), "[ffn: tp, out: -]");
  EXPECT_EQ(found->home("optimizer.m.up.weight"), "[in: -, ffn: tp]");
  EXPECT_EQ(found->home("grad.up.weight"), "[in: -, ffn: tp]");
}

TEST(Homes, are_cut_further_by_store_rules_each_role_on_its_own) {
  const auto found =
      analysed(perceptron(), kDp + "store = [{ tensors = \"optimizer.*\", over = \"dp\" }]\n");
  EXPECT_EQ(found->home("up.weight"), "[in: -, ffn: tp]");
  EXPECT_EQ(found->home("optimizer.m.up.weight"), "[in: dp, ffn: tp]");
  EXPECT_EQ(found->home("grad.up.weight"), "[in: -, ffn: tp]");
}

TEST(Homes, of_states_follow_the_parameter) {
  const auto found =
      analysed(perceptron(), kDp + "store = [{ tensors = \"role:parameter\", over = \"dp\" }]\n");
  EXPECT_EQ(found->home("up.weight"), "[in: dp, ffn: tp]");
  EXPECT_EQ(found->home("optimizer.v.up.weight"), "[in: dp, ffn: tp]");
  EXPECT_EQ(found->home("grad.up.weight"), "[in: dp, ffn: tp]");
}

TEST(Homes, are_cut_on_the_dim_that_the_rule_names) {
  const auto found =
      analysed(perceptron(),
               kDp + "store = [{ tensors = \"down.weight\", over = \"dp\", dim = \"out\" }]\n");
  EXPECT_EQ(found->home("down.weight"), "[ffn: tp, out: dp]");
}

TEST(Homes, are_cut_on_the_dim_that_the_first_reader_walks_in_time) {
  const auto found = analysed(perceptron(),
                              "mesh = { row = 2 }\nsplit = [{ ops = \"down\", dim = \"ffn\", over "
                              "= \"time:2\" }, { ops = \"up\", dim = \"in\", over = \"time:2\" }]\n"
                              "store = [{ tensors = \"role:parameter\", over = \"row\" }]\n");
  EXPECT_EQ(found->home("up.weight"), "[in: row, ffn: -]");
  EXPECT_EQ(found->home("down.weight"), "[ffn: row, out: -]");
}

// Each row of the mesh has one row of the weight, which two ranks cannot share: they cut columns.
TEST(Homes, of_states_are_cut_on_the_walked_dim_only_if_that_is_even) {
  const std::string walked =
      "mesh = { row = 4, dp = 2 }\nsplit = [{ ops = \"up\", dim = \"in\", over = \"time:4\" }]\n"
      "store = [{ tensors = \"up.weight\", over = \"row\" },\n"
      "         { tensors = \"optimizer.*.up.*\", over = \"dp\" }]\n";
  const auto found = analysed(perceptron(), walked);
  EXPECT_EQ(found->home("up.weight"), "[in: row, ffn: -]");
  EXPECT_EQ(found->home("optimizer.m.up.weight"), "[in: row, ffn: dp]");
}

TEST(Homes, are_cut_on_a_dim_that_divides_before_one_that_does_not) {
  GraphBuilder g("odd");
  const auto x = g.input("x", {{"batch", 8}, {"in", 3}}, DType::kFloat64);
  const auto w = g.parameter("w", {{"in", 3}, {"out", 4}}, {Init::Kind::kZeros}, DType::kFloat64);
  auto y = g.op1("y", "einsum", {x, w}, {{"spec", std::string("batch in+, in out -> batch out")}});
  y = g.op1("square", "mul", {y, y});
  g.graph().loss =
      g.op1("loss", "reduce_sum", {y}, {{"dims", std::string("batch out")}, {"factor", 1.0}});
  const auto found =
      analysed(trained(*g.finish()),
               "mesh = { dp = 2 }\nstore = [{ tensors = \"role:parameter\", over = \"dp\" }]\n");
  EXPECT_EQ(found->home("w"), "[in: -, out: dp]");
}

// A cast that no stage entry names; in the graph an op of another stage stands before its reader.
// An axis has another number, or none, on the other stage's mesh.
TEST(Homes, of_parameters_that_are_read_through_casts_lie_where_the_casts_are_read) {
  GraphBuilder g("casts");
  const Dim batch{"batch", 8}, in{"in", 4}, ffn{"ffn", 8}, out{"out", 4};
  const Init init{Init::Kind::kNormal, 0.02};
  const auto cast = [&](const char* name, std::vector<Dim> dims) {
    const TensorId w = g.parameter(name, std::move(dims), init, DType::kFloat32);
    return g.op1(std::string(name) + ".cast", "cast", {w}, {{"dtype", "float64"}});
  };
  const auto product = [&](const char* path, TensorId a, TensorId b, const char* spec) {
    return g.op1(path, "einsum", {a, b}, {{"spec", std::string(spec)}});
  };
  const auto x = g.input("x", {batch, in}, DType::kFloat64);
  const auto h =
      product("first", x, cast("weights.a", {in, ffn}), "batch in+, in ffn -> batch ffn");
  const auto second = cast("weights.b", {ffn, out});
  const auto y = product("second", h, second, "batch ffn+, ffn out -> batch out");
  g.graph().loss = g.op1("loss", "reduce_sum", {g.op1("square", "mul", {y, y})},
                         {{"dims", std::string("batch out")}, {"factor", 1.0 / 32}});
  const Graph graph = trained(*g.finish());
  for (const std::string mesh : {"{ c = 2, b = 2 }", "{ b = 2, c = 2 }", "{ b = 2 }"}) {
    const auto found = analysed(graph, R"(store = [ { tensors = "*weights*", over = "b" } ]
stage = [
  { ops = "first", at = 0, mesh = { a = 2, b = 2 } },
  { ops = "{second,square,loss}", at = 1, mesh = )" +
                                           mesh + " },\n]\n");
    for (const char* const name : {"weights.b", "optimizer.m.weights.b", "grad.weights.b"}) {
      EXPECT_EQ(found->home(name), "[ffn: b, out: -]") << mesh << " " << name;
      const TensorId id = found->graph().find_tensor(name);
      EXPECT_EQ(found->prepared.plan.tensors[id.index()].home, StageId(1)) << name;
    }
    EXPECT_EQ(found->home("weights.a"), "[in: b, ffn: -]");
    const OpId narrow = found->op("weights.b.cast", Phase::kForward).id;
    const std::string why = explain(found->prepared.plan, found->graph(), narrow);
    EXPECT_NE(why.find(", with 'second', which reads it"), std::string::npos) << why;
    for (const Op& op : found->graph().ops()) {
      const OpPlan& plan = found->get().ops[op.id.index()];
      for (const DimSplit& split : plan.dims) {
        for (const AxisId axis : split.axes)
          EXPECT_EQ(found->prepared.plan.stages[plan.stage.index()].mesh.axis(axis).name, "b");
      }
    }
  }
}

TEST(HomesDeathTest, are_not_read_at_another_place) {
  const auto found = analysed(perceptron(), kDp);
  const OfPlace<Layout>& home = found->get().homes[found->graph().find_tensor("up.weight").index()];
  EXPECT_EQ(home.place(), PlaceId(0));
  EXPECT_DEATH(home.at(PlaceId(1)), "axes of place 0 are read at place 1");
  Layout wrong = home.at(PlaceId(0));
  wrong.shards[0] = {AxisId(2)};
  const Tensor& tensor = found->graph().tensor(found->graph().find_tensor("up.weight"));
  EXPECT_DEATH(check_axes(wrong, found->prepared.plan.places[0].mesh, tensor),
               "'up.weight' is cut over axis 2 of the mesh");
  wrong.shards[0] = wrong.shards[1];
  EXPECT_DEATH(check_axes(wrong, found->prepared.plan.places[0].mesh, tensor),
               "axis 'tp' cuts 'up.weight' twice");
}

TEST(Blocks, are_the_phases_with_one_micro_batch) {
  const auto found = analysed(perceptron(), kDp);
  EXPECT_EQ(found->block("up", Phase::kForward), BlockKind::kForward);
  EXPECT_EQ(found->block("loss.grad", Phase::kBackward), BlockKind::kBackward);
  EXPECT_EQ(found->block("up.dw", Phase::kBackward), BlockKind::kBackward);
  EXPECT_EQ(found->block("optimizer.up.weight", Phase::kUpdate), BlockKind::kUpdate);
}

TEST(Blocks, of_casts_that_are_kept_are_the_prologue_where_what_they_read_is_at_rest) {
  GraphBuilder g("constant");
  const auto x = g.input("x", {{"batch", 8}, {"in", 4}}, DType::kFloat64);
  const auto w = g.parameter("w", {{"in", 4}}, {Init::Kind::kZeros}, DType::kFloat32);
  const auto one = g.op1("one", "fill", {}, {{"value", 1.0}, {"dims", ""}, {"dtype", "float32"}});
  auto y = g.op1("y", "mul", {x, g.op1("w.cast", "cast", {w}, {{"dtype", "float64"}})});
  y = g.op1("sum", "add", {y, g.op1("one.cast", "cast", {one}, {{"dtype", "float64"}})});
  g.graph().loss = g.op1("loss", "reduce_sum", {y}, {{"dims", "batch in"}});
  const auto found =
      analysed(trained(*g.finish()), "store = [{ tensors = \"*.cast\", keep = \"step\" }]\n");
  EXPECT_EQ(found->block("w.cast", Phase::kForward), BlockKind::kPrologue);
  EXPECT_EQ(found->block("one", Phase::kForward), BlockKind::kForward);
  EXPECT_EQ(found->block("one.cast", Phase::kForward), BlockKind::kForward);
}

TEST(Blocks, without_the_micro_batch_dim_run_once_a_step) {
  const auto found = analysed(perceptron(), "micro_batches = 2\n");
  EXPECT_EQ(found->block("up", Phase::kForward), BlockKind::kForward);
  EXPECT_EQ(found->block("loss.grad", Phase::kBackward), BlockKind::kPrologue) << "a constant";
  EXPECT_EQ(found->block("up.dw", Phase::kBackward), BlockKind::kBackward);
  EXPECT_EQ(found->get().shapes.shape(found->graph().find_tensor("x")),
            (std::vector<int64_t>{4, 4}));
  EXPECT_TRUE(found->get().sums_micro_batches(found->graph(), found->graph().find_tensor("loss")));
  EXPECT_TRUE(found->get().sums_micro_batches(found->graph(),
                                              found->graph().find_tensor("grad.up.weight")));
  EXPECT_FALSE(found->get().sums_micro_batches(found->graph(), found->graph().find_tensor("act")));
}

TEST(Blocks, of_a_sum_of_gradients_that_micro_batches_make_are_the_update) {
  const auto found = analysed(trained(test_transformer()), "micro_batches = 2\n");  // tied table
  EXPECT_EQ(found->block("embed.token.weight.grad", Phase::kBackward), BlockKind::kUpdate);
}

TEST(Blocks, that_would_need_all_micro_batches_at_once_are_refused) {
  GraphBuilder g("whole");
  auto x = g.input("x", {{"batch", 8}, {"in", 4}}, DType::kFloat64);
  const auto w = g.parameter("w", {{"in", 4}}, {Init::Kind::kZeros}, DType::kFloat64);
  x = g.op1("scaled", "mul", {x, w});
  const auto mean =
      g.op1("mean", "reduce_sum", {x}, {{"dims", std::string("batch")}, {"factor", 0.1}});
  auto y = g.op1("centred", "sub", {x, mean});
  y = g.op1("square", "mul", {y, y});
  g.graph().loss =
      g.op1("loss", "reduce_sum", {y}, {{"dims", std::string("batch in")}, {"factor", 1.0}});
  const auto found = analysed(trained(*g.finish()), "micro_batches = 2\n");
  ASSERT_FALSE(found->analysis.has_value());
  EXPECT_EQ(
      found->analysis.error().message,
      "plan.toml: micro_batches = 2: op 'centred' works on one micro-batch but reads what 'mean' "
      "makes of all of them; use micro_batches = 1");
}

TEST(Followers, update_in_the_layout_of_the_state) {
  const auto found =
      analysed(perceptron(), kDp + "store = [{ tensors = \"optimizer.*\", over = \"dp\" }]\n");
  for (const char* path : {"optimizer.up.weight", "clip.up.weight.sum_squares"}) {
    const Op& op = found->op(path, Phase::kUpdate);
    const OpPlan& plan = found->get().ops[op.id.index()];
    EXPECT_EQ(plan.dims[0].axes, Axes{AxisId(0)}) << path;  // in: dp
    EXPECT_EQ(plan.dims[1].axes, Axes{AxisId(1)}) << path;  // ffn: tp
  }
}

// Returns the order in which the op that makes the tensor walks its loop over the batch.
StepOrder order_of_maker(const Analysed& found, const std::string& tensor) {
  const Op& op = found.graph().op(found.graph().tensor(found.graph().find_tensor(tensor)).producer);
  return found.get()
      .ops[op.id.index()]
      .dims[static_cast<size_t>(op.annotation.find("batch"))]
      .order;
}

// Ranks that compute the same sum add its terms in one order: otherwise copies of a parameter would
// drift apart by roundings. Values that a rank makes alone, or does not sum, are walked as the plan
// says.
TEST(Loops, that_sum_are_in_one_order_on_ranks_that_compute_the_same) {
  const std::string rotated =
      "mesh = { a = 2 }\nsplit = [\n  { ops = \"*\", dim = \"batch\", over = \"time:2\", order = "
      "\"rotated\", skew = \"a\" },\n";
  const auto alike = analysed(perceptron(), rotated + "]\n");
  ASSERT_TRUE(alike->analysis) << alike->analysis.error().message;
  EXPECT_EQ(order_of_maker(*alike, "up"), StepOrder::kRotated);
  EXPECT_EQ(order_of_maker(*alike, "grad.up.weight"), StepOrder::kAligned);
  EXPECT_EQ(order_of_maker(*alike, "grad.down.weight"), StepOrder::kAligned);
  const auto cut = analysed(
      perceptron(), rotated + "  { ops = \"{up,act}\", dim = \"ffn\", over = \"a\" },\n]\n");
  ASSERT_TRUE(cut->analysis) << cut->analysis.error().message;
  EXPECT_EQ(order_of_maker(*cut, "grad.up.weight"), StepOrder::kRotated);
  EXPECT_EQ(order_of_maker(*cut, "grad.down.weight"), StepOrder::kAligned);
}

}  // namespace
}  // namespace tessera
