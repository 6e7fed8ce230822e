// Kernels: the computation of each op kind on a rank's memory (docs/reference/ops.md is the
// contract).
//
// prepare_kernel() turns one compute instruction into a closure that is executed many times, so
// that tensor views, matrix layouts and loop nests are made only once. Executing a closure calls
// libtorch at most a few times. Hand-written kernels allocate nothing then; docs/concepts.md says
// what kernels of libtorch allocate. A closure works only on the memory that it was prepared for.
//
//   KernelCall call{&op, box, inputs, outputs, writes, &context};
//   Kernel kernel = prepare_kernel(call);
//   kernel();  // under c10::InferenceMode (ThreadScope below), on the rank's thread
//
// Rules that hold for every kind and are implemented once, here:
//   - if all outputs are empty, there is nothing to write and the closure is empty;
//   - if the box is empty along a reduction dim, outputs are set to the combiner's identity, or
//     left as they are if the call adds to them;
//   - if the call adds to an output and the kind cannot add, the result is computed into scratch
//     memory and then merged into the output by the output's combiner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/dtype.h"
#include "tessera/graph/graph.h"
#include "tessera/runtime/device/place.h"

namespace tessera::kernels {

using device::Place;

// A strided array. Strides are in elements; along a dim with stride 0 all elements are the
// same one.
struct Array {
  std::byte* data = nullptr;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape, strides;
  Place place = {};  // whose memory `data` is
  bool empty() const;
  static Array contiguous(std::byte* data, DType dtype, std::vector<int64_t> shape);
};

// Memory for intermediate values of one kernel run. All kernels of a rank, which run one at a time,
// share it. It grows while kernels are prepared; addresses that take() returned stay valid.
class Scratch {
 public:
  std::byte* take(int64_t bytes);
  int64_t bytes() const;  // bytes held at present

 private:
  struct Release {
    void operator()(std::byte* memory) const;
  };
  std::vector<std::unique_ptr<std::byte, Release>> chunks_;
  int64_t largest_ = 0, total_ = 0;
};

// The context that the kernels of one rank share. It outlives the closures.
struct KernelContext {
  uint64_t seed = 0;
  int64_t step = 0;         // number of the step being executed; read when a closure runs
  bool evaluating = false;  // whether an evaluation runs, in which nothing is dropped; read when a
                            // closure runs
  bool formulas = false;    // whether ops that have a formula are computed by it
                            // (formulas/formula.h)
  Scratch scratch;          // for the kernels of the kinds
  Scratch accumulate;       // for results that are merged into outputs after such a kernel
};

struct KernelCall {
  const Op* op = nullptr;
  Box box;  // in global indices, of the micro-batch for which the kernel is prepared
  std::vector<Array> inputs, outputs;
  std::vector<bool> add;  // for each output: whether the result is merged into its present values
  KernelContext* context = nullptr;
  // For an op on a cache of rows, whose ids are places: returns the row that is at a place while
  // the closure runs, counted from the first row of the whole table. Empty for an op on a table
  // without a cache, whose rows are those of the box.
  std::function<int64_t(int64_t place)> row_at = {};
};

using Kernel = std::function<void()>;  // empty: nothing to do

Kernel prepare_kernel(const KernelCall& call);
std::vector<std::string_view> kernel_kinds();  // sorted

// Prepares a copy between arrays of equal shape, which converts the element type; the types are
// both floating or equal. If one of the places is an accelerator, its current stream copies, and the
// host does not wait.
Kernel prepare_copy(const Array& from, const Array& to);
Kernel prepare_add(const Array& from, const Array& to);  // to += from

// While an object of this class lives, the current thread runs kernels without autograd, with
// `threads` threads inside a kernel.
class ThreadScope {
 public:
  explicit ThreadScope(int threads);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the number of threads that a rank may use if it wants `wanted` threads and the
// environment variable OMP_THREAD_LIMIT is `limit` (null: not set).
int allowed_threads(int wanted, const char* limit);

// Configures the process; call it once, before the first kernel. Lets malloc keep and reuse the
// memory of libtorch's large temporaries; otherwise malloc maps and unmaps each temporary, with a
// page fault for each 4 KiB. Also makes kernels deterministic.
void configure_process();

}  // namespace tessera::kernels
