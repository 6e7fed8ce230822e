#include "tessera/cost/constants.h"

#include <algorithm>

#include "tessera/base/check.h"

namespace tessera {
namespace {

// Measured anchors: docs/theory/cost-model.md section 3.3 (best products: A100 .87, H100 .80, B200
// .78, GB200 .73, fp8 .71 to .76; real transformer shapes: A100 .60 to .77, B200 .39 to .65).
// `best` lies between the two: a step's products run hot and one after the other.
constexpr std::array kMatmul = {
    MatmulConstants{Generation::kPascal, "fp16", .80, 2e9, .25, "3.1 by peak"},
    MatmulConstants{Generation::kPascal, "fp32", .88, 1e9, .20, "3.1 by peak"},
    MatmulConstants{Generation::kVolta, "fp16", .76, 4e9, .20, "3.1 by peak"},
    MatmulConstants{Generation::kVolta, "fp32", .88, 1e9, .20, "3.1 by peak"},
    MatmulConstants{Generation::kTuring, "fp16", .70, 4e9, .25, "3.1 by peak"},
    MatmulConstants{Generation::kTuring, "fp32", .85, 1e9, .20, "3.1 by peak"},
    MatmulConstants{Generation::kAmpere, "fp16", .84, 4e9, .10, "3.1 fit, 3.3"},
    MatmulConstants{Generation::kAmpere, "tf32", .80, 2e9, .15, "3.3"},
    MatmulConstants{Generation::kAmpere, "fp32", .88, 1e9, .15, "3.1 by peak"},
    MatmulConstants{Generation::kAda, "fp16", .70, 4e9, .25, "3.1 by peak"},
    MatmulConstants{Generation::kAda, "fp32", .60, 1e9, .25, "3.1 by peak"},
    MatmulConstants{Generation::kHopper, "fp16", .75, 8e9, .12, "3.3"},
    MatmulConstants{Generation::kHopper, "tf32", .72, 4e9, .20, "3.3"},
    MatmulConstants{Generation::kHopper, "fp32", .80, 2e9, .25, "3.1 by peak"},
    MatmulConstants{Generation::kHopper, "fp8", .74, 16e9, .20, "3.3"},
    MatmulConstants{Generation::kBlackwell, "fp16", .66, 16e9, .15, "3.3"},
    MatmulConstants{Generation::kBlackwell, "tf32", .62, 8e9, .25, "3.3"},
    MatmulConstants{Generation::kBlackwell, "fp32", .75, 4e9, .30, "3.1 by peak"},
    MatmulConstants{Generation::kBlackwell, "fp8", .68, 32e9, .20, "3.3"},
    MatmulConstants{Generation::kBlackwell, "fp4", .58, 64e9, .35, "3.3 by fp8"},
    MatmulConstants{Generation::kCpu, "fp16", .30, 1e7, .50, "start value"},
    MatmulConstants{Generation::kCpu, "fp32", .75, 2e6, .30, "start value"},
    MatmulConstants{Generation::kOther, "fp16", .80, 4e9, .30, "3.1 by peak"},
    MatmulConstants{Generation::kOther, "tf32", .80, 2e9, .35, "3.1 by peak"},
    MatmulConstants{Generation::kOther, "fp32", .80, 1e9, .35, "3.1 by peak"},
    MatmulConstants{Generation::kOther, "fp8", .75, 8e9, .40, "3.1 by peak"},
    MatmulConstants{Generation::kOther, "fp4", .60, 16e9, .45, "3.1 by peak"},
};

// Attention: B200 .58 to .87 forward, .69 to .80 backward of what products reach there (section
// 3.2); the other rows and the rest are start values, see docs/reference/costs.md. Memory: A100
// PCIe .91, B200 .67 (section 3.3). Scans: on Hopper what the value kernel of TileLang's benchmark
// of Mamba-2 reaches (135 TFLOP/s, benchmark/mamba2), with which the five Triton kernels at 128
// heads of 64, state 128 and chunks of 256 come to 11.5 million tokens a second; vLLM's pull
// request 27299 measured 10.7 to 12.9. The other generations: start values; on Blackwell 1.3 times
// the FLOP/s.
constexpr std::array kDevices = {
    DeviceConstants{Generation::kPascal, 3e-6, .35, .30, .75, .5, .5, .5, .15, "start value"},
    DeviceConstants{Generation::kVolta, 3e-6, .35, .30, .80, .5, .5, .5, .15, "start value"},
    DeviceConstants{Generation::kTuring, 3e-6, .35, .30, .80, .5, .5, .5, .15, "start value"},
    DeviceConstants{Generation::kAmpere, 2.5e-6, .65, .55, .88, .5, .6, .5, .25, "3.3"},
    DeviceConstants{Generation::kAda, 2.5e-6, .55, .45, .85, .5, .5, .5, .20, "start value"},
    DeviceConstants{Generation::kHopper, 2.5e-6, .50, .42, .85, .5, .8, .5, .135, "start value"},
    DeviceConstants{Generation::kBlackwell, 2.5e-6, .48, .42, .70, .5, .65, .5, .08, "3.2, 3.3"},
    DeviceConstants{Generation::kCpu, 1e-6, .40, .35, .70, .2, .8, .5, .20, "start value"},
    DeviceConstants{Generation::kOther, 3e-6, .45, .38, .80, .5, .5, .5, .15, "start value"},
};

// Over the element-wise kernels of the device: random rows .3 to .5 of the memory rate, permutation
// of tokens .19 to .50, cross entropy .81 on A100 (sections 3.2, 3.3).
constexpr std::array kClasses = {
    ClassConstants{WorkClass::kMatmul, .95, .10},
    ClassConstants{WorkClass::kConvolution, .95, .25},
    ClassConstants{WorkClass::kAttention, .90, .20},
    ClassConstants{WorkClass::kScan, .90, .40},
    ClassConstants{WorkClass::kElementwise, 1, .15},
    ClassConstants{WorkClass::kNorm, .90, .20},
    ClassConstants{WorkClass::kLoss, .90, .25},
    ClassConstants{WorkClass::kLookup, .45, .40},
    ClassConstants{WorkClass::kRouting, .40, .40},
    ClassConstants{WorkClass::kOptimizer, .92, .15},
    ClassConstants{WorkClass::kMove, .80, .25},
};

}  // namespace

std::span<const MatmulConstants> all_matmul_constants() { return kMatmul; }
std::span<const DeviceConstants> all_device_constants() { return kDevices; }
std::span<const ClassConstants> all_class_constants() { return kClasses; }

const MatmulConstants& matmul_constants(Generation generation, std::string_view arithmetic) {
  if (arithmetic == "bf16") arithmetic = "fp16";
  if (arithmetic == "fp64") arithmetic = "fp32";
  const MatmulConstants* sixteen = nullptr;
  for (const MatmulConstants& row : kMatmul) {
    if (row.generation != generation) continue;
    if (row.arithmetic == arithmetic) return row;
    if (row.arithmetic == "fp16") sixteen = &row;
  }
  TESSERA_CHECK(sixteen != nullptr, "no matrix constants of the generation {}",
                static_cast<int>(generation));
  return *sixteen;
}

const DeviceConstants& device_constants(Generation generation) {
  const auto* found = std::find_if(
      kDevices.begin(), kDevices.end(),
      [generation](const DeviceConstants& row) { return row.generation == generation; });
  TESSERA_CHECK(found != kDevices.end(), "no constants of the generation {}",
                static_cast<int>(generation));
  return *found;
}

const ClassConstants& class_constants(WorkClass work) {
  const auto* found = std::find_if(kClasses.begin(), kClasses.end(),
                                   [work](const ClassConstants& row) { return row.work == work; });
  TESSERA_CHECK(found != kClasses.end(), "no constants of the class {}", work_class_name(work));
  return *found;
}

}  // namespace tessera
