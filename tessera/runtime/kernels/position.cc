// reorder, the masks of scores, and sinusoid_add: kinds that depend on the positions of a dim's
// elements, which may be stored in another order (graph/order.h).
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fill.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/ne.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/graph/order.h"
#include "tessera/graph/within.h"
#include "tessera/runtime/kernels/family.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::kernels {
namespace {

size_t index_of_dim(const Op& op, std::string_view name) {
  const std::vector<int> dims = op_dims(op.annotation.inputs[0]);
  const auto at = std::find(dims.begin(), dims.end(), op.annotation.find(name));
  TESSERA_CHECK(at != dims.end(), "{}: no dim {}", op.path, name);
  return static_cast<size_t>(at - dims.begin());
}

Order order_of(const Op& op) {
  const auto order = parse_order(op.text("order"));
  TESSERA_CHECK(order.has_value(), "{}: order {}", op.path, op.text("order"));
  return *order;
}

Array along(Array array, size_t dim, int64_t begin, int64_t stride, int64_t size) {
  array.data += begin * array.strides[dim] * dtype_bytes(array.dtype);
  array.shape[dim] = size;
  array.strides[dim] *= stride;
  return array;
}

// Computes y[.., i, ..] = x[.., position(i), ..], or the inverse. Each run of positions at equal
// distances is moved by one copy.
Kernel reorder(const KernelCall& call) {
  const size_t dim = index_of_dim(*call.op, call.op->text("dim"));
  const int64_t size = call.inputs[0].shape[dim];
  const bool inverse = call.op->integer("inverse") != 0;
  std::vector<Kernel> copies;
  for (const OpRun& run : runs_of(order_of(*call.op), size, {0, size})) {
    const auto natural = [&](const Array& x) {
      return along(x, dim, run.first, run.stride, run.size);
    };
    const auto ordered = [&](const Array& x) { return along(x, dim, run.index, 1, run.size); };
    const Array &x = call.inputs[0], &y = call.outputs[0];
    copies.push_back(inverse ? prepare_copy(ordered(x), natural(y))
                             : prepare_copy(natural(x), ordered(y)));
  }
  return [copies = std::move(copies)] {
    for (const Kernel& copy : copies) {
      if (copy) copy();
    }
  };
}

Kernel causal_mask(const KernelCall& call) {
  const Op& op = *call.op;
  const size_t q = index_of_dim(op, "seq"), k = index_of_dim(op, "kv");
  const auto interval = [&](size_t dim) {
    const std::vector<int> dims = op_dims(op.annotation.inputs[0]);
    return call.box.dims[static_cast<size_t>(dims[dim])];
  };
  const Interval queries = interval(q), keys = interval(k);
  const int64_t size = op.annotation.dims[static_cast<size_t>(op.annotation.find("kv"))].size;
  const Order order = order_of(op);
  const Array& y = call.outputs[0];
  const bool causal = op.integer("causal") != 0;
  const int64_t window = op.integer("window");
  std::vector<at::Tensor> hidden;
  const std::vector<OpRun> key_runs = runs_of(order, size, keys);
  for (const OpRun& run : runs_of(order, size, queries)) {
    for (int64_t i = 0; i < run.size; ++i) {
      const Array row = along(y, q, run.index - queries.begin + i, 1, 1);
      for (const OpRun& key : key_runs) {
        // Returns how many keys of the run have a position of at most `position`. They are the
        // run's first ones.
        const auto count = [&](int64_t position) {
          const int64_t ahead = position - key.first;
          return std::clamp<int64_t>(ahead < 0 ? 0 : ahead / key.stride + 1, 0, key.size);
        };
        const auto hide = [&](int64_t begin, int64_t end) {
          if (begin == end) return;
          hidden.push_back(
              tensor_of(along(row, k, key.index - keys.begin + begin, 1, end - begin)));
        };
        const int64_t own = run.first + i * run.stride;
        const int64_t first = window > 0 ? count(own - window) : 0;
        const int64_t end = causal ? count(own) : window > 0 ? count(own + window - 1) : key.size;
        hide(0, first);
        hide(end, key.size);
      }
    }
  }
  const double value = op.integer("gradient") != 0 ? 0.0 : -std::numeric_limits<double>::infinity();
  Kernel copy = prepare_copy(call.inputs[0], y);
  return [copy = std::move(copy), hidden = std::move(hidden), value]() mutable {
    if (copy) copy();
    for (at::Tensor& part : hidden) part.fill_(value);
  };
}

// Computes y = x where the query and the key have the same segment number; elsewhere y is -inf, or
// 0 in a gradient.
Kernel segment_mask(const KernelCall& call) {
  const Op& op = *call.op;
  const std::vector<int> dims = op_dims(op.annotation.outputs[0]);
  const auto of = [&](const Array& array) {
    return tensor_of(array.data, array.dtype, array.shape, array.strides);
  };
  const at::Tensor queries = of(input_along(call, 1, dims)), keys = of(input_along(call, 2, dims));
  at::Tensor y = tensor_of(call.outputs[0]);
  at::Tensor apart = at::empty(y.sizes(), at::TensorOptions().dtype(at::kBool));
  const double value = op.integer("gradient") != 0 ? 0.0 : -std::numeric_limits<double>::infinity();
  Kernel copy = prepare_copy(call.inputs[0], call.outputs[0]);
  return [=, copy = std::move(copy)]() mutable {
    if (copy) copy();
    at::ne_out(apart, queries, keys);
    y.masked_fill_(apart, value);
  };
}

// Computes y[.., i, .., j] = x[.., i, .., j] + f(position(i) / base^((j - j mod 2) / features)),
// where f is sin if j is even and cos otherwise.
Kernel sinusoid_add(const KernelCall& call) {
  const Op& op = *call.op;
  const std::vector<int> dims = op_dims(op.annotation.outputs[0]);
  const size_t along_dim = index_of_dim(op, op.text("dim")), last = dims.size() - 1;
  const auto op_dim = [&](size_t dim) -> const OpDim& {
    return op.annotation.dims[static_cast<size_t>(dims[dim])];
  };
  const Interval rows = call.box.dims[static_cast<size_t>(dims[along_dim])],
                 columns = call.box.dims[static_cast<size_t>(dims[last])];
  const auto within = parse_within(op.text("within"));
  TESSERA_CHECK(within.has_value(), "{}", op.path);
  const OpDim& row_dim = op_dim(along_dim);
  Within place{row_dim.name, 0, row_dim.size, 1};
  for (const Within& one : *within) {
    if (one.dim == row_dim.name) place = one;
  }
  const auto features = static_cast<double>(op_dim(last).size);
  std::vector<int64_t> shape(dims.size(), 1);
  shape[along_dim] = rows.size;
  shape[last] = columns.size;
  at::Tensor waves = at::empty(shape, at::TensorOptions().dtype(at::kDouble));
  double* value = waves.data_ptr<double>();
  for (int64_t i = rows.begin; i < rows.end(); ++i) {
    const auto position = static_cast<double>(place.index(i, row_dim.size));
    for (int64_t j = columns.begin; j < columns.end(); ++j) {
      const double exponent = static_cast<double>(j - j % 2) / features;
      const double angle = position / std::pow(op.number("base"), exponent);
      *value++ = j % 2 == 0 ? std::sin(angle) : std::cos(angle);
    }
  }
  at::Tensor y = tensor_of(call.outputs[0]);
  const at::Tensor x = tensor_of(call.inputs[0]);
  if (y.scalar_type() != at::kDouble) waves = waves.to(at::kFloat);
  return [y, x, waves]() mutable { at::add_out(y, x, waves); };
}

constexpr KernelInfo kPositionKernels[] = {
    {"reorder", reorder},
    {"causal_mask", causal_mask},
    {"segment_mask", segment_mask},
    {"sinusoid_add", sinusoid_add},
};

}  // namespace

std::span<const KernelInfo> position_kernels() { return kPositionKernels; }

}  // namespace tessera::kernels
