// gather, scatter_add, scatter_max and cumsum. A piece has an interval of the dim that ids index.
// It ignores ids outside of this interval, because they belong to other pieces.
#include <algorithm>
#include <cstring>
#include <limits>

#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/row_loops/rows.h"

namespace tessera::kernels {
namespace {

// The arrays of a gather or scatter, as views with the dims of the picked elements. `ids` has the
// id of each picked element. `table` has the address of the table's element at the first place of
// the indexed dim; the element at place n is n * `step` bytes after it.
struct Picking {
  Picking(const KernelCall& call, const Array& table_array, const OperandDims& table_dims,
          const OperandDims& picked_dims) {
    const Annotation& annotation = call.op->annotation;
    const auto order = op_dims(picked_dims);
    const int dim = annotation.find(call.op->text("dim"));
    table = align(table_array, table_dims, order, call.box);
    ids = input_along(call, 1, order);
    places = call.box.dims[static_cast<size_t>(dim)];
    const auto dims = op_dims(table_dims);
    const auto at = std::find(dims.begin(), dims.end(), dim) - dims.begin();
    step = table_array.strides[static_cast<size_t>(at)] * dtype_bytes(table_array.dtype);
  }
  Array table, ids;
  Interval places;
  int64_t step = 0;  // bytes from one place to the next
};

// Prepares the kernel with inputs (x, ids) and output y.
Kernel gather(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Annotation& annotation = call.op->annotation;
    const Picking p(call, call.inputs[0], annotation.inputs[0], annotation.outputs[0]);
    const Array y = output_along(call, 0, op_dims(annotation.outputs[0]));
    const Nest<3> nest({&y, &p.ids, &p.table}, y.shape.size());
    const bool add = call.add[0];
    return [=, dtype = y.dtype] {
      nest.each([&](const std::array<std::byte*, 3>& at) {
        const int64_t place = *reinterpret_cast<const int64_t*>(at[1]) - p.places.begin;
        const bool inside = place >= 0 && place < p.places.size;
        if (add && !inside) return;
        A value = inside ? load_element<A>(at[2] + place * p.step, dtype) : A{0};
        if (add) value += load_element<A>(at[0], dtype);
        store_element(at[0], dtype, value);
      });
    };
  });
}

// Prepares the kernel with inputs (x, ids), attributes (dim, dims) and output y. Sums in float or
// double; if y has another type, sums in scratch memory.
Kernel scatter_add(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Annotation& annotation = call.op->annotation;
    const Array& y = call.outputs[0];
    Array sums = y;
    const bool direct = dtype_bytes(y.dtype) == static_cast<int64_t>(sizeof(A));
    int64_t elements = 1;
    for (const int64_t size : y.shape) elements *= size;
    if (!direct) {
      constexpr DType kWide = sizeof(A) == sizeof(double) ? DType::kFloat64 : DType::kFloat32;
      sums = Array::contiguous(
          call.context->scratch.take(elements * static_cast<int64_t>(sizeof(A))), kWide, y.shape);
    }
    const Picking p(call, sums, annotation.outputs[0], annotation.inputs[0]);
    const Array x = input_along(call, 0, op_dims(annotation.inputs[0]));
    const Nest<3> nest({&x, &p.ids, &p.table}, x.shape.size());
    const Nest<2> out({&y, &sums}, y.shape.size());
    const bool add = call.add[0];
    return [=, from = x.dtype, to = y.dtype, wide = sums.dtype] {
      if (!direct || !add) {
        out.each([&](const std::array<std::byte*, 2>& at) { store_element(at[1], wide, A{0}); });
      }
      nest.each([&](const std::array<std::byte*, 3>& at) {
        const int64_t place = *reinterpret_cast<const int64_t*>(at[1]) - p.places.begin;
        if (place < 0 || place >= p.places.size) return;
        std::byte* sum = at[2] + place * p.step;
        store_element(sum, wide, load_element<A>(sum, wide) + load_element<A>(at[0], from));
      });
      if (direct) return;
      out.each([&](const std::array<std::byte*, 2>& at) {
        const A old = add ? load_element<A>(at[0], to) : A{0};
        store_element(at[0], to, old + load_element<A>(at[1], wide));
      });
    };
  });
}

