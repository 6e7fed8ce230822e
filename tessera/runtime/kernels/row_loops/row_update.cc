// Updates the rows of a table that look-ups named (graph/kinds/row_update.cc). The places of all
// bags are sorted by row, with a stable sort. Then the gradient of each row is summed over the
// row's places, and the row takes one optimizer step. Time and extra memory grow with the number of
// ids, not with the number of rows.
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>

#include "tessera/base/philox.h"
#include "tessera/graph/rows.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/row_loops/rows.h"
#include "tessera/runtime/kernels/row_loops/table_rows.h"

namespace tessera::kernels {
namespace {

// A place of a bag whose id names a row of this piece of the table: the row, counted from the
// piece's first row, and the number of the bag's sample.
struct Place {
  uint32_t row = 0, sample = 0;
};

// Sorts places by row and keeps the order of places with equal rows. This is a radix sort by eleven
// bits at a time, the lowest bits first. `other` is memory for as many places. Returns the array
// with the result, which is `places` or `other`.
Place* sort_by_row(Place* places, Place* other, size_t count, int64_t rows) {
  constexpr int kBits = 11;
  constexpr size_t kBuckets = size_t{1} << kBits;
  std::vector<size_t> begin(kBuckets);
  for (int shift = 0; shift < 32 && (rows - 1) >> shift > 0; shift += kBits) {
    std::fill(begin.begin(), begin.end(), size_t{0});
    const auto bucket = [shift](const Place& place) {
      return (place.row >> shift) & (kBuckets - 1);
    };
    for (size_t i = 0; i < count; ++i) ++begin[bucket(places[i])];
    size_t total = 0;
    for (size_t& one : begin) total += std::exchange(one, total);
    for (size_t i = 0; i < count; ++i) other[begin[bucket(places[i])]++] = places[i];
    std::swap(places, other);
  }
  return places;
}

// Computes the gradients of the rows of a piece of a table. The call's operands from number `first`
// on are the ids, dy and perhaps weights of each look-up. A place with a weight counts as a sample
// of its own. The object keeps pointers to the call's arrays, which must outlive it.
template <class A>
class RowGradients {
 public:
  // Reads the call. With `numbered`, each() also passes the number of the first id that names
  // the row.
  RowGradients(const KernelCall& call, size_t first, bool numbered = false)
      : numbered_(numbered),
        rows_(rows_named(call, op_dims(call.op->annotation.inputs[0])[0])),
        width_(call.inputs[0].shape[1]) {
    std::istringstream modes(call.op->text("modes"));
    int64_t places = 0, samples = 0;
    size_t operand = first;
    for (std::string mode; modes >> mode; operand += operands_of_look_up(mode)) {
      const Array &ids = call.inputs[operand], &dy = call.inputs[operand + 1];
      const bool weighted = operands_of_look_up(mode) > 2;
      const Array& weights = weighted ? call.inputs[operand + 2] : ids;
      const size_t lead = dy.shape.size() - 1;
      const bool bags = ids.shape.size() > lead;
      LookUp one{Nest<3>({&dy, &ids, &weights}, lead), Row<A>(dy), ids.dtype, weights.dtype};
      one.mean = mode == "mean";
      one.weighted = weighted;
      if (bags) {
        one.weight_step = weights.strides.back() * dtype_bytes(weights.dtype);
        one.bag = ids.shape.back();
        one.step = ids.strides.back() * dtype_bytes(ids.dtype);
      }
      int64_t of_this = 1;
      for (size_t d = 0; d < lead; ++d) of_this *= dy.shape[d];
      samples += weighted || numbered ? of_this * one.bag : of_this;
      places += of_this * one.bag;
      look_ups_.push_back(std::move(one));
    }
    constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
    TESSERA_CHECK(rows_.size <= kMost && samples <= kMost, "{}: {} rows, {} samples", call.op->path,
                  rows_.size, samples);
    const int64_t sample_bytes = samples * int64_t{sizeof(Sample)},
                  place_bytes = places * int64_t{sizeof(Place)};
    std::byte* memory =
        call.context->scratch.take(sample_bytes + 2 * place_bytes + width_ * int64_t{sizeof(A)});
    samples_ = reinterpret_cast<Sample*>(memory);
    places_ = reinterpret_cast<Place*>(memory + sample_bytes);
    sorted_ = places_ + places;
    sum_ = reinterpret_cast<A*>(memory + sample_bytes + 2 * place_bytes);
  }

