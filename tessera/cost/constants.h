// The constants of the op costs, in one place: what a share of a device's peak or memory rate an op
// class reaches in training. docs/reference/costs.md tells where each number comes from; a
// calibration changes them here (constants.cc) and nowhere else.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/cluster/cluster.h"
#include "tessera/cost/op_cost.h"

namespace tessera {

// A tile of the output that one unit computes at a time.
struct Tile {
  int64_t rows = 0, columns = 0;
  double efficiency = 1;  // of a unit's peak (docs/theory/cost-model.md section 3.1)
};
inline constexpr std::array<Tile, 6> kTiles = {{{256, 128, .92},
                                                {128, 256, .92},
                                                {128, 128, .85},
                                                {128, 64, .72},
                                                {64, 128, .72},
                                                {64, 64, .60}}};
inline constexpr double kBestTile = .92;

// Matrix products of a generation in one arithmetic ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4").
struct MatmulConstants {
  Generation generation = Generation::kCpu;
  std::string_view arithmetic;
  double best = .7;  // share of the peak for large aligned shapes among a step's other kernels
  double half_flops = 1e9;  // curve: product of this many flops reaches half of it
  double uncertainty = .2;
  std::string_view source;
};
// The row of the generation and arithmetic; else of its 16-bit arithmetic.
const MatmulConstants& matmul_constants(Generation generation, std::string_view arithmetic);

// Share of a product's rate that is left when n or k is a multiple of no larger number: 64 elements
// and more run at full rate.
struct Alignment {
  int64_t multiple = 1;
  double share = 1;
};
inline constexpr std::array<Alignment, 4> kAlignments = {{{64, 1}, {32, .85}, {8, .70}, {1, .33}}};

// What else depends on the generation.
struct DeviceConstants {
  Generation generation = Generation::kCpu;
  double tail_s = 2e-6;           // of every kernel: start, ramp and drain
  double attention_forward = .5;  // fused: share of the 16-bit peak, head dim 128, long sequences
  double attention_backward = .4;
  double memory = .8;   // share of the memory rate of a large element-wise kernel
  double vector = .5;   // share of the fp32 peak for arithmetic outside matrix products
  double grouped = .6;  // products of experts over one product of the same size
  // The same in fp8 and fp4: weights are cast each micro-batch, tokens expert by expert.
  double grouped_narrow = .5;
  double scan = .15;  // chunked scans: share of the 16-bit peak in their small products
  std::string_view source;
};
const DeviceConstants& device_constants(Generation generation);

// What depends on the class of work: share of `DeviceConstants::memory`, and how sure that is.
struct ClassConstants {
  WorkClass work = WorkClass::kElementwise;
  double memory = 1;
  double uncertainty = .2;
};
const ClassConstants& class_constants(WorkClass work);

// One launch updates so many tensors (multi-tensor kernels).
inline constexpr double kTensorsAnUpdate = 30;
// Products that are added to wider results (float32 gradients of 16-bit operands): 5 to 8 points
// below the others (section 3.2).
inline constexpr double kWideResult = .92;
// Convolutions as implicit products, over a product of the same sizes: operands are gathered from
// the map by index, and halos are read again (start value).
inline constexpr double kImplicitProduct = .90;
// Rate of 3 x 3 convolutions in fp32 by Winograd's transform over a direct one: 2.25 times fewer
// multiplications (Lavin and Gray, 2016, section 4), less what the transforms take (start value).
inline constexpr double kWinograd = 1.5;
// Kernels of a chunked scan (ssd_combined.py of mamba_ssm). Those of the backward pass take so many
// times what their flops and bytes say at the rates of the forward ones: fitted, one number for all
// generations, to the published steps of Nemotron 3 Nano and Super in fp8.
inline constexpr int kScanKernels = 5, kScanKernelsBackward = 14;
inline constexpr double kScanBackward = 2;
// Rows and columns of the score tiles that fused attention skips or computes whole.
inline constexpr double kAttentionTile = 128;
// Fused attention loses on short rows and small heads: keys / (keys + this), and
// d / (d + this), the latter 1 at a head dim of 128.
inline constexpr double kAttentionShortKeys = 128, kAttentionSmallHead = 32;
// Flops of fused attention's backward over forward (2.5: the scores again), of unfused (2).
inline constexpr double kUnfusedBackward = 2;
// Arrays of scores that unfused backward moves, over forward.
inline constexpr double kBackwardPasses = 1.5;

// The tables, in the order in which docs/reference/costs.md prints them.
std::span<const MatmulConstants> all_matmul_constants();
std::span<const DeviceConstants> all_device_constants();
std::span<const ClassConstants> all_class_constants();

}  // namespace tessera
