// Internal to kernels/: how each file registers the kernels of a family of kinds, and helpers that
// arrange operands by op dims.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tessera/runtime/kernels.h"

namespace tessera::kernels {

struct KernelInfo {
  std::string_view kind;
  Kernel (*prepare)(const KernelCall&);
  uint32_t accumulates = 0;  // bit i: the kernel itself adds to output i if call.add[i] is set
};

std::span<const KernelInfo> attention_kernels();
std::span<const KernelInfo> batch_norm_kernels();
std::span<const KernelInfo> convolution_kernels();
std::span<const KernelInfo> einsum_kernels();
std::span<const KernelInfo> indexing_kernels();
std::span<const KernelInfo> pointwise_kernels();
std::span<const KernelInfo> row_update_kernels();
std::span<const KernelInfo> scan_kernels();
std::span<const KernelInfo> shape_kernels();
std::span<const KernelInfo> norm_kernels();
std::span<const KernelInfo> lookup_kernels();
std::span<const KernelInfo> moe_kernels();
std::span<const KernelInfo> position_kernels();
std::span<const KernelInfo> random_kernels();
std::span<const KernelInfo> sparse_kernels();
std::span<const KernelInfo> update_kernels();

// Returns whether blocked_attention() is faster than libtorch's flash kernels in this dtype on this
// processor, for attention without bias, segments and order. It is faster for float32 on some
// processors. blocked_attention() computes blocks of queries by products of product.h and supports
// every form of attention.
bool blocked_attention_is_faster(DType dtype);
Kernel blocked_attention(const KernelCall& call);
Kernel blocked_attention_grad(const KernelCall& call);

// Returns the value that leaves others as they are when it is combined with them.
double identity(Combiner combiner);

// Returns a view of the array whose dims are the op dims `order`. Along an op dim that the operand
// lacks the view has stride 0. A bracket of the operand becomes one dim for each member; the
// members after the first are whole.
Array align(const Array& array, const OperandDims& operand, const std::vector<int>& order,
            const Box& box);
// Returns the op dims of an operand in the order of the tensor's dims; a bracket gives each of
// its members.
std::vector<int> op_dims(const OperandDims& operand);
// Returns align() of input i of the call; output_along() does so for output i.
Array input_along(const KernelCall& call, size_t i, const std::vector<int>& order);
Array output_along(const KernelCall& call, size_t i, const std::vector<int>& order);

}  // namespace tessera::kernels
