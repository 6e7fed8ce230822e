// Constants of the op costs: the share of a device's peak or memory rate that a class of ops
// reaches in training. The constants of generations and classes are data,
// tessera/cost/data/constants.toml, each with its source; calibration changes them there.
// docs/reference/costs.md prints them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/data_file.h"
#include "tessera/cluster/cluster.h"
#include "tessera/cost/op_cost.h"

namespace tessera {

// A tile of the output that one unit computes at a time.
struct Tile {
  int64_t rows = 0, columns = 0;
  double efficiency = 1;  // of a unit's peak
};
inline constexpr std::array<Tile, 6> kTiles = {{{256, 128, .92},
                                                {128, 256, .92},
                                                {128, 128, .85},
                                                {128, 64, .72},
                                                {64, 128, .72},
                                                {64, 64, .60}}};
inline constexpr double kBestTile = .92;

// Constants of a generation's matrix products in one arithmetic ("fp32", "tf32", "fp16", "bf16",
// "fp8", "fp4").
struct MatmulConstants {
  Generation generation;
  std::string arithmetic;
  double best = .7;  // share of the peak for large aligned shapes among a step's other kernels
  double half_flops = 1e9;  // a product of this many flops reaches half of `best`
  double uncertainty = .2;
  Origin origin;
};
// Returns the row of the generation and arithmetic; without one, the row of the generation's 16-bit
// arithmetic.
const MatmulConstants& matmul_constants(Generation generation, std::string_view arithmetic);

// Share of a product's rate that is left when `multiple` is the largest listed number that divides
// n or k: multiples of 64 elements run at full rate.
struct Alignment {
  int64_t multiple = 1;
  double share = 1;
};
inline constexpr std::array<Alignment, 4> kAlignments = {{{64, 1}, {32, .85}, {8, .70}, {1, .33}}};

// The other constants of a generation.
struct DeviceConstants {
  Generation generation;
  double tail_s = 2e-6;           // of every kernel: start, ramp and drain
  double attention_forward = .5;  // fused: share of the 16-bit peak, head dim 128, long sequences
  double attention_backward = .4;
  double memory = .8;   // share of the memory rate of a large element-wise kernel
  double vector = .5;   // share of the fp32 peak for arithmetic outside matrix products
  double grouped = .6;  // products of experts over one product of the same size
  // As `grouped`, in fp8 and fp4: weights are cast each micro-batch, tokens expert by expert.
  double grouped_narrow = .5;
  double scan = .15;  // chunked scans: share of the 16-bit peak in their small products
  Origin origin;
};
const DeviceConstants& device_constants(Generation generation);

// Constants of a class of work: its share of `DeviceConstants::memory`, and how sure that is.
struct ClassConstants {
  WorkClass work = WorkClass::kElementwise;
  double memory = 1;
  double uncertainty = .2;
  Origin origin;
};
const ClassConstants& class_constants(WorkClass work);

// Number of tensors that one launch updates (multi-tensor kernels).
inline constexpr double kTensorsAnUpdate = 30;
// Factor on the rate of products that are added to wider results (float32 gradients of 16-bit
// operands): these reach 5 to 8 points less of the peak than the others.
inline constexpr double kWideResult = .92;
// Rate of a convolution as an implicit product over that of a product of the same sizes: operands
// are gathered from the map by index, and halos are read again (start value).
inline constexpr double kImplicitProduct = .90;
// Rate of 3 x 3 convolutions in fp32 by Winograd's transform over the rate of direct ones: 2.25
// times fewer multiplications (Lavin and Gray, 2016, section 4), less the time of the transforms
// (start value).
inline constexpr double kWinograd = 1.5;
// Numbers of kernels of a chunked scan (ssd_combined.py of mamba_ssm), and the factor by which the
// kernels of the backward pass take longer than their flops and bytes say at the rates of the
// forward ones. The factor is fitted, one for all generations, to the published steps of Nemotron 3
// Nano and Super in fp8.
inline constexpr int kScanKernels = 5, kScanKernelsBackward = 14;
inline constexpr double kScanBackward = 2;
// Rows and columns of the score tiles that fused attention skips or computes whole.
inline constexpr double kAttentionTile = 128;
// Half points of fused attention's loss on short rows and small heads: keys / (keys + the first),
// and d / (d + the second), the latter scaled to 1 at a head dim of 128.
inline constexpr double kAttentionShortKeys = 128, kAttentionSmallHead = 32;
// Flops of unfused attention's backward pass over its forward pass (fused: 2.5, since it computes
// the scores again).
inline constexpr double kUnfusedBackward = 2;
// Arrays of scores that unfused attention moves in the backward pass, over the forward pass.
inline constexpr double kBackwardPasses = 1.5;

// Returns the tables, in the order in which docs/reference/costs.md prints them.
std::span<const MatmulConstants> all_matmul_constants();
std::span<const DeviceConstants> all_device_constants();
std::span<const ClassConstants> all_class_constants();

// The constants of one file. Errors of parse_cost_constants: file:line of an unknown key or name,
// of a value without kind and source, of a generation or class that is missing.
struct CostConstants {
  std::vector<MatmulConstants> products;
  std::vector<DeviceConstants> devices;
  std::vector<ClassConstants> classes;
};
Result<CostConstants> parse_cost_constants(std::string_view toml, std::string_view file);

}  // namespace tessera