  // Calls f(row, gradient, number) for each row that an id names, in ascending order. If `numbered`
  // was set, `number` is that of the first id that names the row, counted over all look-ups. Calls
  // soon(row) some rows earlier, which can prefetch the memory that f needs.
  template <class F, class Soon>
  void each(F&& f, Soon&& soon) const {
    const size_t count = collect();
    const Place* places = sort_by_row(places_, sorted_, count, rows_.size);
    const RowOps<A>& ops = row_ops<A>();
    constexpr size_t kAhead = 8;
    for (size_t i = 0; i < count;) {
      const uint32_t row = places[i].row;
      if (i + kAhead < count) soon(places[i + kAhead].row);
      size_t end = i + 1;
      while (end < count && places[end].row == row) ++end;
      const Sample& first = samples_[places[i].sample];
      if (end == i + 1 && first.factor == A{1}) {
        f(row, first.look_up->dy.read(first.dy), places[i].sample);
      } else {
        std::fill_n(sum_, width_, A{0});
        for (size_t k = i; k < end; ++k) {
          const Sample& one = samples_[places[k].sample];
          const A* dy = one.look_up->dy.read(one.dy);
          one.factor == A{1} ? ops.add(sum_, dy, width_)
                             : ops.multiply_add(sum_, dy, one.factor, width_);
        }
        f(row, sum_, places[i].sample);
      }
      i = end;
    }
  }

  int64_t width() const { return width_; }

 private:
  struct LookUp {
    Nest<3> samples;  // dy, ids, weights (the ids, if there are no weights)
    Row<A> dy;
    DType id_type, weight_type;
    int64_t bag = 1, step = 0;  // number of ids of a bag; bytes between ids
    int64_t weight_step = 0;    // bytes between the weights of a bag
    bool mean = false, weighted = false;
  };
  struct Sample {
    const LookUp* look_up;
    const std::byte* dy;
    A factor;
  };

  static int64_t id_at(const std::byte* at, DType dtype) {
    return dtype == DType::kInt32 ? *reinterpret_cast<const int32_t*>(at)
                                  : *reinterpret_cast<const int64_t*>(at);
  }

  // Lists all samples, and the places whose ids name rows of the piece. Returns the number of
  // these places.
  size_t collect() const {
    size_t places = 0;
    uint32_t sample = 0;
    for (const LookUp& one : look_ups_) {
      one.samples.each([&](const std::array<std::byte*, 3>& at) {
        int64_t there = 0;
        if (one.weighted || numbered_) {  // each place counts as a sample
          const uint32_t first = sample;
          for (int64_t i = 0; i < one.bag; ++i) {
            const int64_t id = id_at(at[1] + i * one.step, one.id_type), row = id - rows_.begin;
            there += id >= 0 ? 1 : 0;
            if (id >= 0 && row >= 0 && row < rows_.size)
              places_[places++] = {static_cast<uint32_t>(row), sample};
            const A weight =
                one.weighted ? load_element<A>(at[2] + i * one.weight_step, one.weight_type) : A{1};
            samples_[sample++] = {&one, at[0], weight};
          }
          if (!one.mean) return;
          const A factor = A{1} / static_cast<A>(std::max<int64_t>(there, 1));
          for (uint32_t s = first; s < sample; ++s) samples_[s].factor = factor;
          return;
        }
        for (int64_t i = 0; i < one.bag; ++i) {
          const int64_t id = id_at(at[1] + i * one.step, one.id_type), row = id - rows_.begin;
          there += id >= 0 ? 1 : 0;
          if (id >= 0 && row >= 0 && row < rows_.size)
            places_[places++] = {static_cast<uint32_t>(row), sample};
        }
        const A factor = one.mean ? A{1} / static_cast<A>(std::max<int64_t>(there, 1)) : A{1};
        samples_[sample++] = {&one, at[0], factor};
      });
    }
    return places;
  }

