// Compares the bytes that programs keep with the closed forms of memory (cost/formulas.h). They are
// equal to the byte once the differences in kind are added: normalisation statistics, the
// log-sum-exp of attention, masks that are made again from a counter instead of kept.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formulas.h"
#include "tessera/models/model.h"
#include "tessera/program/test_programs.h"

namespace tessera::memory_test {
namespace {

constexpr int64_t kSeq = 32, kHidden = 64, kHeads = 8, kTensor = 2;

// Lowers three blocks in bfloat16, and returns the bytes of the middle block that rank 0 keeps from
// forward to backward of a micro-batch of one sequence.
int64_t kept_of_a_block(const std::string& model_spec, const std::string& recipe,
                        const std::string& plan_text = "") {
  const auto model = build_model(model_spec, 2);
  EXPECT_TRUE(model.has_value()) << (model ? "" : model.error().message);
  if (!model) return 0;
  const auto text = emit_recipe(recipe, model->graph);
  EXPECT_TRUE(text.has_value()) << (text ? "" : text.error().message);
  if (!text) return 0;
  const std::string whole = plan_text + *text;
  const auto plan = parse_plan(whole, "plan.toml");
  EXPECT_TRUE(plan.has_value()) << (plan ? "" : plan.error().message);
  if (!plan) return 0;
  const auto shaped = shape_forward(model->graph, *plan, std::nullopt);
  EXPECT_TRUE(shaped.has_value()) << (shaped ? "" : shaped.error().message);
  if (!shaped) return 0;
  const TestPrograms lowered = lower_all(trained(*shaped), whole);
  int64_t bytes = 0;
  for (const Buffer& buffer : lowered.programs.at(0).buffers) {
    if (buffer.lifetime == Lifetime::kMicroBatch && buffer.name.starts_with("blocks.1."))
      bytes += buffer.bytes();
  }
  return bytes;
}
std::string gpt(double dropout) {
  return fmt::format("gpt:layers=3,hidden={},heads={},seq={},vocab=64,dropout={},dtype=bfloat16",
                     kHidden, kHeads, kSeq, dropout);
}
std::string tensor_parallel(bool sequence_shard) {
  return fmt::format("megatron(tp={}, micro_batches=2, sequence_shard={})", kTensor,
                     sequence_shard);
}
TransformerSizes sizes(int64_t key_heads, int64_t ffn, bool gated) {
  return {3,  kHidden, kHeads, static_cast<double>(key_heads), static_cast<double>(ffn),
          64, kSeq,    gated};
}
constexpr double kTokens = kSeq;

TEST(KeptActivations, of_gpt_are_the_closed_form_but_for_masks_and_statistics) {
  const TransformerSizes x = sizes(kHeads, 4 * kHidden, false);
  const double log_sum_exp =
      4 * kTokens * kHeads / kTensor;          // of fused attention, sharded by heads
  const double statistics = 4 * 4 * kTokens;   // mean and rstd of two norms
  const double masks = 2 * kTokens * kHidden;  // of two dropouts, one byte each
  // Fused attention keeps no scores, as in the form of selective recompute.
  const double sharded = layer_activation_bytes(x, 1, kTensor, ActivationScheme::kSelective);
  EXPECT_EQ(static_cast<double>(kept_of_a_block(gpt(.1), tensor_parallel(true))),
            sharded - masks / kTensor + log_sum_exp + statistics / kTensor);
  const double scores = 5 * kHeads * kSeq * kTokens / kTensor;
  const double replicated =
      layer_activation_bytes(x, 1, kTensor, ActivationScheme::kTensorParallel) - scores;
  EXPECT_EQ(static_cast<double>(kept_of_a_block(gpt(.1), tensor_parallel(false))),
            replicated - masks + log_sum_exp + statistics);
}

TEST(KeptActivations, of_unfused_attention_are_its_probabilities) {
  const double fused = static_cast<double>(kept_of_a_block(gpt(0), tensor_parallel(true)));
  const double unfused = static_cast<double>(
      kept_of_a_block(gpt(0), tensor_parallel(true), "expand = \"blocks.*.attn.core\"\n"));
  const double log_sum_exp = 4 * kTokens * kHeads / kTensor;
  // Softmax keeps its result, 2 of the 5as/h bytes (the others are dropout's); the scaled queries
  // replace the queries.
  EXPECT_EQ(unfused - fused, 2 * kHeads * kSeq * kTokens / kTensor - log_sum_exp);
}

TEST(KeptActivations, of_llama_are_the_modern_form_and_statistics) {
  const TransformerSizes x = sizes(4, 96, true);
  const double statistics = 2 * 4 * kTokens / kTensor;  // rstd of two norms
  EXPECT_EQ(static_cast<double>(kept_of_a_block(
                fmt::format("llama:layers=3,hidden={},heads={},kv_heads=4,seq={},ffn=96,vocab=64,"
                            "dtype=bfloat16",
                            kHidden, kHeads, kSeq),
                tensor_parallel(true))),
            modern_layer_activation_bytes(x, 1, kTensor, false) + statistics);
}

// ---- states
// --------------------------------------------------------------------------------------
// Returns the bytes a parameter of a rank's parameters, states and gradient accumulators. A table
// used twice would accumulate its two whole gradients before they are reduced.
double state_bytes(const std::string& recipe) {
  const auto model = build_model("gpt:layers=2,hidden=64,heads=8,seq=32,vocab=64,tied=0", 8);
  EXPECT_TRUE(model.has_value());
  const TestPrograms lowered = lower_all(trained(model->graph), recipe);
  double bytes = 0;
  for (const Program& program : lowered.programs) {
    for (const Buffer& buffer : program.buffers) {
      if (buffer.lifetime != Lifetime::kPersistent && buffer.lifetime != Lifetime::kStep) continue;
      const Tensor& tensor = lowered.graph.tensor(buffer.tensor);
      const bool gradient = tensor.role == Role::kGradient && tensor.of.valid() &&
                            lowered.graph.tensor(tensor.of).role == Role::kParameter;
      const bool state = tensor.role == Role::kParameter || tensor.role == Role::kOptimizerState;
      if (gradient || state) bytes += static_cast<double>(buffer.bytes());
    }
  }
  const double ranks = static_cast<double>(lowered.programs.size());
  return bytes / ranks / static_cast<double>(parameter_count(model->graph));
}

TEST(KeptStates, are_the_bytes_a_parameter_of_the_recipe) {
  EXPECT_EQ(state_bytes("data_parallel(dp=4, micro_batches=2)"),
            state_bytes_per_parameter(StateRecipe::kAdam32, 4));
  EXPECT_EQ(state_bytes("fsdp(dp=4, micro_batches=2, prefetch=0)"),
            state_bytes_per_parameter(StateRecipe::kZero3, 4));
  // The optimizer's 8 of 16 bytes are sharded (in fp32; 12 of 16 with 16-bit parameters); the
  // gradient's shard, which the reduction makes, lies beside the accumulated gradient.
  EXPECT_EQ(state_bytes("zero(stage=1, dp=4, micro_batches=2)"), 8 + 8. / 4 + 4. / 4);
}

}  // namespace
}  // namespace tessera::memory_test
