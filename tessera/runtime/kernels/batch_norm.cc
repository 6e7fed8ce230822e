// Batch norm and the parts of its expansion: statistics over the dims that the attribute names, in
// float (double for float64). If the innermost of these dims are long enough, loops of rows.h
// compute the results: the moments in two passes over x, and each other result in one pass.
// Otherwise libtorch computes them.
#include <ATen/TensorOperators.h>
#include <ATen/core/TensorBody.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/var_mean.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/runtime/kernels/maps.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/row_loops/rows.h"

namespace tessera::kernels {
namespace {

// Gives the operands of a call as arrays with the dims of x.
class Norm {
 public:
  // Reads the call; `x` is the number of the input that is normalised.
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

  // Returns an operand with the dims of x; a dim that the operand lacks has size 1.
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

// Sums the values over the dims that `out` lacks and puts the sums into `out`.
void put_sum(const Array& out, const at::Tensor& values, bool add) {
  std::vector<int64_t> missing;
  for (size_t d = 0; d < out.shape.size(); ++d) {
    if (out.shape[d] == 1) missing.push_back(static_cast<int64_t>(d));
  }
  put(out, missing.empty() ? values : at::sum(values, missing, true), add);
}

// Arrays of x's shape, divided into cells. A cell has the elements that share their statistics: all
// elements at one position of the dims that are not summed over. A cell consists of rows of
// elements that are equally far apart: as many inner dims as can be joined, or, if these are short,
// the cell's longest dim. A value for each cell is held by a tensor with the dims of x whose summed
// dims have size 1.
template <size_t N>
class Cells {
 public:
  Cells(const std::array<Array, N>& arrays, const std::vector<int64_t>& over, at::ScalarType wide)
      : arrays_(arrays), over_(over), wide_(wide), shape_(arrays[0].shape) {
    std::vector<bool> summed(shape_.size(), false);
    for (const int64_t d : over) {
      summed[static_cast<size_t>(d)] = true;
      count_ *= shape_[static_cast<size_t>(d)];
      shape_[static_cast<size_t>(d)] = 1;
    }
    std::array<int64_t, N> strides;
    strides.fill(1);
    std::vector<bool> in_row(summed.size(), false);
    for (size_t d = summed.size(); d-- > 0 && summed[d] && joins(d, strides);) in_row[d] = true;
    if (length_ < kShortestRow) take_longest(summed, in_row, strides);
    std::vector<size_t> of_cell, of_row;
    for (size_t d = 0; d < summed.size(); ++d) {
      if (!in_row[d]) (summed[d] ? of_row : of_cell).push_back(d);
    }
    cells_ = offsets(of_cell);
    rows_ = offsets(of_row);
    for (size_t k = 0; k < N; ++k) strides_[k] = strides[k];
  }

  double count() const { return static_cast<double>(count_); }
  // Returns whether rows are so long that loops over them are faster than libtorch.
  bool has_rows() const { return length_ >= kShortestRow; }
  at::Tensor values() const { return at::empty(shape_, at::TensorOptions(wide_)); }
  // Returns the values in contiguous memory, one element for each cell.
  at::Tensor by_cell(const at::Tensor& values) const { return values.expand(shape_).contiguous(); }
  at::Tensor read(size_t k) const { return tensor_of(arrays_[k]).to(wide_); }
  const std::vector<int64_t>& over() const { return over_; }
  const Array& array(size_t k) const { return arrays_[k]; }

  template <class A>
  Row<A> row(size_t k) const {
    return Row<A>(arrays_[k].dtype, length_, strides_[k]);
  }
  int64_t length() const { return length_; }
  // For each cell calls f(number of the cell, the row's address in each array) for all rows of the
  // cell, and then done(number of the cell).
  template <class F, class G>
  void each(F&& f, G&& done) const {
    for (size_t cell = 0; cell < cells_.size(); ++cell) {
      for (const auto& row : rows_) {
        std::array<std::byte*, N> at;
        for (size_t k = 0; k < N; ++k) at[k] = arrays_[k].data + cells_[cell][k] + row[k];
        f(cell, at);
      }
      done(cell);
    }
  }

 private:
  static constexpr int64_t kShortestRow = 4;

