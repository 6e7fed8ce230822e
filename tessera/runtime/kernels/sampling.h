// Internal to kernels/: the kernels of sampling.cc and quantise.cc, which kernels.cc registers.
#pragma once

#include <span>

#include "tessera/runtime/kernels/family.h"

namespace tessera::kernels {

std::span<const KernelInfo> quantise_kernels();
std::span<const KernelInfo> sampling_kernels();

}  // namespace tessera::kernels