// Prepares the kernel with inputs (x, ids), attributes (dim, dims) and output y. A place that no id
// of the piece names gets minus infinity, the identity of the maximum.
Kernel scatter_max(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Annotation& annotation = call.op->annotation;
    const Array& y = call.outputs[0];
    const Picking p(call, y, annotation.outputs[0], annotation.inputs[0]);
    const Array x = input_along(call, 0, op_dims(annotation.inputs[0]));
    const Nest<3> nest({&x, &p.ids, &p.table}, x.shape.size());
    const Nest<1> out({&y}, y.shape.size());
    return [=, dtype = y.dtype] {
      out.each([&](const std::array<std::byte*, 1>& at) {
        store_element(at[0], dtype, -std::numeric_limits<A>::infinity());
      });
      nest.each([&](const std::array<std::byte*, 3>& at) {
        const int64_t place = *reinterpret_cast<const int64_t*>(at[1]) - p.places.begin;
        if (place < 0 || place >= p.places.size) return;
        std::byte* most = at[2] + place * p.step;
        const A value = load_element<A>(at[0], dtype);
        if (value > load_element<A>(most, dtype)) store_element(most, dtype, value);
      });
    };
  });
}

// Prepares the kernel of cumsum on int64.
Kernel cumsum_of_integers(const KernelCall& call) {
  auto order = op_dims(call.op->annotation.inputs[0]);
  const int dim = call.op->annotation.find(call.op->text("dim"));
  std::erase(order, dim);
  order.push_back(dim);
  const Array x = input_along(call, 0, order), y = output_along(call, 0, order);
  const Nest<2> nest({&y, &x}, order.size() - 1);
  const bool reverse = call.op->integer("reverse") != 0;
  constexpr auto kBytes = static_cast<int64_t>(sizeof(int64_t));
  return [=, n = x.shape.back(), in = x.strides.back() * kBytes, out = y.strides.back() * kBytes] {
    nest.each([&](const std::array<std::byte*, 2>& at) {
      int64_t sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t k = reverse ? n - 1 - i : i;
        sum += *reinterpret_cast<const int64_t*>(at[1] + k * in);
        *reinterpret_cast<int64_t*>(at[0] + k * out) = sum;
      }
    });
  };
}

// Prepares the kernel with input x, attributes (dim, reverse) and output y. Sums in the compute
// type (float or double), and int64 as such.
Kernel cumsum(const KernelCall& call) {
  if (call.outputs[0].dtype == DType::kInt64) return cumsum_of_integers(call);
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    auto order = op_dims(call.op->annotation.inputs[0]);
    const int dim = call.op->annotation.find(call.op->text("dim"));
    std::erase(order, dim);
    order.push_back(dim);
    const Array x = input_along(call, 0, order), y = output_along(call, 0, order);
    const Nest<2> nest({&y, &x}, order.size() - 1);
    const Row<A> xr(x), yr(y);
    const bool reverse = call.op->integer("reverse") != 0;
    return [=] {
      nest.each([&](const std::array<std::byte*, 2>& at) {
        const A* in = xr.read(at[1]);
        A* out = yr.write(at[0]);
        A sum = 0;
        for (int64_t i = 0; i < xr.size(); ++i) {
          const int64_t k = reverse ? xr.size() - 1 - i : i;
          out[k] = sum += in[k];
        }
        yr.commit(at[0]);
      });
    };
  });
}

Kernel prepare_zeros(const Array& y) {
  const Array rows = rows_of(y);
  const Nest<1> nest({&rows}, rows.shape.size() - 1);
  const int64_t width = dtype_bytes(rows.dtype), step = rows.strides.back() * width;
  return [=, n = rows.shape.back()] {
    nest.each([&](const std::array<std::byte*, 1>& at) {
      if (step == width) {
        std::memset(at[0], 0, static_cast<size_t>(n * width));
      } else {
        for (int64_t i = 0; i < n; ++i)
          std::memset(at[0] + i * step, 0, static_cast<size_t>(width));
      }
    });
  };
}

// Prepares the kernel with input x, attribute dim and output y.
Kernel collect(const KernelCall& call) {
  const Annotation& annotation = call.op->annotation;
  const Array &x = call.inputs[0], &y = call.outputs[0];
  const int dim = annotation.find(call.op->text("dim"));
  const auto dims = op_dims(annotation.inputs[0]);
  const auto position =
      static_cast<size_t>(std::find(dims.begin(), dims.end(), dim) - dims.begin());
  Array piece = y;
  piece.shape = x.shape;
  piece.data +=
      call.box.dims[static_cast<size_t>(dim)].begin * y.strides[position] * dtype_bytes(y.dtype);
  const bool add = call.add[0];
  const Kernel zeros = add ? Kernel() : prepare_zeros(y);
  const Kernel move = add ? prepare_add(x, piece) : prepare_copy(x, piece);
  return [zeros, move] {
    if (zeros) zeros();
    if (move) move();
  };
}

constexpr KernelInfo kIndexingKernels[] = {
    {"collect", collect, 0b1},    {"gather", gather, 0b1}, {"scatter_add", scatter_add, 0b1},
    {"scatter_max", scatter_max}, {"cumsum", cumsum},
};

}  // namespace

std::span<const KernelInfo> indexing_kernels() { return kIndexingKernels; }

}  // namespace tessera::kernels
