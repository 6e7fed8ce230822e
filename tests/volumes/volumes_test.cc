// Compares what programs send with the closed forms of the papers, exactly. All numbers are
// elements, summed over ranks: a ring all-reduce of E elements over n ranks is 2(n-1)E, an
// all-gather or a reduce-scatter (n-1)E, a broadcast (n-1)E.
#include <gtest/gtest.h>

#include <cctype>

#include "models_and_tensors.h"

namespace tessera::volumes::volumes_test {
namespace {

// ---- data parallel, ZeRO (docs/strategies/data-parallel.md section 2)
// ---------------------------------------------------
TEST(DataParallel, sends_twice_the_gradients_but_the_own_share) {
  for (const std::string& model : kModels) {
    for (const int64_t n : {2, 4, 3}) {  // 3: uneven batch and chunks
      const MeasuredPlan found = measure(model, "data_parallel(" + std::to_string(n) + ")", b);
      const int64_t gradients = found.parameters();
      EXPECT_EQ(found.sent(is_gradient), 2 * (n - 1) * gradients) << model << " " << n;
      EXPECT_EQ(found.sent(), 2 * (n - 1) * (gradients + 1)) << "and the loss";
      EXPECT_EQ(found.sent(), found.sent_by("all_reduce"));
    }
  }
}

TEST(DataParallel, reduces_once_a_step_however_many_micro_batches) {
  // If tied, the head's and the embedding's gradients are summed as parts.
  for (const std::string& model : {kGpt, kGpt + ",tied=0"}) {
    const MeasuredPlan found = measure(model, "megatron(dp=4, micro_batches=2)", b);
    EXPECT_EQ(found.sent(is_gradient), 2 * 3 * found.parameters());
  }
}

TEST(Zero, stages_1_and_2_send_as_much_as_data_parallel) {
  for (const std::string& model : kModels) {
    for (const std::string stage : {"1", "2"}) {
      const MeasuredPlan found = measure(model, "zero(stage=" + stage + ", dp=4)", b);
      const int64_t elements = found.parameters();
      EXPECT_EQ(found.sent_by("reduce_scatter", is_gradient), 3 * elements) << model << stage;
      EXPECT_EQ(found.sent_by("all_gather", is_updated), 3 * elements);
      EXPECT_EQ(found.sent() - found.sent(is_scalar), 2 * 3 * elements) << "and nothing else";
    }
  }
}

TEST(Zero, stage_1_scatters_once_and_stage_2_each_micro_batch) {
  const std::string model = kGpt + ",tied=0";
  const MeasuredPlan once = measure(model, "megatron(dp=4, zero=1, micro_batches=2)", b);
  EXPECT_EQ(once.sent(is_gradient), 3 * once.parameters());
  const MeasuredPlan each = measure(model, "megatron(dp=4, zero=2, micro_batches=2)", b);
  EXPECT_EQ(each.sent(is_gradient), 2 * 3 * each.parameters());
  EXPECT_EQ(each.sent(is_updated), 3 * each.parameters());
}

// Weights are gathered for the forward pass, and for the backward pass if one of its ops reads them
// (biases and positions are not read), and scattered.
TEST(Zero, stage_3_sends_three_times_the_weights) {
  static const auto is_weight = [](const Tensor& tensor) {
    return is_parameter(tensor) && tensor.name != "embed.position.weight" &&
           !tensor.name.ends_with(".bias");
  };
  for (const std::string& model : {kGpt, kLlama + ",tied=1"}) {
    for (const int64_t micro_batches : {1, 2}) {
      const MeasuredPlan found = measure(
          model, "megatron(dp=4, zero=3, micro_batches=" + std::to_string(micro_batches) + ")", b);
      const int64_t all = found.parameters();
      const int64_t weights = found.parameters(is_weight);
      EXPECT_EQ(found.sent_in(BlockKind::kForward, is_parameter), micro_batches * 3 * all);
      EXPECT_EQ(found.sent_in(BlockKind::kBackward, is_parameter), micro_batches * 3 * weights);
      EXPECT_EQ(found.sent(is_updated), 0);
      if (micro_batches == 1) {
        EXPECT_EQ(found.sent(is_gradient), 3 * all);
        EXPECT_EQ(found.sent() - found.sent(is_scalar), 3 * 3 * all - 3 * (all - weights));
      }
    }
  }
}

// ---- Megatron 1-D (docs/strategies/tensor-parallel.md)
// -----------------------------------------------------------
TEST(TensorParallel, is_four_all_reduces_of_the_activation_a_layer_and_step) {
  for (const std::string& model : kModels) {
    for (const int64_t n : {2, 4}) {
      const MeasuredPlan found = measure(model, "tensor_parallel(" + std::to_string(n) + ")", b);
      for (int rank = 0; rank < n; ++rank) {
        EXPECT_EQ(found.calls(rank, CollectiveKind::kAllReduce, is_hidden_of_block), 4) << model;
      }
      EXPECT_EQ(found.sent(is_hidden_of_block), 4 * 2 * (n - 1) * bsh);
      // The embedding's output and the gradient of the head's input are the vocabulary's share.
      EXPECT_EQ(found.sent(is_hidden), (4 * layers + 2) * 2 * (n - 1) * bsh);
      // The cross entropy sends two numbers a token: log-sum-exp and the target's logit.
      EXPECT_EQ(found.sent(is_token_statistic), 2 * 2 * (n - 1) * b * s);
      EXPECT_EQ(found.sent(),
                found.sent(is_hidden) + found.sent(is_token_statistic) + found.sent(is_scalar));
    }
  }
}

TEST(TensorParallel, sends_the_same_in_micro_batches_and_replicas) {
  const MeasuredPlan found = measure(kLlama, "megatron(tp=2, dp=2, micro_batches=2)", b);
  EXPECT_EQ(found.calls(0, CollectiveKind::kAllReduce, is_hidden_of_block), 4 * 2);
  EXPECT_EQ(found.sent(is_hidden), (4 * layers + 2) * 2 * bsh);
}

// ---- mixture of experts (docs/strategies/tensor-parallel.md section 6)
// -------------------------------------------
const std::string kMixtral =
    "mixtral:layers=2,hidden=16,heads=4,kv_heads=2,seq=8,vocab=24,ffn=12,experts=4,top_k=2";
constexpr int64_t experts = 4, top_k = 2;

bool is_slots(const Tensor& tensor) {
  return has_dims(tensor, {"experts", "batch", "capacity", "hidden"});
}
bool is_of_experts(const Tensor& tensor) {
  return is_parameter(tensor) && tensor.dims[0].name == "experts";
}
bool is_gradient_of_experts(const Tensor& tensor) {
  return is_gradient(tensor) && tensor.name.ends_with(".weight") &&
         tensor.dims[0].name == "experts";
}

// docs/strategies/tensor-parallel.md section 6: dispatch and combine send 2(E-1)/E top_k T h
// elements a rank and layer, where T is the rank's tokens, and as much backward. This holds with a
// capacity factor of 1.
TEST(ExpertParallel, exchanges_tokens_twice_a_layer_forward_and_twice_backward) {
  for (const int64_t ep : {2, 4}) {
    const MeasuredPlan found =
        measure(kMixtral + ",capacity_factor=1", "expert_parallel(" + std::to_string(ep) + ")", b);
    const int64_t local_tokens = b * s / ep;
    const int64_t a_rank = 2 * (ep - 1) * top_k * local_tokens * h / ep;
    EXPECT_EQ(found.sent_in(BlockKind::kForward, is_slots), layers * ep * a_rank);
    EXPECT_EQ(found.sent_in(BlockKind::kBackward, is_slots), layers * ep * a_rank);
    EXPECT_EQ(found.sent_by("all_to_all"), found.sent(is_slots));
    for (int rank = 0; rank < ep; ++rank)
      EXPECT_EQ(found.calls(rank, CollectiveKind::kAllToAll, is_slots), 4 * layers);
  }
}

// Slots are sent whether they are taken or not: capacity / (top_k s / experts) times the formula's
// volume. 1.25 * 4 = 5 slots, exactly; 1.3 * 4 is rounded up to 6.
TEST(ExpertParallel, sends_empty_slots_too) {
  for (const auto& [factor, capacity] : {std::pair{"1.25", 5}, {"1.3", 6}, {"0.5", 2}}) {
    const MeasuredPlan found =
        measure(kMixtral + ",capacity_factor=" + factor, "expert_parallel(4)", b);
    EXPECT_EQ(found.sent(is_slots), layers * 4 * 3 * (experts * capacity * b * h) / 4) << factor;
  }
}

TEST(ExpertParallel, sends_the_same_in_replicas_stages_micro_batches_and_pieces_of_hidden) {
  const int64_t whole = layers * 4 * (experts * 5 * b * h) / 2;
  for (const char* with : {"dp=2", "tp=2", "pp=2, micro_batches=4", "dp=2, zero=3"}) {
    const MeasuredPlan found =
        measure(kMixtral, std::string("expert_parallel(2, ") + with + ")", b);
    EXPECT_EQ(found.sent_by("all_to_all", is_slots), whole) << with;
  }
}

TEST(ExpertParallel, sums_dense_gradients_over_all_ranks_and_those_of_experts_over_dp) {
  const MeasuredPlan alone = measure(kMixtral, "expert_parallel(4)", b);
  const int64_t all = alone.parameters(), of_experts = alone.parameters(is_of_experts);
  EXPECT_EQ(alone.sent(is_gradient_of_experts), 0);
  EXPECT_EQ(alone.sent_by("all_reduce", is_gradient), 2 * 3 * (all - of_experts));
  const MeasuredPlan with_dp = measure(kMixtral, "expert_parallel(ep=2, dp=2)", b);
  EXPECT_EQ(with_dp.sent(is_gradient_of_experts), 2 * of_experts);
  const MeasuredPlan zero = measure(kMixtral, "expert_parallel(ep=2, dp=2, zero=1)", b);
  EXPECT_EQ(zero.sent(is_gradient) - zero.sent(is_slots) / 2, 3 * (all - of_experts) + of_experts);
}

// ---- pipelines
// --------------------------------------------------------------------------------------
TEST(Pipeline, sends_each_boundary_once_forward_and_once_backward) {
  for (const std::string recipe : {"gpipe", "one_f_one_b"}) {
    for (const std::string& model : kModels) {
      const MeasuredPlan found = measure(model, recipe + "(pp=2, micro_batches=4)", b);
      EXPECT_EQ(found.sent_in(BlockKind::kForward), bsh) << model;
      EXPECT_EQ(found.sent_in(BlockKind::kBackward), bsh) << model;
      EXPECT_EQ(found.sent(), found.sent_by("send"));
    }
  }
}

TEST(Pipeline, of_four_stages_sends_three_boundaries_in_as_many_messages_as_micro_batches) {
  const MeasuredPlan found = measure("gpt:layers=4,hidden=16,heads=4,seq=8,vocab=24,tied=0",
                                     "one_f_one_b(pp=4, micro_batches=8)", b);
  EXPECT_EQ(found.sent_in(BlockKind::kForward), 3 * bsh);
  EXPECT_EQ(found.sent_in(BlockKind::kBackward), 3 * bsh);
  for (size_t stage = 0; stage + 1 < 4; ++stage) {
    Program forward = found.programs[stage];
    for (const BlockKind other : {BlockKind::kPrologue, BlockKind::kBackward, BlockKind::kUpdate}) {
      forward.block(other).clear();
    }
    EXPECT_EQ(volume(forward, found.graph).by_kind["send"].messages, 8) << stage;
  }
}

TEST(Pipeline, sends_a_tied_table_to_the_head_and_its_gradient_back_once_a_step) {
  const MeasuredPlan tied = measure(kGpt, "gpipe(pp=2, micro_batches=4)", b);
  EXPECT_EQ(tied.sent() - tied.sent(is_scalar), 2 * bsh + 2 * V * h);
  const MeasuredPlan apart = measure(kGpt + ",tied=0", "gpipe(pp=2, micro_batches=4)", b);
  EXPECT_EQ(apart.sent() - apart.sent(is_scalar), 2 * bsh);
}

// Every rank of a tensor-parallel stage sends the boundary to its twin of the next stage.
TEST(Pipeline, sends_the_boundary_once_a_tensor_parallel_rank) {
  const MeasuredPlan found = measure(kLlama, "megatron(tp=2, pp=2, dp=2, micro_batches=2)", b);
  EXPECT_EQ(found.sent_by("send", is_hidden), 2 * 2 * bsh);
}

// ---- SUMMA (docs/strategies/summa.md section 7)
// ----------------------------------------------------------------
class SummaOf : public testing::TestWithParam<int64_t> {};

TEST_P(SummaOf, products_receive_the_closed_form_forward_and_twice_that_backward) {
  const int64_t q = GetParam();
  const MeasuredPlan found = measure(kGpt, "summa(" + std::to_string(q) + ")", b);
  const int64_t forward = (q - 1) * (7 * bsh + 12 * h * h);  // (q-1)/q^2 (..) on q^2 devices
  EXPECT_EQ(found.sent_in(BlockKind::kForward, is_matrix), forward);
  EXPECT_EQ(found.sent_in(BlockKind::kBackward, is_matrix), 2 * forward);
}

TEST_P(SummaOf, small_terms_are_the_norms_statistics_and_the_vectors_at_rest) {
  const int64_t q = GetParam();
  const MeasuredPlan found = measure(kGpt, "summa(" + std::to_string(q) + ")", b);
  const int64_t norms = 2 * layers + 1;
  // Three moments a token and norm over the columns; two sums backward.
  EXPECT_EQ(found.sent(is_moments), norms * 2 * (q - 1) * 3 * b * s);
  EXPECT_EQ(found.sent(is_sums), norms * 2 * (q - 1) * 2 * b * s);
  // Vectors rest in q^2 slices: biases 3h + h + 4h + h and norms 4h are gathered along columns;
  // their gradients scattered.
  EXPECT_EQ(found.sent_in(BlockKind::kForward, is_vector), (q - 1) * 13 * h);
  EXPECT_EQ(found.sent_in(BlockKind::kBackward, is_vector), (q - 1) * (13 * h + 2 * h));
}

TEST_P(SummaOf, vocabulary_terms_are_those_of_three_products_and_a_look_up) {
  const int64_t q = GetParam();
  const MeasuredPlan found = measure(kGpt, "summa(" + std::to_string(q) + ")", b);
  static const auto is_logits = [](const Tensor& tensor) {
    return has_dims(tensor, {"batch", "seq", "vocab"});
  };
  static const auto is_table = [](const Tensor& tensor) {
    return has_dims(tensor, {"vocab", "hidden"});
  };
  EXPECT_EQ(found.sent(is_logits), (q - 1) * 2 * b * s * V) << "reduced forward, sent backward";
  EXPECT_EQ(found.sent(is_table), (q - 1) * (3 + 2) * V * h) << "look-up, head, head.dx; two sums";
  EXPECT_EQ(found.sent(is_token_statistic), 2 * 2 * (q - 1) * b * s);
}

INSTANTIATE_TEST_SUITE_P(Meshes, SummaOf, testing::Values(2, 4));

// ---- long sequences (docs/strategies/sequence-parallel.md sections 2 to 4)
// ----------------------------------------------------------------------------------------------
struct Attending {
  std::string model;
  int64_t kv_heads, head_dim;
};
const std::vector<Attending> kAttending = {
    {kGpt + ",causal=0", 4, 4},
    {"llama:layers=2,hidden=16,heads=4,kv_heads=2,seq=8,vocab=24,ffn=64", 2, 4}};

// Elements that one rank sends the next in a step of the ring: a chunk of the keys and values, of
// all blocks.
int64_t hop(const Attending& of, int64_t n) {
  return 2 * layers * b * (s / n) * of.kv_heads * of.head_dim;
}

class RingOf : public testing::TestWithParam<std::string> {};

TEST_P(RingOf, keys_go_round_and_their_gradients_come_home) {
  for (const Attending& of : kAttending) {
    for (const int64_t n : {2, 4}) {
      if (GetParam() == "inner=2, order=none" && n == 2) continue;
      const bool causal = of.kv_heads == 2;
      const MeasuredPlan found =
          measure(of.model, "ring_attention(" + std::to_string(n) + ", " + GetParam() + ")", b);
      const bool skips = causal && GetParam() != "order=zigzag" && GetParam() != "order=striped";
      // In causal order of tokens, chunk j is passed on n-1-j times.
      const int64_t around = skips ? n * (n - 1) / 2 : n * (n - 1);
      EXPECT_EQ(found.sent_in(BlockKind::kForward, has_heads), around * hop(of, n)) << n;
      EXPECT_EQ(found.sent_in(BlockKind::kBackward, has_heads), (around + n * n) * hop(of, n)) << n;
      EXPECT_EQ(found.sent_by("permute"), found.sent(has_heads)) << "and nothing else moves";
    }
  }
}

TEST_P(RingOf, no_rank_has_keys_or_gradients_of_the_whole_sequence) {
  for (const Attending& of : kAttending) {
    const MeasuredPlan found = measure(of.model, "ring_attention(4, " + GetParam() + ")", b);
    for (const Program& program : found.programs) {
      for (const Buffer& buffer : program.buffers) {
        if (!has_heads(found.graph.tensor(buffer.tensor))) continue;
        EXPECT_LE(buffer.shape[1], s / 4) << buffer.name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, RingOf,
                         testing::Values("order=none", "order=zigzag", "order=striped",
                                         "inner=2, order=none"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

TEST(Rsa, two_rings_send_what_one_ring_of_both_sends) {
  for (const Attending& of : kAttending) {
    for (const int64_t n : {2, 4}) {
      const MeasuredPlan found = measure(of.model, "rsa(" + std::to_string(n) + ")", b);
      EXPECT_EQ(found.sent_in(BlockKind::kForward, has_heads), n * (n - 1) * hop(of, n));
      EXPECT_EQ(found.sent_in(BlockKind::kBackward, has_heads), (n * (n - 1) + n * n) * hop(of, n));
    }
  }
}

TEST(Ulysses, four_all_to_alls_forward_and_four_backward) {
  for (const Attending& of : kAttending) {
    const int64_t n = 2;
    const MeasuredPlan found = measure(of.model, "ulysses(2)", b);
    // q and o of all heads, k and v of the key heads; the rank keeps one n-th of each.
    const int64_t features = 2 * h + 2 * of.kv_heads * of.head_dim;
    const int64_t forward = layers * b * s * features * (n - 1) / n;
    EXPECT_EQ(found.sent_in(BlockKind::kForward, has_heads), forward);
    EXPECT_EQ(found.sent_in(BlockKind::kBackward, has_heads), forward);
    EXPECT_EQ(found.sent_by("all_to_all"), found.sent(has_heads));
  }
}

TEST(Summa, gated_blocks_share_what_their_products_read) {
  const int64_t q = 2, ffn = 64;
  const MeasuredPlan found = measure(kLlama, "summa(2)", b);
  // Reads: ln_1.y once for q, k, v; core; ln_2.y once for gate and up; the product of both (bs
  // ffn).
  const int64_t forward = (q - 1) * (3 * bsh + b * s * ffn + 4 * h * h + 3 * h * ffn);
  EXPECT_EQ(found.sent_in(BlockKind::kForward, is_matrix), forward);
  EXPECT_EQ(found.sent_in(BlockKind::kBackward, is_matrix), 2 * forward);
}

}  // namespace
}  // namespace tessera::volumes::volumes_test