  bool numbered_ = false;
  Interval rows_;
  int64_t width_ = 0;
  std::vector<LookUp> look_ups_;
  Place *places_ = nullptr, *sorted_ = nullptr;
  Sample* samples_ = nullptr;
  A* sum_ = nullptr;
};

// The rows of the table, or of a state that has the table's dims.
template <class A>
struct Rows {
  explicit Rows(const Array& array)
      : row(array), data(array.data), step(array.strides[0] * dtype_bytes(array.dtype)) {}
  std::byte* at(uint32_t index) const { return data + static_cast<int64_t>(index) * step; }
  // Prefetches the first cache lines of the row.
  void fetch(uint32_t index) const {
    const std::byte* begin = at(index);
    constexpr int64_t kLine = 64, kLines = 4;
    for (int64_t line = 0; line < kLines; ++line) __builtin_prefetch(begin + line * kLine, 1);
  }
  Row<A> row;
  std::byte* data;
  int64_t step;
};

// Gives the random bits for the stochastic rounding of a row of the table. The bits of an element
// depend on the element's index in the whole table, the step and the seed.
template <class A>
class Rounding {
 public:
  explicit Rounding(const KernelCall& call) {
    const DType dtype = call.outputs[0].dtype;
    if (call.op->text("rounding") != "stochastic" || dtype_bytes(dtype) != 2) return;
    const Annotation& annotation = call.op->annotation;
    const auto dims = op_dims(annotation.inputs[0]);
    const Interval& columns = call.box.dims[static_cast<size_t>(dims[1])];
    first_row_ = rows_named(call, dims[0]).begin;
    first_column_ = columns.begin;
    size_ = columns.size;
    width_ = annotation.dims[static_cast<size_t>(dims[1])].size;
    row_at_ = call.row_at;
    context_ = call.context;
    const std::string given = call.op->text("stream"),
                      &stream = given.empty() ? call.op->path : given;
    path_ = stable_hash(stream.data(), stream.size());
    constexpr int64_t kAround = 8;  // room for the unused words of the first and last block
    words_ = std::make_shared<std::vector<uint32_t>>(static_cast<size_t>(size_ + kAround));
  }
  // Returns the bits for a row of the piece; null if elements are rounded to nearest.
  const uint32_t* of_row(uint32_t row) const {
    if (context_ == nullptr) return nullptr;
    constexpr int64_t kBlock = 4;
    const int64_t whole = row_at_ ? row_at_(row) : first_row_ + row,
                  first = whole * width_ + first_column_, block = first / kBlock,
                  end = (first + size_ + kBlock - 1) / kBlock;
    const int64_t step = context_->step;
    const uint64_t stream = stable_hash(reinterpret_cast<const char*>(&step), sizeof step, path_);
    philox_words(words_->data(), context_->seed, stream, static_cast<uint64_t>(block), end - block);
    return words_->data() + (first - kBlock * block);
  }

