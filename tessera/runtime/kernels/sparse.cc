// Sparse products (tessera/sparse/graphs/spmm.h) and their gradients. In each run the kernel
// converts the operands to the form that these functions take: columns get 32 bits; a column
// outside of the operands is replaced by the nearest valid one; matrices of other types, or with
// gaps between the elements of a row, are copied into scratch memory.
#include <ATen/Parallel.h>

#include <algorithm>
#include <optional>

#include "tessera/base/check.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/sparse/graphs/named_rows.h"
#include "tessera/sparse/graphs/spmm.h"

namespace tessera::kernels {
namespace {

// Divides one piece of memory among several arrays: add() returns the offset of an array, total()
// the size of the piece.
class Pieces {
 public:
  int64_t add(int64_t bytes) {
    const int64_t at = total_;
    total_ += (bytes + 63) / 64 * 64;
    return at;
  }
  int64_t total() const { return total_; }

 private:
  int64_t total_ = 0;
};

template <class T>
void ensure(const Status& status, const T& op) {
  TESSERA_CHECK(status.has_value(), "{}: {}", op.path, status.error().message);
}

// An operand as rows of type A: a matrix, or a vector as a matrix of one column.
template <class A>
class SparseOperand {
 public:
  SparseOperand(const Array& array, Pieces& pieces) : array_(array) {
    const bool vector = array_.shape.size() == 1;
    if (vector) {
      array_.shape.push_back(1);
      array_.strides.push_back(1);
    }
    rows_ = array_.shape[0];
    columns_ = array_.shape[1];
    const bool same =
        is_floating(array.dtype) && dtype_bytes(array.dtype) == static_cast<int64_t>(sizeof(A));
    const bool in_order = columns_ <= 1 || array_.strides[1] == 1;
    direct_ = same && in_order && (rows_ <= 1 || array_.strides[0] >= columns_) &&
              (!vector || array_.strides[0] == 1);
    if (!direct_) at_ = pieces.add(rows_ * columns_ * static_cast<int64_t>(sizeof(A)));
  }
  sparse::Matrix<A> matrix(std::byte* memory) const {
    if (direct_) {
      return {reinterpret_cast<A*>(array_.data), rows_, columns_,
              rows_ <= 1 ? columns_ : array_.strides[0]};
    }
    return {reinterpret_cast<A*>(memory + at_), rows_, columns_, columns_};
  }
  sparse::Matrix<const A> read(std::byte* memory) const {
    const sparse::Matrix<A> m = matrix(memory);
    if (!direct_) {
      each([&](std::byte* element, int64_t i) {
        m.data[i] = load_element<A>(element, array_.dtype);
      });
    }
    return {m.data, m.rows, m.columns, m.stride};
  }
  void write_back(std::byte* memory) const {
    if (direct_) return;
    const sparse::Matrix<A> m = matrix(memory);
    each([&](std::byte* element, int64_t i) { store_element(element, array_.dtype, m.data[i]); });
  }

 private:
  template <class F>
  void each(const F& f) const {
    const int64_t size = dtype_bytes(array_.dtype);
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < columns_; ++j) {
        f(array_.data + (i * array_.strides[0] + j * array_.strides[1]) * size, i * columns_ + j);
      }
    }
  }

  Array array_;
  int64_t rows_ = 0, columns_ = 0, at_ = 0;
  bool direct_ = false;
};

// The edges of a call: inputs 0 to 2, and the values of the edges if the call has them.
template <class A>
class Edges {
 public:
  Edges(const KernelCall& call, const Array* values, int64_t sources, Pieces& pieces)
      : op_(call.op),
        begin_(call.inputs[0]),
        end_(call.inputs[1]),
        columns_(call.inputs[2]),
        sources_(sources),
        context_(call.context) {
    const int64_t words = begin_.shape[0] * static_cast<int64_t>(sizeof(int64_t));
    begin_at_ = pieces.add(words);
    end_at_ = pieces.add(words);
    columns_at_ = pieces.add(columns_.shape[0] * static_cast<int64_t>(sizeof(int32_t)));
    if (values != nullptr) values_.emplace(*values, pieces);
    first_row_ = call.box.dims[static_cast<size_t>(op_dims(op_->annotation.inputs[0])[0])].begin;
    options_.reduce = *sparse::parse_reduce(op_->text("reduce"));
    options_.norm_bias = op_->number("norm_bias");
    options_.rescale = op_->integer("rescale") != 0;
  }

  sparse::SpmmOptions options() const {
    sparse::SpmmOptions options = options_;
    options.sampling = sparse::sampling_of(*op_, context_->step);
    return options;
  }

