// Element-wise kinds, most of them by libtorch's out-variants; reductions; softmax.
#include <ATen/ops/add.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/div.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/leaky_relu_backward.h>
#include <ATen/ops/log.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/threshold_backward.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/row_loops/rows.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::kernels {
namespace {

at::Tensor output(const KernelCall& call, size_t i = 0) { return tensor_of(call.outputs[i]); }
// Returns a view of an input with the output's dims.
at::Tensor operand(const KernelCall& call, size_t i) {
  return tensor_of(input_along(call, i, op_dims(call.op->annotation.outputs[0])));
}
// Returns a scalar whose use in arithmetic keeps the other operand's dtype.
at::Tensor number(double value) {
  at::Tensor scalar = at::scalar_tensor(value, at::TensorOptions(at::kDouble));
  scalar.unsafeGetTensorImpl()->set_wrapped_number(true);
  return scalar;
}

template <class F>
Kernel unary(const KernelCall& call, F f) {
  return [y = output(call), x = operand(call, 0), f]() mutable { f(y, x); };
}
template <class F>
Kernel binary(const KernelCall& call, F f) {
  return
      [y = output(call), a = operand(call, 0), b = operand(call, 1), f]() mutable { f(y, a, b); };
}

Kernel add(const KernelCall& call) {
  return binary(call, [](auto& y, const auto& a, const auto& b) { at::add_out(y, a, b); });
}
Kernel sub(const KernelCall& call) {
  return binary(call, [](auto& y, const auto& a, const auto& b) { at::sub_out(y, a, b); });
}
Kernel mul(const KernelCall& call) {
  return binary(call, [](auto& y, const auto& a, const auto& b) { at::mul_out(y, a, b); });
}
Kernel divide(const KernelCall& call) {
  return binary(call, [](auto& y, const auto& a, const auto& b) { at::div_out(y, a, b); });
}
Kernel equal(const KernelCall& call) {
  return binary(call, [](auto& y, const auto& a, const auto& b) { at::eq_out(y, a, b); });
}
template <class A>
using UnaryRow = void (*RowOps<A>::*)(A* y, const A* x, int64_t n);
template <class A>
using BinaryRow = void (*RowOps<A>::*)(A* y, const A* a, const A* b, int64_t n);

// Prepares a kernel that applies f to rows. It is used instead of libtorch's kernels, because these
// call a more exact but slower exponential and tanh.
template <class A>
Kernel unary_rows(const KernelCall& call, UnaryRow<A> f) {
  const auto order = op_dims(call.op->annotation.outputs[0]);
  const Array y = rows_of(call.outputs[0]), x = rows_of(input_along(call, 0, order));
  const Nest<2> nest({&y, &x}, y.shape.size() - 1);
  const Row<A> yr(y), xr(x);
  const RowOps<A>& ops = row_ops<A>();
  return [=, &ops] {
    nest.each([&](const std::array<std::byte*, 2>& at) {
      (ops.*f)(yr.write(at[0]), xr.read(at[1]), xr.size());
      yr.commit(at[0]);
    });
  };
}
template <class A>
Kernel binary_rows(const KernelCall& call, BinaryRow<A> f) {
  const auto order = op_dims(call.op->annotation.outputs[0]);
  const Array y = rows_of(call.outputs[0]), a = rows_of(input_along(call, 0, order)),
              b = rows_of(input_along(call, 1, order));
  const Nest<3> nest({&y, &a, &b}, y.shape.size() - 1);
  const Row<A> yr(y), ar(a), br(b);
  const RowOps<A>& ops = row_ops<A>();
  return [=, &ops] {
    nest.each([&](const std::array<std::byte*, 3>& at) {
      (ops.*f)(yr.write(at[0]), ar.read(at[1]), br.read(at[2]), yr.size());
      yr.commit(at[0]);
    });
  };
}

Kernel gelu(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype,
                           [&]<class A>() { return unary_rows<A>(call, &RowOps<A>::gelu); });
}
Kernel gelu_erf(const KernelCall& call) {
  return unary(call, [](auto& y, const auto& x) { at::gelu_out(y, x, "none"); });
}
Kernel silu(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype,
                           [&]<class A>() { return unary_rows<A>(call, &RowOps<A>::silu); });
}
Kernel relu(const KernelCall& call) {
  return unary(call, [](auto& y, const auto& x) { at::relu_out(y, x); });
}
Kernel sigmoid(const KernelCall& call) {
  return unary(call, [](auto& y, const auto& x) { at::sigmoid_out(y, x); });
}
Kernel hyperbolic_tangent(const KernelCall& call) {
  return unary(call, [](auto& y, const auto& x) { at::tanh_out(y, x); });
}
Kernel softplus(const KernelCall& call) {
  return unary(call, [](auto& y, const auto& x) { at::softplus_out(y, x); });
}
Kernel relu2(const KernelCall& call) {
  return unary(call, [](auto& y, const auto& x) {
    at::relu_out(y, x);
    y.mul_(y);
  });
}
Kernel exponential(const KernelCall& call) {
  return unary(call, [](auto& y, const auto& x) { at::exp_out(y, x); });
}
Kernel logarithm(const KernelCall& call) {
  return unary(call, [](auto& y, const auto& x) { at::log_out(y, x); });
}
Kernel square_root(const KernelCall& call) {
  return unary(call, [](auto& y, const auto& x) { at::sqrt_out(y, x); });
}
Kernel cosine(const KernelCall& call) {
  return unary(call, [](auto& y, const auto& x) { at::cos_out(y, x); });
}
Kernel sine(const KernelCall& call) {
  return unary(call, [](auto& y, const auto& x) { at::sin_out(y, x); });
}
Kernel power(const KernelCall& call) {
  return unary(call, [exponent = call.op->number("exponent")](auto& y, const auto& x) {
    at::pow_out(y, x, exponent);
  });
}
Kernel clamp(const KernelCall& call) {
  return unary(call, [least = call.op->number("min"), most = call.op->number("max")](
                         auto& y, const auto& x) { at::clamp_out(y, x, least, most); });
}
Kernel leaky_relu(const KernelCall& call) {
  return unary(call, [slope = call.op->number("slope")](auto& y, const auto& x) {
    at::leaky_relu_out(y, x, slope);
  });
}
Kernel cast(const KernelCall& call) {
  return unary(call, [](auto& y, const auto& x) { y.copy_(x); });
}
Kernel gelu_grad(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype,
                           [&]<class A>() { return binary_rows<A>(call, &RowOps<A>::gelu_grad); });
}
Kernel gelu_erf_grad(const KernelCall& call) {
  return binary(call, [](auto& dx, const auto& dy, const auto& x) {
    at::gelu_backward_out(dx, dy, x, "none");
  });
}
Kernel silu_grad(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype,
                           [&]<class A>() { return binary_rows<A>(call, &RowOps<A>::silu_grad); });
}
Kernel relu_grad(const KernelCall& call) {
  return binary(call, [](auto& dx, const auto& dy, const auto& x) {
    at::threshold_backward_out(dx, dy, x, 0);
  });
}
Kernel leaky_relu_grad(const KernelCall& call) {
  return binary(call, [slope = call.op->number("slope")](auto& dx, const auto& dy, const auto& x) {
    at::leaky_relu_backward_out(dx, dy, x, slope, /*self_is_result=*/false);
  });
}
// Computes dx: dy where min <= x <= max, else 0. dx and dy may be the same memory.
Kernel clamp_grad(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const auto order = op_dims(call.op->annotation.outputs[0]);
    const Array dx = rows_of(call.outputs[0]), dy = rows_of(input_along(call, 0, order)),
                x = rows_of(input_along(call, 1, order));
    const Nest<3> nest({&dx, &dy, &x}, dx.shape.size() - 1);
    const Row<A> dxr(dx), dyr(dy), xr(x);
    const A least = static_cast<A>(call.op->number("min")),
            most = static_cast<A>(call.op->number("max"));
    return [=] {
      nest.each([&](const std::array<std::byte*, 3>& at) {
        const A *gradient = dyr.read(at[1]), *value = xr.read(at[2]);
        A* out = dxr.write(at[0]);
        for (int64_t i = 0; i < xr.size(); ++i)
          out[i] = value[i] >= least && value[i] <= most ? gradient[i] : A{0};
        dxr.commit(at[0]);
      });
    };
  });
}
// Tests whether an element of any dtype is different from 0 and -0.
struct NotZero {
  explicit NotZero(DType dtype) : bytes(static_cast<size_t>(dtype_bytes(dtype))) {
    if (is_floating(dtype)) mask = ~(uint64_t{1} << (8 * bytes - 1));
  }
  bool operator()(const std::byte* at) const {
    uint64_t bits = 0;
    std::memcpy(&bits, at, bytes);
    return (bits & mask) != 0;
  }
  size_t bytes;
  uint64_t mask = ~uint64_t{0};
};