  // Joins dim d to the rows, if in all arrays its elements continue the rows at equal distances.
  // Returns whether it could.
  bool joins(size_t d, std::array<int64_t, N>& strides) {
    const int64_t size = arrays_[0].shape[d];
    if (size == 1) return true;
    for (size_t k = 0; k < N; ++k) {
      if (length_ > 1 && arrays_[k].strides[d] != strides[k] * length_) return false;
    }
    if (length_ == 1) {
      for (size_t k = 0; k < N; ++k) strides[k] = arrays_[k].strides[d];
    }
    length_ *= size;
    return true;
  }
  // If rows of the innermost dims would be short (maps of one element), makes rows of the longest
  // summed dim instead. The elements of such rows are apart in memory and are read one by one.
  void take_longest(const std::vector<bool>& summed, std::vector<bool>& in_row,
                    std::array<int64_t, N>& strides) {
    const std::vector<int64_t>& sizes = arrays_[0].shape;
    size_t longest = summed.size();
    for (size_t d = 0; d < summed.size(); ++d) {
      if (summed[d] && sizes[d] >= kShortestRow &&
          (longest == summed.size() || sizes[d] > sizes[longest])) {
        longest = d;
      }
    }
    if (longest == summed.size()) return;
    std::fill(in_row.begin(), in_row.end(), false);
    in_row[longest] = true;
    length_ = sizes[longest];
    for (size_t k = 0; k < N; ++k) strides[k] = arrays_[k].strides[longest];
  }
  // Returns, for all positions of the given dims in row-major order, the offset in bytes in
  // each array.
  std::vector<std::array<int64_t, N>> offsets(const std::vector<size_t>& dims) const {
    std::vector<std::array<int64_t, N>> out(1);
    for (const size_t d : dims) {
      std::vector<std::array<int64_t, N>> longer;
      for (const auto& from : out) {
        for (int64_t i = 0; i < arrays_[0].shape[d]; ++i) {
          longer.push_back(from);
          for (size_t k = 0; k < N; ++k)
            longer.back()[k] += i * arrays_[k].strides[d] * dtype_bytes(arrays_[k].dtype);
        }
      }
      out = std::move(longer);
    }
    return out;
  }

