// Layer norm and RMS norm of rows, which are the last dim of x. If a plan cuts this dim, the kinds
// for parts of a norm (norm_moments, ..) are used. Statistics are float (double for float64). RMS
// norm is layer norm with mean 0 and without beta.
#include <cmath>

#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/row_loops/rows.h"

namespace tessera::kernels {
namespace {

// Returns the op dims of input 0, which is x or has the dims of x. The last of them is the dim of
// the rows.
std::vector<int> row_order(const KernelCall& call) {
  return op_dims(call.op->annotation.inputs[0]);
}

template <class A>
std::shared_ptr<std::vector<A>> make_row(int64_t n) {
  return std::make_shared<std::vector<A>>(static_cast<size_t>(n));
}

// Prepares the kernel with inputs (x, gamma, beta), attribute eps and outputs (y, mean, rstd).
Kernel layer_norm(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const auto order = row_order(call);
    const Array x = call.inputs[0], y = output_along(call, 0, order),
                mean = output_along(call, 1, order), rstd = output_along(call, 2, order);
    const Nest<4> nest({&y, &x, &mean, &rstd}, order.size() - 1);
    const Row<A> xr(x), yr(y), gamma_row(call.inputs[1]), beta_row(call.inputs[2]);
    const A eps = static_cast<A>(call.op->number("eps", 1e-5));
    std::byte *gamma_at = call.inputs[1].data, *beta_at = call.inputs[2].data;
    const DType stat = mean.dtype;
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      const A *gamma = gamma_row.read(gamma_at), *beta = beta_row.read(beta_at);
      nest.each([&](const std::array<std::byte*, 4>& at) {
        const A* row = xr.read(at[1]);
        A m, m2;
        ops.moments(row, xr.size(), &m, &m2);
        const A r = A{1} / std::sqrt(m2 / static_cast<A>(xr.size()) + eps);
        ops.normalize(yr.write(at[0]), row, gamma, beta, m, r, xr.size());
        yr.commit(at[0]);
        store_element(at[2], stat, m);
        store_element(at[3], stat, r);
      });
    };
  });
}

// Prepares the kernel with inputs (x, gamma), attribute eps and outputs (y, rstd).
Kernel rms_norm(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const auto order = row_order(call);
    const Array x = call.inputs[0], y = output_along(call, 0, order),
                rstd = output_along(call, 1, order);
    const Nest<3> nest({&y, &x, &rstd}, order.size() - 1);
    const Row<A> xr(x), yr(y), gamma_row(call.inputs[1]);
    const A eps = static_cast<A>(call.op->number("eps", 1e-5));
    std::byte* gamma_at = call.inputs[1].data;
    const DType stat = rstd.dtype;
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      const A* gamma = gamma_row.read(gamma_at);
      nest.each([&](const std::array<std::byte*, 3>& at) {
        const A* row = xr.read(at[1]);
        const A r =
            A{1} / std::sqrt(ops.sum_squares(row, xr.size()) / static_cast<A>(xr.size()) + eps);
        ops.scale_by(yr.write(at[0]), row, gamma, r, xr.size());
        yr.commit(at[0]);
        store_element(at[2], stat, r);
      });
    };
  });
}

// Sums the rows of a parameter's gradient in type A and writes the sum at the end.
template <class A>
class ParameterGradient {
 public:
  ParameterGradient(const Array& out, bool add)
      : row_(out), sum_(make_row<A>(out.shape.back())), at_(out.data), add_(add) {}
  explicit ParameterGradient(int64_t n)
      : sum_(make_row<A>(n)) {}  // for a gradient that is no output
  A* begin() const {
    std::fill(sum_->begin(), sum_->end(), A{0});
    return sum_->data();
  }
  void finish(const RowOps<A>& ops) const {
    if (at_ == nullptr) return;
    if (add_) ops.add(sum_->data(), row_.read(at_), row_.size());
    A* out = row_.write(at_);
    std::copy(sum_->begin(), sum_->end(), out);
    row_.commit(at_);
  }

 private:
  Row<A> row_;
  std::shared_ptr<std::vector<A>> sum_;
  std::byte* at_ = nullptr;
  bool add_ = false;
};

