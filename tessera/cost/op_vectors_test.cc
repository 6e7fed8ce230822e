// Checks every branch of the prices of kernels, and every switch of a style that they read: the
// expected value is a closed form of the device's figures, written beside it.
#include <gtest/gtest.h>

#include "tessera/cost/constants.h"
#include "tessera/cost/op_cost.h"

namespace tessera::op_vectors_test {
namespace {

// Constants of Ampere: .88 of 2 TB/s for element-wise kernels, 2.5 us a kernel, half of the fp32
// peak outside of products, .25 of the 16-bit peak in scans.
constexpr double kMemory = 2e12 * .88, kTail = 2.5e-6;

// Returns a device. With `units` = 1 products follow the curve .84 F / (F + 4e9).
Device device(int64_t units = 1) {
  Device out;
  out.generation = Generation::named("ampere");
  out.peak = {{"fp32", 20e12}, {"fp16", 300e12}, {"bf16", 310e12}};
  out.memory_rate = 2e12;
  out.units = units;
  out.host_issue_s = 3e-6;
  return out;
}

OpCost price(const OpWork& work, const Style& style = {}, double occupied = 0,
             const Device& on = device()) {
  return OpCosts(on, style, nullptr).cost(work, occupied);
}

OpWork passes(WorkClass kind, double bytes = 4e9) {
  OpWork work;
  work.kind = kind;
  work.op = "some";
  work.dtype = DType::kBFloat16;
  work.bytes_read = bytes * 3 / 4;
  work.bytes_written = bytes / 4;
  work.elements = 1e6;
  return work;
}

OpWork product(double m, double n, double k) {
  OpWork work;
  work.kind = WorkClass::kMatmul;
  work.op = "einsum";
  work.dtype = DType::kBFloat16;
  work.m = m;
  work.n = n;
  work.k = k;
  work.flops = 2 * m * n * k;
  work.bytes_read = 2 * (m * k + k * n);
  work.bytes_written = 2 * m * n;
  work.block = true;
  return work;
}

// Returns the time on the curve, without the tail.
double product_seconds(double flops, double scale = 1) {
  return flops / (310e12 * .84 * flops / (flops + 4e9) * scale);
}

constexpr double kFlops = 2 * 8192. * 8192 * 8192;
OpWork square() { return product(8192, 8192, 8192); }

TEST(MemoryBound, classes_reach_their_share_of_the_memory_rate) {
  const std::pair<WorkClass, double> shares[] = {
      {WorkClass::kElementwise, 1}, {WorkClass::kNorm, .90},    {WorkClass::kLoss, .90},
      {WorkClass::kLookup, .45},    {WorkClass::kRouting, .40}, {WorkClass::kOptimizer, .92},
      {WorkClass::kMove, .80}};
  Style style;
  style.memory_efficiency = .7;
  style.kernel_gap_s = 4e-6;
  for (const auto& [kind, share] : shares) {
    const OpCost cost = price(passes(kind), style);
    EXPECT_NEAR(cost.kernel_s, 4e9 / (kMemory * share * .7) + kTail + 4e-6, 1e-12)
        << work_class_name(kind);
    EXPECT_EQ(cost.bytes_read + cost.bytes_written, 4e9);
  }
}

TEST(MemoryBound, arithmetic_counts_where_it_is_slower) {
  OpWork work = passes(WorkClass::kElementwise, 4);
  work.flops = 1e12;
  EXPECT_NEAR(price(work).kernel_s, 1e12 / (20e12 * .5) + kTail, 1e-12);
  work.dtype = DType::kFloat64;  // half of fp32
  EXPECT_NEAR(price(work).kernel_s, 1e12 / (10e12 * .5) + kTail, 1e-12);
}

TEST(MemoryBound, styles_make_more_or_fewer_passes) {
  Style style;
  style.elementwise_passes = .5;
  style.norm_passes = 3;
  style.lookup_gradient_passes = 5;
  style.copy_views = false;
  // Half of the bytes in half of the launches.
  EXPECT_NEAR(price(passes(WorkClass::kElementwise), style).kernel_s,
              .5 * 4e9 / kMemory + .5 * kTail, 1e-12);
  style.elementwise_passes = 2;  // launches do not multiply
  EXPECT_NEAR(price(passes(WorkClass::kElementwise), style).kernel_s, 2 * 4e9 / kMemory + kTail,
              1e-12);
  EXPECT_NEAR(price(passes(WorkClass::kNorm), style).kernel_s, 3 * 4e9 / (kMemory * .9) + kTail,
              1e-12);
  OpWork lookup = passes(WorkClass::kLookup);
  EXPECT_NEAR(price(lookup, style).kernel_s, 4e9 / (kMemory * .45) + kTail, 1e-12);
  lookup.backward = true;
  EXPECT_NEAR(price(lookup, style).kernel_s, 5 * 4e9 / (kMemory * .45) + kTail, 1e-12);
  OpWork move = passes(WorkClass::kMove);
  EXPECT_NEAR(price(move, style).kernel_s, 4e9 / (kMemory * .8) + kTail, 1e-12);
  move.view = true;
  EXPECT_EQ(price(move, style).kernel_s, 0);
  EXPECT_EQ(price(move, style).host_s, 0);
  EXPECT_NEAR(price(move).kernel_s, 4e9 / (kMemory * .8) + kTail, 1e-12);
}

TEST(MemoryBound, updates_share_launches_and_make_one_pass) {
  OpWork work = passes(WorkClass::kOptimizer);
  work.update = true;
  Style style;
  style.host_update_s = 6e-6;
  style.elementwise_passes = .5;
  EXPECT_NEAR(price(work, style).kernel_s, 4e9 / (kMemory * .92) + kTail / 30, 1e-12);
  EXPECT_NEAR(price(work, style).host_s, 9e-6 / 30, 1e-15);
  style.fused_update = false;
  EXPECT_NEAR(price(work, style).kernel_s, 4e9 / (kMemory * .92) + kTail, 1e-12);
  EXPECT_NEAR(price(work, style).host_s, 9e-6, 1e-15);
  work.kind = WorkClass::kElementwise;
  EXPECT_NEAR(price(work, style).kernel_s, 4e9 / kMemory + kTail, 1e-12);
}

TEST(Loss, makes_passes_over_float32_logits_and_the_host_waits_once) {
  OpWork work = passes(WorkClass::kLoss, 4e6);
  work.elements = 1e9;
  Style style;
  style.loss_passes = 5;
  style.loss_overhead_s = 8e-3;
  // 4 bytes, five times, in round(2.5) = 3 kernels.
  EXPECT_NEAR(price(work, style).kernel_s, 4 * 1e9 * 5 / (kMemory * .9) + 3 * kTail + 8e-3, 1e-12);
  work.backward = true;
  EXPECT_NEAR(price(work, style).kernel_s, 4 * 1e9 * 5 / (kMemory * .9) + 3 * kTail, 1e-12);
  // At least the operands' bytes.
  work.bytes_read = 40e9;
  EXPECT_NEAR(price(work, style).kernel_s, 40.001e9 / (kMemory * .9) + 3 * kTail, 1e-9);
}

TEST(Host, needs_what_the_phase_says_for_each_kernel) {
  Style style;
  style.host_forward_s = 10e-6;
  style.host_backward_s = 20e-6;
  OpWork work = passes(WorkClass::kNorm);
  EXPECT_NEAR(price(work, style).host_s, 13e-6, 1e-15);
  work.backward = true;
  EXPECT_NEAR(price(work, style).host_s, 23e-6, 1e-15);
}

TEST(Product, follows_the_curve_on_one_unit) {
  EXPECT_NEAR(price(square()).kernel_s, product_seconds(kFlops) + kTail, 1e-12);
  Style style;
  style.matmul_efficiency = .6;
  EXPECT_NEAR(price(square(), style).kernel_s, product_seconds(kFlops, .6) + kTail, 1e-12);
  EXPECT_EQ(price(square()).uncertainty, .10);
}

TEST(Product, is_bound_by_its_operands_where_it_is_thin) {
  const OpWork thin = product(8192, 8192, 2);
  EXPECT_NEAR(price(thin).kernel_s,
              (thin.bytes_read + thin.bytes_written) / (kMemory * .95) + kTail, 1e-12);
}

TEST(Product, of_experts_and_into_wider_results_is_slower) {
  OpWork work = square();
  work.grouped = true;
  EXPECT_NEAR(price(work).kernel_s, product_seconds(kFlops, .6) + kTail, 1e-12);
  EXPECT_NEAR(price(work).uncertainty, .30, 1e-12);
  work.grouped = false;
  work.bytes_written *= 2;  // float32
  EXPECT_NEAR(price(work).kernel_s, product_seconds(kFlops, .92) + kTail, 1e-12);
}

TEST(Product, loses_by_alignment_unless_the_style_pads) {
  Style style;
  style.pads_products = false;
  const std::pair<double, double> shares[] = {{8192, 1}, {8224, .85}, {8200, .70}, {8191, .33}};
  for (const auto& [size, share] : shares) {
    const OpWork by_n = product(8192, size, 8192), by_k = product(8192, 8192, size);
    EXPECT_NEAR(price(by_n, style).kernel_s, product_seconds(by_n.flops, share) + kTail, 1e-10);
    EXPECT_NEAR(price(by_k, style).kernel_s, product_seconds(by_k.flops, share) + kTail, 1e-10);
    EXPECT_NEAR(price(by_n).kernel_s, product_seconds(by_n.flops) + kTail, 1e-10);
  }
}

TEST(Product, of_a_convolution_is_implicit_and_may_be_winograds) {
  OpWork work = square();
  work.kind = WorkClass::kConvolution;
  EXPECT_NEAR(price(work).kernel_s, product_seconds(kFlops, .90) + kTail, 1e-12);
  EXPECT_NEAR(price(work).uncertainty, .20, 1e-12);
  work.winograd = true;  // in fp32 only
  EXPECT_NEAR(price(work).kernel_s, product_seconds(kFlops, .90) + kTail, 1e-12);
  work.dtype = DType::kFloat32;
  // .88 F / (F + 1e9) of 20 TFLOP/s.
  EXPECT_NEAR(price(work).kernel_s, (kFlops + 1e9) / (20e12 * .88 * .90 * 1.5) + kTail, 1e-9);
}

TEST(Product, in_tf32_where_style_and_device_have_it) {
  OpWork work = square();
  work.dtype = DType::kFloat32;
  Style style;
  style.matmul_arithmetic = "tf32";
  Device on = device();
  EXPECT_NEAR(price(work, style, 0, on).kernel_s, (kFlops + 1e9) / (20e12 * .88) + kTail, 1e-9);
  on.peak["tf32"] = 150e12;
  EXPECT_NEAR(price(work, style, 0, on).kernel_s, (kFlops + 2e9) / (150e12 * .80) + kTail, 1e-9);
}

TEST(Product, in_8_bits_casts_its_activations) {
  Device on = device();
  on.generation = Generation::named("hopper");
  on.peak["fp8"] = 620e12;
  Style style;
  style.matmul_arithmetic = "fp8";
  style.cast_bytes = 2;
  // Hopper: .74 F / (F + 16e9) in fp8; casts at .85 of the memory rate, 2 bytes an element of m x k.
  const double cast = 2 * 8192. * 8192;
  const OpCost cost = price(square(), style, 0, on);
  EXPECT_NEAR(cost.kernel_s, (kFlops + 16e9) / (620e12 * .74) + cast / (2e12 * .85) + kTail, 1e-12);
  EXPECT_NEAR(cost.bytes_read + cost.bytes_written, 6. * 8192 * 8192 + cast, 1);
  // Experts: half; outside of blocks, and products of activations: in 16 bits.
  OpWork work = square();
  work.grouped = true;
  EXPECT_NEAR(price(work, style, 0, on).kernel_s,
              (kFlops + 16e9) / (620e12 * .74 * .5) + cast / (2e12 * .85) + kTail, 1e-12);
  for (OpWork wide : {square(), square()}) {
    static int which = 0;
    if (which++ == 0) {
      wide.block = false;
    } else {
      wide.batch = 2;
      wide.m /= 2;
    }
    EXPECT_NEAR(price(wide, style, 0, on).kernel_s, (kFlops + 8e9) / (310e12 * .75) + kTail, 1e-12);
  }
}

TEST(Occupied, units_slow_what_computes) {
  Device on = device(100);
  on.generation = Generation::named("cpu");
  // .30 F / (F + 1e7) of the 16-bit peak, on the 80 units that are left; a processor's tail is 1 us.
  EXPECT_NEAR(price(square(), {}, 20, on).kernel_s,
              (kFlops + 1e7) / (310e12 * .30) * 100 / 80 + 1e-6, 1e-9);
}

TEST(Tiles, waves_of_the_best_tile_reach_the_constants_share) {
  // 8192 x 8192 in tiles of 256 x 128: 2048 on 64 units: 32 full waves at .92 / .92 of .84.
  EXPECT_NEAR(price(square(), {}, 0, device(64)).kernel_s, kFlops / (310e12 * .84) + kTail, 1e-12);
  // With 32 units taken: twice the waves.
  EXPECT_NEAR(price(square(), {}, 32, device(64)).kernel_s, 2 * kFlops / (310e12 * .84) + kTail,
              1e-12);
}

OpWork attention(bool backward, double visible) {
  OpWork work;
  work.kind = WorkClass::kAttention;
  work.op = "attention";
  work.dtype = DType::kBFloat16;
  work.batch = 2;
  work.heads = 16;
  work.queries = 2048;
  work.keys = 4096;
  work.head_dim = 64;
  work.visible = visible;
  work.backward = backward;
  work.flops = 4 * 2. * 16 * 2048 * 4096 * 64 * visible * (backward ? 2.5 : 1);
  work.bytes_read = work.bytes_written = 1e6;
  return work;
}

TEST(Attention, fused_reaches_its_share_by_keys_heads_and_tiles) {
  Style style;
  style.attention_efficiency = .9;
  // .65 of the peak forward, .55 backward; 4096 / (4096 + 128); 64 / 96 over 128 / 160.
  const auto rate = [](double best) {
    return 310e12 * best * (4096. / 4224) * (64. / 96) / (128. / 160) * .9;
  };
  const OpWork forward = attention(false, 1), backward = attention(true, 1);
  EXPECT_NEAR(price(forward, style).kernel_s, forward.flops / rate(.65) + kTail, 1e-12);
  EXPECT_NEAR(price(backward, style).kernel_s, backward.flops / rate(.55) + kTail, 1e-12);
  // Half is visible, and half a tile of 128 more.
  const OpWork causal = attention(false, .5);
  EXPECT_NEAR(price(causal, style).kernel_s,
              causal.flops * (.5 + 64. / 4096) / .5 / rate(.65) + kTail, 1e-12);
  // 2 x 16 heads of 16 tiles of queries: 512 on 100 units are 6 waves; on 50 left, 11 waves.
  EXPECT_NEAR(price(forward, style, 0, device(100)).kernel_s,
              forward.flops / rate(.65) * 600 / 512 + kTail, 1e-12);
  EXPECT_NEAR(price(forward, style, 50, device(100)).kernel_s,
              forward.flops / rate(.65) * 1100 / 512 + kTail, 1e-12);
  // Backward: tiles of keys, 1024.
  EXPECT_NEAR(price(backward, style, 0, device(100)).kernel_s,
              backward.flops / rate(.55) * 1100 / 1024 + kTail, 1e-12);
}

TEST(Attention, is_bound_by_its_operands_where_there_is_little_to_compute) {
  OpWork work = attention(false, 1);
  work.bytes_read = 40e9;
  EXPECT_NEAR(price(work).kernel_s, 40.001e9 / (kMemory * .9) + kTail, 1e-9);
  work.flops = 0;
  EXPECT_NEAR(price(work).kernel_s, 40.001e9 / (kMemory * .9) + kTail, 1e-9);
}

TEST(Attention, unfused_is_products_and_passes_over_all_scores) {
  Style style;
  style.fused_attention = false;
  style.attention_passes = 6;
  style.attention_efficiency = .9;
  const double scores = 2. * 16 * 2048 * 4096;
  // A product is bound by its scores and operands, in 16 bits.
  const double one = 2 * (scores + 2. * 16 * (2048 + 4096) * 64) / (kMemory * .95);
  // Forward two products and six arrays of 16-bit scores in 4 kernels.
  EXPECT_NEAR(price(attention(false, .5), style).kernel_s,
              2 * one + 6 * 2 * scores / kMemory + 4 * kTail, 1e-9);
  // Backward four products and nine arrays in 7.
  EXPECT_NEAR(price(attention(true, .5), style).kernel_s,
              4 * one + 9 * 2 * scores / kMemory + 7 * kTail, 1e-9);
}

TEST(Scan, adds_arithmetic_and_bytes_and_goes_back_at_half_the_rate) {
  OpWork work = passes(WorkClass::kScan);
  work.op = "state_scan";
  work.flops = 1e12;
  const double both = 1e12 / (310e12 * .25) + 4e9 / (kMemory * .9);
  EXPECT_NEAR(price(work).kernel_s, both + 5 * kTail, 1e-12);
  work.op = "state_scan_grad";
  work.gradient = true;
  EXPECT_NEAR(price(work).kernel_s, 2 * both + 14 * kTail, 1e-12);
}

TEST(Fractions, are_of_the_whole_memory_rate_and_all_units) {
  const OpCost cost = price(passes(WorkClass::kNorm), {}, 0, device(64));
  EXPECT_NEAR(cost.memory_fraction, 4e9 / (2e12 * cost.kernel_s), 1e-12);
  EXPECT_EQ(cost.unit_fraction, 1);
  OpWork few = passes(WorkClass::kNorm);
  few.elements = 2048 * 16;
  EXPECT_NEAR(price(few, {}, 0, device(64)).unit_fraction, .25, 1e-12);
}

TEST(Peaks, fall_back_to_the_nearest_arithmetic) {
  Device on = device();
  on.sustained = .5;
  EXPECT_NEAR(price(square(), {}, 0, on).kernel_s, (kFlops + 4e9) / (155e12 * .84) + kTail, 1e-12);
  on.sustained = 1;
  on.peak.erase("bf16");  // 16 bits without units of their own: fp32
  EXPECT_NEAR(price(square(), {}, 0, on).kernel_s, (kFlops + 1e9) / (20e12 * .88) + kTail, 1e-9);
}

TEST(Scratch, keeps_what_the_style_says) {
  Style style;
  style.fused_attention = false;
  style.attention_saved_bytes = 3;
  style.loss_saved = 2;
  style.loss_workspace = .5;
  const int64_t scores = int64_t{2} * 16 * 2048 * 4096;
  EXPECT_EQ(scratch_of(attention(false, 1), style).saved_bytes, 3 * scores);
  EXPECT_EQ(scratch_of(attention(false, 1), style).workspace_bytes, 2 * scores);
  EXPECT_EQ(scratch_of(attention(true, 1), style).saved_bytes, 0);
  EXPECT_EQ(scratch_of(attention(true, 1), style).workspace_bytes, 4 * scores);
  OpWork loss = passes(WorkClass::kLoss);  // a million logits in 16 bits
  EXPECT_EQ(scratch_of(loss, style).saved_bytes, 8'000'000 - 2'000'000);
  EXPECT_EQ(scratch_of(loss, style).workspace_bytes, 2'000'000 + 2'000'000);
  loss.backward = true;
  style.loss_workspace = 2;
  EXPECT_EQ(scratch_of(loss, style).workspace_bytes, 8'000'000 - 2'000'000);
}

}  // namespace
}  // namespace tessera::op_vectors_test