  std::array<Array, N> arrays_;
  std::vector<int64_t> over_;
  at::ScalarType wide_;
  std::vector<int64_t> shape_;
  int64_t count_ = 1, length_ = 1;
  std::array<int64_t, N> strides_{};
  std::vector<std::array<int64_t, N>> cells_, rows_;
};

template <class F>
void with_wide(at::ScalarType wide, F&& f) {
  if (wide == at::kDouble) return f.template operator()<double>();
  f.template operator()<float>();
}

// Returns, for each cell, the mean and the population variance of the elements of array k.
template <size_t N>
std::pair<at::Tensor, at::Tensor> moments(const Cells<N>& cells, size_t k, at::ScalarType wide) {
  if (!cells.has_rows()) {
    const auto [variance, mean] =
        at::var_mean(cells.read(k), cells.over(), std::optional<at::Scalar>(0), true);
    return {mean, variance};
  }
  at::Tensor means = cells.values(), variances = cells.values();
  with_wide(wide, [&]<class A>() {
    const RowOps<A>& ops = row_ops<A>();
    const Row<A> row = cells.template row<A>(k);
    A* const mean = means.data_ptr<A>();
    A* const variance = variances.data_ptr<A>();
    double sum = 0;
    cells.each([&](size_t, const auto& at) { sum += ops.sum(row.read(at[k]), cells.length()); },
               [&](size_t cell) {
                 mean[cell] = static_cast<A>(sum / cells.count());
                 sum = 0;
               });
    cells.each(
        [&](size_t cell, const auto& at) {
          sum += ops.sum_squares_from(row.read(at[k]), mean[cell], cells.length());
        },
        [&](size_t cell) {
          variance[cell] = static_cast<A>(sum / cells.count());
          sum = 0;
        });
  });
  return {means, variances};
}

// Computes y = (x - mean) scale + shift; the arrays are x and y.
void apply(const Cells<2>& cells, at::ScalarType wide, const at::Tensor& mean,
           const at::Tensor& scale, const at::Tensor& shift) {
  if (!cells.has_rows()) {
    put(cells.array(1), (cells.read(0) - mean) * scale + shift, false);
    return;
  }
  with_wide(wide, [&]<class A>() {
    const RowOps<A>& ops = row_ops<A>();
    const at::Tensor means = cells.by_cell(mean), scales = cells.by_cell(scale),
                     shifts = cells.by_cell(shift);
    const A *m = means.data_ptr<A>(), *a = scales.data_ptr<A>(), *b = shifts.data_ptr<A>();
    const Row<A> from = cells.template row<A>(0), to = cells.template row<A>(1);
    cells.each(
        [&](size_t cell, const auto& at) {
          ops.center_scale(to.write(at[1]), from.read(at[0]), m[cell], a[cell], b[cell],
                           cells.length());
          to.commit(at[1]);
        },
        [](size_t) {});
  });
}

// Returns, for each cell, the sums of dy and of dy (x - mean) rstd. The first two arrays are dy
// and x.
template <size_t N>
std::pair<at::Tensor, at::Tensor> gradient_sums(const Cells<N>& cells, at::ScalarType wide,
                                                const at::Tensor& mean, const at::Tensor& rstd) {
  if (!cells.has_rows()) {
    const at::Tensor g = cells.read(0), xhat = (cells.read(1) - mean) * rstd;
    return {at::sum(g, cells.over(), true), at::sum(g * xhat, cells.over(), true)};
  }
  at::Tensor sums = cells.values(), sums_xhat = cells.values();
  with_wide(wide, [&]<class A>() {
    const RowOps<A>& ops = row_ops<A>();
    const at::Tensor means = cells.by_cell(mean), scales = cells.by_cell(rstd);
    const A *m = means.data_ptr<A>(), *r = scales.data_ptr<A>();
    A *const out = sums.data_ptr<A>(), *const out_xhat = sums_xhat.data_ptr<A>();
    const Row<A> dy = cells.template row<A>(0), x = cells.template row<A>(1);
    double sum = 0, sum_centered = 0;
    cells.each(
        [&](size_t cell, const auto& at) {
          A s = 0, s_centered = 0;
          ops.sums_centered(dy.read(at[0]), x.read(at[1]), m[cell], cells.length(), &s,
                            &s_centered);
          sum += s;
          sum_centered += s_centered;
        },
        [&](size_t cell) {
          out[cell] = static_cast<A>(sum);
          out_xhat[cell] = static_cast<A>(sum_centered * r[cell]);
          sum = sum_centered = 0;
        });
  });
  return {sums, sums_xhat};
}

// Computes dx = rstd gamma (dy - sum / n - xhat sum_xhat / n), where xhat = (x - mean) rstd. The
// arrays are dy, x and dx.
void input_gradient(const Cells<3>& cells, at::ScalarType wide, double n, const at::Tensor& mean,
                    const at::Tensor& rstd, const at::Tensor& gamma, const at::Tensor& sum,
                    const at::Tensor& sum_xhat) {
  const at::Tensor scale = rstd * gamma, level = sum / n, slope = rstd * sum_xhat / n;
  if (!cells.has_rows()) {
    put(cells.array(2), scale * (cells.read(0) - level - (cells.read(1) - mean) * slope), false);
    return;
  }
  with_wide(wide, [&]<class A>() {
    const RowOps<A>& ops = row_ops<A>();
    const at::Tensor means = cells.by_cell(mean), scales = cells.by_cell(scale),
                     levels = cells.by_cell(level), slopes = cells.by_cell(slope);
    const A *m = means.data_ptr<A>(), *a = scales.data_ptr<A>(), *l = levels.data_ptr<A>(),
            *k = slopes.data_ptr<A>();
    const Row<A> dy = cells.template row<A>(0), x = cells.template row<A>(1),
                 dx = cells.template row<A>(2);
    cells.each(
        [&](size_t cell, const auto& at) {
          ops.grad_centered(dx.write(at[2]), dy.read(at[0]), x.read(at[1]), m[cell], a[cell],
                            l[cell], k[cell], cells.length());
          dx.commit(at[2]);
        },
        [](size_t) {});
  });
}

// Prepares the kernel with inputs (x, gamma, beta[, running mean, running variance]), attributes
// (dims, eps) and outputs (y, mean, rstd). An evaluation uses the running statistics, if the call
// has them.
Kernel batch_norm(const KernelCall& call) {
  const Norm norm(call, 0);
  const bool runs = call.inputs.size() > 3;
  return [cells = Cells<2>({norm.input(0), norm.output(0)}, norm.over(), norm.wide()),
          wide = norm.wide(), eps = call.op->number("eps", 1e-5), gamma = norm.input(1),
          beta = norm.input(2), running_mean = norm.input(runs ? 3 : 1),
          running_variance = norm.input(runs ? 4 : 1), mean = norm.output(1), rstd = norm.output(2),
          runs, context = call.context] {
    at::Tensor variance, center;
    if (runs && context->evaluating) {
      variance = read(running_variance, wide);
      center = read(running_mean, wide);
    } else {
      std::tie(center, variance) = moments(cells, 0, wide);
    }
    const at::Tensor scale = (variance + eps).rsqrt();
    apply(cells, wide, center, scale * read(gamma, wide), read(beta, wide));
    put(mean, center.expand(mean.shape), false);
    put(rstd, scale.expand(mean.shape), false);
  };
}

// Prepares the kernel with inputs (dy, x, gamma, mean, rstd), attribute dims and outputs (dx,
// dgamma, dbeta).
Kernel batch_norm_grad(const KernelCall& call) {
  const Norm norm(call, 1);
  return
      [cells = Cells<3>({norm.input(0), norm.input(1), norm.output(0)}, norm.over(), norm.wide()),
       wide = norm.wide(), gamma = norm.input(2), mean = norm.input(3), rstd = norm.input(4),
       dgamma = norm.output(1), dbeta = norm.output(2), add = call.add] {
        const at::Tensor center = read(mean, wide), scale = read(rstd, wide);
        const auto [sum, sum_xhat] = gradient_sums(cells, wide, center, scale);
        input_gradient(cells, wide, cells.count(), center, scale, read(gamma, wide), sum, sum_xhat);
        put_sum(dgamma, sum_xhat, add[1]);
        put_sum(dbeta, sum, add[2]);
      };
}

// ---- parts
// Prepares the kernel with input x, attribute dims and output stats [.., 3].
Kernel batch_moments(const KernelCall& call) {
  const Norm norm(call, 0);
  return [cells = Cells<1>({norm.input(0)}, norm.over(), norm.wide()), wide = norm.wide(),
          stats = call.outputs[0]] {
    const auto [mean, variance] = moments(cells, 0, wide);
    const at::Tensor all =
        at::stack({at::full_like(mean, cells.count()), mean, variance * cells.count()}, -1);
    put(stats, all.reshape(stats.shape), false);
  };
}

// Prepares the kernel with inputs (x, mean, rstd, gamma, beta) and output y.
Kernel batch_apply(const KernelCall& call) {
  const Norm norm(call, 0);
  return [cells = Cells<2>({norm.input(0), norm.output(0)}, norm.over(), norm.wide()),
          wide = norm.wide(), mean = norm.input(1), rstd = norm.input(2), gamma = norm.input(3),
          beta = norm.input(4)] {
    apply(cells, wide, read(mean, wide), read(rstd, wide) * read(gamma, wide), read(beta, wide));
  };
}

// Prepares the kernel with inputs (dy, x, mean, rstd) and output sums [.., 2].
Kernel batch_grad_sums(const KernelCall& call) {
  const Norm norm(call, 1);
  return [cells = Cells<2>({norm.input(0), norm.input(1)}, norm.over(), norm.wide()),
          wide = norm.wide(), mean = norm.input(2), rstd = norm.input(3), sums = call.outputs[0]] {
    const auto [sum, sum_xhat] = gradient_sums(cells, wide, read(mean, wide), read(rstd, wide));
    put(sums, at::stack({sum, sum_xhat}, -1).reshape(sums.shape), false);
  };
}

// Prepares the kernel with inputs (dy, x, gamma, mean, rstd, sums), attribute count and output dx.
Kernel batch_grad_apply(const KernelCall& call) {
  const Norm norm(call, 1);
  const auto n = static_cast<double>(call.op->integer("count"));
  // `sums` has the two sums along its last dim, which is not a dim of x; `step` is the distance
  // between them.
  const int64_t step = call.inputs[5].strides.back() * dtype_bytes(call.inputs[5].dtype);
  return
      [cells = Cells<3>({norm.input(0), norm.input(1), norm.output(0)}, norm.over(), norm.wide()),
       wide = norm.wide(), n, step, gamma = norm.input(2), mean = norm.input(3),
       rstd = norm.input(4), sums = norm.input(5)] {
        Array second = sums;
        second.data += step;
        input_gradient(cells, wide, n, read(mean, wide), read(rstd, wide), read(gamma, wide),
                       read(sums, wide), read(second, wide));
      };
}

// Prepares the kernel with inputs (dy, x, mean, rstd) and outputs (dgamma, dbeta).
Kernel batch_grad_params(const KernelCall& call) {
  const Norm norm(call, 1);
  return [cells = Cells<2>({norm.input(0), norm.input(1)}, norm.over(), norm.wide()),
          wide = norm.wide(), mean = norm.input(2), rstd = norm.input(3), dgamma = norm.output(0),
          dbeta = norm.output(1), add = call.add] {
    const auto [sum, sum_xhat] = gradient_sums(cells, wide, read(mean, wide), read(rstd, wide));
    put_sum(dgamma, sum_xhat, add[0]);
    put_sum(dbeta, sum, add[1]);
  };
}

constexpr KernelInfo kBatchNormKernels[] = {
    {"batch_norm", batch_norm},
    {"batch_norm_grad", batch_norm_grad, 0b110},
    {"batch_moments", batch_moments},
    {"batch_apply", batch_apply},
    {"batch_grad_sums", batch_grad_sums},
    {"batch_grad_apply", batch_grad_apply},
    {"batch_grad_params", batch_grad_params, 0b11},
};

}  // namespace

std::span<const KernelInfo> batch_norm_kernels() { return kBatchNormKernels; }

}  // namespace tessera::kernels
