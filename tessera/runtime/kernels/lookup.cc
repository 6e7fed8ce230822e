// Kinds that index a dim by ids: embedding, embedding_bag, cross entropy and their gradients. A
// piece has an interval of the vocabulary and ignores ids outside of this interval, because they
// belong to other pieces.
#include <cmath>
#include <limits>

#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/row_loops/rows.h"
#include "tessera/runtime/kernels/row_loops/table_rows.h"

namespace tessera::kernels {
namespace {

int64_t load_id(const std::byte* at, DType dtype) {
  return dtype == DType::kInt32 ? *reinterpret_cast<const int32_t*>(at)
                                : *reinterpret_cast<const int64_t*>(at);
}

// Prepares the kernel with inputs (ids, table) and output y.
Kernel embedding(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Annotation& annotation = call.op->annotation;
    auto order = op_dims(annotation.outputs[0]);
    const Array y = output_along(call, 0, order), ids = input_along(call, 0, order),
                table = call.inputs[1];
    const Interval vocab = rows_named(call, op_dims(annotation.inputs[1])[0]);
    const Nest<2> nest({&y, &ids}, order.size() - 1);
    const Row<A> yr(y), tr(table);
    const int64_t step = table.strides[0] * dtype_bytes(table.dtype), n = yr.size();
    const bool add = call.add[0];
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops, id_type = ids.dtype] {
      nest.each([&](const std::array<std::byte*, 2>& at) {
        const int64_t row = load_id(at[1], id_type) - vocab.begin;
        const bool inside = row >= 0 && row < vocab.size;
        if (add) {
          if (!inside) return;
          const A* old = yr.read(at[0]);
          A* out = yr.write(at[0]);
          if (out != old) std::copy(old, old + n, out);
          ops.add(out, tr.read(table.data + row * step), n);
        } else if (inside) {
          const A* in = tr.read(table.data + row * step);
          std::copy(in, in + n, yr.write(at[0]));
        } else {
          std::fill_n(yr.write(at[0]), n, A{0});
        }
        yr.commit(at[0]);
      });
    };
  });
}

// Prepares the kernel with inputs (ids, dy), attribute vocab and output dtable. Sums in float or
// double; if dtable has another type, sums in scratch memory.
Kernel embedding_grad(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Annotation& annotation = call.op->annotation;
    const auto order = op_dims(annotation.inputs[1]);
    const Array dy = call.inputs[1], ids = input_along(call, 0, order), table = call.outputs[0];
    const Interval vocab = rows_named(call, op_dims(annotation.outputs[0])[0]);
    const Nest<2> nest({&dy, &ids}, order.size() - 1);
    const Row<A> dyr(dy), tr(table);
    const int64_t n = dyr.size(), step = table.strides[0] * dtype_bytes(table.dtype);
    const bool add = call.add[0];
    const bool direct =
        dtype_bytes(table.dtype) == static_cast<int64_t>(sizeof(A)) && table.strides[1] == 1;
    std::byte* sums = table.data;
    int64_t sums_step = step;
    if (!direct) {
      sums_step = n * static_cast<int64_t>(sizeof(A));
      sums = call.context->scratch.take(vocab.size * sums_step);
    }
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops, id_type = ids.dtype] {
      const auto sum_row = [&](int64_t row) {
        return reinterpret_cast<A*>(sums + row * sums_step);
      };
      if (!direct || !add) {
        for (int64_t row = 0; row < vocab.size; ++row) std::fill_n(sum_row(row), n, A{0});
      }
      nest.each([&](const std::array<std::byte*, 2>& at) {
        const int64_t row = load_id(at[1], id_type) - vocab.begin;
        if (row >= 0 && row < vocab.size) ops.add(sum_row(row), dyr.read(at[0]), n);
      });
      if (direct) return;
      for (int64_t row = 0; row < vocab.size; ++row) {
        std::byte* out = table.data + row * step;
        if (add) ops.add(sum_row(row), tr.read(out), n);
        std::copy(sum_row(row), sum_row(row) + n, tr.write(out));
        tr.commit(out);
      }
    };
  });
}

// How the ids and weights of a bag are stored. Its ids are `step` bytes apart; a place with an id
// below 0 is empty. If the call has weights, they are the operand after ids and table, and the
// weights of a bag are `weight_step` bytes apart.
struct Bag {
  int64_t size = 0, step = 0;  // number of places; bytes between ids
  DType dtype = DType::kInt64;
  bool mean = false, weighted = false;
  int64_t weight_step = 0;  // bytes between weights
  DType weight_dtype = DType::kFloat32;

