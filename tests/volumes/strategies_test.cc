// Compares the elements that the recipes beyond data, pipeline and plain tensor parallelism send,
// summed over ranks (as volumes_test.cc), with closed forms. A tensor T that n ranks each need
// whole and hold in pieces costs (n-1)|T|; 7bsh, 9bsh and 12hh are the inputs, outputs and weights
// of a block's products.
#include <fmt/format.h>

#include "models_and_tensors.h"

namespace tessera::volumes::strategies_test {
namespace {

constexpr int64_t hh = h * h;

// ---- sequence sharding (docs/strategies/tensor-parallel.md section 4)
TEST(SequenceShard, sends_what_plain_tensor_parallelism_sends_and_gathers_inputs_again) {
  for (const std::string& model : kModels) {
    for (const int64_t n : {2, 3, 4}) {
      const MeasuredPlan plain = measure(model, fmt::format("tensor_parallel({})", n), b);
      const MeasuredPlan found =
          measure(model, fmt::format("tensor_parallel({}, sequence_shard=true)", n), b);
      EXPECT_EQ(found.sent_in(BlockKind::kForward, is_hidden),
                plain.sent_in(BlockKind::kForward, is_hidden))
          << model << " " << n;
      // The inputs of two column products a layer, and of the head.
      EXPECT_EQ(found.sent_in(BlockKind::kBackward, is_hidden) -
                    plain.sent_in(BlockKind::kBackward, is_hidden),
                (2 * layers + 1) * (n - 1) * bsh);
      EXPECT_EQ(found.sent_by("all_reduce", is_hidden), 0);
    }
  }
}

TEST(SequenceShard, sums_the_vectors_gradients_once_a_step) {
  for (const int64_t micro_batches : {1, 2}) {
    const MeasuredPlan found = measure(
        kGpt, fmt::format("megatron(tp=2, sequence_shard=true, micro_batches={})", micro_batches),
        b);
    // Norms: 4h a layer, and the last norm. Biases of row products see all tokens, which their
    // product's backward gathers; positions rest in the shards.
    EXPECT_EQ(found.sent_by("all_reduce", is_gradient), 2 * (layers * 4 * h + 2 * h))
        << micro_batches;
  }
}

// ---- 2-D on rectangles, rotated steps, depth (docs/strategies/summa.md sections 7 and 8)
TEST(Grid, of_r_rows_and_c_columns_moves_activations_along_rows_and_weights_along_columns) {
  for (const auto& [r, c] : {std::pair{2, 3}, {3, 2}, {2, 4}, {4, 2}, {1, 4}, {3, 1}}) {
    const MeasuredPlan found = measure(kGpt, fmt::format("summa({}, cols={})", r, c), b);
    const int64_t forward = (c - 1) * 7 * bsh + (r - 1) * 12 * hh;
    EXPECT_EQ(found.sent_in(BlockKind::kForward, is_matrix), forward) << r << " x " << c;
    EXPECT_EQ(found.sent_in(BlockKind::kBackward, is_matrix), 2 * forward) << r << " x " << c;
  }
}

// Operands are aligned by one move of all but the first row (column), then shifted q - 1 times;
// results of the backward pass go directly to their home.
TEST(Rotated, operands_are_aligned_once_and_shifted) {
  for (const int64_t q : {2, 4}) {
    const MeasuredPlan found = measure(kGpt, fmt::format("cannon({})", q), b);
    const int64_t products = 7 * bsh + 12 * hh;
    const int64_t moved = (q - 1) * products + (q - 1) * products / q;
    EXPECT_EQ(found.sent_in(BlockKind::kForward, is_matrix), moved) << q;
    // Sums of gradients travel as the operands do. The input of queries, keys and values has three
    // terms that are added in one place and scattered, so it is not aligned.
    const int64_t summed = moved - (q - 1) * bsh / q;
    EXPECT_EQ(found.sent_in(BlockKind::kBackward, is_matrix), moved + summed) << q;
    EXPECT_EQ(found.sent_by("broadcast"), 0);
  }
}

TEST(Rotated, pieces_smaller_than_blocks_come_from_their_homes) {
  const MeasuredPlan found = measure(kGpt, "cannon(2, cols=3)", b);
  EXPECT_EQ(found.sent_in(BlockKind::kForward, is_matrix), 2 * 7 * bsh + 12 * hh);
}

TEST(Depth, weights_are_sent_in_each_copy_and_their_gradients_summed_once) {
  for (const auto& [q, d] : {std::pair{2, 2}, {2, 4}, {4, 2}, {1, 4}}) {
    for (const int64_t micro_batches : {1, 2}) {
      if (b / micro_batches % (q * d) != 0) continue;
      const MeasuredPlan found =
          measure(kGpt, fmt::format("tesseract({}, {}, micro_batches={})", q, d, micro_batches), b);
      const int64_t forward = (q - 1) * (7 * bsh + micro_batches * d * 12 * hh);
      const int64_t once = 2 * (d - 1) * 12 * hh;
      EXPECT_EQ(found.sent_in(BlockKind::kForward, is_matrix), forward) << q << " " << d;
      EXPECT_EQ(found.sent_along({"depth"}, is_matrix), once) << q << " " << d;
      EXPECT_EQ(found.sent(is_matrix), 3 * forward + once) << q << " " << d;
    }
  }
}

// One reduce-scatter over depth and rows replaces a reduction over rows, d times, and an all-reduce
// over depth: (qd - 1) = d (q - 1) + (d - 1) times the weights. The other d - 1 times bring the
// updated weights back.
TEST(Depth, sharded_state_scatters_and_gathers_instead) {
  const int64_t q = 2, d = 2;
  static const auto is_weight_gradient = [](const Tensor& t) {
    return is_gradient(t) && is_matrix(t) && t.of.valid() && t.name.ends_with(".weight");
  };
  const MeasuredPlan found = measure(kGpt, "tesseract(2, 2, zero=1)", b);
  EXPECT_EQ(found.sent(is_weight_gradient), (q * d - 1) * 12 * hh);
  EXPECT_EQ(found.sent_along({"depth"}, is_updated), (d - 1) * found.parameters());
}

TEST(Depth, of_one_is_the_2d_program) {
  EXPECT_EQ(measure(kGpt, "tesseract(2, 1)", b).programs, measure(kGpt, "summa(2)", b).programs);
}

// ---- 3-D (docs/strategies/tensor-parallel-3d.md section 4)
TEST(ThreeD, on_a_cube_sends_the_closed_form_and_gathers_operands_again_backward) {
  const int64_t q = 2;
  const MeasuredPlan found = measure(kGpt, "tensor_parallel_3d(2, 2, 2)", b);
  EXPECT_EQ(found.sent_in(BlockKind::kForward, is_matrix), (q - 1) * (16 * bsh + 12 * hh));
  EXPECT_EQ(found.sent_in(BlockKind::kBackward, is_matrix),
            (q - 1) * (16 * bsh + 12 * hh + 7 * bsh + 12 * hh));
}

// Products into a block's features read 2bsh gathered over y and make 7bsh summed over z; products
// out of them read 5bsh gathered over z and make 2bsh summed over y. No other collective touches a
// matrix: none lies between products.
TEST(ThreeD, on_any_box_each_axis_moves_its_own_operand) {
  for (const auto& [x, y, z] : {std::array{1, 2, 4}, {4, 2, 1}, {2, 1, 4}, {2, 4, 1}, {1, 4, 2}}) {
    const MeasuredPlan found =
        measure(kGpt, fmt::format("tensor_parallel_3d({}, {}, {})", x, y, z), b);
    const int64_t activations = (y - 1) * 4 * bsh + (z - 1) * 12 * bsh;
    const int64_t inputs = (y - 1) * 2 * bsh + (z - 1) * 5 * bsh;
    const int64_t weights = (x - 1) * 12 * hh;
    EXPECT_EQ(found.sent_in(BlockKind::kForward, is_matrix), activations + weights) << x << y << z;
    EXPECT_EQ(found.sent_in(BlockKind::kBackward, is_matrix), activations + inputs + 2 * weights)
        << x << y << z;
  }
}

// ---- hybrid sharding (docs/strategies/data-parallel.md section 3: formulas)
bool is_read_backward(const Tensor& tensor) {
  return is_parameter(tensor) && tensor.name != "embed.position.weight" &&
         !tensor.name.ends_with(".bias");
}

TEST(HybridSharding, gathers_and_scatters_inside_a_group_and_sums_shards_across) {
  for (const auto& [inner, outer] : {std::pair{2, 2}, {4, 2}, {2, 4}, {2, 3}}) {
    const MeasuredPlan found =
        measure(kGpt, fmt::format("fsdp({}, replicas={}, prefetch=0)", inner, outer), b);
    const int64_t all = found.parameters(), again = found.parameters(is_read_backward);
    EXPECT_EQ(found.sent_along({"dp"}, is_parameter), outer * (inner - 1) * (all + again));
    EXPECT_EQ(found.sent_along({"dp"}, is_gradient), outer * (inner - 1) * all);
    // A device sends 2 (all / inner) (outer - 1) / outer across groups.
    EXPECT_EQ(found.sent_along({"replicas"}, is_gradient), 2 * (outer - 1) * all);
    EXPECT_EQ(found.sent(is_gradient) + found.sent(is_parameter) + found.sent(is_updated),
              found.sent_along({"dp"}) + found.sent_along({"replicas"}, is_gradient) -
                  found.sent_along({"dp"}, is_scalar));
  }
}

TEST(HybridSharding, accumulates_shards_by_scattering_each_time_or_whole_gradients_by_once) {
  const int64_t m = 2;
  const MeasuredPlan shards =
      measure(kGpt + ",tied=0", "fsdp(2, replicas=2, micro_batches=2, prefetch=0)", b);
  EXPECT_EQ(shards.sent_along({"dp"}, is_gradient), m * 2 * shards.parameters());
  const MeasuredPlan whole = measure(
      kGpt + ",tied=0",
      "fsdp(2, replicas=2, micro_batches=2, accumulate=whole, reshard=false, prefetch=0)", b);
  EXPECT_EQ(whole.sent_along({"dp"}, is_gradient), 2 * whole.parameters());
  EXPECT_EQ(whole.sent_along({"replicas"}, is_gradient), 2 * whole.parameters());
}

TEST(HybridSharding, without_resharding_parameters_are_gathered_once_a_step) {
  const MeasuredPlan found =
      measure(kGpt, "fsdp(4, reshard=false, micro_batches=2, prefetch=0)", b);
  EXPECT_EQ(found.sent(is_parameter), 0);
  EXPECT_EQ(found.sent(is_updated), 3 * found.parameters());
}

// ---- from one range of layers to the next (docs/planners/galvatron.md section 6)
bool is_border(const Tensor& tensor) { return tensor.name == "blocks.0.mlp.residual"; }

TEST(PerLayer, a_border_gathers_what_more_ranks_hold_whole_and_slices_what_fewer_do) {
  // From t to t' ranks that hold rows whole, d' replicas: (t' - t)/t' bsh/d' a rank.
  const auto border = [](const std::string& spec) {
    return measure(kGpt, "per_layer(\"" + spec + "\")", b).sent_in(BlockKind::kForward, is_border);
  };
  EXPECT_EQ(border("0:dp4;1:tp2,dp2") - border("0:dp4;1:dp4"), 4 * bsh / 2 / 2);
  EXPECT_EQ(border("0:dp4;1:tp4") - border("0:dp4;1:dp4"), 4 * bsh * 3 / 4);
  EXPECT_EQ(border("0:tp2,dp2;1:tp4") - border("0:tp2,dp2;1:tp2,dp2"), 4 * bsh / 2);
  EXPECT_EQ(border("0:tp4;1:dp4") - border("0:tp4;1:tp4"), 0);
}

}  // namespace
}  // namespace tessera::volumes::strategies_test
