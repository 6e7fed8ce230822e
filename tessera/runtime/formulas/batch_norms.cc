// Formulas of batch norm and of the parts of its expansion. Values have the dims of x here, of size 1
// where they are one for all elements: statistics along the dims that the attribute names.
#include <ATen/ATen.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/runtime/formulas/call.h"
#include "tessera/runtime/kernels/family.h"

namespace tessera::kernels {
namespace {

struct OverDims {
  const Call& c;
  std::vector<int> order;     // the op dims of x
  std::vector<int64_t> over;  // which of them the statistics are taken over
  double count = 1;           // elements that share their statistics

  OverDims(const Call& call, size_t x) : c(call), order(op_dims(call.op().annotation.inputs[x])) {
    const std::vector<std::string> names = split_text(call.op().text("dims"), ' ');
    for (size_t d = 0; d < order.size(); ++d) {
      const auto dim = static_cast<size_t>(order[d]);
      const std::string& name = call.op().annotation.dims[dim].name;
      if (std::find(names.begin(), names.end(), name) == names.end()) continue;
      over.push_back(static_cast<int64_t>(d));
      count *= static_cast<double>(call.box().dims[dim].size);
    }
  }
  at::Tensor in(size_t i) const { return c.along(i, order); }
  at::Tensor sum(const at::Tensor& x) const { return x.sum(over, true); }
  // Returns a value as an output that may lack dims of x.
  at::Tensor out(const at::Tensor& value, size_t output) const {
    return c.summed(value, order, output);
  }
  // Returns two or three values along the last dim of output 0.
  at::Tensor stacked(const std::vector<at::Tensor>& values) const {
    return c.regrouped(at::stack(values, -1));
  }
};

struct Moments {
  at::Tensor mean, m2;
};
Moments moments_of(const OverDims& dims, const at::Tensor& x) {
  const at::Tensor mean = dims.sum(x) / dims.count;
  return {mean, dims.sum(at::square(x - mean))};
}

// The sums that gradients are made of: of dy, and of dy xhat.
struct Sums {
  at::Tensor dy, dy_xhat;
};
Sums sums_of(const OverDims& dims, const at::Tensor& dy, const at::Tensor& x,
             const at::Tensor& mean, const at::Tensor& rstd) {
  return {dims.sum(dy), dims.sum(dy * (x - mean)) * rstd};
}

at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& gamma,
                          const at::Tensor& mean, const at::Tensor& rstd, const Sums& sums,
                          double count) {
  return rstd * gamma * (dy - sums.dy / count - (x - mean) * (rstd * sums.dy_xhat / count));
}

Values batch_norm(const Call& c) {
  const OverDims dims(c, 0);
  const at::Tensor x = dims.in(0);
  at::Tensor mean, variance;
  if (c.inputs() > 3 && c.context().evaluating) {
    mean = dims.in(3);
    variance = dims.in(4);
  } else {
    const Moments moments = moments_of(dims, x);
    mean = moments.mean;
    variance = moments.m2 / dims.count;
  }
  const at::Tensor rstd = at::rsqrt(variance + c.number("eps"));
  return {dims.out((x - mean) * (rstd * dims.in(1)) + dims.in(2), 0), dims.out(mean, 1),
          dims.out(rstd, 2)};
}

Values batch_norm_grad(const Call& c) {
  const OverDims dims(c, 1);
  const at::Tensor dy = dims.in(0), x = dims.in(1), mean = dims.in(3), rstd = dims.in(4);
  const Sums sums = sums_of(dims, dy, x, mean, rstd);
  return {dims.out(input_gradient(dy, x, dims.in(2), mean, rstd, sums, dims.count), 0),
          dims.out(sums.dy_xhat, 1), dims.out(sums.dy, 2)};
}

Values batch_moments(const Call& c) {
  const OverDims dims(c, 0);
  const Moments moments = moments_of(dims, dims.in(0));
  return {dims.stacked({at::full_like(moments.mean, dims.count), moments.mean, moments.m2})};
}

Values batch_apply(const Call& c) {
  const OverDims dims(c, 0);
  return {dims.out((dims.in(0) - dims.in(1)) * (dims.in(2) * dims.in(3)) + dims.in(4), 0)};
}

Values batch_grad_sums(const Call& c) {
  const OverDims dims(c, 1);
  const Sums sums = sums_of(dims, dims.in(0), dims.in(1), dims.in(2), dims.in(3));
  return {dims.stacked({sums.dy, sums.dy_xhat})};
}

Values batch_grad_apply(const Call& c) {
  const OverDims dims(c, 1);
  // The two sums are along the last dim of input 5, which is no dim of x.
  std::vector<int> order = dims.order;
  order.push_back(op_dims(c.op().annotation.inputs[5]).back());
  const at::Tensor both = c.along(5, order);
  const Sums sums = {both.select(-1, 0), both.select(-1, 1)};
  return {dims.out(input_gradient(dims.in(0), dims.in(1), dims.in(2), dims.in(3), dims.in(4), sums,
                                  static_cast<double>(c.op().integer("count"))),
                   0)};
}

Values batch_grad_params(const Call& c) {
  const OverDims dims(c, 1);
  const Sums sums = sums_of(dims, dims.in(0), dims.in(1), dims.in(2), dims.in(3));
  return {dims.out(sums.dy_xhat, 0), dims.out(sums.dy, 1)};
}

}  // namespace

std::span<const Formula> batch_norm_formulas() {
  static const std::vector<Formula> formulas = {
      {"batch_norm", batch_norm},
      {"batch_norm_grad", batch_norm_grad},
      {"batch_moments", batch_moments},
      {"batch_apply", batch_apply},
      {"batch_grad_sums", batch_grad_sums},
      {"batch_grad_apply", batch_grad_apply},
      {"batch_grad_params", batch_grad_params},
  };
  return formulas;
}

}  // namespace tessera::kernels