// Prepares the kernel with inputs (dy, x, gamma, [mean,] rstd) and outputs (dx, dgamma [, dbeta]).
Kernel norm_grad(const KernelCall& call, bool centered) {
  return with_compute_type(call.inputs[1].dtype, [&]<class A>() -> Kernel {
    const auto order = row_order(call);
    const size_t rstd_index = centered ? 4 : 3;
    const Array dy = call.inputs[0], x = input_along(call, 1, order),
                dx = output_along(call, 0, order), rstd = input_along(call, rstd_index, order),
                mean = input_along(call, centered ? 3 : rstd_index, order);
    const Nest<5> nest({&dx, &dy, &x, &mean, &rstd}, order.size() - 1);
    const Row<A> dyr(dy), xr(x), dxr(dx), gamma_row(call.inputs[2]);
    std::byte* gamma_at = call.inputs[2].data;
    const int64_t n = xr.size();
    const ParameterGradient<A> dgamma(call.outputs[1], call.add[1]);
    const ParameterGradient<A> dbeta =
        centered ? ParameterGradient<A>(call.outputs[2], call.add[2]) : ParameterGradient<A>(n);
    const DType stat = rstd.dtype;
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      const A* gamma = gamma_row.read(gamma_at);
      A *sum_gamma = dgamma.begin(), *sum_beta = dbeta.begin();
      nest.each([&](const std::array<std::byte*, 5>& at) {
        const A *dyp = dyr.read(at[1]), *xp = xr.read(at[2]);
        const A m = centered ? load_element<A>(at[3], stat) : A{0},
                r = load_element<A>(at[4], stat);
        A sum_g, sum_g_xhat;
        ops.grad_sums(dyp, xp, gamma, m, r, n, &sum_g, &sum_g_xhat);
        ops.grad_params(sum_gamma, sum_beta, dyp, xp, m, r, n);
        const A mean_g = centered ? sum_g / static_cast<A>(n) : A{0};
        ops.grad_apply(dxr.write(at[0]), dyp, xp, gamma, m, r, mean_g,
                       sum_g_xhat / static_cast<A>(n), n);
        dxr.commit(at[0]);
      });
      dgamma.finish(ops);
      dbeta.finish(ops);
    };
  });
}
Kernel layer_norm_grad(const KernelCall& call) { return norm_grad(call, true); }
Kernel rms_norm_grad(const KernelCall& call) { return norm_grad(call, false); }

// Prepares the kernel with input x and output stats [.., 3].
Kernel norm_moments(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const Array x = call.inputs[0], stats = call.outputs[0];
    const Nest<2> nest({&stats, &x}, x.shape.size() - 1);
    const Row<A> xr(x);
    const int64_t step = stats.strides.back() * dtype_bytes(stats.dtype);
    const DType stat = stats.dtype;
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      nest.each([&](const std::array<std::byte*, 2>& at) {
        A m, m2;
        ops.moments(xr.read(at[1]), xr.size(), &m, &m2);
        store_element(at[0], stat, static_cast<A>(xr.size()));
        store_element(at[0] + step, stat, m);
        store_element(at[0] + 2 * step, stat, m2);
      });
    };
  });
}

// Prepares the kernel with input stats, attribute eps and outputs (mean, rstd).
Kernel norm_finish(const KernelCall& call) {
  const Array stats = call.inputs[0], mean = call.outputs[0], rstd = call.outputs[1];
  const Nest<3> nest({&stats, &mean, &rstd}, mean.shape.size());
  const int64_t step = stats.strides.back() * dtype_bytes(stats.dtype);
  const double eps = call.op->number("eps", 1e-5);
  const DType in = stats.dtype, out = mean.dtype;
  return [=] {
    nest.each([&](const std::array<std::byte*, 3>& at) {
      const double n = load_element<double>(at[0], in),
                   m2 = load_element<double>(at[0] + 2 * step, in);
      store_element(at[1], out, load_element<double>(at[0] + step, in));
      store_element(at[2], out, 1.0 / std::sqrt(m2 / n + eps));
    });
  };
}

// Prepares the kernel with inputs (x, mean, rstd, gamma, beta) and output y. Without `centered` the
// inputs are (x, rstd, gamma).
Kernel norm_apply(const KernelCall& call, bool centered) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const auto order = row_order(call);
    const Array x = call.inputs[0], y = output_along(call, 0, order),
                mean = input_along(call, 1, order),
                rstd = input_along(call, centered ? 2 : 1, order);
    const Array& gamma_in = call.inputs[centered ? 3 : 2];
    const Array& beta_in = call.inputs.back();
    const Nest<4> nest({&y, &x, &mean, &rstd}, order.size() - 1);
    const Row<A> xr(x), yr(y), gamma_row(gamma_in), beta_row(beta_in);
    std::byte *gamma_at = gamma_in.data, *beta_at = beta_in.data;
    const DType stat = rstd.dtype;
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      const A *gamma = gamma_row.read(gamma_at), *beta = beta_row.read(beta_at);
      nest.each([&](const std::array<std::byte*, 4>& at) {
        const A r = load_element<A>(at[3], stat);
        if (centered) {
          ops.normalize(yr.write(at[0]), xr.read(at[1]), gamma, beta, load_element<A>(at[2], stat),
                        r, xr.size());
        } else {
          ops.scale_by(yr.write(at[0]), xr.read(at[1]), gamma, r, xr.size());
        }
        yr.commit(at[0]);
      });
    };
  });
}
Kernel layer_apply(const KernelCall& call) { return norm_apply(call, true); }
Kernel rms_apply(const KernelCall& call) { return norm_apply(call, false); }

