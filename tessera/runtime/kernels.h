// Kernels: the computation of each op kind on a rank's memory (docs/reference/ops.md is the
// contract).
//
// prepare_kernel() resolves one compute instruction to a closure that is executed many times:
// tensor views, matrix layouts and loop nests are made once. Executing a closure calls libtorch at
// most a few times and allocates nothing in hand-written kernels; docs/concepts.md says what
// kernels of libtorch allocate. A closure works on the memory it was prepared for.
//
//   KernelCall call{&op, box, inputs, outputs, writes, &context};
//   Kernel kernel = prepare_kernel(call);
//   kernel();  // under c10::InferenceMode (ThreadScope below), on the rank's thread
//
// Rules that hold for every kind and are implemented once, here:
//   - nothing to write (all outputs empty): the closure is empty;
//   - an empty reduction part of the box: outputs are set to the combiner's identity (or left alone
//     when adding);
//   - an output that is added to by a kind that cannot add: computed into scratch memory, then
//     merged by the output's combiner.
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

namespace tessera::kernels {

// A strided array. Strides are in elements; zero strides repeat.
struct Array {
  std::byte* data = nullptr;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape, strides;
  bool empty() const;
  static Array contiguous(std::byte* data, DType dtype, std::vector<int64_t> shape);
};

// Memory for intermediate values of one kernel run. All kernels of a rank, which run one at a time,
// share it. It grows while kernels are prepared; addresses handed out stay valid.
class Scratch {
 public:
  std::byte* take(int64_t bytes);
  int64_t bytes() const;  // held at present

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
  int64_t step = 0;         // of the step being executed; read when a closure runs
  bool evaluating = false;  // nothing is dropped; read when a closure runs
  Scratch scratch;          // for the kinds
  Scratch accumulate;       // for the generic accumulation around them
};

struct KernelCall {
  const Op* op = nullptr;
  Box box;  // global, of the micro-batch for which the kernel is prepared
  std::vector<Array> inputs, outputs;
  std::vector<bool> add;  // by output: add to (merge into) its present values
  KernelContext* context = nullptr;
  // For an op on some rows of a table, whose ids name places: returns the row at a place, counted
  // from the whole table's first, when the closure runs. Empty: rows are where the box says.
  std::function<int64_t(int64_t place)> row_at = {};
};

using Kernel = std::function<void()>;  // empty: nothing to do

Kernel prepare_kernel(const KernelCall& call);
std::vector<std::string_view> kernel_kinds();  // sorted

// Copies between equal shapes, converting the element type (floating types, or equal types).
Kernel prepare_copy(const Array& from, const Array& to);
Kernel prepare_add(const Array& from, const Array& to);  // to += from

// While alive, lets the current thread run kernels without autograd, with `threads` threads inside
// a kernel.
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

// Returns the threads that a rank may use if it wants `wanted` and OMP_THREAD_LIMIT is `limit`
// (null: not set).
int allowed_threads(int wanted, const char* limit);

// Configures the process; call it once, before the first kernel. Lets malloc keep and reuse the
// large temporaries inside libtorch instead of mapping and unmapping them (a page fault for each 4
// KiB of each), and makes kernels deterministic.
void configure_process();

}  // namespace tessera::kernels
