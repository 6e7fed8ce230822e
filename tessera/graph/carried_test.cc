// Tests running state in graphs: which updates are allowed, their derivative, and their text.
#include "tessera/graph/carried.h"

#include <gtest/gtest.h>

#include <functional>

namespace tessera::carried_test {
namespace {

// Returns x [batch, in] times w, and a buffer that follows the mean of the result over the batch.
GraphBuilder product() {
  GraphBuilder g("product");
  const auto x = g.input("x", {{"batch", 4}, {"in", 3}}, DType::kFloat32);
  const auto w = g.parameter("w.weight", {{"in", 3}, {"out", 2}}, {Init::Kind::kOnes});
  const auto y =
      g.op1("y", "einsum", {x, w}, {{"spec", std::string("batch in+, in out -> batch out")}});
  const auto past = g.buffer("past", {{"out", 2}}, {Init::Kind::kZeros});
  const auto mean =
      g.op1("mean", "reduce_sum", {y}, {{"dims", std::string("batch")}, {"factor", 0.25}});
  carry(g, past, mean, {.keep = 0.5});
  const auto z = g.op1("z", "mul", {y, past});
  g.graph().loss = g.op1("loss", "reduce_sum", {z}, {{"dims", std::string("batch out")}});
  return g;
}

TEST(Carried, AGraphSaysWhatABufferBecomes) {
  auto graph = product().finish();
  ASSERT_TRUE(graph) << graph.error().message;
  const TensorId past = graph->find_tensor("past"), updated = graph->find_tensor("updated.past");
  ASSERT_TRUE(updated.valid());
  EXPECT_EQ(graph->tensor(updated).update_of, past);
  EXPECT_EQ(graph->tensor(updated).role, Role::kBuffer);
  EXPECT_EQ(graph->op(graph->tensor(updated).producer).path, "past.carry");
  EXPECT_TRUE(carried_buffers(*graph)[past.index()]);
  EXPECT_FALSE(carried_buffers(*graph)[updated.index()]);
  EXPECT_TRUE(has_updates(*graph));
}

TEST(Carried, TheTextOfAGraphHasIt) {
  auto graph = product().finish();
  ASSERT_TRUE(graph);
  const auto again = parse_graph(to_text(*graph));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, *graph);
}

TEST(Carried, UpdatesOfATrainingGraphComeLast) {
  auto graph = product().finish();
  ASSERT_TRUE(graph);
  for (const char* kind : {"adamw", "none"}) {
    OptimizerSpec spec;
    spec.kind = kind;
    const auto training = differentiate(*graph, spec);
    ASSERT_TRUE(training) << training.error().message;
    EXPECT_EQ(training->ops().back().path, "past.carry");
    for (const Tensor& tensor : training->tensors()) {
      if (tensor.role == Role::kGradient && tensor.of.valid()) {
        EXPECT_NE(tensor.of, training->find_tensor("past"));
      }
    }
  }
}

TEST(Carried, TakenOutAndPutBackItIsTheSame) {
  auto graph = product().finish();
  ASSERT_TRUE(graph);
  const auto parts = without_updates(*graph);
  ASSERT_TRUE(parts);
  EXPECT_FALSE(has_updates(parts->forward));
  ASSERT_EQ(parts->updates.size(), 1U);
  EXPECT_EQ(parts->updates[0].inputs, (std::vector<std::string>{"past", "mean"}));
  const auto whole = with_updates(parts->forward, parts->updates);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->ops().size(), graph->ops().size());
  const Op& before = graph->op(graph->tensor(graph->find_tensor("updated.past")).producer);
  const Op& after = whole->ops().back();
  EXPECT_EQ(after.path, before.path);
  EXPECT_EQ(after.attributes, before.attributes);
}

TEST(Carried, WrongOnesAreOneLine) {
  const auto error_of = [](const std::function<void(GraphBuilder&)>& add) {
    GraphBuilder g = product();
    add(g);
    const auto graph = g.finish();
    if (!graph) return graph.error().message;
    const auto training = differentiate(*graph, OptimizerSpec{});
    return training ? std::string("no error") : training.error().message;
  };
  EXPECT_EQ(error_of([](GraphBuilder& g) {
              const auto other = g.buffer("other", {{"out", 2}}, {Init::Kind::kZeros});
              carry(g, other, g.graph().find_tensor("y"));
            }),
            "op 'other.carry' (carry): expected value of dims [out=2], found 'y' [batch=4, out=2] "
            "float32");
  EXPECT_EQ(error_of([](GraphBuilder& g) {
              carry(g, g.buffer("other", {{"out", 2}}, {Init::Kind::kZeros}),
                    g.graph().find_tensor("mean"), {.keep = 1});
            }),
            "op 'other.carry' (carry): expected 0 <= keep < 1, found 1");
  EXPECT_EQ(error_of([](GraphBuilder& g) {
              g.op1("late", "scale", {g.graph().find_tensor("updated.past")}, {{"factor", 2.0}});
            }),
            "op 'late' reads 'updated.past', which is there after the step only");
  EXPECT_EQ(error_of([](GraphBuilder& g) {
              g.set_phase(Phase::kUpdate);
              g.op1("stray", "scale", {g.graph().find_tensor("mean")}, {{"factor", 2.0}});
            }),
            "update op 'stray' of a forward graph: expected the new value of a buffer, found "
            "'stray'");
}

// A plan that loops over the ops that make a mean leaves no mean to follow.
TEST(Carried, AValueThatIsNotThereIsNamed) {
  auto graph = product().finish();
  ASSERT_TRUE(graph);
  auto parts = without_updates(*graph);
  ASSERT_TRUE(parts);
  parts->updates[0].inputs[1] = "mean#0";
  const auto whole = with_updates(parts->forward, parts->updates);
  ASSERT_FALSE(whole);
  EXPECT_EQ(
      whole.error().message,
      "update op 'past.carry' reads 'mean#0', which the plan does not make as a whole (a loop "
      "over what it is a sum of): leave its op out of the loop");
}

}  // namespace
}  // namespace tessera::carried_test
