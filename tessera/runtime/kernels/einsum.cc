// einsum, which is every matrix product. prepare_kernel() compiles the spec to matrix products on
// strided views of the operands and the output:
//
//   1. The op dims of size > 1 are divided into classes by the operands that have them: batch (a, b
//      and y), m (a and y), n (b and y), k (a and b). A dim that only one operand has is summed
//      over first (rare).
//   2. Inside a class, dims that are adjacent in memory in all arrays that have them are joined to
//      one axis.
//   3. One axis of each of m, n and k makes the matrix product. The choice is the largest product
//      whose three matrices have a unit stride, so that BLAS reads and writes them in place. The
//      other axes become loops (loops over k accumulate); a long loop over batch becomes one batched
//      product.
//
// A linear layer, each of its two gradients, and x W^T take one product and no copy.
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include <algorithm>

#include "tessera/runtime/kernels/product.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::kernels {
namespace {

// One loop of the product: its size, and its stride in a, b and y (0 in an operand without
// the dim).
struct Axis {
  int64_t size = 1;
  int64_t a = 0, b = 0, y = 0;
};

enum Class : uint8_t { kBatch, kM, kN, kK, kClasses };

struct ProductLoops {
  std::vector<Axis> axes[kClasses];
};

Class class_of(bool in_a, bool in_b, bool in_y) {
  if (in_a && in_b) return in_y ? kBatch : kK;
  return in_a ? kM : kN;
}

// Returns the key by which the axes of a class are sorted, largest first, before adjacent ones are
// joined: the stride in y, or in a for k, which y lacks.
int64_t order_key(Class c, const Axis& axis) { return c == kK ? axis.a : axis.y; }

void join_axes(std::vector<Axis>& axes, Class c) {
  std::stable_sort(axes.begin(), axes.end(),
                   [c](const Axis& l, const Axis& r) { return order_key(c, l) > order_key(c, r); });
  std::vector<Axis> joined;
  for (const Axis& axis : axes) {
    if (!joined.empty()) {
      Axis& last = joined.back();
      if (last.a == axis.size * axis.a && last.b == axis.size * axis.b &&
          last.y == axis.size * axis.y) {
        last = {last.size * axis.size, axis.a, axis.b, axis.y};
        continue;
      }
    }
    joined.push_back(axis);
  }
  axes = std::move(joined);
}

struct Operand {
  Array array;            // has the dims `dims`
  std::vector<int> dims;  // op dims
};

struct Compiler {
  const KernelCall& call;
  std::vector<Kernel> before;

  Operand open(size_t input) const {
    const std::vector<int> dims = op_dims(call.op->annotation.inputs[input]);
    return {input_along(call, input, dims), dims};
  }

  static bool has(const Operand& operand, int dim) {
    return std::find(operand.dims.begin(), operand.dims.end(), dim) != operand.dims.end();
  }