// Prepares the kernel with inputs (x, other) and output y, which is x in training and `other` while
// an evaluation runs. x and y may be the same memory.
Kernel in_evaluation(const KernelCall& call) {
  const auto order = op_dims(call.op->annotation.outputs[0]);
  const Array &x = call.inputs[0], &y = call.outputs[0];
  const Kernel keep = x.data == y.data ? Kernel() : prepare_copy(x, y),
               take = prepare_copy(input_along(call, 1, order), y);
  return [keep, take, context = call.context] {
    const Kernel& now = context->evaluating ? take : keep;
    if (now) now();
  };
}

// Prepares the kernel of `where` whose values are int64.
Kernel choose_integers(const KernelCall& call) {
  const auto order = op_dims(call.op->annotation.outputs[0]);
  const bool has_b = call.inputs.size() > 2;
  const Array y = call.outputs[0], c = input_along(call, 0, order), a = input_along(call, 1, order),
              b = has_b ? input_along(call, 2, order) : a;
  const Nest<4> nest({&y, &c, &a, &b}, y.shape.size());
  const NotZero is_set(c.dtype);
  const bool chosen = call.op->integer("negate") == 0;
  const auto otherwise = static_cast<int64_t>(call.op->number("otherwise"));
  return [=] {
    nest.each([&](const std::array<std::byte*, 4>& at) {
      const auto value = [&](size_t i) { return *reinterpret_cast<const int64_t*>(at[i]); };
      *reinterpret_cast<int64_t*>(at[0]) = is_set(at[1]) == chosen ? value(2)
                                           : has_b                 ? value(3)
                                                                   : otherwise;
    });
  };
}