 private:
  int64_t first_row_ = 0, first_column_ = 0, size_ = 0, width_ = 0;
  std::function<int64_t(int64_t)> row_at_;
  const KernelContext* context_ = nullptr;  // null: rounds to nearest
  uint64_t path_ = 0;
  std::shared_ptr<std::vector<uint32_t>> words_;
};

// Returns a function that reads the scalar input i; it returns `otherwise` if the call lacks
// this input.
std::function<double()> scalar_of(const KernelCall& call, size_t i, double otherwise) {
  const Array from = i < call.inputs.size() ? call.inputs[i] : Array{};
  return [from, otherwise] {
    return from.data == nullptr ? otherwise : load_element<double>(from.data, from.dtype);
  };
}

// Prepares a step of an optimizer on rows, with inputs (p, states, ids, dy and weights of each
// look-up, lr[, step][, coefficient[, skip]]) and outputs (p', states'). prepare(scale, rate, step)
// returns f(row index, gradient), which changes a row of the outputs in place. If an output is not
// the memory of its input, the input is first copied to it.
template <class A, class Prepare, class Soon>
Kernel update_of_rows(const KernelCall& call, size_t scalars, Prepare prepare, Soon soon) {
  const size_t tables = tables_of_rows(*call.op);
  auto gradients = std::make_shared<RowGradients<A>>(call, tables);
  std::vector<Kernel> copies;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (call.outputs[i].data != call.inputs[i].data)
      copies.push_back(prepare_copy(call.inputs[i], call.outputs[i]));
  }
  std::istringstream modes(call.op->text("modes"));
  size_t at = tables;
  for (std::string mode; modes >> mode;) at += operands_of_look_up(mode);
  const auto lr = scalar_of(call, at, 0),
             step = scalar_of(call, scalars > 1 ? at + 1 : SIZE_MAX, 0),
             coefficient = scalar_of(call, at + scalars, 1),
             skip = scalar_of(call, at + scalars + 1, 0);
  return [=, copies = std::move(copies)] {
    for (const Kernel& copy : copies) copy();
    if (skip() != 0) return;
    gradients->each(prepare(coefficient(), lr(), step()), soon);
  };
}

Kernel row_sgd(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Rows<A> p(call.outputs[0]);
    const Rounding<A> rounding(call);
    const int64_t n = p.row.size();
    const RowOps<A>& ops = row_ops<A>();
    return update_of_rows<A>(
        call, 1,
        [=, &ops](double scale, double rate, double) {
          return [=, &ops, by = static_cast<A>(-rate * scale)](uint32_t row, const A* g, uint32_t) {
            std::byte* at = p.at(row);
            const A* old = p.row.read(at);
            A* made = p.row.write(at);
            if (made != old) std::copy(old, old + n, made);
            ops.multiply_add(made, g, by, n);
            p.row.commit(at, rounding.of_row(row));
          };
        },
        [=](uint32_t row) { p.fetch(row); });
  });
}

Kernel row_adagrad(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Rows<A> p(call.outputs[0]), sum(call.outputs[1]);
    const Rounding<A> rounding(call);
    const RowOps<A>& ops = row_ops<A>();
    const A eps = static_cast<A>(call.op->number("eps"));
    return update_of_rows<A>(
        call, 1,
        [=, &ops](double scale, double rate, double) {
          return [=, &ops, factor = static_cast<A>(scale), lr = static_cast<A>(rate)](
                     uint32_t row, const A* g, uint32_t) {
            std::byte *at = p.at(row), *sum_at = sum.at(row);
            ops.adagrad(p.row.write(at), sum.row.write(sum_at), p.row.read(at), g,
                        sum.row.read(sum_at), factor, lr, eps, p.row.size());
            p.row.commit(at, rounding.of_row(row));
            sum.row.commit(sum_at);
          };
        },
        [=](uint32_t row) {
          p.fetch(row);
          sum.fetch(row);
        });
  });
}

