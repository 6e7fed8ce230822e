// conv, max_pool, avg_pool, sum_pool and their gradients, by libtorch's kernels on [batch,
// channels, ..]. A piece of x has the elements that the windows of the piece of y read. libtorch
// pads both sides of a map equally. A piece at the border of the tensor may need padding on one
// side only; then a padded copy is made.
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "tessera/runtime/kernels/maps.h"
#include "tessera/runtime/kernels/placed_result.h"
#include "tessera/runtime/kernels/windows/pointwise_convolution.h"
#include "tessera/runtime/kernels/windows/window_pool.h"
#include "tessera/runtime/kernels/windows/windows.h"

namespace tessera::kernels {

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

// Returns the kernel for an output that no window reaches: it writes zeros, or does nothing if the
// call adds.
Kernel nothing_reached(const Array& out, bool add) {
  if (add) return {};
  return [out] { tensor_of(out).zero_(); };
}

std::vector<int64_t> covered(const std::vector<Interval>& positions, const Frame& frame) {
  std::vector<int64_t> sizes;
  for (size_t d = 0; d < positions.size(); ++d) sizes.push_back(frame.span(positions[d], d).size);
  return sizes;
}

// ---- convolutions
// Returns whether each window has exactly one element, so that the convolution is a product of
// matrices over the channels.
bool is_pointwise(const ConvNumbers& n, const PlacedFilter& placed) {
  const auto all = [](const std::vector<int64_t>& numbers, int64_t value) {
    return std::all_of(numbers.begin(), numbers.end(), [&](int64_t x) { return x == value; });
  };
  return n.groups == 1 && all(n.frame.kernel, 1) && placed.pads.empty() && all(placed.padding, 0);
}

// Returns a view [samples, channels, spatial..] of the map with every `stride`-th element of each
// spatial dim: the elements that windows of one element read.
at::Tensor under_windows(const at::Tensor& map, const ConvNumbers& n) {
  at::Tensor taken = with_one_lead(map, n.spatial + 1);
  for (size_t d = 0; d < n.spatial; ++d) {
    taken = taken.slice(static_cast<int64_t>(d) + 2, 0, std::nullopt, n.frame.stride[d]);
  }
  return taken;
}

// Returns the map as [samples, channels, positions].
at::Tensor by_position(const at::Tensor& map, const ConvNumbers& n) {
  return with_one_lead(map, n.spatial + 1).flatten(2);
}

at::Tensor as_matrix(const at::Tensor& weight) {
  return weight.reshape({weight.size(0), weight.size(1)});
}

// Calls f(tensor, add), which fills the tensor. If `viewed` returns a view of the array and the
// array has the type of the computation, the tensor is that view. Otherwise the tensor is a
// temporary, which is then written or added to the array.
template <class View, class F>
void fill_through(const Array& out, bool add, View&& viewed, F&& f) {
  const at::Tensor whole = tensor_of(out);
  if (dtype_bytes(out.dtype) >= dtype_bytes(DType::kFloat32)) {
    const at::Tensor direct = viewed(whole);
    if (direct.data_ptr() == whole.data_ptr()) return f(direct, add);
  }
  const at::Tensor temporary = at::empty(
      out.shape, at_least_float(out).options().memory_format(at::MemoryFormat::Contiguous));
  f(viewed(temporary), false);
  put(out, temporary, add);
}

// Writes the tensor that `compute` returns, which has as many elements as the array, to the array,
// or adds it. Where possible avoids the copy by a PlacedResult, whose `turn` this is.
template <class F>
void put_placed(const Array& out, bool add, std::optional<size_t>& turn, F&& compute) {
  const at::Tensor to = tensor_of(out);
  if (add || dtype_bytes(out.dtype) < dtype_bytes(DType::kFloat32) || !to.is_contiguous()) {
    put(out, compute(), add);
    return;
  }
  PlacedResult placed(to.data_ptr(), to.nbytes(), turn);
  const at::Tensor result = compute();
  if (!placed.holds(result.data_ptr())) {
    put(out, result, false);
  } else if (!result.is_contiguous()) {
    put(out, result.clone(at::MemoryFormat::Contiguous), false);
  }
}

// Prepares the kernel with inputs (x, w), attributes (stride, padding) and output y.
Kernel conv(const KernelCall& call) {
  const ConvNumbers n = conv_numbers(*call.op, call.inputs[1].shape, call.inputs[0].shape);
  const Annotation& annotation = call.op->annotation;
  const PlacedFilter placed =
      n.frame.place(spatial_intervals(*call.op, call.box, annotation.inputs[0], n.spatial),
                    spatial_intervals(*call.op, call.box, annotation.outputs[0], n.spatial));
  if (is_pointwise(n, placed)) {
    return [=, x = call.inputs[0], w = call.inputs[1], y = call.outputs[0], add = call.add[0]] {
      const at::Tensor from = under_windows(at_least_float(x), n).flatten(2),
                       weight = as_matrix(at_least_float(w));
      fill_through(
          y, add, [&](const at::Tensor& to) { return by_position(to, n); },
          [&](const at::Tensor& to, bool adds) { pointwise_convolution(to, from, weight, adds); });
    };
  }
  return [=, x = call.inputs[0], w = call.inputs[1], y = call.outputs[0], add = call.add[0],
          turn = std::optional<size_t>()]() mutable {
    const at::Tensor from = padded(with_one_lead(at_least_float(x), n.spatial + 1), placed.pads),
                     weight = at_least_float(w);
    put_placed(y, add, turn, [&] {
      return at::convolution(from, weight, {}, n.frame.stride, placed.padding, n.dilation, false,
                             n.zeros, n.groups);
    });
  };
}

// Prepares the kernel with inputs (dy, w) and output dx. Each element of dx is a sum over the
// windows that contain the element.
Kernel conv_input_grad(const KernelCall& call) {
  if (call.inputs[0].empty()) return nothing_reached(call.outputs[0], call.add[0]);
  const ConvNumbers n = conv_numbers(*call.op, call.inputs[1].shape, call.outputs[0].shape);
  const Annotation& annotation = call.op->annotation;
  const auto positions = spatial_intervals(*call.op, call.box, annotation.inputs[0], n.spatial),
             elements = spatial_intervals(*call.op, call.box, annotation.outputs[0], n.spatial);
  const PlacedFilter placed = n.frame.place(elements, positions);
  if (is_pointwise(n, placed)) {
    const std::vector<int64_t>& stride = n.frame.stride;
    const bool each = std::all_of(stride.begin(), stride.end(), [](int64_t s) { return s == 1; });
    return [=, dy = call.inputs[0], w = call.inputs[1], dx = call.outputs[0], add = call.add[0]] {
      const at::Tensor gradient = by_position(at_least_float(dy), n),
                       weight = as_matrix(at_least_float(w)).t();
      if (each) {
        fill_through(
            dx, add, [&](const at::Tensor& to) { return by_position(to, n); },
            [&](const at::Tensor& to, bool adds) {
              pointwise_convolution(to, gradient, weight, adds);
            });
        return;
      }
      const at::Tensor values =
          at::empty({gradient.size(0), weight.size(0), gradient.size(2)}, gradient.options());
      pointwise_convolution(values, gradient, weight, false);
      const at::Tensor whole = at::zeros(dx.shape, gradient.options());  // stays 0 between windows
      const at::Tensor taken = under_windows(whole, n);
      taken.copy_(values.view(taken.sizes()));
      put(dx, whole, add);
    };
  }
  std::vector<int64_t> shape = call.outputs[0].shape;
  std::vector<int64_t> back;
  if (!placed.pads.empty()) {  // computes all elements of the windows, then takes those of
                               // the piece
    const std::vector<int64_t> sizes = covered(positions, n.frame);
    std::copy(sizes.begin(), sizes.end(), shape.end() - static_cast<std::ptrdiff_t>(n.spatial));
    back = n.frame.to_cover(elements, positions, -1);
  }
  return [=, dy = call.inputs[0], weight = call.inputs[1], out = call.outputs[0], add = call.add[0],
          turn = std::optional<size_t>()]() mutable {
    const at::Tensor gradient = with_one_lead(at_least_float(dy), n.spatial + 1);
    const at::Tensor x =
        with_one_lead(at::empty({1}, gradient.options()).expand(shape), n.spatial + 1);
    const at::Tensor w = at_least_float(weight);
    put_placed(out, add, turn, [&] {
      const auto [dx, dw, db] = at::convolution_backward(
          gradient, x, w, at::OptionalIntArrayRef(), n.frame.stride, placed.padding, n.dilation,
          false, n.zeros, n.groups, {true, false, false});
      return padded(dx, back);
    });
  };
}

// Prepares the kernel with inputs (dy, x) and output dw.
Kernel conv_weight_grad(const KernelCall& call) {
  const ConvNumbers n = conv_numbers(*call.op, call.outputs[0].shape, call.inputs[1].shape);
  const Annotation& annotation = call.op->annotation;
  const PlacedFilter placed =
      n.frame.place(spatial_intervals(*call.op, call.box, annotation.inputs[1], n.spatial),
                    spatial_intervals(*call.op, call.box, annotation.inputs[0], n.spatial));
  if (is_pointwise(n, placed)) {
    return [=, dy = call.inputs[0], x = call.inputs[1], dw = call.outputs[0], add = call.add[0]] {
      const at::Tensor gradient = by_position(at_least_float(dy), n),
                       from = under_windows(at_least_float(x), n).flatten(2);
      fill_through(dw, add, as_matrix, [&](const at::Tensor& to, bool adds) {
        pointwise_weight_gradient(to, gradient, from, adds);
      });
    };
  }
  return [=, dy = call.inputs[0], operand = call.inputs[1], out = call.outputs[0],
          add = call.add[0]] {
    const at::Tensor gradient = with_one_lead(at_least_float(dy), n.spatial + 1);
    const at::Tensor x = padded(with_one_lead(at_least_float(operand), n.spatial + 1), placed.pads);
    const at::Tensor w = at::empty({1}, gradient.options()).expand(out.shape);
    const auto [dx, dw, db] = at::convolution_backward(
        gradient, x, w, at::OptionalIntArrayRef(), n.frame.stride, placed.padding, n.dilation,
        false, n.zeros, n.groups, {false, true, false});
    put(out, dw, add);
  };
}

// ---- pools
// Returns, for each spatial dim, which elements of a piece each window has: an interval [first,
// end), counted from the piece's first element. If there are two spatial dims, a dim of one element
// is added before them.
WindowPool window_pool(const KernelCall& call, const PoolNumbers& n, const OperandDims& elements,
                       const OperandDims& positions) {
  const auto piece = spatial_intervals(*call.op, call.box, elements, n.spatial),
             windows = spatial_intervals(*call.op, call.box, positions, n.spatial);
  WindowPool pool;
  for (size_t d = n.spatial; d < pool.windows.size(); ++d) {
    pool.elements[d - n.spatial] = 1;
    pool.windows[d - n.spatial] = {{0, 1}};
  }
  for (size_t d = 0; d < n.spatial; ++d) {
    const size_t to = pool.windows.size() - n.spatial + d;
    pool.elements[to] = piece[d].size;
    for (int64_t i = windows[d].begin; i < windows[d].end(); ++i) {
      const Interval window = n.frame.span({i, 1}, d);
      pool.windows[to].emplace_back(std::max(window.begin, piece[d].begin) - piece[d].begin,
                                    std::min(window.end(), piece[d].end()) - piece[d].begin);
    }
  }
  return pool;
}

Kernel max_pool(const KernelCall& call) {
  const Annotation& annotation = call.op->annotation;
  const WindowPool pool =
      window_pool(call, pool_numbers(*call.op), annotation.inputs[0], annotation.outputs[0]);
  return [=, x = call.inputs[0], y = call.outputs[0]] {
    const at::Tensor from = at_least_float(x).contiguous();
    fill_through(
        y, false, [](const at::Tensor& to) { return to.contiguous(); },
        [&](const at::Tensor& to, bool) { pool.largest(to, from); });
  };
}

// Prepares the kernel with inputs (dy, x) and output dx.
Kernel max_pool_grad(const KernelCall& call) {
  if (call.inputs[0].empty()) return nothing_reached(call.outputs[0], false);
  const PoolNumbers n = pool_numbers(*call.op);
  const Annotation& annotation = call.op->annotation;
  const WindowPool pool = window_pool(call, n, annotation.inputs[1], annotation.inputs[0]);
  // x has all elements of the windows that contain elements of dx. The gradient is computed for all
  // of these, and then those that do not belong to dx are cut off.
  const auto beside = spatial_intervals(*call.op, call.box, annotation.inputs[1], n.spatial),
             elements = spatial_intervals(*call.op, call.box, annotation.outputs[0], n.spatial);
  std::vector<int64_t> back;
  if (beside != elements) {
    for (size_t d = elements.size(); d-- > 0;) {
      back.push_back(beside[d].begin - elements[d].begin);
      back.push_back(elements[d].end() - beside[d].end());
    }
  }
  return [=, dy = call.inputs[0], x = call.inputs[1], dx = call.outputs[0]] {
    const at::Tensor from = at_least_float(x).contiguous(),
                     gradient = at_least_float(dy).contiguous();
    if (back.empty()) {
      fill_through(
          dx, false, [](const at::Tensor& to) { return to.contiguous(); },
          [&](const at::Tensor& to, bool) { pool.largest_gradient(to, gradient, from); });
      return;
    }
    const at::Tensor whole = at::empty_like(from);
    pool.largest_gradient(whole, gradient, from);
    put(dx, padded(whole, back), false);
  };
}

// Returns how many elements of the tensor each window of the piece has, [positions..]. Returns an
// undefined tensor if padding counts, because then all windows have equally many elements.
at::Tensor counts_of(const KernelCall& call, const PoolNumbers& n, const OperandDims& positions,
                     const OperandDims& elements) {
  if (call.op->integer("count_padding") != 0) return {};
  at::Tensor counts = at::ones({}, at::kDouble);
  const auto of = spatial_intervals(*call.op, call.box, positions, n.spatial);
  for (size_t d = 0; d < n.spatial; ++d) {
    const size_t dim = elements.dims.size() - n.spatial + d;
    const int64_t extent = extent_of(*call.op, elements, dim);
    std::vector<double> inside;
    for (int64_t i = of[d].begin; i < of[d].end(); ++i) {
      const Interval window = n.frame.span({i, 1}, d);
      const int64_t begin = std::max<int64_t>(window.begin, 0);
      inside.push_back(static_cast<double>(std::min(window.end(), extent) - begin));
    }
    counts = counts.unsqueeze(-1).mul(at::tensor(inside));
  }
  return counts;
}

// Makes a kernel that sums the elements of each window and multiplies the sum by `factor`, or
// divides it by `counts` if that is given.
Kernel window_sums(const KernelCall& call, double factor, const at::Tensor& counts = {}) {
  const Annotation& annotation = call.op->annotation;
  const WindowPool pool =
      window_pool(call, pool_numbers(*call.op), annotation.inputs[0], annotation.outputs[0]);
  return [=, x = call.inputs[0], y = call.outputs[0]] {
    const at::Tensor from = at_least_float(x).contiguous();
    fill_through(
        y, false, [](const at::Tensor& to) { return to.contiguous(); },
        [&](const at::Tensor& to, bool) {
          pool.sums(to, from, factor);
          if (counts.defined()) to.div_(counts.to(to.scalar_type()));
        });
  };
}
Kernel avg_pool(const KernelCall& call) {
  const Annotation& annotation = call.op->annotation;
  const PoolNumbers n = pool_numbers(*call.op);
  const at::Tensor counts = counts_of(call, n, annotation.outputs[0], annotation.inputs[0]);
  return window_sums(call, counts.defined() ? 1.0 : 1 / n.frame.volume(), counts);
}
Kernel sum_pool(const KernelCall& call) { return window_sums(call, 1); }

Kernel avg_pool_grad(const KernelCall& call) {
  if (call.inputs[0].empty()) return nothing_reached(call.outputs[0], false);
  const PoolNumbers n = pool_numbers(*call.op);
  const Annotation& annotation = call.op->annotation;
  const WindowPool pool = window_pool(call, n, annotation.outputs[0], annotation.inputs[0]);
  const at::Tensor counts = counts_of(call, n, annotation.inputs[0], annotation.outputs[0]);
  const double factor = counts.defined() ? 1.0 : 1 / n.frame.volume();
  return [=, dy = call.inputs[0], dx = call.outputs[0]] {
    at::Tensor gradient = at_least_float(dy);
    if (counts.defined()) gradient = gradient.div(counts.to(gradient.scalar_type()));
    gradient = gradient.contiguous();
    fill_through(
        dx, false, [](const at::Tensor& to) { return to.contiguous(); },
        [&](const at::Tensor& to, bool) { pool.sums_gradient(to, gradient, factor); });
  };
}

constexpr KernelInfo kConvolutionKernels[] = {
    {"conv", conv, 0b1},
    {"conv_transpose", conv_input_grad, 0b1},
    {"conv_input_grad", conv_input_grad, 0b1},
    {"conv_weight_grad", conv_weight_grad, 0b1},
    {"max_pool", max_pool},
    {"max_pool_grad", max_pool_grad},
    {"avg_pool", avg_pool},
    {"sum_pool", sum_pool},
    {"avg_pool_grad", avg_pool_grad},
};

}  // namespace

std::span<const KernelInfo> convolution_kernels() { return kConvolutionKernels; }

}  // namespace tessera::kernels
