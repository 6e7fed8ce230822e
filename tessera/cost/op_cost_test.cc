// Checks prices of work: the tile model's vectors, the look-up order, styles, sanity of every
// class.
#include "tessera/cost/op_cost.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "tessera/cost/constants.h"
#include "tessera/cost/matmul.h"

namespace tessera::op_cost_test {
namespace {

Device a100() {
  Device device;
  device.name = "a100-80";
  device.generation = Generation::named("ampere");
  device.peak = {{"fp32", 19.5e12}, {"tf32", 156e12}, {"fp16", 312e12}, {"bf16", 312e12}};
  device.memory_bytes = int64_t{80} << 30;
  device.memory_rate = 2039e9;
  device.units = 108;
  device.host_issue_s = 3e-6;
  return device;
}
Device h100() {
  Device device = a100();
  device.name = "h100";
  device.generation = Generation::named("hopper");
  device.peak = {{"fp32", 67e12}, {"bf16", 989e12}, {"fp8", 1979e12}};
  device.memory_rate = 3350e9;
  device.units = 132;
  return device;
}
OpWork product(double m, double n, double k, DType dtype = DType::kBFloat16) {
  OpWork work;
  work.kind = WorkClass::kMatmul;
  work.op = "einsum";
  work.dtype = dtype;
  work.layout = "nn";
  work.m = m;
  work.n = n;
  work.k = k;
  work.flops = 2 * m * n * k;
  const auto size = static_cast<double>(dtype_bytes(dtype));
  work.bytes_read = size * (m * k + k * n);
  work.bytes_written = size * m * n;
  work.elements = std::max({m * k, k * n, m * n});
  work.block = true;
  return work;
}
OpWork passes_over(WorkClass kind, double elements, double reads, double writes) {
  OpWork work;
  work.kind = kind;
  work.op = "gelu";
  work.dtype = DType::kBFloat16;
  work.elements = elements;
  work.bytes_read = 2 * elements * reads;
  work.bytes_written = 2 * elements * writes;
  work.flops = 8 * elements;
  return work;
}
OpWork attention(double batch, double seq, double heads, bool causal, bool backward) {
  OpWork work;
  work.kind = WorkClass::kAttention;
  work.op = backward ? "attention_grad" : "attention";
  work.dtype = DType::kBFloat16;
  work.batch = batch;
  work.queries = work.keys = seq;
  work.heads = work.key_heads = heads;
  work.head_dim = 128;
  work.visible = causal ? .5 : 1;
  work.backward = backward;
  work.flops = (backward ? 10 : 4) * batch * heads * seq * seq * 128 * work.visible;
  work.bytes_read = 2 * 3 * batch * heads * seq * 128 * (backward ? 2 : 1);
  work.bytes_written = 2 * batch * heads * seq * 128 * (backward ? 3 : 1);
  work.elements = batch * heads * seq * 128;
  return work;
}

// ---- tiles
// ---------------------------------------------------------------------------------------
// docs/theory/cost-model.md section 3.1: M = N = 2048, K = 4096 on 108 units: 128 x 128 beats 128 x
// 256.
TEST(Products, of_ranks_without_a_share_of_the_batch_only_write_zeros) {
  const OpCosts costs(a100(), Style(), nullptr);
  OpWork work = product(0, 64, 64);
  work.flops = 0;
  const OpCost cost = costs.cost(work);
  EXPECT_TRUE(std::isfinite(cost.kernel_s));
  EXPECT_GE(cost.kernel_s, 0);
  EXPECT_LT(cost.kernel_s, 1e-4);
}

TEST(Tiles, the_worked_example) {
  const MatmulShape shape{1, 2048, 2048, 4096};
  const TilingDevice device{108, 8, 0};
  const auto with_tile = [&](const Tile& tile) {
    Tiling tiling;
    tiling.tile = tile;
    return with_units(shape, tiling, device, 108);
  };
  const Tiling wide = with_tile(kTiles[1]), square = with_tile(kTiles[2]);
  EXPECT_EQ(wide.tiles, 128);
  EXPECT_EQ(wide.waves, 2);
  EXPECT_NEAR(wide.share, .593 * .92, .001);
  EXPECT_EQ(square.tiles, 256);
  EXPECT_EQ(square.waves, 3);
  EXPECT_NEAR(square.share, .790 * .85, .001);
  // The best of all six tiles is 128 x 64, by a hair: 512 in 5 waves.
  const Tiling best = choose_tiling(shape, 0, device);
  EXPECT_NEAR(best.share, 512. / 540 * .72, 1e-12);
}

// Section 5.1: 264 tiles are 2 waves on 132 units, and 3 waves on the 108 units that 24 busy ones
// leave.
TEST(Tiles, in_more_waves_where_units_are_taken) {
  const MatmulShape shape{1, 22 * 256, 12 * 128, 4096};
  const TilingDevice device{132, 8, 0};
  const Tiling alone = choose_tiling(shape, 0, device);
  EXPECT_EQ(alone.tiles, 264);
  EXPECT_EQ(alone.waves, 2);
  const Tiling beside = with_units(shape, alone, device, 108);
  EXPECT_EQ(beside.waves, 3);
  EXPECT_NEAR(alone.share / beside.share, 1.5, 1e-12);
  const OpCosts costs(h100(), Style(), nullptr);
  const OpWork work = product(shape.m, shape.n, shape.k);
  const double tail = device_constants(Generation::named("hopper")).tail_s;
  EXPECT_NEAR((costs.cost(work, 24).kernel_s - tail) / (costs.cost(work).kernel_s - tail), 1.5,
              1e-9);
}

TEST(Tiles, split_k_where_few_tiles_would_leave_units_idle) {
  const Tiling best = choose_tiling({1, 256, 256, 16384}, 0, {108, 8, 0});
  EXPECT_GT(best.split, 1);
  EXPECT_EQ(best.extra_bytes, 4 * 256 * 256 * best.split);
  // Where moving the parts costs more than it saves, k stays whole.
  EXPECT_EQ(choose_tiling({1, 256, 256, 16384}, 0, {108, 8, 1e5}).split, 1);
}

TEST(Tiles, pad_to_the_alignment) {
  const double aligned = choose_tiling({1, 4096, 4096, 1024}, 0, {108, 8, 0}).share;
  const double odd = choose_tiling({1, 4096, 4096, 1017}, 0, {108, 8, 0}).share;
  EXPECT_NEAR(odd, aligned * 1017 / 1024, 1e-12);
}

// ---- classes
// -------------------------------------------------------------------------------------
TEST(OpCosts, matrix_products_lie_in_the_measured_range) {
  const OpCosts costs(a100(), Style(), nullptr);
  // docs/theory/cost-model.md section 3.3: .60 to .77 of the peak on transformer shapes, .87 the
  // best ever.
  for (const double hidden : {4096., 6144., 12288.}) {
    const OpCost cost = costs.cost(product(8192, 4 * hidden, hidden));
    const double share = cost.flops / cost.kernel_s / 312e12;
    EXPECT_GT(share, .60) << hidden;
    EXPECT_LT(share, .87) << hidden;
    EXPECT_EQ(cost.source, CostSource::kTileModel);
    EXPECT_GT(cost.uncertainty, 0);
  }
  const OpCost h = OpCosts(h100(), Style(), nullptr).cost(product(8192, 16384, 4096));
  EXPECT_LT(h.flops / h.kernel_s, 794e12);
}

TEST(OpCosts, thin_products_are_bound_by_memory) {
  const OpCost cost = OpCosts(a100(), Style(), nullptr).cost(product(8, 12288, 12288));
  const double bytes = 2 * 12288. * 12288;
  EXPECT_GT(cost.kernel_s, bytes / 2039e9);
  EXPECT_LT(cost.kernel_s, 1.6 * bytes / 2039e9);
  EXPECT_GT(cost.memory_fraction, .6);
}

TEST(OpCosts, products_of_experts_and_into_wider_results_are_slower) {
  const OpCosts costs(a100(), Style(), nullptr);
  OpWork work = product(8192, 8192, 8192);
  const double plain = costs.cost(work).kernel_s;
  OpWork wide = work;
  wide.bytes_written *= 2;
  EXPECT_NEAR(costs.cost(wide).kernel_s / plain, 1 / kWideResult, .01);
  work.grouped = true;
  EXPECT_NEAR(costs.cost(work).kernel_s / plain,
              1 / device_constants(Generation::named("ampere")).grouped, .01);
  EXPECT_GT(costs.cost(work).uncertainty, costs.cost(wide).uncertainty);
}

TEST(OpCosts, many_experts_cost_the_host_a_call_each) {
  OpWork work = product(256, 1024, 1024);
  work.grouped = true;
  work.batch = 128;
  Device device = a100();
  device.host_issue_s = 4e-6;
  const OpCost one = OpCosts(device, Style(), nullptr).cost(work);
  const OpCost each =
      OpCosts(device, *parse_style("tessera,kernel_an_expert=true"), nullptr).cost(work);
  EXPECT_NEAR(each.host_s - one.host_s, 127 * 4e-6, 1e-12);
  EXPECT_EQ(each.kernel_s, one.kernel_s);
  work.grouped = false;  // a batch of something else is one call
  EXPECT_EQ(
      OpCosts(device, *parse_style("tessera,kernel_an_expert=true"), nullptr).cost(work).host_s,
      OpCosts(device, Style(), nullptr).cost(work).host_s);
}

RC_GTEST_PROP(OpCosts, more_work_and_fewer_units_never_save_time, ()) {
  const OpCosts costs(h100(), Style(), nullptr);
  const auto size = [](int least) { return *rc::gen::inRange<int>(least, 9000); };
  const double m = size(1), n = size(1), k = size(64);
  const double alone = costs.cost(product(m, n, k)).kernel_s * (1 - 1e-12);  // rounding
  RC_ASSERT(costs.cost(product(m + size(0), n, k)).kernel_s >= alone);
  RC_ASSERT(costs.cost(product(m, n + size(0), k)).kernel_s >= alone);
  RC_ASSERT(costs.cost(product(m, n, k + size(0))).kernel_s >= alone);
  RC_ASSERT(costs.cost(product(m, n, k), *rc::gen::inRange(1, 100)).kernel_s >= alone);
  // Never faster than the device.
  RC_ASSERT(alone > 2 * m * n * k / 989e12);
  RC_ASSERT(alone > 2 * (m * k + k * n + m * n) / 3350e9);
}

TEST(OpCosts, narrow_arithmetic_where_style_and_device_have_it) {
  const OpWork work = product(8192, 16384, 4096);
  OpWork head = work;
  head.block = false;
  const Style fp8 = *parse_style("nemo,matmul_arithmetic=fp8");
  const OpCosts plain(h100(), *parse_style("nemo"), nullptr), narrow(h100(), fp8, nullptr);
  const double ratio = plain.cost(work).kernel_s / narrow.cost(work).kernel_s;
  EXPECT_GT(ratio, 1.3);
  EXPECT_LT(ratio, 2);
  EXPECT_EQ(plain.cost(head).kernel_s, narrow.cost(head).kernel_s);
  const OpCosts without(a100(), fp8, nullptr);  // no such units: as 16 bits
  EXPECT_EQ(without.cost(work).kernel_s,
            OpCosts(a100(), *parse_style("nemo"), nullptr).cost(work).kernel_s);
  const OpWork wide = product(4096, 4096, 4096, DType::kFloat32);
  const OpCosts tf32(a100(), *parse_style("eager,matmul_arithmetic=tf32"), nullptr);
  EXPECT_GT(OpCosts(a100(), Style(), nullptr).cost(wide).kernel_s / tf32.cost(wide).kernel_s, 5);
}

TEST(OpCosts, products_of_experts_gain_nothing_from_fp4) {
  Device device = h100();
  device.generation = Generation::named("blackwell");
  device.peak = {{"fp32", 75e12}, {"bf16", 2250e12}, {"fp8", 4500e12}, {"fp4", 9000e12}};
  const OpCosts fp8(device, *parse_style("tessera,matmul_arithmetic=fp8"), nullptr);
  const OpCosts fp4(device, *parse_style("tessera,matmul_arithmetic=fp4"), nullptr);
  OpWork work = product(8192, 8192, 8192);
  EXPECT_LT(fp4.cost(work).kernel_s, 0.9 * fp8.cost(work).kernel_s);
  work.grouped = true;
  EXPECT_EQ(fp4.cost(work).kernel_s, fp8.cost(work).kernel_s);
}

TEST(OpCosts, fused_causal_attention_does_half_and_the_diagonal) {
  const OpCosts costs(a100(), Style(), nullptr);
  const double full = costs.cost(attention(4, 2048, 32, false, false)).kernel_s;
  const double causal = costs.cost(attention(4, 2048, 32, true, false)).kernel_s;
  EXPECT_NEAR(causal / full, .5 + 64. / 2048, .01);
  const double backward = costs.cost(attention(4, 2048, 32, true, true)).kernel_s;
  EXPECT_GT(backward / causal, 2.5);
  EXPECT_LT(backward / causal, 3.5);
}

TEST(OpCosts, unfused_attention_pays_for_passes_over_all_scores) {
  const Style unfused = *parse_style("tessera,fused_attention=false");
  const OpCosts fused(a100(), Style(), nullptr), passes(a100(), unfused, nullptr);
  const OpWork work = attention(4, 2048, 32, true, false);
  const OpCost cost = passes.cost(work);
  const double scores = 4. * 32 * 2048 * 2048;
  EXPECT_EQ(cost.flops, 4 * scores * 128);  // the mask saves nothing
  EXPECT_GT(cost.kernel_s, 5 * 2 * scores / 2039e9);
  EXPECT_GT(cost.kernel_s, 2 * fused.cost(work).kernel_s);
  EXPECT_EQ(cost.kernels, 4);
  EXPECT_EQ(passes.cost(attention(4, 2048, 32, true, true)).flops, 2 * cost.flops);
}

// docs/theory/cost-model.md section 6.2: 5 bytes a score are kept with dropout, 2 without.
TEST(Scratch, of_unfused_attention_is_scores) {
  const OpWork forward = attention(4, 2048, 32, true, false);
  const OpWork backward = attention(4, 2048, 32, true, true);
  const int64_t scores = int64_t{4} * 32 * 2048 * 2048;
  const Style megatron = *parse_style("megatron-2022"), deepspeed = *parse_style("deepspeed-2022");
  EXPECT_EQ(scratch_of(forward, megatron).saved_bytes, 5 * scores);
  EXPECT_EQ(scratch_of(forward, deepspeed).saved_bytes, 2 * scores);
  EXPECT_EQ(scratch_of(forward, megatron).workspace_bytes, 2 * scores);
  EXPECT_EQ(scratch_of(backward, megatron).workspace_bytes, 4 * scores);
  EXPECT_EQ(scratch_of(backward, megatron).saved_bytes, 0);
  for (const OpWork& work : {forward, backward}) {
    const OpScratch none = scratch_of(work, *parse_style("megatron-core"));
    EXPECT_EQ(none.saved_bytes + none.workspace_bytes, 0);
  }
}

// Megatron keeps float32 probabilities in place of 16-bit logits; PyTorch's loss has further
// arrays.
TEST(Scratch, of_the_loss_is_arrays_of_logits) {
  OpWork loss = passes_over(WorkClass::kLoss, 1e6, 1, 0);
  loss.dtype = DType::kBFloat16;
  const OpScratch megatron = scratch_of(loss, *parse_style("megatron-core"));
  EXPECT_EQ(megatron.saved_bytes, 2'000'000);
  EXPECT_EQ(megatron.workspace_bytes, 2'000'000) << "the logits, beside what replaces them";
  EXPECT_EQ(scratch_of(loss, *parse_style("fsdp")).workspace_bytes, 6'000'000);
  EXPECT_EQ(scratch_of(loss, Style()).saved_bytes, 0);
  loss.backward = true;
  EXPECT_EQ(scratch_of(loss, *parse_style("megatron-core")).workspace_bytes, 0) << "in place";
  EXPECT_EQ(scratch_of(loss, *parse_style("fsdp")).workspace_bytes, 8'000'000 - 2'000'000);
}

TEST(OpCosts, element_wise_ops_move_bytes_and_styles_fuse_them) {
  const OpWork work = passes_over(WorkClass::kElementwise, 64e6, 1, 1);
  const OpCost one = OpCosts(a100(), Style(), nullptr).cost(work);
  EXPECT_NEAR(one.kernel_s, 256e6 / (2039e9 * .88), .03 * one.kernel_s);
  const OpCosts fused(a100(), *parse_style("compiled"), nullptr);
  EXPECT_NEAR(fused.cost(work).kernel_s / one.kernel_s, .5, .01);
  EXPECT_EQ(fused.cost(work).bytes_read, one.bytes_read / 2);
}

TEST(OpCosts, small_kernels_keep_the_floor_of_a_launch) {
  const OpCost cost =
      OpCosts(a100(), Style(), nullptr).cost(passes_over(WorkClass::kNorm, 16, 2, 1));
  EXPECT_NEAR(cost.kernel_s, device_constants(Generation::named("ampere")).tail_s, 1e-8);
}

TEST(OpCosts, views_cost_nothing_where_the_framework_has_them) {
  OpWork work = passes_over(WorkClass::kMove, 1e6, 1, 1);
  work.view = true;
  const OpCost copy = OpCosts(a100(), Style(), nullptr).cost(work);
  EXPECT_GT(copy.kernel_s, 4e6 / 2039e9);
  const OpCost view = OpCosts(a100(), *parse_style("eager"), nullptr).cost(work);
  EXPECT_EQ(view.kernel_s, 0);
  EXPECT_EQ(view.kernels, 0);
}

TEST(OpCosts, an_unfused_loss_makes_passes_over_float32_logits) {
  const OpWork work = passes_over(WorkClass::kLoss, 1e8, 1, 0);
  const OpCost fused = OpCosts(a100(), Style(), nullptr).cost(work);
  const OpCost unfused = OpCosts(a100(), *parse_style("megatron-2022"), nullptr).cost(work);
  EXPECT_EQ(fused.bytes_read + fused.bytes_written, 2e8);
  EXPECT_EQ(unfused.bytes_read + unfused.bytes_written, 4 * 4 * 1e8);
}

// An update moves ~30 bytes a parameter (section 3.2), with one launch for many parameters.
TEST(OpCosts, updates_share_launches) {
  OpWork work = passes_over(WorkClass::kOptimizer, 1e8, 0, 0);
  work.op = "adamw";
  work.update = true;
  work.bytes_read = 16e8;
  work.bytes_written = 14e8;
  const Style style = *parse_style("megatron-core");
  Style apart = style;
  apart.fused_update = false;
  const OpCost cost = OpCosts(a100(), style, nullptr).cost(work);
  EXPECT_NEAR(cost.kernel_s, 30e8 / 2039e9 / .81, .02 * cost.kernel_s);
  EXPECT_NEAR(OpCosts(a100(), apart, nullptr).cost(work).host_s / cost.host_s, kTensorsAnUpdate,
              1e-9);
}

// An optimizer whose states lie on the host runs at the rate of the host's memory.
TEST(OpCosts, what_rests_on_the_host_is_computed_at_its_rate) {
  OpWork work = passes_over(WorkClass::kOptimizer, 1e8, 0, 0);
  work.op = "adamw";
  work.update = true;
  work.bytes_read = 16e8;
  work.bytes_written = 14e8;
  const Style style = *parse_style("megatron-core");
  const OpCosts costs(a100(), style, nullptr, 8, 25e9);
  const double on_device = costs.cost(work).kernel_s;
  work.on_host = true;
  const OpCost cost = costs.cost(work);
  EXPECT_NEAR(cost.kernel_s, 30e8 / 25e9, 1e-9);
  EXPECT_GT(cost.kernel_s, 10 * on_device);
  EXPECT_EQ(cost.memory_fraction, 0);  // of the device's memory
  EXPECT_EQ(OpCosts(a100(), style, nullptr).cost(work).kernel_s, on_device);
}

TEST(OpCosts, the_host_needs_what_style_and_phase_say) {
  OpWork work = product(64, 64, 64);
  const Style style = *parse_style("deepspeed,host_forward_s=40us,host_backward_s=50us");
  const OpCosts costs(a100(), style, nullptr);
  EXPECT_NEAR(costs.cost(work).host_s, 43e-6, 1e-12);
  work.backward = true;
  EXPECT_NEAR(costs.cost(work).host_s, 53e-6, 1e-12);
}

// Twice the rates, half the time (without tails).
TEST(OpCosts, scale_with_the_device) {
  Device twice = a100();
  for (auto& [name, rate] : twice.peak) rate *= 2;
  twice.memory_rate *= 2;
  const OpCosts slow(a100(), Style(), nullptr), fast(twice, Style(), nullptr);
  const double tail = device_constants(Generation::named("ampere")).tail_s;
  for (const OpWork& work :
       {product(4096, 4096, 4096), attention(4, 2048, 16, true, true),
        passes_over(WorkClass::kNorm, 1e7, 1, 1), passes_over(WorkClass::kLookup, 1e7, 1, 1)}) {
    EXPECT_NEAR((slow.cost(work).kernel_s - tail) / (fast.cost(work).kernel_s - tail), 2, 1e-9);
  }
}

TEST(OpCosts, every_class_has_a_positive_time_source_and_uncertainty) {
  for (const Generation generation :
       {Generation::named("pascal"), Generation::named("volta"), Generation::named("turing"),
        Generation::named("ampere"), Generation::named("ada"), Generation::named("hopper"),
        Generation::named("blackwell"), Generation::named("cpu")}) {
    Device device = a100();
    device.generation = generation;
    const OpCosts costs(device, Style(), nullptr);
    std::vector<OpWork> works = {product(512, 512, 512), attention(1, 512, 8, true, false)};
    for (const WorkClass kind :
         {WorkClass::kElementwise, WorkClass::kNorm, WorkClass::kLoss, WorkClass::kLookup,
          WorkClass::kRouting, WorkClass::kOptimizer, WorkClass::kMove, WorkClass::kScan}) {
      works.push_back(passes_over(kind, 1e6, 1, 1));
    }
    for (const OpWork& work : works) {
      const OpCost cost = costs.cost(work);
      EXPECT_GT(cost.kernel_s, 0) << work_class_name(work.kind);
      EXPECT_LT(cost.kernel_s, 1) << work_class_name(work.kind);
      EXPECT_GT(cost.uncertainty, 0);
      EXPECT_NE(cost.source, CostSource::kMeasured);
    }
  }
}

// ---- measured
// ------------------------------------------------------------------------------------
Profile products_profile() {
  Profile profile;
  Family& family = profile.families["einsum.bfloat16.nn@1"];
  family.sizes = {"batch", "m", "n", "k"};
  for (const double n : {256., 1024., 4096.}) {
    const double flops = 2 * n * n * n;
    family.samples.push_back({{1, n, n, n}, (flops + 1e9) / 200e12, .04});
  }
  return profile;
}

TEST(OpCosts, prefer_measured_entries_then_interpolate) {
  const Profile profile = products_profile();
  const OpCosts costs(a100(), Style(), &profile);
  OpWork work = product(1024, 1024, 1024);
  work.family = {"einsum.bfloat16.nn", {1, 1024, 1024, 1024}};
  const OpCost exact = costs.cost(work);
  EXPECT_EQ(exact.source, CostSource::kMeasured);
  EXPECT_DOUBLE_EQ(exact.kernel_s, (2 * 1024. * 1024 * 1024 + 1e9) / 200e12);
  work = product(2048, 2048, 2048);
  work.family = {"einsum.bfloat16.nn", {1, 2048, 2048, 2048}};
  const OpCost between = costs.cost(work);
  EXPECT_EQ(between.source, CostSource::kInterpolated);
  EXPECT_NEAR(between.kernel_s, (2 * 2048. * 2048 * 2048 + 1e9) / 200e12, .25 * between.kernel_s);
  EXPECT_GT(between.uncertainty, exact.uncertainty);
  work = product(32768, 32768, 32768);
  work.family = {"einsum.bfloat16.nn", {1, 32768, 32768, 32768}};
  EXPECT_GT(costs.cost(work).uncertainty, 2 * between.uncertainty);
  work.family = {"einsum.bfloat16.tt", {1, 2048, 2048, 2048}};
  EXPECT_EQ(costs.cost(work).source, CostSource::kTileModel);
}

// A convolution costs as a product of the same sizes; 3 x 3 kernels in fp32 have fewer
// multiplications.
TEST(OpCost, a_convolution_is_a_product_at_its_own_rate) {
  const OpCosts costs(a100(), *parse_style("tessera"), nullptr);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const OpWork plain = product(8192, 512, 4608, dtype);
    OpWork convolution = plain;
    convolution.kind = WorkClass::kConvolution;
    OpWork small = convolution;
    small.winograd = true;
    const double tail = device_constants(Generation::named("ampere")).tail_s;
    const double direct = costs.cost(convolution).kernel_s - tail;
    EXPECT_NEAR((costs.cost(plain).kernel_s - tail) / direct, kImplicitProduct, 1e-3);
    EXPECT_NEAR(direct / (costs.cost(small).kernel_s - tail),
                dtype == DType::kFloat32 ? kWinograd : 1, 1e-3);
  }
}

// Cuts that OpCosts::least_s bounds: products along any of their dims, scores along heads and
// queries, passes anywhere.
RC_GTEST_PROP(OpCosts, no_cut_beats_the_least_time, ()) {
  const auto size = [](int most) {
    return static_cast<double>(*rc::gen::inRange(1, most)) * *rc::gen::element(1., 8., 64.);
  };
  const auto pieces = static_cast<double>(*rc::gen::inRange(1, 9));
  const std::vector<std::string> styles = {"tessera", "megatron-2022", "fsdp"};
  const OpCosts costs(*rc::gen::element(a100(), h100()),
                      *parse_style(styles[static_cast<size_t>(*rc::gen::inRange(0, 3))]), nullptr);
  const DType dtype = *rc::gen::element(DType::kFloat32, DType::kBFloat16);
  const double m = size(200), n = size(200), k = size(200);
  const double least = *costs.least_s(product(m * pieces, n, k, dtype));
  RC_ASSERT(least <= pieces * costs.cost(product(m, n, k, dtype)).kernel_s);
  // Along n and k the pieces read more together.
  RC_ASSERT(*costs.least_s(product(m, n * pieces, k, dtype)) <=
            pieces * costs.cost(product(m, n, k, dtype)).kernel_s);
  RC_ASSERT(*costs.least_s(product(m, n, k * pieces, dtype)) <=
            pieces * costs.cost(product(m, n, k, dtype)).kernel_s);
  const bool causal = *rc::gen::arbitrary<bool>(), backward = *rc::gen::arbitrary<bool>();
  const double seq = 64 * static_cast<double>(*rc::gen::inRange(1, 64));
  RC_ASSERT(*costs.least_s(attention(2, seq, 4 * pieces, causal, backward)) <=
            pieces * costs.cost(attention(2, seq, 4, causal, backward)).kernel_s);
  for (const WorkClass kind : {WorkClass::kElementwise, WorkClass::kNorm, WorkClass::kLoss,
                               WorkClass::kLookup, WorkClass::kOptimizer}) {
    RC_ASSERT(*costs.least_s(passes_over(kind, m * n * pieces, 2, 1)) * (1 - 1e-12) <=
              pieces * costs.cost(passes_over(kind, m * n, 2, 1)).kernel_s);
  }
}

TEST(OpCosts, measured_prices_have_no_least_time) {
  const Profile profile = products_profile();
  EXPECT_FALSE(OpCosts(a100(), Style(), &profile).least_s(product(64, 64, 64)).has_value());
}

}  // namespace
}  // namespace tessera::op_cost_test