// Prepares p -= rate * scale * g / (sqrt(total) + eps); total_of(sum_at, factor, g, n) returns the
// total of a row.
template <class A, class TotalOf>
Kernel rowwise(const KernelCall& call, const Array& sums, const TotalOf& total_of) {
  const Rows<A> p(call.outputs[0]);
  const Rounding<A> rounding(call);
  const int64_t n = p.row.size(), sum_step = sums.strides[0] * dtype_bytes(sums.dtype);
  const RowOps<A>& ops = row_ops<A>();
  const A eps = static_cast<A>(call.op->number("eps"));
  return update_of_rows<A>(
      call, 1,
      [=, &ops](double scale, double rate, double) {
        return [=, &ops](uint32_t row, const A* g, uint32_t) {
          std::byte* at = p.at(row);
          const A factor = static_cast<A>(scale);
          const A total = total_of(sums.data + row * sum_step, factor, g, n);
          const A* old = p.row.read(at);
          A* made = p.row.write(at);
          if (made != old) std::copy(old, old + n, made);
          ops.multiply_add(made, g, -static_cast<A>(rate) * factor / (std::sqrt(total) + eps), n);
          p.row.commit(at, rounding.of_row(row));
        };
      },
      [=](uint32_t row) {
        p.fetch(row);
        __builtin_prefetch(sums.data + row * sum_step, 1);
      });
}

// Prepares a step of row-wise Adagrad: the sum of a row grows by the mean of the row's
// squared gradients.
Kernel rowwise_adagrad(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const RowOps<A>& ops = row_ops<A>();
    const DType dtype = call.outputs[1].dtype;
    return rowwise<A>(call, call.outputs[1],
                      [dtype, &ops](std::byte* sum_at, A factor, const A* g, int64_t n) {
                        const A total = load_element<A>(sum_at, dtype) +
                                        factor * factor * ops.sum_squares(g, n) / static_cast<A>(n);
                        store_element(sum_at, dtype, total);
                        return total;
                      });
  });
}

// Prepares a step of Adam on the rows that were looked up. Only the moments of these rows decay,
// but the bias correction counts all steps.
Kernel row_adam(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Rows<A> p(call.outputs[0]), m(call.outputs[1]), v(call.outputs[2]);
    const Rounding<A> rounding(call);
    const RowOps<A>& ops = row_ops<A>();
    const double beta1 = call.op->number("beta1"), beta2 = call.op->number("beta2"),
                 eps = call.op->number("eps");
    return update_of_rows<A>(
        call, 2,
        [=, &ops](double scale, double rate, double step) {
          const AdamW<A> constants{static_cast<A>(scale),
                                   static_cast<A>(beta1),
                                   static_cast<A>(beta2),
                                   static_cast<A>(1 - beta1),
                                   static_cast<A>(1 - beta2),
                                   A{1},
                                   static_cast<A>(rate / (1 - std::pow(beta1, step))),
                                   static_cast<A>(1 / std::sqrt(1 - std::pow(beta2, step))),
                                   static_cast<A>(eps)};
          return [=, &ops](uint32_t row, const A* g, uint32_t) {
            std::byte *p_at = p.at(row), *m_at = m.at(row), *v_at = v.at(row);
            ops.adamw(p.row.write(p_at), m.row.write(m_at), v.row.write(v_at), p.row.read(p_at), g,
                      m.row.read(m_at), v.row.read(v_at), constants, p.row.size());
            p.row.commit(p_at, rounding.of_row(row));
            m.row.commit(m_at);
            v.row.commit(v_at);
          };
        },
        [=](uint32_t row) {
          p.fetch(row);
          m.fetch(row);
          v.fetch(row);
        });
  });
}

// Prepares the kernel with inputs (p, ids, dy and weights of each look-up) and output s. The
// squares of a row are summed in the compute type, the sums of the rows in double.
Kernel row_sum_squares(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    auto gradients = std::make_shared<RowGradients<A>>(call, 1);
    const Array out = call.outputs[0];
    const bool add = call.add[0];
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      double total = add ? load_element<double>(out.data, out.dtype) : 0.0;
      gradients->each(
          [&](uint32_t, const A* g, uint32_t) {
            total += static_cast<double>(ops.sum_squares(g, gradients->width()));
          },
          [](uint32_t) {});
      store_element(out.data, out.dtype, total);
    };
  });
}

