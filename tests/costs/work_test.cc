// The work of instructions of real models.
#include <gtest/gtest.h>

#include "tessera/cost/op_cost.h"
#include "tessera/graph/kinds.h"
#include "tessera/models/model.h"
#include "tessera/program/test_programs.h"

namespace tessera {
namespace {

TEST(OpWork, of_experts_counts_their_batch) {
  const auto model = build_model(
      "mixtral:layers=1,hidden=16,heads=2,kv_heads=2,seq=8,vocab=32,ffn=24,experts=4,top_k=2", 4);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const TestPrograms lowered = lower_all(trained(model->graph), "serial");
  ASSERT_EQ(lowered.programs.size(), 1U);
  int grouped = 0;
  for (const auto& [ref, block] : lowered.programs[0].blocks) {
    for (const Instruction& instruction : block) {
      const auto* compute = std::get_if<Compute>(&instruction.body);
      if (compute == nullptr) continue;
      const OpWork work = work_of(lowered.graph, lowered.programs[0], *compute);
      if (!work.grouped) continue;
      ++grouped;
      EXPECT_EQ(work.batch, 4);
      EXPECT_EQ(work.flops, 2 * work.batch * work.m * work.n * work.k);
    }
  }
  EXPECT_EQ(grouped, 9);  // three products forward, twice as many backward
}

// Convolutions are products with weights: they are kept, as those of transformers are
// (docs/strategies/recompute.md).
TEST(OpWork, selective_recomputation_makes_no_convolution_again) {
  const auto model = build_model("resnet:layers=18,width=8,image=32,classes=4", 2);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const TestPrograms lowered = lower_all(trained(model->graph), "recompute(selective)");
  int again = 0, norms = 0;
  for (const Op& op : lowered.graph.ops()) {
    if (!lowered.graph.runs_again(op)) continue;
    const auto work = info_of(op).work;
    EXPECT_NE(work, WorkClass::kConvolution) << op.path;
    EXPECT_FALSE(info_of(op).merges.has_value()) << op.path;
    norms += work == WorkClass::kNorm ? 1 : 0;
    ++again;
  }
  EXPECT_GT(again, norms);
  EXPECT_GT(norms, 0);
}

// ---- sizes of one instruction
// --------------------------------------------------------------------
struct Found {
  OpWork work;
  bool found = false;
};
Found find_work(const TestPrograms& lowered, const std::string& path) {
  for (const auto& [ref, block] : lowered.programs.at(0).blocks) {
    for (const Instruction& instruction : block) {
      const auto* compute = std::get_if<Compute>(&instruction.body);
      if (compute != nullptr && lowered.graph.op(compute->op).path == path)
        return {work_of(lowered.graph, lowered.programs[0], *compute), true};
    }
  }
  return {};
}

TEST(OpWork, of_a_sharded_linear_layer_is_that_of_the_shard) {
  const auto model = build_model("gpt:layers=1,hidden=32,heads=4,seq=8,vocab=64", 4);
  ASSERT_TRUE(model.has_value());
  const TestPrograms lowered = lower_all(trained(model->graph), "megatron(tp=2, micro_batches=2)");
  const Found up = find_work(lowered, "blocks.0.mlp.up");
  ASSERT_TRUE(up.found);
  EXPECT_EQ(up.work.kind, WorkClass::kMatmul);
  EXPECT_EQ(up.work.batch, 1);
  EXPECT_EQ(up.work.m, 2 * 8);  // two sequences of a micro-batch
  EXPECT_EQ(up.work.n, 128 / 2);
  EXPECT_EQ(up.work.k, 32);
  EXPECT_EQ(up.work.layout, "nn");
  EXPECT_TRUE(up.work.block);
  EXPECT_FALSE(up.work.backward);
  EXPECT_EQ(up.work.bytes_written, 4 * 16 * 64);
  EXPECT_EQ(up.work.bytes_read, 4 * (16 * 32 + 32 * 64 + 64));  // with the bias
  // The weight gradient is added to the sum of earlier micro-batches.
  const Found dw = find_work(lowered, "blocks.0.mlp.up.dw");
  ASSERT_TRUE(dw.found);
  EXPECT_TRUE(dw.work.backward);
  EXPECT_EQ(dw.work.k, 16);
  EXPECT_EQ(dw.work.bytes_read, 4 * (16 * 32 + 16 * 64 + 32 * 64));
  const Found core = find_work(lowered, "blocks.0.attn.core");
  ASSERT_TRUE(core.found);
  EXPECT_EQ(core.work.batch, 2);
  EXPECT_EQ(core.work.heads, 2);
  EXPECT_EQ(core.work.queries, 8);
  EXPECT_EQ(core.work.head_dim, 8);
  EXPECT_EQ(core.work.visible, .5);
}

TEST(OpWork, of_a_look_up_reads_rows_not_the_table) {
  const auto model = build_model("gpt:layers=1,hidden=32,heads=4,seq=8,vocab=6400", 4);
  ASSERT_TRUE(model.has_value());
  const TestPrograms lowered = lower_all(trained(model->graph), "serial");
  const Found token = find_work(lowered, "embed.token");
  ASSERT_TRUE(token.found);
  EXPECT_EQ(token.work.bytes_read, 8 * 32 + 4 * 32 * 32);  // ids and one row each
  EXPECT_EQ(token.work.bytes_written, 4 * 32 * 32);
}

}  // namespace
}  // namespace tessera
