// The vectors of docs/theory/cost-model.md sections 6 to 8.
#include "formulas.h"

#include <gtest/gtest.h>

namespace tessera::formulas_test {
namespace {

constexpr double kGiB = 1024. * 1024 * 1024;

TransformerSizes gpt(double layers, double hidden, double heads, double vocab = 51200) {
  return {layers, hidden, heads, heads, 4 * hidden, vocab, 2048, false};
}

// Section 7: the models of 39B and 145B of Narayanan et al.
TEST(Formulas, megatron_flops_give_the_published_step_times) {
  const double flops = megatron_flops(gpt(48, 8192, 64), 1536, true);
  EXPECT_NEAR(flops, 1.0212e18, 1e14);
  EXPECT_NEAR(flops / (512 * 138e12), 14.45, .01);
  EXPECT_NEAR(megatron_flops(gpt(80, 12288, 96), 2304, true) / (1536 * 148e12), 24.82, .01);
}

TEST(Formulas, conventions_agree_where_they_count_the_same) {
  const TransformerSizes sizes = gpt(48, 8192, 64);
  EXPECT_NEAR(model_flops_per_token(sizes) * 2048, megatron_flops(sizes, 1, false),
              1e-9 * megatron_flops(sizes, 1, false));
  // The matrices of layers and head, without the small vectors, give the 6P.
  const double matrices = 12. * 48 * 8192 * 8192 + 51200. * 8192;
  EXPECT_NEAR(foundry_flops_per_token(sizes, matrices), model_flops_per_token(sizes),
              1e-9 * model_flops_per_token(sizes));
}

TEST(Formulas, parameters_of_published_models) {
  EXPECT_NEAR(96 * layer_parameters(gpt(96, 12288, 96)), 174e9, .5e9);
  const TransformerSizes llama{80, 8192, 64, 8, 28672, 128256, 8192, true};
  EXPECT_NEAR(80 * layer_parameters(llama) + 2 * 128256. * 8192, 70.55e9, .02e9);
}

TEST(Formulas, states) {
  EXPECT_EQ(state_bytes_per_parameter(StateRecipe::kSgd32, 8), 12);
  EXPECT_EQ(state_bytes_per_parameter(StateRecipe::kAdam32, 8), 16);
  EXPECT_EQ(state_bytes_per_parameter(StateRecipe::kMixed, 8), 18);
  EXPECT_EQ(state_bytes_per_parameter(StateRecipe::kMixedNarrow, 8), 16);
  EXPECT_EQ(state_bytes_per_parameter(StateRecipe::kDistributed, 8), 7.5);
  EXPECT_EQ(state_bytes_per_parameter(StateRecipe::kZero1, 8), 5.5);
  EXPECT_EQ(state_bytes_per_parameter(StateRecipe::kZero2, 8), 3.75);
  EXPECT_EQ(state_bytes_per_parameter(StateRecipe::kZero3, 8), 2);
  // Unsharded, all recipes of one precision give equal bytes.
  for (const StateRecipe recipe : {StateRecipe::kZero1, StateRecipe::kZero2, StateRecipe::kZero3})
    EXPECT_EQ(state_bytes_per_parameter(recipe, 1), 16);
  EXPECT_EQ(state_bytes_per_parameter(StateRecipe::kDistributed, 1), 18);
}

TEST(Formulas, activations_and_states_of_22b) {
  const TransformerSizes sizes = gpt(48, 6144, 64);
  const auto gib = [&](ActivationScheme scheme) {
    return 48 * layer_activation_bytes(sizes, 4, 8, scheme) / kGiB;
  };
  EXPECT_DOUBLE_EQ(gib(ActivationScheme::kTensorParallel), 59.25);
  EXPECT_DOUBLE_EQ(gib(ActivationScheme::kSequenceParallel), 39.5625);
  EXPECT_DOUBLE_EQ(gib(ActivationScheme::kSelective), 9.5625);
  EXPECT_DOUBLE_EQ(gib(ActivationScheme::kFull), 4.5);
  EXPECT_DOUBLE_EQ(gib(ActivationScheme::kFullSharded), 4.5 / 8);
  EXPECT_DOUBLE_EQ(
      12. * 48 * 6144 * 6144 * state_bytes_per_parameter(StateRecipe::kMixed, 1) / 8 / kGiB,
      45.5625);
}

TEST(Formulas, activations_and_states_of_175b) {
  const TransformerSizes sizes = gpt(96, 12288, 96);
  const double layers = layers_in_flight(PipelineOrder::kInterleaved, 96, 8, 3, 64);
  const auto gib = [&](ActivationScheme scheme) {
    return layers * layer_activation_bytes(sizes, 1, 8, scheme) / kGiB;
  };
  EXPECT_DOUBLE_EQ(gib(ActivationScheme::kTensorParallel), 66.84375);
  EXPECT_DOUBLE_EQ(gib(ActivationScheme::kSelective), 12.3515625);
  EXPECT_DOUBLE_EQ(gib(ActivationScheme::kFull), 5.8125);
  EXPECT_DOUBLE_EQ(12. * 96 * 12288 * 12288 * 18 / 8 / 8 / kGiB, 45.5625);
}

TEST(Formulas, micro_batches_in_flight) {
  EXPECT_EQ(layers_in_flight(PipelineOrder::kOneForwardOneBackward, 96, 8, 1, 64), 96);
  EXPECT_EQ(layers_in_flight(PipelineOrder::kOneForwardOneBackward, 96, 8, 1, 4), 48);
  EXPECT_EQ(layers_in_flight(PipelineOrder::kGpipe, 96, 8, 1, 64), 768);
}

TEST(Formulas, pipelines) {
  EXPECT_EQ(pipeline_seconds(PipelineOrder::kOneForwardOneBackward, 4, 1, 8, 1, 2), 33);
  EXPECT_EQ(pipeline_seconds(PipelineOrder::kGpipe, 4, 1, 8, 1, 2), 33);
  EXPECT_EQ(pipeline_seconds(PipelineOrder::kInterleaved, 4, 2, 8, 1, 2), 28.5);
  EXPECT_EQ(pipeline_seconds(PipelineOrder::kOneForwardOneBackward, 8, 1, 64, 1, 2), 213);
  EXPECT_EQ(pipeline_seconds(PipelineOrder::kInterleaved, 8, 3, 64, 1, 2), 199);
  EXPECT_EQ(pipeline_seconds(PipelineOrder::kInterleaved, 8, 6, 64, 1, 2), 195.5);
  EXPECT_EQ(unequal_pipeline_estimate({2, 1, 3}, {3, 4, 2}, 5), 35);
  EXPECT_EQ(unequal_pipeline_estimate({1, 3, 2}, {2, 6, 4}, 6), 63);
}

TEST(Formulas, bounds) {
  EXPECT_DOUBLE_EQ(work_bound(1e18, 512, 312e12, .5), 1e18 / (512 * 156e12));
  EXPECT_DOUBLE_EQ(cut_bound(1e9, 25e9), .04);
  EXPECT_NEAR(straggler_factor(1024, .01), 1.037, .0005);
  EXPECT_EQ(straggler_factor(1, .01), 1);
}

}  // namespace
}  // namespace tessera::formulas_test