// Prepares the kernel with inputs (p, ids, dy and weights of each look-up) and output squares.
Kernel row_squares(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    auto gradients = std::make_shared<RowGradients<A>>(call, 1, /*numbered=*/true);
    const Array out = call.outputs[0];
    const bool add = call.add[0];
    const RowOps<A>& ops = row_ops<A>();
    const int64_t step = out.strides[0] * dtype_bytes(out.dtype);
    return [=, &ops] {
      for (int64_t i = 0; !add && i < out.shape[0]; ++i)
        store_element(out.data + i * step, out.dtype, A{0});
      gradients->each(
          [&](uint32_t, const A* g, uint32_t first) {
            std::byte* at = out.data + int64_t{first} * step;
            const A before = load_element<A>(at, out.dtype);
            store_element(at, out.dtype, before + ops.sum_squares(g, gradients->width()));
          },
          [](uint32_t) {});
    };
  });
}

// Prepares the kernel with inputs (sum, ids of each look-up, squares[, coefficient[, skip]]),
// attribute width and output sum'.
Kernel row_sums(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const Interval rows = rows_named(call, op_dims(call.op->annotation.inputs[0])[0]);
    const Array sums = call.outputs[0];
    const size_t behind = 1 + ids_of_rows(*call.op).size();
    const Array squares = call.inputs[behind];
    const auto coefficient = scalar_of(call, behind + 1, 1), skip = scalar_of(call, behind + 2, 0);
    std::vector<std::pair<Nest<1>, DType>> look_ups;
    for (size_t k = 1; k < behind; ++k) {
      const Array& ids = call.inputs[k];
      look_ups.emplace_back(Nest<1>({&ids}, ids.shape.size()), ids.dtype);
    }
    Kernel copy;
    if (sums.data != call.inputs[0].data) copy = prepare_copy(call.inputs[0], sums);
    const auto width = static_cast<A>(call.op->integer("width"));
    const int64_t step = sums.strides[0] * dtype_bytes(sums.dtype),
                  square_step = squares.strides[0] * dtype_bytes(squares.dtype);
    return [=] {
      if (copy) copy();
      if (skip() != 0) return;
      const A factor = static_cast<A>(coefficient());
      const std::byte* square_at = squares.data;
      for (const auto& [ids, type] : look_ups) {
        ids.each([&, dtype = type](const std::array<std::byte*, 1>& at) {
          const int64_t id = dtype == DType::kInt32 ? *reinterpret_cast<const int32_t*>(at[0])
                                                    : *reinterpret_cast<const int64_t*>(at[0]);
          const A square = load_element<A>(square_at, squares.dtype);
          square_at += square_step;
          const int64_t row = id - rows.begin;
          if (square == A{0} || id < 0 || row < 0 || row >= rows.size) return;
          std::byte* sum_at = sums.data + row * step;
          store_element(sum_at, sums.dtype,
                        load_element<A>(sum_at, sums.dtype) + factor * factor * square / width);
        });
      }
    };
  });
}

// Prepares the kernel with inputs (p, sum', look-ups, lr[, coefficient[, skip]]) and output p'.
Kernel rowwise_step(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const DType dtype = call.inputs[1].dtype;
    return rowwise<A>(call, call.inputs[1], [dtype](const std::byte* sum_at, A, const A*, int64_t) {
      return load_element<A>(sum_at, dtype);
    });
  });
}

constexpr KernelInfo kRowUpdateKernels[] = {
    {"row_sgd", row_sgd},
    {"row_adagrad", row_adagrad},
    {"rowwise_adagrad", rowwise_adagrad},
    {"row_adam", row_adam},
    {"row_sum_squares", row_sum_squares, 0b1},
    {"row_squares", row_squares, 0b1},
    {"row_sums", row_sums},
    {"rowwise_step", rowwise_step},
};

}  // namespace

std::span<const KernelInfo> row_update_kernels() { return kRowUpdateKernels; }

}  // namespace tessera::kernels
