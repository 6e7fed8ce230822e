// Batch norm and the parts of its expansion: statistics over the dims that the attribute names, in
// float (double for float64).
#include <ATen/TensorOperators.h>
#include <ATen/core/TensorBody.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/var_mean.h>

#include <algorithm>
#include <tuple>

#include "tessera/base/text.h"
#include "tessera/runtime/kernels/maps.h"

namespace tessera::kernels {
namespace {

// How the operands of one instruction lie along the op dims of x.
class Norm {
 public:
  // `x`: the input that is normalised.
  Norm(const KernelCall& call, size_t x)
      : call_(call), order_(op_dims(call.op->annotation.inputs[x])) {
    const std::vector<std::string> names = split_text(call.op->text("dims"), ' ');
    for (size_t d = 0; d < order_.size(); ++d) {
      const std::string& name = call.op->annotation.dims[static_cast<size_t>(order_[d])].name;
      const bool over = std::find(names.begin(), names.end(), name) != names.end();
      if (over) over_.push_back(static_cast<int64_t>(d));
    }
    wide_ = call.inputs[x].dtype == DType::kFloat64 ? at::kDouble : at::kFloat;
  }

  // Operands with as many dims as x, of one element along those that they lack.
  Array input(size_t i) const { return squeezed(input_along(call_, i, order_), i, true); }
  Array output(size_t i) const { return squeezed(output_along(call_, i, order_), i, false); }
  const std::vector<int64_t>& over() const { return over_; }
  at::ScalarType wide() const { return wide_; }

 private:
  Array squeezed(Array array, size_t i, bool input) const {
    const Annotation& annotation = call_.op->annotation;
    const OperandDims& operand = input ? annotation.inputs[i] : annotation.outputs[i];
    for (size_t d = 0; d < order_.size(); ++d) {
      if (!operand.contains(order_[d])) array.shape[d] = 1;
    }
    return array;
  }

