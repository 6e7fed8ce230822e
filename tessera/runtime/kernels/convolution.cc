// conv, max_pool, avg_pool, sum_pool and their gradients, by libtorch's kernels on [batch, channels, ..]. A
// piece has its windows whole: only dims in front of the spatial ones are cut.
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/avg_pool3d_backward.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/max_pool3d_with_indices.h>
#include <ATen/ops/max_pool3d_with_indices_backward.h>

#include "tessera/base/text.h"
#include "tessera/runtime/kernels/maps.h"

namespace tessera::kernels {

std::vector<int64_t> numbers_of(const Op& op, std::string_view attribute, size_t count) {
  std::vector<int64_t> numbers;
  for (const std::string& word : split_text(op.text(attribute), ' ')) {
    if (word.empty()) continue;
    const auto number = parse_int(word);
    TESSERA_CHECK(number.has_value(), "{}: {} '{}'", op.path, attribute, word);
    numbers.push_back(*number);
  }
  if (numbers.size() == 1) numbers.resize(count, numbers.front());
  return numbers;
}

WindowNumbers window_numbers(const Op& op, size_t spatial) {
  return {numbers_of(op, "stride", spatial), numbers_of(op, "padding", spatial)};
}

at::Tensor at_least_float(const Array& array) {
  const at::Tensor tensor = tensor_of(array);
  return dtype_bytes(array.dtype) < dtype_bytes(DType::kFloat32) ? tensor.to(at::kFloat) : tensor;
}

at::Tensor with_one_lead(const at::Tensor& x, size_t kept) {
  std::vector<int64_t> shape = {-1};
  const auto sizes = x.sizes();
  shape.insert(shape.end(), sizes.end() - static_cast<std::ptrdiff_t>(kept), sizes.end());
  return x.reshape(shape);
}

void put(const Array& out, const at::Tensor& result, bool add) {
  at::Tensor to = tensor_of(out);
  const at::Tensor from = result.reshape(to.sizes());
  if (add) {
    to.add_(from);
  } else {
    to.copy_(from);
  }
}

namespace {

// ---- convolutions
// (x, w; stride, padding) -> y
Kernel conv(const KernelCall& call) {
  const size_t spatial = call.inputs[1].shape.size() - 2;
  const WindowNumbers windows = window_numbers(*call.op, spatial);
  const std::vector<int64_t> ones(spatial, 1), zeros(spatial, 0);
  return [=, x = call.inputs[0], w = call.inputs[1], y = call.outputs[0], add = call.add[0]] {
    put(y,
        at::convolution(with_one_lead(at_least_float(x), spatial + 1), at_least_float(w), {},
                        windows.stride, windows.padding, ones, false, zeros, 1),
        add);
  };
}

// (dy, w) -> dx, or (dy, x) -> dw. Of the operand whose gradient it is only the shape counts.
Kernel conv_grad(const KernelCall& call, bool of_input) {
  const size_t spatial = (of_input ? call.inputs[1] : call.outputs[0]).shape.size() - 2;
  const WindowNumbers windows = window_numbers(*call.op, spatial);
  const std::vector<int64_t> ones(spatial, 1), zeros(spatial, 0);
  return
      [=, dy = call.inputs[0], operand = call.inputs[1], out = call.outputs[0], add = call.add[0]] {
        const at::Tensor gradient = with_one_lead(at_least_float(dy), spatial + 1);
        const at::Tensor shape_only = at::empty({1}, gradient.options()).expand(out.shape);
        const at::Tensor x =
            with_one_lead(of_input ? shape_only : at_least_float(operand), spatial + 1);
        const at::Tensor w = of_input ? at_least_float(operand) : shape_only;
        const auto [dx, dw, db] = at::convolution_backward(
            gradient, x, w, at::OptionalIntArrayRef(), windows.stride, windows.padding, ones, false,
            zeros, 1, {of_input, !of_input, false});
        put(out, of_input ? dx : dw, add);
      };
}
Kernel conv_input_grad(const KernelCall& call) { return conv_grad(call, true); }
Kernel conv_weight_grad(const KernelCall& call) { return conv_grad(call, false); }

// ---- pools
struct PoolNumbers {
  size_t spatial = 2;
  std::vector<int64_t> kernel;
  WindowNumbers windows;
  std::vector<int64_t> dilation;
};
PoolNumbers pool_numbers(const Op& op) {
  PoolNumbers numbers;
  numbers.spatial = std::max<size_t>(2, numbers_of(op, "kernel", 1).size());
  numbers.kernel = numbers_of(op, "kernel", numbers.spatial);
  numbers.windows = window_numbers(op, numbers.spatial);
  numbers.dilation.assign(numbers.spatial, 1);
  return numbers;
}

// [maps, 1, spatial..]: a pool looks at one map at a time.
at::Tensor maps_of(const Array& x, size_t spatial) {
  return with_one_lead(at_least_float(x), spatial).unsqueeze(1);
}

std::tuple<at::Tensor, at::Tensor> largest(const at::Tensor& x, const PoolNumbers& n) {
  return n.spatial == 2 ? at::max_pool2d_with_indices(x, n.kernel, n.windows.stride,
                                                      n.windows.padding, n.dilation, false)
                        : at::max_pool3d_with_indices(x, n.kernel, n.windows.stride,
                                                      n.windows.padding, n.dilation, false);
}

Kernel max_pool(const KernelCall& call) {
  return [n = pool_numbers(*call.op), x = call.inputs[0], y = call.outputs[0]] {
    put(y, std::get<0>(largest(maps_of(x, n.spatial), n)), false);
  };
}

Kernel max_pool_grad(const KernelCall& call) {
  return [n = pool_numbers(*call.op), dy = call.inputs[0], x = call.inputs[1],
          dx = call.outputs[0]] {
    const at::Tensor maps = maps_of(x, n.spatial), gradient = maps_of(dy, n.spatial);
    const at::Tensor indices = std::get<1>(largest(maps, n));
    put(dx,
        n.spatial == 2
            ? at::max_pool2d_with_indices_backward(gradient, maps, n.kernel, n.windows.stride,
                                                   n.windows.padding, n.dilation, false, indices)
            : at::max_pool3d_with_indices_backward(gradient, maps, n.kernel, n.windows.stride,
                                                   n.windows.padding, n.dilation, false, indices),
        false);
  };
}

// Sums of windows over `divisor`; none: over the elements of a window.
Kernel window_sums(const KernelCall& call, std::optional<int64_t> divisor) {
  return [n = pool_numbers(*call.op), x = call.inputs[0], y = call.outputs[0], divisor] {
    const at::Tensor maps = maps_of(x, n.spatial);
    put(y,
        n.spatial == 2 ? at::avg_pool2d(maps, n.kernel, n.windows.stride, n.windows.padding, false,
                                        true, divisor)
                       : at::avg_pool3d(maps, n.kernel, n.windows.stride, n.windows.padding, false,
                                        true, divisor),
        false);
  };
}
Kernel avg_pool(const KernelCall& call) { return window_sums(call, std::nullopt); }
Kernel sum_pool(const KernelCall& call) { return window_sums(call, 1); }

Kernel avg_pool_grad(const KernelCall& call) {
  return [n = pool_numbers(*call.op), dy = call.inputs[0], dx = call.outputs[0]] {
    const at::Tensor gradient = maps_of(dy, n.spatial);
    const at::Tensor shape_only =
        with_one_lead(at::empty({1}, gradient.options()).expand(dx.shape), n.spatial).unsqueeze(1);
    put(dx,
        n.spatial == 2 ? at::avg_pool2d_backward(gradient, shape_only, n.kernel, n.windows.stride,
                                                 n.windows.padding, false, true, std::nullopt)
                       : at::avg_pool3d_backward(gradient, shape_only, n.kernel, n.windows.stride,
                                                 n.windows.padding, false, true, std::nullopt),
        false);
  };
}

constexpr KernelInfo kKernels[] = {
    {"conv", conv, 0b1},
    {"conv_input_grad", conv_input_grad, 0b1},
    {"conv_weight_grad", conv_weight_grad, 0b1},
    {"max_pool", max_pool},
    {"max_pool_grad", max_pool_grad},
    {"avg_pool", avg_pool},
    {"sum_pool", sum_pool},
    {"avg_pool_grad", avg_pool_grad},
};

}  // namespace

std::span<const KernelInfo> convolution_kernels() { return kKernels; }

}  // namespace tessera::kernels
