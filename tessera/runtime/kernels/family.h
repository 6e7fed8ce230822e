// Internal to kernels/: how a family of kinds registers, and helpers on operands by op dim.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tessera/runtime/kernels.h"

namespace tessera::kernels {

struct KernelInfo {
  std::string_view kind;
  Kernel (*prepare)(const KernelCall&);
  uint32_t accumulates = 0;  // bit i: honours call.add[i] for output i by itself
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

// Returns whether attention in blocks of queries by product.h is faster than libtorch's flash
// kernels for the plain form in this dtype (float32 on some processors). The blocked kernels
// compute every form.
bool blocked_attention_is_faster(DType dtype);
Kernel blocked_attention(const KernelCall& call);
Kernel blocked_attention_grad(const KernelCall& call);

// Returns the array along the op dims `order`: dims of the operand in that order, stride 0 along
// those it lacks. Brackets are opened (the members after the first are whole).
Array align(const Array& array, const OperandDims& operand, const std::vector<int>& order,
            const Box& box);
// Returns the op dims of an operand in the order of its tensor dims, with brackets opened.
std::vector<int> op_dims(const OperandDims& operand);
// Returns input i of the call (output_along: output i) along `order`.
Array input_along(const KernelCall& call, size_t i, const std::vector<int>& order);
Array output_along(const KernelCall& call, size_t i, const std::vector<int>& order);

}  // namespace tessera::kernels
