// Compares the elements that a rank holds at rest, and from the forward to the backward pass, with
// closed forms. A block of gpt stores 16bsh: the outputs of norms (2), q, k, v, attention (4), the
// residual sums (2), the MLP's two wide ones (8). These are the 32 of the 34 bytes a token and
// feature in 16-bit numbers of docs/strategies/tensor-parallel.md section 4; the other 2, dropout
// masks, are made again from their keys. Attention is one op, which removes the 5as/h term; it
// keeps one log-sum-exp a head and token.
#include <fmt/format.h>

#include "models_and_tensors.h"

namespace tessera::volumes::memory_test {
namespace {

constexpr int64_t heads = 4;
constexpr int64_t kStatistics = 4 * b * s;  // mean and 1/deviation of two norms
constexpr int64_t kLogSumExp = heads * b * s;

bool is_stored_in_block(const Tensor& tensor) { return in_block(tensor); }
bool is_weight_matrix(const Tensor& tensor) { return is_parameter(tensor) && is_matrix(tensor); }

int64_t stored(const std::string& plan, const std::string& model = kGpt) {
  return measure(model, plan, b).stored(0, is_stored_in_block);
}

TEST(Stored, serial_is_16_bsh_a_block) {
  EXPECT_EQ(stored("serial"), 16 * bsh + kStatistics + kLogSumExp);
  EXPECT_EQ(stored("serial", kGpt + ",dropout=0.1"), 16 * bsh + kStatistics + kLogSumExp);
}

TEST(Stored, plain_tensor_parallelism_keeps_the_residual_stream_whole) {
  for (const int64_t p : {2, 4}) {
    EXPECT_EQ(stored(fmt::format("tensor_parallel({})", p)),
              4 * bsh + 12 * bsh / p + kStatistics + kLogSumExp / p);
    EXPECT_EQ(stored(fmt::format("tensor_parallel({}, sequence_shard=true)", p)),
              (16 * bsh + kStatistics + kLogSumExp) / p);
  }
}

TEST(Stored, falls_with_all_ranks_in_2d_with_depth_and_in_3d) {
  struct Case {
    std::string plan;
    int64_t ranks, rows;  // rows: pieces of the batch that hold norms' statistics
  };
  for (const Case& c : {Case{"summa(2)", 4, 2},
                        {"summa(2, cols=4)", 8, 2},
                        {"summa(4)", 16, 4},
                        {"cannon(2)", 4, 2},
                        {"tesseract(2, 2)", 8, 4},
                        {"tesseract(2, 4)", 16, 8},
                        {"tensor_parallel_3d(2, 2, 2)", 8, 4},
                        {"tensor_parallel_3d(1, 2, 4)", 8, 2},
                        {"tensor_parallel_3d(4, 2, 2)", 16, 8}}) {
    EXPECT_EQ(stored(c.plan), (16 * bsh + kLogSumExp) / c.ranks + kStatistics / c.rows) << c.plan;
  }
}

TEST(Stored, recomputation_keeps_products_and_residual_sums_or_block_outputs) {
  for (const std::string& model : {kGpt, kGpt + ",dropout=0.1"}) {
    EXPECT_EQ(stored("recompute(selective)", model), (3 + 2 + 4) * bsh);
    EXPECT_EQ(stored("recompute(full)", model), bsh);
    EXPECT_EQ(stored("megatron(tp=2, recompute=full)", model), bsh);
    EXPECT_EQ(stored("megatron(tp=2, sequence_shard=true, recompute=full)", model), bsh / 2);
    EXPECT_EQ(stored("megatron(tp=4, sequence_shard=true, recompute=selective)", model),
              9 * bsh / 4);
  }
}

// The forward pass of a block is repeated except its last product, whose output no op reads: one
// all-reduce of the two.
TEST(Recompute, sends_the_forward_of_a_block_again_up_to_its_last_product) {
  for (const int64_t n : {2, 4}) {
    const MeasuredPlan kept = measure(kGpt, fmt::format("megatron(tp={})", n), b);
    const MeasuredPlan again = measure(kGpt, fmt::format("megatron(tp={}, recompute=full)", n), b);
    EXPECT_EQ(again.sent_in(BlockKind::kForward), kept.sent_in(BlockKind::kForward));
    EXPECT_EQ(again.sent_in(BlockKind::kBackward, is_hidden) -
                  kept.sent_in(BlockKind::kBackward, is_hidden),
              layers * 2 * (n - 1) * bsh);
  }
}

TEST(AtRest, weights_are_held_once_by_all_ranks_and_once_a_depth) {
  struct Case {
    std::string plan;
    int64_t pieces;
  };
  for (const Case& c : {Case{"tensor_parallel(4)", 4},
                        {"summa(2)", 4},
                        {"summa(2, cols=4)", 8},
                        {"summa(4)", 16},
                        {"cannon(4)", 16},
                        {"tesseract(2, 2)", 4},
                        {"tesseract(2, 4)", 4},
                        {"tesseract(2, 2, zero=3)", 8},
                        {"tensor_parallel_3d(2, 2, 2)", 8},
                        {"tensor_parallel_3d(1, 2, 4)", 8},
                        {"fsdp(4, prefetch=0)", 4},
                        {"fsdp(4, replicas=2, prefetch=0)", 4},
                        {"fsdp(2, tp=2, prefetch=0)", 4},
                        {"zero(3, 8)", 8},
                        {"zero(2, 8)", 1}}) {
    const MeasuredPlan found = measure(kGpt, c.plan, b);
    EXPECT_EQ(found.at_rest(0, is_weight_matrix), 12 * h * h / c.pieces) << c.plan;
  }
}

TEST(AtRest, zero_stages_hold_a_share_of_state_then_of_parameters) {
  for (const int64_t n : {2, 4}) {
    for (const int64_t stage : {1, 2, 3}) {
      const MeasuredPlan found = measure(kGpt, fmt::format("zero({}, {})", stage, n), b);
      static const auto is_state = [](const Tensor& t) { return t.role == Role::kOptimizerState; };
      EXPECT_EQ(found.at_rest(0, is_state), 2 * found.parameters() / n) << "two moments";
      EXPECT_EQ(found.at_rest(0, is_parameter), found.parameters() / (stage == 3 ? n : 1));
    }
  }
}

TEST(AtRest, state_may_be_spread_over_replicas_too) {
  static const auto is_state = [](const Tensor& t) { return t.role == Role::kOptimizerState; };
  const MeasuredPlan hybrid = measure(kGpt, "fsdp(2, replicas=2, prefetch=0)", b);
  EXPECT_EQ(hybrid.at_rest(0, is_state), 2 * hybrid.parameters() / 2);
  const MeasuredPlan spread =
      measure(kGpt, "fsdp(2, replicas=2, spread_state=true, prefetch=0)", b);
  EXPECT_EQ(spread.at_rest(0, is_state), 2 * spread.parameters() / 4);
  EXPECT_EQ(spread.at_rest(0, is_parameter), spread.parameters() / 2);
}

// Bytes of Megatron's distributed optimizer (docs/strategies/tensor-parallel.md section 6,
// docs/strategies/data-parallel.md section 2): 6 + 12/n a parameter. 4 + 8 are masters and moments
// in shards, 2 the narrow copy that is kept for the step, 4 its gradient.
TEST(AtRest, narrow_precision_has_the_bytes_of_a_distributed_optimizer) {
  static const auto is_state = [](const Tensor& t) { return t.role == Role::kOptimizerState; };
  static const auto is_copy = [](const Tensor& t) {
    return t.role == Role::kActivation && t.name.ends_with(".weight.cast");
  };
  static const auto is_gradient_of_copy = [](const Tensor& t) {
    return t.role == Role::kGradient && t.name.ends_with(".weight.cast");
  };
  static const auto is_weight = [](const Tensor& t) {
    return t.role == Role::kParameter && t.name.ends_with(".weight");
  };
  const std::string model = "llama:layers=2,hidden=16,heads=4,seq=8,vocab=24,ffn=32";  // no biases
  for (const int64_t n : {2, 4}) {
    const MeasuredPlan found =
        measure(model, fmt::format("zero(1, {}, micro_batches=2, precision=bfloat16)", n), 2 * n);
    const int64_t all = found.parameters(is_weight);
    EXPECT_EQ(found.parameters(), all);
    EXPECT_EQ(found.at_rest(0, is_parameter), all / n) << "4 bytes each";
    EXPECT_EQ(found.at_rest(0, is_state), 2 * all / n) << "4 bytes each";
    // The scattered tensor and its shards, and the gathered one and its shards: the shards live
    // when the whole tensor does not.
    EXPECT_EQ(found.of_the_step(0, is_gradient_of_copy), all + all / n) << "4 bytes each";
    EXPECT_EQ(found.of_the_step(0, is_copy), all + all / n) << "2 bytes each";
  }
}

// 10 sequences in 4, 3, 3 take the memory of 12 in 4, 4, 4: buffers have the size of the larger.
TEST(MicroBatches, of_two_sizes_take_the_memory_of_the_larger) {
  for (const char* plan : {"recompute(none, 3)", "zero(2, 2, 3)",
                           "fsdp(2, micro_batches=3, accumulate=whole, prefetch=0)", "gpipe(2, 3)",
                           "one_f_one_b(2, 3)", "pipeline(2, 3, zb_h1)", "pipeline(2, 3, zb_v)"}) {
    const std::string model = std::string(plan).find("zb_v") == std::string::npos
                                  ? kGpt
                                  : "gpt:layers=4,hidden=16,heads=4,seq=8,vocab=24";
    const MeasuredPlan uneven = measure(model, plan, 10), even = measure(model, plan, 12);
    ASSERT_EQ(uneven.programs.size(), even.programs.size()) << plan;
    for (size_t rank = 0; rank < even.programs.size(); ++rank) {
      EXPECT_EQ(uneven.programs[rank].larger, 1) << plan;
      EXPECT_EQ(uneven.programs[rank].arena_bytes, even.programs[rank].arena_bytes) << plan;
    }
  }
}

}  // namespace
}  // namespace tessera::volumes::memory_test