  const KernelCall& call_;
  std::vector<int> order_;
  std::vector<int64_t> over_;
  at::ScalarType wide_ = at::kFloat;
};

at::Tensor read(const Array& array, at::ScalarType dtype) { return tensor_of(array).to(dtype); }

// Sums over the dims that `out` lacks.
void put_sum(const Array& out, const at::Tensor& values, bool add) {
  std::vector<int64_t> missing;
  for (size_t d = 0; d < out.shape.size(); ++d) {
    if (out.shape[d] == 1) missing.push_back(static_cast<int64_t>(d));
  }
  put(out, missing.empty() ? values : at::sum(values, missing, true), add);
}

// (x, gamma, beta[, running mean, running variance]; dims, eps) -> (y, mean, rstd); an evaluation
// takes the running statistics, if there are any.
Kernel batch_norm(const KernelCall& call) {
  const Norm norm(call, 0);
  const bool runs = call.inputs.size() > 3;
  return [over = norm.over(), wide = norm.wide(), eps = call.op->number("eps", 1e-5),
          x = norm.input(0), gamma = norm.input(1), beta = norm.input(2),
          running_mean = norm.input(runs ? 3 : 1), running_variance = norm.input(runs ? 4 : 1),
          y = norm.output(0), mean = norm.output(1), rstd = norm.output(2), runs,
          context = call.context] {
    const at::Tensor values = read(x, wide);
    at::Tensor variance, center;
    if (runs && context->evaluating) {
      variance = read(running_variance, wide);
      center = read(running_mean, wide);
    } else {
      std::tie(variance, center) = at::var_mean(values, over, std::optional<at::Scalar>(0), true);
    }
    const at::Tensor scale = (variance + eps).rsqrt();
    put(y, (values - center) * (scale * read(gamma, wide)) + read(beta, wide), false);
    put(mean, center.expand(mean.shape), false);
    put(rstd, scale.expand(mean.shape), false);
  };
}

// dx from the two sums over n elements each.
at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& xhat, const at::Tensor& scale,
                          const at::Tensor& sum, const at::Tensor& sum_xhat, double n) {
  return scale * (dy - sum / n - xhat * (sum_xhat / n));
}

// (dy, x, gamma, mean, rstd; dims) -> (dx, dgamma, dbeta)
Kernel batch_norm_grad(const KernelCall& call) {
  const Norm norm(call, 1);
  int64_t count = 1;
  for (const int64_t d : norm.over()) count *= norm.input(1).shape[static_cast<size_t>(d)];
  return
      [over = norm.over(), wide = norm.wide(), n = static_cast<double>(count), dy = norm.input(0),
       x = norm.input(1), gamma = norm.input(2), mean = norm.input(3), rstd = norm.input(4),
       dx = norm.output(0), dgamma = norm.output(1), dbeta = norm.output(2), add = call.add] {
        const at::Tensor g = read(dy, wide), scale = read(rstd, wide);
        const at::Tensor xhat = (read(x, wide) - read(mean, wide)) * scale;
        const at::Tensor sum = at::sum(g, over, true), sum_xhat = at::sum(g * xhat, over, true);
        put(dx, input_gradient(g, xhat, scale * read(gamma, wide), sum, sum_xhat, n), false);
        put_sum(dgamma, sum_xhat, add[1]);
        put_sum(dbeta, sum, add[2]);
      };
}

// ---- parts
// (x; dims) -> stats [.., 3]
Kernel batch_moments(const KernelCall& call) {
  const Norm norm(call, 0);
  int64_t count = 1;
  for (const int64_t d : norm.over()) count *= norm.input(0).shape[static_cast<size_t>(d)];
  return [over = norm.over(), wide = norm.wide(), n = static_cast<double>(count), x = norm.input(0),
          stats = call.outputs[0]] {
    const auto [variance, center] =
        at::var_mean(read(x, wide), over, std::optional<at::Scalar>(0), false);
    put(stats, at::stack({at::full_like(center, n), center, variance * n}, -1), false);
  };
}

// (x, mean, rstd, gamma, beta) -> y
Kernel batch_apply(const KernelCall& call) {
  const Norm norm(call, 0);
  return [wide = norm.wide(), x = norm.input(0), mean = norm.input(1), rstd = norm.input(2),
          gamma = norm.input(3), beta = norm.input(4), y = norm.output(0)] {
    const at::Tensor scale = read(rstd, wide) * read(gamma, wide);
    put(y, (read(x, wide) - read(mean, wide)) * scale + read(beta, wide), false);
  };
}

// (dy, x, mean, rstd) -> sums [.., 2]
Kernel batch_grad_sums(const KernelCall& call) {
  const Norm norm(call, 1);
  return [over = norm.over(), wide = norm.wide(), dy = norm.input(0), x = norm.input(1),
          mean = norm.input(2), rstd = norm.input(3), sums = call.outputs[0]] {
    const at::Tensor g = read(dy, wide);
    const at::Tensor xhat = (read(x, wide) - read(mean, wide)) * read(rstd, wide);
    put(sums, at::stack({at::sum(g, over), at::sum(g * xhat, over)}, -1), false);
  };
}

// (dy, x, gamma, mean, rstd, sums; count) -> dx
Kernel batch_grad_apply(const KernelCall& call) {
  const Norm norm(call, 1);
  const auto n = static_cast<double>(call.op->integer("count"));
  // Its last dim, of the two sums, is no dim of x.
  const int64_t step = call.inputs[5].strides.back() * dtype_bytes(call.inputs[5].dtype);
  return [wide = norm.wide(), n, step, dy = norm.input(0), x = norm.input(1), gamma = norm.input(2),
          mean = norm.input(3), rstd = norm.input(4), sums = norm.input(5), dx = norm.output(0)] {
    Array second = sums;
    second.data += step;
    const at::Tensor scale = read(rstd, wide);
    const at::Tensor xhat = (read(x, wide) - read(mean, wide)) * scale;
    put(dx,
        input_gradient(read(dy, wide), xhat, scale * read(gamma, wide), read(sums, wide),
                       read(second, wide), n),
        false);
  };
}

// (dy, x, mean, rstd) -> (dgamma, dbeta)
Kernel batch_grad_params(const KernelCall& call) {
  const Norm norm(call, 1);
  return [wide = norm.wide(), dy = norm.input(0), x = norm.input(1), mean = norm.input(2),
          rstd = norm.input(3), dgamma = norm.output(0), dbeta = norm.output(1), add = call.add] {
    const at::Tensor g = read(dy, wide);
    const at::Tensor xhat = (read(x, wide) - read(mean, wide)) * read(rstd, wide);
    put_sum(dgamma, g * xhat, add[0]);
    put_sum(dbeta, g, add[1]);
  };
}

constexpr KernelInfo kKernels[] = {
    {"batch_norm", batch_norm},
    {"batch_norm_grad", batch_norm_grad, 0b110},
    {"batch_moments", batch_moments},
    {"batch_apply", batch_apply},
    {"batch_grad_sums", batch_grad_sums},
    {"batch_grad_apply", batch_grad_apply},
    {"batch_grad_params", batch_grad_params, 0b11},
};

}  // namespace

std::span<const KernelInfo> batch_norm_kernels() { return kKernels; }

}  // namespace tessera::kernels
