// reorder, causal_mask: kinds that know where elements of a dim stand (graph/order.h).
#include <ATen/ops/fill.h>

#include <algorithm>
#include <limits>

#include "tessera/graph/order.h"
#include "tessera/runtime/kernels/family.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::kernels {
namespace {

size_t position_of(const Op& op, std::string_view name) {
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

// y[.., i, ..] = x[.., position(i), ..]: one copy a run.
Kernel reorder(const KernelCall& call) {
  const size_t dim = position_of(*call.op, call.op->text("dim"));
  const int64_t size = call.inputs[0].shape[dim];
  const bool inverse = call.op->integer("inverse") != 0;
  std::vector<Kernel> copies;
  for (const Run& run : runs_of(order_of(*call.op), size, {0, size})) {
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
  const size_t q = position_of(op, "seq"), k = position_of(op, "kv");
  const auto interval = [&](size_t dim) {
    const std::vector<int> dims = op_dims(op.annotation.inputs[0]);
    return call.box.dims[static_cast<size_t>(dims[dim])];
  };
  const Interval queries = interval(q), keys = interval(k);
  const int64_t size = op.annotation.dims[static_cast<size_t>(op.annotation.find("kv"))].size;
  const Order order = order_of(op);
  const Array& y = call.outputs[0];
  std::vector<at::Tensor> hidden;
  const std::vector<Run> key_runs = runs_of(order, size, keys);
  for (const Run& run : runs_of(order, size, queries)) {
    for (int64_t i = 0; i < run.size; ++i) {
      const Array row = along(y, q, run.index - queries.begin + i, 1, 1);
      for (const Run& key : key_runs) {
        const int64_t ahead = run.first + i * run.stride - key.first;
        const int64_t seen =
            std::clamp<int64_t>(ahead < 0 ? 0 : ahead / key.stride + 1, 0, key.size);
        if (seen == key.size) continue;
        hidden.push_back(
            tensor_of(along(row, k, key.index - keys.begin + seen, 1, key.size - seen)));
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

bool mask_position(const Op& op, int dim) {
  return dim == op.annotation.find("seq") || dim == op.annotation.find("kv");
}

constexpr KernelInfo kKernels[] = {
    {"reorder", reorder},
    {"causal_mask", causal_mask, 0, mask_position},
};

}  // namespace

std::span<const KernelInfo> position_kernels() { return kKernels; }

}  // namespace tessera::kernels
