// For tests of this module: evaluates a graph op by op on one thread. Each op runs in whole or in
// pieces of its iteration space. Tensors are always whole, so a piece works on strided views.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/runtime/device/device.h"
#include "tessera/runtime/kernels.h"

namespace tessera::testing {

class Workspace {
 public:
  explicit Workspace(const Graph& graph, uint64_t seed = 1);

  // Sets parameters, states and tables by their Init; inputs are zero until set.
  void initialise();
  // Sets uniform random numbers in [low, high), which depend on the tensor's name.
  void randomise(TensorId id, double low = -1, double high = 1);
  void set(TensorId id, const std::vector<double>& values);  // converts to the tensor's dtype
  std::vector<double> get(TensorId id) const;

  // Runs all ops in order, in whole.
  void run();
  void run(const Op& op);
  // Runs the op in `pieces` pieces of different sizes along op dim `dim`. If an output lacks this
  // dim, the results of the pieces are merged.
  void run_in_pieces(const Op& op, int dim, int64_t pieces);
  void run_box(const Op& op, const Box& box, const std::vector<bool>& add);

  // Lets ops run on a device, whose memory gets their operands and from which their outputs come
  // back. Null: on the processor.
  void use(device::Device* device) { device_ = device; }

  kernels::Array view(TensorId id, const Box& region);
  const Graph& graph() const { return graph_; }
  kernels::KernelContext& context() { return context_; }

 private:
  const Graph& graph_;
  std::map<int32_t, std::vector<std::byte>> memory_;
  kernels::KernelContext context_;
  device::Device* device_ = nullptr;

  std::vector<std::byte>& memory_of(TensorId id);
  void run_call(const kernels::KernelCall& call);
  void run_on_device(const Op& op, kernels::KernelCall call);
};

// The number of pieces of memory that this thread took from the heap (counting_heap_test.cc).
extern thread_local int64_t allocations;

// Returns max |a - b| / max(|b|_inf, tiny).
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace tessera::testing