// Prepares the kernel with inputs (dy, x, gamma, mean, rstd) and output sums [.., 2].
Kernel norm_grad_sums(const KernelCall& call) {
  return with_compute_type(call.inputs[1].dtype, [&]<class A>() -> Kernel {
    const auto order = row_order(call);
    const std::vector<int> leading(order.begin(), order.end() - 1);
    const Array dy = call.inputs[0], x = input_along(call, 1, order),
                mean = input_along(call, 3, order), rstd = input_along(call, 4, order),
                sums = output_along(call, 0, leading);
    const Nest<5> nest({&sums, &dy, &x, &mean, &rstd}, leading.size());
    const Row<A> dyr(dy), xr(x), gamma_row(call.inputs[2]);
    std::byte* gamma_at = call.inputs[2].data;
    const int64_t step = call.outputs[0].strides.back() * dtype_bytes(sums.dtype);
    const DType stat = rstd.dtype, out = sums.dtype;
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      const A* gamma = gamma_row.read(gamma_at);
      nest.each([&](const std::array<std::byte*, 5>& at) {
        A s0, s1;
        ops.grad_sums(dyr.read(at[1]), xr.read(at[2]), gamma, load_element<A>(at[3], stat),
                      load_element<A>(at[4], stat), xr.size(), &s0, &s1);
        store_element(at[0], out, s0);
        store_element(at[0] + step, out, s1);
      });
    };
  });
}

// Prepares the kernel with inputs (dy, x, gamma, mean, rstd, sums), attribute features and
// output dx.
Kernel norm_grad_apply(const KernelCall& call) {
  return with_compute_type(call.inputs[1].dtype, [&]<class A>() -> Kernel {
    const auto order = row_order(call);
    const Array dy = call.inputs[0], x = input_along(call, 1, order),
                mean = input_along(call, 3, order), rstd = input_along(call, 4, order),
                sums = input_along(call, 5, order), dx = output_along(call, 0, order);
    const Nest<6> nest({&dx, &dy, &x, &mean, &rstd, &sums}, order.size() - 1);
    const Row<A> dyr(dy), xr(x), dxr(dx), gamma_row(call.inputs[2]);
    std::byte* gamma_at = call.inputs[2].data;
    const int64_t step = call.inputs[5].strides.back() * dtype_bytes(sums.dtype);
    const A features = static_cast<A>(call.op->number("features"));
    const DType stat = rstd.dtype, sum_type = sums.dtype;
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      const A* gamma = gamma_row.read(gamma_at);
      nest.each([&](const std::array<std::byte*, 6>& at) {
        ops.grad_apply(dxr.write(at[0]), dyr.read(at[1]), xr.read(at[2]), gamma,
                       load_element<A>(at[3], stat), load_element<A>(at[4], stat),
                       load_element<A>(at[5], sum_type) / features,
                       load_element<A>(at[5] + step, sum_type) / features, xr.size());
        dxr.commit(at[0]);
      });
    };
  });
}

// Prepares the kernel with inputs (dy, x, [mean,] rstd) and outputs (dgamma [, dbeta]).
Kernel norm_grad_params(const KernelCall& call, bool centered) {
  return with_compute_type(call.inputs[1].dtype, [&]<class A>() -> Kernel {
    const auto order = row_order(call);
    const Array dy = call.inputs[0], x = input_along(call, 1, order),
                mean = input_along(call, 2, order),
                rstd = input_along(call, centered ? 3 : 2, order);
    const Nest<4> nest({&dy, &x, &mean, &rstd}, order.size() - 1);
    const Row<A> dyr(dy), xr(x);
    const ParameterGradient<A> dgamma(call.outputs[0], call.add[0]);
    const ParameterGradient<A> dbeta = centered ? ParameterGradient<A>(call.outputs[1], call.add[1])
                                                : ParameterGradient<A>(xr.size());
    const DType stat = rstd.dtype;
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      A *sum_gamma = dgamma.begin(), *sum_beta = dbeta.begin();
      nest.each([&](const std::array<std::byte*, 4>& at) {
        ops.grad_params(sum_gamma, sum_beta, dyr.read(at[0]), xr.read(at[1]),
                        centered ? load_element<A>(at[2], stat) : A{0},
                        load_element<A>(at[3], stat), xr.size());
      });
      dgamma.finish(ops);
      dbeta.finish(ops);
    };
  });
}
Kernel layer_grad_params(const KernelCall& call) { return norm_grad_params(call, true); }
Kernel rms_grad_params(const KernelCall& call) { return norm_grad_params(call, false); }