  Bag(const KernelCall& call, const Array& ids)
      : size(ids.shape.back()),
        step(ids.strides.back() * dtype_bytes(ids.dtype)),
        dtype(ids.dtype),
        mean(call.op->text("mode") == "mean"),
        weighted(call.inputs.size() > 2) {
    if (!weighted) return;
    const Array& weights = call.inputs[2];
    weight_step = weights.strides.back() * dtype_bytes(weights.dtype);
    weight_dtype = weights.dtype;
  }

  // Returns the weights with the dims `order`; if the call has no weights, the ids, so that the
  // array exists.
  static Array weights_along(const KernelCall& call, const std::vector<int>& order) {
    return input_along(call, call.inputs.size() > 2 ? 2 : 0, order);
  }
  // Returns whether all rows of a bag are multiplied by the same factor.
  bool has_one_factor() const { return !weighted; }
  bool plain() const { return !mean && !weighted; }
  // Returns the weight of place i of a bag; `factor` if the call has no weights.
  template <class A>
  A weight(const std::byte* weights, int64_t i, A factor) const {
    return weighted ? load_element<A>(weights + i * weight_step, weight_dtype) : factor;
  }

  int64_t id(const std::byte* ids, int64_t i) const { return load_id(ids + i * step, dtype); }
  // Returns the factor of all rows of a bag: 1 / (number of ids) for a mean, else 1.
  template <class A>
  A factor(const std::byte* ids) const {
    if (!mean) return A{1};
    int64_t count = 0;
    for (int64_t i = 0; i < size; ++i) count += id(ids, i) >= 0 ? 1 : 0;
    return A{1} / static_cast<A>(std::max<int64_t>(count, 1));
  }
};

// A bag of embedding_bag: the interval of its rows in the list of all rows, and where its sum
// is written.
template <class A>
struct BagSum {
  std::byte* y;
  int64_t begin, end;
  A factor;
};

template <class A>
Kernel sums_of_bags(const KernelCall& call, const Nest<2>& nest, const Bag& bag, Interval rows,
                    const Array& table, int64_t step, int64_t n) {
  int64_t samples = 1;
  for (size_t d = 0; d + 1 < call.inputs[0].shape.size(); ++d) samples *= call.inputs[0].shape[d];
  const int64_t sum_bytes = samples * int64_t{sizeof(BagSum<A>)};
  std::byte* memory =
      call.context->scratch.take(sum_bytes + samples * bag.size * int64_t{sizeof(int64_t)});
  auto* sums = reinterpret_cast<BagSum<A>*>(memory);
  auto* offsets = reinterpret_cast<int64_t*>(memory + sum_bytes);
  const bool add = call.add[0];
  const RowOps<A>& ops = row_ops<A>();
  return [=, &ops, data = table.data] {
    int64_t places = 0, bags = 0;
    nest.each([&](const std::array<std::byte*, 2>& at) {
      const int64_t begin = places;
      for (int64_t i = 0; i < bag.size; ++i) {
        const int64_t id = bag.id(at[1], i), row = id - rows.begin;
        if (id >= 0 && row >= 0 && row < rows.size) offsets[places++] = row * step;
      }
      sums[bags++] = {at[0], begin, places, bag.factor<A>(at[1])};
    });
    for (const BagSum<A>* one = sums; one != sums + bags; ++one) {
      ops.sum_rows(reinterpret_cast<A*>(one->y), add, data, offsets + one->begin,
                   one->end - one->begin, places - one->begin, one->factor, n);
    }
  };
}

