// Internal to the runtime: recurrences along a sequence and the convolution before them, as functions
// of tensors that run on every device. The kernels of the processor and the formulas are these
// functions; the tests of values (state_space_test.cc) compute them token by token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tessera/runtime/kernels.h"

namespace tessera::kernels {

using Tensors = std::vector<at::Tensor>;

// Computes the kind of that name: takes its operands, float32 or float64, and returns its results.
Tensors state_scan(const Op& op, const Tensors& inputs);
Tensors state_scan_grad(const Op& op, const Tensors& inputs);
Tensors gated_delta_rule(const Op& op, const Tensors& inputs);
Tensors gated_delta_rule_grad(const Op& op, const Tensors& inputs);
Tensors causal_conv(const Op& op, const Tensors& inputs);
Tensors causal_conv_grad(const Op& op, const Tensors& inputs);

// Returns, for each chunk of the last dim, the sums of its elements up to each of them, or from each
// of them on. Adds in log2 steps, since the running sums of libtorch are not the same twice on a GPU.
at::Tensor sums_in_chunks(const at::Tensor& x, int64_t chunk, bool from_the_end = false);

}  // namespace tessera::kernels