// Prepares the kernel with input x and one output, the sum of squares.
Kernel rms_square(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const auto order = row_order(call);
    const Array x = call.inputs[0], y = output_along(call, 0, order);
    const Nest<2> nest({&y, &x}, order.size() - 1);
    const Row<A> xr(x);
    const DType out = y.dtype;
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      nest.each([&](const std::array<std::byte*, 2>& at) {
        store_element(at[0], out, ops.sum_squares(xr.read(at[1]), xr.size()));
      });
    };
  });
}

// Prepares the kernel with input square, attributes (features, eps) and output rstd.
Kernel rms_finish(const KernelCall& call) {
  const Array in = call.inputs[0], out = call.outputs[0];
  const Nest<2> nest({&out, &in}, out.shape.size());
  const double features = call.op->number("features"), eps = call.op->number("eps", 1e-5);
  return [=, in_type = in.dtype, out_type = out.dtype] {
    nest.each([&](const std::array<std::byte*, 2>& at) {
      store_element(at[0], out_type,
                    1.0 / std::sqrt(load_element<double>(at[1], in_type) / features + eps));
    });
  };
}

// Prepares the kernel with inputs (dy, x, gamma, rstd) and one output, the sum of g x. The input
// rstd is not used.
Kernel rms_grad_sum(const KernelCall& call) {
  return with_compute_type(call.inputs[1].dtype, [&]<class A>() -> Kernel {
    const auto order = row_order(call);
    const Array dy = call.inputs[0], x = input_along(call, 1, order),
                y = output_along(call, 0, order);
    const Nest<3> nest({&y, &dy, &x}, order.size() - 1);
    const Row<A> dyr(dy), xr(x), gamma_row(call.inputs[2]);
    std::byte* gamma_at = call.inputs[2].data;
    const DType out = y.dtype;
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      const A* gamma = gamma_row.read(gamma_at);
      nest.each([&](const std::array<std::byte*, 3>& at) {
        A sum_g, sum_g_x;
        ops.grad_sums(dyr.read(at[1]), xr.read(at[2]), gamma, A{0}, A{1}, xr.size(), &sum_g,
                      &sum_g_x);
        store_element(at[0], out, sum_g_x);
      });
    };
  });
}

// Prepares the kernel with inputs (dy, x, gamma, rstd, sum), attribute features and output dx,
// which is rstd g - x rstd^3 sum / n.
Kernel rms_grad_apply(const KernelCall& call) {
  return with_compute_type(call.inputs[1].dtype, [&]<class A>() -> Kernel {
    const auto order = row_order(call);
    const Array dy = call.inputs[0], x = input_along(call, 1, order),
                rstd = input_along(call, 3, order), sum = input_along(call, 4, order),
                dx = output_along(call, 0, order);
    const Nest<5> nest({&dx, &dy, &x, &rstd, &sum}, order.size() - 1);
    const Row<A> dyr(dy), xr(x), dxr(dx), gamma_row(call.inputs[2]);
    std::byte* gamma_at = call.inputs[2].data;
    const A features = static_cast<A>(call.op->number("features"));
    const DType stat = rstd.dtype, sum_type = sum.dtype;
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      const A* gamma = gamma_row.read(gamma_at);
      nest.each([&](const std::array<std::byte*, 5>& at) {
        const A r = load_element<A>(at[3], stat);
        ops.grad_apply(dxr.write(at[0]), dyr.read(at[1]), xr.read(at[2]), gamma, A{0}, r, A{0},
                       load_element<A>(at[4], sum_type) * r / features, xr.size());
        dxr.commit(at[0]);
      });
    };
  });
}

constexpr KernelInfo kNormKernels[] = {
    {"layer_norm", layer_norm},
    {"rms_norm", rms_norm},
    {"layer_norm_grad", layer_norm_grad, 0b110},
    {"rms_norm_grad", rms_norm_grad, 0b10},
    {"norm_moments", norm_moments},
    {"norm_finish", norm_finish},
    {"norm_apply", layer_apply},
    {"norm_grad_sums", norm_grad_sums},
    {"norm_grad_apply", norm_grad_apply},
    {"norm_grad_params", layer_grad_params, 0b11},
    {"rms_square", rms_square},
    {"rms_finish", rms_finish},
    {"rms_apply", rms_apply},
    {"rms_grad_sum", rms_grad_sum},
    {"rms_grad_apply", rms_grad_apply},
    {"rms_grad_params", rms_grad_params, 0b1},
};

}  // namespace

std::span<const KernelInfo> norm_kernels() { return kNormKernels; }

}  // namespace tessera::kernels
