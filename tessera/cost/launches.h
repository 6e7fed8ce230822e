// How many kernels this project's own runtime launches for an op on a GPU: those of the functions of
// libtorch in the op's formula (tessera/runtime/formulas) and of writing what it makes. Libraries that
// fuse need one or a few.
//
// The numbers are counted on the processor, where attention and AdamW are not fused as they are on
// some accelerators: tessera/cost/data/launches.toml, which a test of the runtime compares with what
// the formulas call and writes anew (tessera/runtime/launches_test.cc).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.h"

namespace tessera {

// Idle time of a device between two kernels of a graph that it runs on its own. Twenty kernels of
// 2.9 us in a graph took 3.4 us each on a V100 (NVIDIA, "Getting Started with CUDA Graphs", 2019).
inline constexpr double kGraphGapSeconds = 0.5e-6;

// Returns the launches for one op of the kind that computes in `dtype`. Kinds that the table lacks
// have its median.
double launches_of(std::string_view kind, DType dtype);
// The kinds of the table, sorted.
struct KindLaunches {
  std::string kind;
  double wide = 0, narrow = 0;  // in 32 bits and more; in 16 bits and fewer
};
const std::vector<KindLaunches>& all_launches();

}  // namespace tessera