// Prepares the kernel of `where` with inputs (c, a[, b]), attributes (otherwise, negate) and output
// y. y is a where c is not 0, and elsewhere b, or `otherwise` if the call has no b. With `negate`
// the two cases change places.
Kernel choose(const KernelCall& call) {
  if (call.outputs[0].dtype == DType::kInt64) return choose_integers(call);
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const auto order = op_dims(call.op->annotation.outputs[0]);
    const bool has_b = call.inputs.size() > 2;
    const Array y = rows_of(call.outputs[0]), c = rows_of(input_along(call, 0, order)),
                a = rows_of(input_along(call, 1, order)),
                b = has_b ? rows_of(input_along(call, 2, order)) : a;
    const Nest<4> nest({&y, &c, &a, &b}, y.shape.size() - 1);
    const Row<A> yr(y), ar(a), br(b);
    const NotZero is_set(c.dtype);
    const int64_t step = c.strides.back() * dtype_bytes(c.dtype);
    const bool chosen = call.op->integer("negate") == 0;
    const A otherwise = static_cast<A>(call.op->number("otherwise"));
    return [=] {
      nest.each([&](const std::array<std::byte*, 4>& at) {
        const A* one = ar.read(at[2]);
        const A* other = has_b ? br.read(at[3]) : nullptr;
        A* out = yr.write(at[0]);
        for (int64_t i = 0; i < yr.size(); ++i) {
          if (is_set(at[1] + i * step) == chosen) {
            out[i] = one[i];
          } else {
            out[i] = has_b ? other[i] : otherwise;
          }
        }
        yr.commit(at[0]);
      });
    };
  });
}
// Computes dx = 2 max(x, 0) dy. dx and dy may be the same memory.
Kernel relu2_grad(const KernelCall& call) {
  return binary(call, [two = number(2)](auto& dx, const auto& dy, const auto& x) {
    at::threshold_backward_out(dx, dy, x, 0);
    dx.mul_(x).mul_(two);
  });
}

Kernel scale(const KernelCall& call) {
  return [y = output(call), x = operand(call, 0),
          factor = number(call.op->number("factor", 1.0))]() mutable { at::mul_out(y, x, factor); };
}

Kernel shift(const KernelCall& call) {
  return [y = output(call), x = operand(call, 0), by = number(call.op->number("by"))]() mutable {
    at::add_out(y, x, by);
  };
}