// Prepares the kernel with inputs (ids, table[, weights]), attribute mode and output y, the sums or
// means of bags.
Kernel embedding_bag(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Annotation& annotation = call.op->annotation;
    auto order = op_dims(annotation.outputs[0]);
    const Array y = output_along(call, 0, order), ids = input_along(call, 0, order),
                table = call.inputs[1];
    const Array weights = Bag::weights_along(call, order);
    const Bag bag(call, call.inputs[0]);
    const Interval rows = rows_named(call, op_dims(annotation.inputs[1])[0]);
    const Nest<2> samples({&y, &ids}, order.size() - 1);
    const Nest<3> nest({&y, &ids, &weights}, order.size() - 1);
    const Row<A> yr(y), tr(table);
    const int64_t step = table.strides[0] * dtype_bytes(table.dtype), n = yr.size();
    const bool add = call.add[0];
    const RowOps<A>& ops = row_ops<A>();
    // If rows are contiguous and of type A, they are read directly from the table. The rows of all
    // bags are listed first, so that rows can be prefetched before the bag that adds them.
    constexpr DType kOwnDType = sizeof(A) == 8 ? DType::kFloat64 : DType::kFloat32;
    const bool direct = table.dtype == kOwnDType && table.strides[1] == 1 && y.dtype == kOwnDType &&
                        (y.strides.back() == 1 || n <= 1) && bag.has_one_factor();
    if (direct) return sums_of_bags<A>(call, samples, bag, rows, table, step, n);
    return [=, &ops] {
      nest.each([&](const std::array<std::byte*, 3>& at) {
        A* out = yr.write(at[0]);
        if (add) {
          const A* old = yr.read(at[0]);
          if (out != old) std::copy(old, old + n, out);
        } else {
          std::fill_n(out, n, A{0});
        }
        const A factor = bag.factor<A>(at[1]);
        for (int64_t i = 0; i < bag.size; ++i) {
          const int64_t id = bag.id(at[1], i), row = id - rows.begin;
          if (id < 0 || row < 0 || row >= rows.size) continue;
          const A* in = tr.read(table.data + row * step);
          bag.plain() ? ops.add(out, in, n)
                      : ops.multiply_add(out, in, bag.weight(at[2], i, factor), n);
        }
        yr.commit(at[0]);
      });
    };
  });
}

// Prepares the kernel with inputs (ids, table, dy) and output dweights. Places whose id belongs to
// another piece of the table, and empty places, get 0.
Kernel embedding_bag_weights_grad(const KernelCall& call) {
  return with_compute_type(call.inputs[2].dtype, [&]<class A>() -> Kernel {
    const Annotation& annotation = call.op->annotation;
    const auto order = op_dims(annotation.inputs[2]);
    const Array dy = call.inputs[2], table = call.inputs[1], ids = input_along(call, 0, order),
                made = output_along(call, 0, order);
    const Array &bags = call.inputs[0], &weights = call.outputs[0];
    const Interval rows = rows_named(call, op_dims(annotation.inputs[1])[0]);
    const Nest<3> nest({&dy, &ids, &made}, order.size() - 1);
    const Row<A> dyr(dy), tr(table);
    const int64_t n = dyr.size(), step = table.strides[0] * dtype_bytes(table.dtype),
                  bag = bags.shape.back(), id_step = bags.strides.back() * dtype_bytes(bags.dtype),
                  weight_step = weights.strides.back() * dtype_bytes(weights.dtype);
    const bool add = call.add[0];
    return [=, id_type = ids.dtype, dtype = weights.dtype, data = table.data] {
      nest.each([&](const std::array<std::byte*, 3>& at) {
        const A* gradient = dyr.read(at[0]);
        for (int64_t i = 0; i < bag; ++i) {
          const int64_t id = load_id(at[1] + i * id_step, id_type), row = id - rows.begin;
          std::byte* out = at[2] + i * weight_step;
          A sum = add ? load_element<A>(out, dtype) : A{0};
          if (id >= 0 && row >= 0 && row < rows.size) {
            const A* of = tr.read(data + row * step);
            for (int64_t k = 0; k < n; ++k) sum += of[k] * gradient[k];
          }
          store_element(out, dtype, sum);
        }
      });
    };
  });
}

// Prepares the kernel with inputs (ids, dy[, weights]), attributes (rows, mode) and output dtable.
// Sums in float or double; if dtable has another type, sums in scratch memory. The terms of a row
// are added in the order of samples and of the places in a bag.
Kernel embedding_bag_grad(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Annotation& annotation = call.op->annotation;
    const auto order = op_dims(annotation.inputs[1]);
    const Array dy = call.inputs[1], ids = input_along(call, 0, order), table = call.outputs[0],
                weights = Bag::weights_along(call, order);
    const Bag bag(call, call.inputs[0]);
    const Interval rows = rows_named(call, op_dims(annotation.outputs[0])[0]);
    const Nest<3> nest({&dy, &ids, &weights}, order.size() - 1);
    const Row<A> dyr(dy), tr(table);
    const int64_t n = dyr.size(), step = table.strides[0] * dtype_bytes(table.dtype);
    const bool add = call.add[0];
    const bool direct =
        dtype_bytes(table.dtype) == static_cast<int64_t>(sizeof(A)) && table.strides[1] == 1;
    std::byte* sums = table.data;
    int64_t sums_step = step;
    if (!direct) {
      sums_step = n * static_cast<int64_t>(sizeof(A));
      sums = call.context->scratch.take(rows.size * sums_step);
    }
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      const auto sum_row = [&](int64_t row) {
        return reinterpret_cast<A*>(sums + row * sums_step);
      };
      if (!direct || !add) {
        for (int64_t row = 0; row < rows.size; ++row) std::fill_n(sum_row(row), n, A{0});
      }
      nest.each([&](const std::array<std::byte*, 3>& at) {
        const A factor = bag.factor<A>(at[1]);
        const A* in = dyr.read(at[0]);
        for (int64_t i = 0; i < bag.size; ++i) {
          const int64_t id = bag.id(at[1], i), row = id - rows.begin;
          if (id < 0 || row < 0 || row >= rows.size) continue;
          bag.plain() ? ops.add(sum_row(row), in, n)
                      : ops.multiply_add(sum_row(row), in, bag.weight(at[2], i, factor), n);
        }
      });
      if (direct) return;
      for (int64_t row = 0; row < rows.size; ++row) {
        std::byte* out = table.data + row * step;
        if (add) ops.add(sum_row(row), tr.read(out), n);
        std::copy(sum_row(row), sum_row(row) + n, tr.write(out));
        tr.commit(out);
      }
    };
  });
}