  // If the operand has dims that both `other` and `y` lack, sums over these dims into new memory.
  // The kernels' scratch memory is not used, because both operands may need memory at once and the
  // case is rare.
  void reduce_own_dims(Operand& operand, const Operand* other, const Operand& y) {
    std::vector<int64_t> summed, kept_shape;
    std::vector<int> kept;
    for (size_t i = 0; i < operand.dims.size(); ++i) {
      const bool shared =
          has(y, operand.dims[i]) || (other != nullptr && has(*other, operand.dims[i]));
      if (!shared) {
        summed.push_back(static_cast<int64_t>(i));
        continue;
      }
      kept.push_back(operand.dims[i]);
      kept_shape.push_back(operand.array.shape[i]);
    }
    if (summed.empty()) return;
    at::Tensor in = tensor_of(operand.array), out = at::empty(kept_shape, in.options());
    operand = {
        Array::contiguous(static_cast<std::byte*>(out.data_ptr()), operand.array.dtype, kept_shape),
        kept};
    before.push_back([out, in, summed]() mutable { at::sum_out(out, in, summed); });
  }
};

ProductLoops classify(const KernelCall& call, const Operand& a, const Operand& b,
                      const Operand& y) {
  ProductLoops loops;
  const auto stride = [](const Operand& operand, int dim) {
    const auto at = std::find(operand.dims.begin(), operand.dims.end(), dim);
    return at == operand.dims.end()
               ? 0
               : operand.array.strides[static_cast<size_t>(at - operand.dims.begin())];
  };
  for (size_t d = 0; d < call.box.rank(); ++d) {
    const int dim = static_cast<int>(d);
    const int64_t size = call.box.dims[d].size;
    const bool in_a = Compiler::has(a, dim), in_b = Compiler::has(b, dim),
               in_y = Compiler::has(y, dim);
    if (size == 1 || (!in_a && !in_b)) continue;
    loops.axes[class_of(in_a, in_b, in_y)].push_back(
        {size, stride(a, dim), stride(b, dim), stride(y, dim)});
  }
  for (uint8_t c = 0; c < kClasses; ++c) join_axes(loops.axes[c], static_cast<Class>(c));
  return loops;
}

// Returns whether BLAS can read a matrix with these strides without a copy.
bool is_matrix(int64_t rows, int64_t row_stride, int64_t columns, int64_t column_stride) {
  const bool by_rows = (columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns);
  const bool by_columns = (rows == 1 || row_stride == 1) && (columns == 1 || column_stride >= rows);
  return by_rows || by_columns;
}

struct Axes {
  Axis m, n, k;
};

// Chooses an axis of each of m, n and k for the matrix product, and removes the three from
// the loops.
Axes choose_axes(ProductLoops& loops) {
  const auto with_none = [](const std::vector<Axis>& axes) {
    return std::max<size_t>(axes.size(), 1);
  };
  const auto axis_at = [](const std::vector<Axis>& axes, size_t i) {
    return i < axes.size() ? axes[i] : Axis{};
  };
  size_t best[3] = {0, 0, 0};
  double best_score = -1;
  for (size_t i = 0; i < with_none(loops.axes[kM]); ++i) {
    for (size_t j = 0; j < with_none(loops.axes[kN]); ++j) {
      for (size_t l = 0; l < with_none(loops.axes[kK]); ++l) {
        const Axis m = axis_at(loops.axes[kM], i), n = axis_at(loops.axes[kN], j),
                   k = axis_at(loops.axes[kK], l);
        double score =
            static_cast<double>(m.size) * static_cast<double>(n.size) * static_cast<double>(k.size);
        const bool direct = is_matrix(m.size, m.a, k.size, k.a) &&
                            is_matrix(k.size, k.b, n.size, n.b) &&
                            is_matrix(m.size, m.y, n.size, n.y);
        if (direct) score *= 1e6;
        if (score <= best_score) continue;
        best_score = score;
        best[0] = i;
        best[1] = j;
        best[2] = l;
      }
    }
  }
  const auto take = [&](Class c, size_t i) {
    const Axis axis = axis_at(loops.axes[c], i);
    if (i < loops.axes[c].size())
      loops.axes[c].erase(loops.axes[c].begin() + static_cast<std::ptrdiff_t>(i));
    return axis;
  };
  Axes product;
  product.m = take(kM, best[0]);
  product.n = take(kN, best[1]);
  product.k = take(kK, best[2]);
  return product;
}

struct Offsets {
  int64_t a = 0, b = 0, y = 0;
};
std::vector<Offsets> expand(const std::vector<Axis>& axes) {
  std::vector<Offsets> all{{}};
  for (const Axis& axis : axes) {
    std::vector<Offsets> next;
    for (const Offsets& base : all) {
      for (int64_t i = 0; i < axis.size; ++i) {
        next.push_back({base.a + i * axis.a, base.b + i * axis.b, base.y + i * axis.y});
      }
    }
    all = std::move(next);
  }
  return all;
}

// The least number of products in a loop for which the loop becomes one batched product.
constexpr int64_t kBatchedFrom = 8;

std::vector<Product> compile_products(const Operand& a, const Operand& b, const Operand& y,
                                      ProductLoops loops, bool add) {
  const Axes p = choose_axes(loops);
  std::vector<Axis> outer;
  for (const Class c : {kBatch, kM, kN}) {
    outer.insert(outer.end(), loops.axes[c].begin(), loops.axes[c].end());
  }
  Axis batch;
  const auto longest = std::max_element(
      outer.begin(), outer.end(), [](const Axis& l, const Axis& r) { return l.size < r.size; });
  if (longest != outer.end() && longest->size >= kBatchedFrom && longest->a != 0 &&
      longest->b != 0) {
    batch = *longest;
    outer.erase(longest);
  }
  const bool batched = batch.size > 1;
  const int64_t element = dtype_bytes(y.array.dtype);
  const auto view = [&](const Operand& operand, int64_t offset, const Axis& rows,
                        const Axis& columns, int64_t Axis::*stride) {
    std::byte* data = operand.array.data + offset * element;
    if (!batched) {
      return tensor_of(data, operand.array.dtype, {rows.size, columns.size},
                       {rows.*stride, columns.*stride});
    }
    return tensor_of(data, operand.array.dtype, {batch.size, rows.size, columns.size},
                     {batch.*stride, rows.*stride, columns.*stride});
  };
  // The stride of a dim of size 1 does not matter, so it is set to the one that a contiguous
  // matrix has.
  const auto plain = [](Axis& x, const Axis& other, int64_t Axis::*stride) {
    if (x.size == 1) x.*stride = other.*stride == 1 ? std::max<int64_t>(other.size, 1) : 1;
  };
  Axis m = p.m, n = p.n, k = p.k;
  plain(m, k, &Axis::a);
  plain(k, m, &Axis::a);
  plain(n, k, &Axis::b);
  plain(k, n, &Axis::b);
  plain(m, n, &Axis::y);
  plain(n, m, &Axis::y);
  std::vector<Product> products;
  for (const Offsets& out : expand(outer)) {
    bool accumulate = add;
    for (const Offsets& in : expand(loops.axes[kK])) {
      products.push_back(prepare_product(view(y, out.y, m, n, &Axis::y),
                                         view(a, out.a + in.a, m, k, &Axis::a),
                                         view(b, out.b + in.b, k, n, &Axis::b), accumulate));
      accumulate = true;
    }
  }
  return products;
}

bool has_bias(const Op& op) {
  // An einsum has one or two operands and perhaps a bias. The table of ops allows a bias only as
  // the third operand.
  return op.inputs.size() == 3;
}

// Returns whether this piece adds the bias. Only the piece does whose reduction dims all begin at
// 0, so that the sum over the pieces has the bias once.
bool adds_bias(const KernelCall& call) {
  const Annotation& annotation = call.op->annotation;
  for (size_t d = 0; d < annotation.dims.size(); ++d) {
    if (annotation.reduces(static_cast<int>(d), 0) && call.box.dims[d].begin != 0) return false;
  }
  return true;
}

// Prepares y = a, or y += a with `add`. Dims that only a has have been summed over before.
Kernel single(const Operand& a, const Operand& y, bool add) {
  Array aligned{a.array.data, a.array.dtype, y.array.shape, std::vector<int64_t>(y.dims.size(), 0)};
  for (size_t i = 0; i < y.dims.size(); ++i) {
    const auto at = std::find(a.dims.begin(), a.dims.end(), y.dims[i]);
    if (at != a.dims.end())
      aligned.strides[i] = a.array.strides[static_cast<size_t>(at - a.dims.begin())];
  }
  return [out = tensor_of(y.array), in = tensor_of(aligned), add]() mutable {
    if (add) {
      out.add_(in);
    } else {
      out.copy_(in);
    }
  };
}

Kernel einsum(const KernelCall& call) {
  Compiler compiler{call, {}};
  const std::vector<int> y_dims = op_dims(call.op->annotation.outputs[0]);
  const Operand y{output_along(call, 0, y_dims), y_dims};
  const bool two = call.inputs.size() >= 2;
  Operand a = compiler.open(0);
  Operand b = two ? compiler.open(1) : Operand{};
  const Operand whole_a = a;
  compiler.reduce_own_dims(a, two ? &b : nullptr, y);
  if (two) compiler.reduce_own_dims(b, &whole_a, y);
  bool add = call.add[0];
  std::vector<Kernel> before = std::move(compiler.before);
  if (has_bias(*call.op) && adds_bias(call)) {
    before.push_back(single({input_along(call, 2, y_dims), y_dims}, y, add));
    add = true;
  }
  if (!two) {
    before.push_back(single(a, y, add));
    return [before = std::move(before)] {
      for (const Kernel& kernel : before) kernel();
    };
  }
  std::vector<Product> products = compile_products(a, b, y, classify(call, a, b, y), add);
  if (before.empty() && products.size() == 1) {
    return [product = std::move(products.front())]() mutable { run_product(product); };
  }
  return [before = std::move(before), products = std::move(products)]() mutable {
    for (const Kernel& kernel : before) kernel();
    for (Product& product : products) run_product(product);
  };
}

constexpr KernelInfo kEinsumKernels[] = {{"einsum", einsum, 0b1}};

}  // namespace

std::span<const KernelInfo> einsum_kernels() { return kEinsumKernels; }

}  // namespace tessera::kernels