// Adds the terms in their order. The output and the first term may be the same memory.
Kernel add_n(const KernelCall& call) {
  std::vector<at::Tensor> terms;
  for (size_t i = 0; i < call.inputs.size(); ++i) terms.push_back(operand(call, i));
  return [y = output(call), terms = std::move(terms), accumulate = call.add[0]]() mutable {
    size_t next = 0;
    if (!accumulate) {
      if (terms.size() == 1) {
        if (!y.is_alias_of(terms[0]) || y.data_ptr() != terms[0].data_ptr()) y.copy_(terms[0]);
        return;
      }
      at::add_out(y, terms[0], terms[1]);
      next = 2;
    }
    for (; next < terms.size(); ++next) y.add_(terms[next]);
  };
}

Kernel max_n(const KernelCall& call) {
  std::vector<at::Tensor> terms;
  for (size_t i = 0; i < call.inputs.size(); ++i) terms.push_back(operand(call, i));
  return [y = output(call), terms = std::move(terms)]() mutable {
    if (y.data_ptr() != terms[0].data_ptr()) y.copy_(terms[0]);
    for (size_t i = 1; i < terms.size(); ++i) at::maximum_out(y, y, terms[i]);
  };
}

// Returns the positions of those dims of input 0 that the output lacks.
std::vector<int64_t> reduced_positions(const KernelCall& call) {
  const auto order = op_dims(call.op->annotation.inputs[0]);
  std::vector<int64_t> positions;
  for (size_t i = 0; i < order.size(); ++i) {
    if (call.op->annotation.reduces(order[i], 0)) positions.push_back(static_cast<int64_t>(i));
  }
  return positions;
}

Kernel reduce_sum(const KernelCall& call) {
  const auto order = op_dims(call.op->annotation.inputs[0]);
  const std::vector<int64_t> positions = reduced_positions(call);
  const double factor = call.op->number("factor", 1.0);
  at::Tensor y = output(call), x = tensor_of(input_along(call, 0, order));
  if (positions.empty()) {
    return [y, x, factor = number(factor), accumulate = call.add[0]]() mutable {
      if (accumulate) {
        y.add_(x.mul(factor));
      } else {
        at::mul_out(y, x, factor);
      }
    };
  }
  if (!call.add[0]) {
    return [y, x, positions, scaled = factor != 1.0, factor = number(factor)]() mutable {
      at::sum_out(y, x, positions);
      if (scaled) y.mul_(factor);
    };
  }
  const Array& out = call.outputs[0];
  int64_t bytes = dtype_bytes(out.dtype);
  for (const int64_t size : out.shape) bytes *= size;
  at::Tensor part =
      tensor_of(Array::contiguous(call.context->scratch.take(bytes), out.dtype, out.shape));
  return [y, x, positions, part, factor]() mutable {
    at::sum_out(part, x, positions);
    y.add_(part, factor);
  };
}

Kernel reduce_max(const KernelCall& call) {
  const auto order = op_dims(call.op->annotation.inputs[0]);
  std::vector<int64_t> positions = reduced_positions(call);
  at::Tensor y = output(call), x = tensor_of(input_along(call, 0, order));
  if (positions.empty()) return [y, x]() mutable { y.copy_(x); };
  return [y, x, positions]() mutable { at::amax_out(y, x, positions); };
}

// ---- softmax and its parts: rows over one dim
// -----------------------------------------------------------------

// Returns the op dims of input 0 in an order in which the dim that the attribute `dim` names
// comes last.
std::vector<int> dim_last(const KernelCall& call) {
  auto order = op_dims(call.op->annotation.inputs[0]);
  const int dim = call.op->annotation.find(call.op->text("dim"));
  TESSERA_CHECK(dim >= 0, "{}: no dim {}", call.op->path, call.op->text("dim"));
  std::erase(order, dim);
  order.push_back(dim);
  return order;
}

// Copies each row to the output and replaces it there by its softmax.
Kernel softmax(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const auto order = dim_last(call);
    const Array x = input_along(call, 0, order), y = output_along(call, 0, order);
    const Nest<2> nest({&y, &x}, order.size() - 1);
    const Row<A> xr(x), yr(y);
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      nest.each([&](const std::array<std::byte*, 2>& at) {
        const A* in = xr.read(at[1]);
        A* out = yr.write(at[0]);
        if (out != in) std::copy(in, in + xr.size(), out);
        ops.softmax_scaled(out, A{1}, xr.size());
        yr.commit(at[0]);
      });
    };
  });
}

