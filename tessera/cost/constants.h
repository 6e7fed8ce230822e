// Constants of the costs of ops: mostly the shares of a device's peak and memory rate that classes
// of ops reach in training. The constants of generations and classes are in the data file
// tessera/cost/data/constants.toml, each with its source. Calibration changes them there.
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

// A `Tile` is the part of the output of a matrix product that one unit of the device computes at
// a time.
struct Tile {
  int64_t rows = 0, columns = 0;
  double efficiency = 1;  // share of a unit's peak that the tile reaches
};
inline constexpr std::array<Tile, 6> kTiles = {{{256, 128, .92},
                                                {128, 256, .92},
                                                {128, 128, .85},
                                                {128, 64, .72},
                                                {64, 128, .72},
                                                {64, 64, .60}}};
inline constexpr double kBestTile = .92;

// Constants for the matrix products of a device generation in one arithmetic ("fp32", "tf32",
// "fp16", "bf16", "fp8", "fp4").
struct MatmulConstants {
  Generation generation;
  std::string arithmetic;
  double best = .7;         // share of the peak for large aligned shapes, in a training step
  double half_flops = 1e9;  // a product of this many flops reaches half of `best`
  double uncertainty = .2;
  Origin origin;
};
// Returns the constants of the generation and arithmetic; if there are none, those of the
// generation's 16-bit arithmetic.
const MatmulConstants& matmul_constants(Generation generation, std::string_view arithmetic);

// An `Alignment` says at which share of its full rate a product runs if `multiple` is the largest
// number in kAlignments that divides n or k. Multiples of 64 elements run at full rate.
struct Alignment {
  int64_t multiple = 1;
  double share = 1;
};
inline constexpr std::array<Alignment, 4> kAlignments = {{{64, 1}, {32, .85}, {8, .70}, {1, .33}}};

// The constants of a device generation for all other work.
struct DeviceConstants {
  Generation generation;
  double tail_s = 2e-6;           // fixed time of every kernel: start, ramp and drain
  double attention_forward = .5;  // fused attention: share of the 16-bit peak at head dim 128
  double attention_backward = .4;
  double memory = .8;   // share of the memory rate that a large element-wise kernel reaches
  double vector = .5;   // share of the fp32 peak that arithmetic outside products reaches
  double grouped = .6;  // rate of products of experts over that of one product of equal size
  // As `grouped`, but in fp8 and fp4. It is lower, because weights are cast in each micro-batch and
  // tokens expert by expert.
  double grouped_narrow = .5;
  double scan = .15;  // chunked scans: share of the 16-bit peak that their products reach
  Origin origin;
};
const DeviceConstants& device_constants(Generation generation);

// Constants of a class of work: the memory rate that it reaches, as a share of
// `DeviceConstants::memory`, and the uncertainty of its times.
struct ClassConstants {
  WorkClass work = WorkClass::kElementwise;
  double memory = 1;
  double uncertainty = .2;
  Origin origin;
};
const ClassConstants& class_constants(WorkClass work);

// The number of tensors that one launch of a multi-tensor update kernel updates.
inline constexpr double kTensorsAnUpdate = 30;
// The factor on the rate of products whose results are wider than their operands (float32 gradients
// of 16-bit operands). They reach 5 to 8 percentage points less of the peak than other products.
inline constexpr double kWideResult = .92;
// The rate of a convolution, computed as an implicit product, over the rate of a product of equal
// sizes. It is lower, because operands are gathered from the map by index and halos are read again.
// The value is not calibrated.
inline constexpr double kImplicitProduct = .90;
// The rate of 3 x 3 convolutions in fp32 with Winograd's transform over their rate without it. The
// transform needs 2.25 times fewer multiplications (Lavin and Gray, 2016, section 4), but takes
// time itself. The value is not calibrated.
inline constexpr double kWinograd = 1.5;
// The numbers of kernels of a chunked scan (ssd_combined.py of mamba_ssm). kScanBackward is the
// time of the backward kernels over the time that their flops and bytes would take at the rates of
// the forward kernels. It is one factor for all generations, fitted to the published step times of
// Nemotron 3 Nano and Super in fp8.
inline constexpr int kScanKernels = 5, kScanKernelsBackward = 14;
inline constexpr double kScanBackward = 2;
// The number of rows, and of columns, of a tile of scores. Fused attention computes such a tile
// whole or skips it.
inline constexpr double kAttentionTile = 128;
// Fused attention is slower with few keys and small heads. Its rate has the factors keys / (keys +
// kAttentionShortKeys) and d / (d + kAttentionSmallHead), where d is the head dim; the second
// factor is scaled to be 1 at d = 128.
inline constexpr double kAttentionShortKeys = 128, kAttentionSmallHead = 32;
// The flops of the backward pass of unfused attention over those of its forward pass. (For fused
// attention this is 2.5, because the backward pass computes the scores again.)
inline constexpr double kUnfusedBackward = 2;
// The number of arrays of scores that unfused attention moves in the backward pass over that in the
// forward pass.
inline constexpr double kBackwardPasses = 1.5;

// all_matmul_constants, all_device_constants and all_class_constants return the tables in the order
// in which docs/reference/costs.md prints them.
std::span<const MatmulConstants> all_matmul_constants();
std::span<const DeviceConstants> all_device_constants();
std::span<const ClassConstants> all_class_constants();

// `CostConstants` are the constants of one data file. Errors of parse_cost_constants, with
// file:line: an unknown key or name; a value without kind and source; a generation or class that
// is missing.
struct CostConstants {
  std::vector<MatmulConstants> products;
  std::vector<DeviceConstants> devices;
  std::vector<ClassConstants> classes;
};
Result<CostConstants> parse_cost_constants(std::string_view toml, std::string_view file);

}  // namespace tessera