// Prepares the kernel with inputs (logits, targets) and outputs (lse, picked).
Kernel cross_entropy(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const auto order = op_dims(call.op->annotation.inputs[0]);
    const Array logits = call.inputs[0], targets = input_along(call, 1, order),
                lse = output_along(call, 0, order), picked = output_along(call, 1, order);
    const Interval vocab = call.box.dims[static_cast<size_t>(order.back())];
    const Nest<4> nest({&logits, &targets, &lse, &picked}, order.size() - 1);
    const Row<A> row(logits);
    const A ignored = vocab.begin == 0 ? A{0} : -std::numeric_limits<A>::infinity();
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops, id_type = targets.dtype, out = lse.dtype] {
      nest.each([&](const std::array<std::byte*, 4>& at) {
        const int64_t target = load_id(at[1], id_type);
        if (target < 0) {
          store_element(at[2], out, ignored);
          store_element(at[3], out, A{0});
          return;
        }
        const A* x = row.read(at[0]);
        const A highest = ops.max(x, row.size());
        store_element(at[2], out, highest + std::log(ops.sum_exp(x, highest, row.size())));
        const int64_t column = target - vocab.begin;
        store_element(at[3], out, column >= 0 && column < vocab.size ? x[column] : A{0});
      });
    };
  });
}

// Prepares the kernel with inputs (logits, targets, lse, dlse, dpicked) and output dlogits.
Kernel cross_entropy_grad(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const auto order = op_dims(call.op->annotation.inputs[0]);
    const Array logits = call.inputs[0], targets = input_along(call, 1, order),
                lse = input_along(call, 2, order), dlse = input_along(call, 3, order),
                dpicked = input_along(call, 4, order), dlogits = output_along(call, 0, order);
    const Interval vocab = call.box.dims[static_cast<size_t>(order.back())];
    const Nest<6> nest({&dlogits, &logits, &targets, &lse, &dlse, &dpicked}, order.size() - 1);
    const Row<A> in(logits), out(dlogits);
    const RowOps<A>& ops = row_ops<A>();
    const DType id_type = targets.dtype, lse_type = lse.dtype, dlse_type = dlse.dtype,
                dpicked_type = dpicked.dtype;
    return [=, &ops] {
      nest.each([&](const std::array<std::byte*, 6>& at) {
        A* dx = out.write(at[0]);
        const int64_t target = load_id(at[2], id_type), column = target - vocab.begin;
        if (target < 0) {
          std::fill_n(dx, out.size(), A{0});
        } else {
          ops.exp_shifted(dx, in.read(at[1]), load_element<A>(at[3], lse_type),
                          load_element<A>(at[4], dlse_type), out.size());
          if (column >= 0 && column < vocab.size)
            dx[column] += load_element<A>(at[5], dpicked_type);
        }
        out.commit(at[0]);
      });
    };
  });
}

constexpr KernelInfo kLookupKernels[] = {
    {"embedding", embedding, 0b1},
    {"embedding_grad", embedding_grad, 0b1},
    {"embedding_bag", embedding_bag, 0b1},
    {"embedding_bag_weights_grad", embedding_bag_weights_grad, 0b1},
    {"embedding_bag_grad", embedding_bag_grad, 0b1},
    {"cross_entropy", cross_entropy},
    {"cross_entropy_grad", cross_entropy_grad},
};

}  // namespace

std::span<const KernelInfo> lookup_kernels() { return kLookupKernels; }

}  // namespace tessera::kernels
