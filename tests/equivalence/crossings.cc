// Compares tensors that cross to a stage on another mesh in chunks, and are gathered there, with
// the serial run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>

#include "tessera/compile/compile.h"
#include "tessera/models/model.h"
#include "tessera/plan/prepare.h"
#include "tessera/program/lower.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

// A share of the crossing tensor has some mebibytes, and the kernels are small.
constexpr const char* kModel = "mlp:in=4,hidden=24,out=3,layers=2";
constexpr int64_t kBatch = 65536;

std::string plan_of(const std::string& from, const std::string& to, int64_t micro_batches) {
  return fmt::format(
      "micro_batches = {}\nstage = [\n  {{ ops = \"layers.0*\", at = 0, mesh = {{ {} }} }},\n"
      "  {{ ops = \"{{layers.1,head,loss}}*\", at = 1, mesh = {{ {} }} }},\n]\n"
      "split = [ {{ ops = \"layers.0*\", dim = \"batch\", over = \"d\" }} ]\n",
      micro_batches, from, to);
}

// Returns the number of receipts of the crossing tensor in the forward blocks of the last rank.
int64_t messages(const Model& model, const std::string& text) {
  const auto plan = parse_plan(text, "plan.toml");
  EXPECT_TRUE(plan) << plan.error().message;
  const auto graph = training_graph(model.graph, *plan, plan->precision, OptimizerSpec{});
  EXPECT_TRUE(graph) << graph.error().message;
  const auto prepared = prepare(*graph, *plan);
  EXPECT_TRUE(prepared) << prepared.error().message;
  const auto lowering =
      Lowering::create(std::make_shared<const Graph>(prepared->graph), prepared->plan);
  EXPECT_TRUE(lowering) << lowering.error().message;
  const Program program = lowering->lower(static_cast<int>(prepared->plan.ranks) - 1).value();
  int64_t count = 0;
  for (const auto& [ref, block] : program.blocks) {
    if (ref.kind != BlockKind::kForward) continue;
    for (const Instruction& instruction : block)
      count += std::holds_alternative<Recv>(instruction.body) ? 1 : 0;
  }
  return count;
}

TEST(Chunks, that_cross_and_are_gathered_equal_the_serial_run) {
  struct Case {
    std::string from, to;
    int64_t ranks, micro_batches, chunks;
  };
  for (const Case& one : {Case{"d = 2", "i = 2, e = 2", 6, 1, 3},
                          {"d = 3", "i = 2", 5, 1, 6},
                          {"d = 2", "i = 3", 5, 3, 2}}) {
    SCOPED_TRACE(fmt::format("{} -> {}", one.from, one.to));
    const auto model = build_model(kModel, kBatch, DType::kFloat64);
    ASSERT_TRUE(model) << model.error().message;
    const std::string plan = plan_of(one.from, one.to, one.micro_batches);
    EXPECT_GE(messages(*model, plan), one.chunks);
    VerifyConfig config;
    config.batch = kBatch;
    config.ranks = one.ranks;
    const auto report = verify_model(*model, plan, config);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->ok) << report->why;
  }
}

}  // namespace
}  // namespace tessera
