// Types that the execution of a program takes and gives: the options of an executor (interpreter.h),
// the functions that give it data, arrays in host memory, and the record of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/program/program.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

// A region of a tensor in host memory, row-major.
struct HostArray {
  TensorId tensor;
  Box region;
  DType dtype = DType::kFloat32;
  std::vector<std::byte> data;
  std::vector<double> values() const;  // converted to double
};

// Writes the values of a region of a graph input, for the step being executed, to `to`, which has
// the region's shape and the tensor's dtype.
using LoadFunction =
    std::function<void(const Tensor& tensor, const Box& region, const kernels::Array& to)>;

// The ops to observe while an evaluation runs. `see` is called before each computation of such an
// op on this rank, with the box of the op's iteration space that is computed and the complete
// values of the inputs.
struct Observation {
  std::vector<OpId> ops;
  std::function<void(const Op& op, const Box& box, std::span<const kernels::Array> inputs)> see;
};

// One executed instruction of a recorded step. Times are in nanoseconds, of the clock that record()
// was given.
struct Executed {
  BlockRef block;
  int32_t instruction = 0;  // index in the block
  int64_t micro_batch = 0;
  int64_t start_ns = 0, end_ns = 0;
};
enum class RecordClock : uint8_t {
  kSteady,     // its times can be compared between the ranks of a machine
  kProcessor,  // processor time of the rank's thread, without the time in which others used
               // its core
};

// As LoadFunction, but for any step. Caches of rows call this function to learn the ids of
// later steps.
using AheadFunction = std::function<void(int64_t step, const Tensor& tensor, const Box& region,
                                         const kernels::Array& to)>;

// Counts of a cache of rows (RowCache) since the executor was made, without evaluations.
struct RowCacheReport {
  TensorId table;
  std::string policy;
  int64_t rows = 0, slots = 0, row_bytes = 0;  // those of this rank
  int64_t batches = 0, lookups = 0, lookup_misses = 0;
  int64_t rows_in = 0, rows_out = 0, overflow_rows = 0;
};

struct ExecutorOptions {
  uint64_t seed = 0;
  int threads = 1;           // threads inside a kernel: this rank's share of the cores
  bool profile = false;      // measure the time of each kind of instruction
  AheadFunction ahead = {};  // empty: ids of later steps are not known
  // Seed by which the rounding of sums is changed (roundings.h); 0: sums stay as the kernels
  // compute them.
  uint64_t roundings = 0;
  // Where the memory of the device tier lies and the instructions are executed
  // (device/open.h): "cpu", "test", "test(seed=3)"; "": what TESSERA_DEVICE says.
  std::string device = {};
};

}  // namespace tessera