  sparse::CsrView<A> view(std::byte* memory) const {
    sparse::CsrView<A> view;
    view.rows = begin_.shape[0];
    view.column_count = sources_;
    view.edges = sources_ == 0 ? 0 : columns_.shape[0];
    auto* begin = reinterpret_cast<int64_t*>(memory + begin_at_);
    auto* end = reinterpret_cast<int64_t*>(memory + end_at_);
    auto* columns = reinterpret_cast<int32_t*>(memory + columns_at_);
    for (int64_t i = 0; i < view.rows; ++i) {
      begin[i] = std::clamp<int64_t>(number(begin_, i), 0, view.edges);
      end[i] = std::clamp<int64_t>(number(end_, i), begin[i], view.edges);
    }
    for (int64_t e = 0; e < view.edges; ++e) {
      columns[e] = static_cast<int32_t>(std::clamp<int64_t>(number(columns_, e), 0, sources_ - 1));
    }
    view.begin = begin;
    view.end = end;
    view.columns = columns;
    if (values_) view.values = values_->read(memory).data;  // rows of a vector have no gaps
    view.first_row = first_row_;
    return view;
  }

 private:
  static int64_t number(const Array& array, int64_t i) {
    return reinterpret_cast<const int64_t*>(array.data)[i * array.strides[0]];
  }

  const Op* op_;
  Array begin_, end_, columns_;
  int64_t sources_ = 0, first_row_ = 0;
  int64_t begin_at_ = 0, end_at_ = 0, columns_at_ = 0;
  std::optional<SparseOperand<A>> values_;
  sparse::SpmmOptions options_;
  const KernelContext* context_;
};

const Array* values_of(const KernelCall& call) {
  return call.inputs.size() == 5 ? &call.inputs[4] : nullptr;
}

// Prepares the kernel with inputs (begin, end, columns, x[, values]) and output y.
Kernel spmm(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    Pieces pieces;
    const Edges<A> edges(call, values_of(call), call.inputs[3].shape[0], pieces);
    const SparseOperand<A> x(call.inputs[3], pieces), y(call.outputs[0], pieces);
    std::byte* const memory = call.context->scratch.take(pieces.total());
    return [=, op = call.op] {
      ensure(sparse::spmm(edges.view(memory), edges.options(), x.read(memory), y.matrix(memory),
                          at::get_num_threads()),
             *op);
      y.write_back(memory);
    };
  });
}

// Prepares the kernel with inputs (begin, end, columns, dy[, values]), attribute dims and
// output dx.
Kernel spmm_grad(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    Pieces pieces;
    const Edges<A> edges(call, values_of(call), call.outputs[0].shape[0], pieces);
    const SparseOperand<A> dy(call.inputs[3], pieces), dx(call.outputs[0], pieces);
    std::byte* const memory = call.context->scratch.take(pieces.total());
    return [=, op = call.op] {
      ensure(sparse::spmm_grad_x(edges.view(memory), edges.options(), dy.read(memory),
                                 dx.matrix(memory), at::get_num_threads()),
             *op);
      dx.write_back(memory);
    };
  });
}

// Prepares the kernel with inputs (begin, end, columns, x, dy) and output dvalues. Runs on one
// thread, because several rows may have the same edge.
Kernel spmm_grad_values(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    Pieces pieces;
    const Edges<A> edges(call, nullptr, call.inputs[3].shape[0], pieces);
    const SparseOperand<A> x(call.inputs[3], pieces), dy(call.inputs[4], pieces);
    const Array& out = call.outputs[0];
    const int64_t sums_at = pieces.add(out.shape[0] * static_cast<int64_t>(sizeof(A)));
    std::byte* const memory = call.context->scratch.take(pieces.total());
    return [=, op = call.op] {
      A* const sums = reinterpret_cast<A*>(memory + sums_at);
      std::fill_n(sums, out.shape[0], A{0});
      ensure(sparse::spmm_grad_values(edges.view(memory), edges.options(), dy.read(memory),
                                      x.read(memory), sums),
             *op);
      for (int64_t e = 0; e < out.shape[0]; ++e) {
        store_element(out.data + e * out.strides[0] * dtype_bytes(out.dtype), out.dtype, sums[e]);
      }
    };
  });
}

constexpr KernelInfo kSparseKernels[] = {
    {"spmm", spmm},
    {"spmm_grad", spmm_grad},
    {"spmm_grad_values", spmm_grad_values},
};

}  // namespace

std::span<const KernelInfo> sparse_kernels() { return kSparseKernels; }

}  // namespace tessera::kernels