// dx = y (dy - sum of dy y over the row)
Kernel softmax_grad(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const auto order = dim_last(call);
    const Array dy = input_along(call, 0, order), y = input_along(call, 1, order),
                dx = output_along(call, 0, order);
    const Nest<3> nest({&dx, &dy, &y}, order.size() - 1);
    const Row<A> dyr(dy), yr(y), dxr(dx);
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      nest.each([&](const std::array<std::byte*, 3>& at) {
        const A *gradient = dyr.read(at[1]), *value = yr.read(at[2]);
        const A dot = ops.dot(gradient, value, yr.size());
        A* out = dxr.write(at[0]);
        if (out != gradient) std::copy(gradient, gradient + yr.size(), out);
        ops.score_grad(out, value, dot, A{1}, yr.size());
        dxr.commit(at[0]);
      });
    };
  });
}

Kernel logsumexp_reduce(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const auto order = dim_last(call);
    const Array x = input_along(call, 0, order), lse = output_along(call, 0, order);
    const Nest<2> nest({&lse, &x}, order.size() - 1);
    const Row<A> xr(x);
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops, out = lse.dtype] {
      nest.each([&](const std::array<std::byte*, 2>& at) {
        const A* in = xr.read(at[1]);
        const A highest = ops.max(in, xr.size());
        store_element(at[0], out,
                      std::isinf(highest)
                          ? highest
                          : highest + std::log(ops.sum_exp(in, highest, xr.size())));
      });
    };
  });
}

// Prepares the kernel with inputs (x, lse) and output y = exp(x - lse). lse lacks one dim of x.
Kernel softmax_apply(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    auto order = op_dims(call.op->annotation.inputs[0]);
    const auto kept = op_dims(call.op->annotation.inputs[1]);
    // Sorts the dim that lse lacks to the end.
    std::stable_sort(order.begin(), order.end(), [&](int l, int r) {
      const auto in = [&](int d) { return std::find(kept.begin(), kept.end(), d) == kept.end(); };
      return in(l) < in(r);
    });
    const Array x = input_along(call, 0, order), lse = input_along(call, 1, order),
                y = output_along(call, 0, order);
    const Nest<3> nest({&y, &x, &lse}, order.size() - 1);
    const Row<A> xr(x), yr(y);
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops, stat = lse.dtype] {
      nest.each([&](const std::array<std::byte*, 3>& at) {
        ops.exp_shifted(yr.write(at[0]), xr.read(at[1]), load_element<A>(at[2], stat), A{1},
                        xr.size());
        yr.commit(at[0]);
      });
    };
  });
}

// Prepares the kernel with inputs (dy, y, dot) and output dx = y (dy - dot).
Kernel softmax_grad_apply(const KernelCall& call) {
  return [dx = output(call), dy = operand(call, 0), y = operand(call, 1),
          dot = operand(call, 2)]() mutable {
    at::sub_out(dx, dy, dot);
    dx.mul_(y);
  };
}

constexpr KernelInfo kPointwiseKernels[] = {
    {"add", add},
    {"sub", sub},
    {"mul", mul},
    {"add_n", add_n, 0b1},
    {"max_n", max_n},
    {"div", divide},
    {"equal", equal},
    {"where", choose},
    {"in_evaluation", in_evaluation},
    {"scale", scale},
    {"shift", shift},
    {"gelu", gelu},
    {"gelu_erf", gelu_erf},
    {"silu", silu},
    {"relu", relu},
    {"exp", exponential},
    {"log", logarithm},
    {"sqrt", square_root},
    {"cos", cosine},
    {"sin", sine},
    {"power", power},
    {"clamp", clamp},
    {"clamp_grad", clamp_grad},
    {"leaky_relu", leaky_relu},
    {"leaky_relu_grad", leaky_relu_grad},
    {"sigmoid", sigmoid},
    {"tanh", hyperbolic_tangent},
    {"softplus", softplus},
    {"relu2", relu2},
    {"cast", cast},
    {"gelu_grad", gelu_grad},
    {"gelu_erf_grad", gelu_erf_grad},
    {"silu_grad", silu_grad},
    {"relu_grad", relu_grad},
    {"relu2_grad", relu2_grad},
    {"reduce_sum", reduce_sum, 0b1},
    {"reduce_max", reduce_max},
    {"softmax", softmax},
    {"softmax_grad", softmax_grad},
    {"logsumexp_reduce", logsumexp_reduce},
    {"softmax_apply", softmax_apply},
    {"softmax_grad_apply", softmax_grad_apply},
};

}  // namespace

std::span<const KernelInfo> pointwise_kernels() { return kPointwiseKernels; }

}  // namespace tessera::kernels
