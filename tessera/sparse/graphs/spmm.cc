#include "tessera/sparse/graphs/spmm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

#include "tessera/base/check.h"
#include "tessera/base/one_line.h"
#include "tessera/sparse/graphs/spmm_rows.h"

namespace tessera::sparse {
namespace {

constexpr std::array<std::string_view, 2> kReduceNames = {"sum", "mean"};
constexpr std::array<std::string_view, 3> kInstructionNames = {"plain", "avx2", "avx512"};

// The most rows and slots in one call of the loops, so that the chosen edges stay in the
// first-level cache.
constexpr int64_t kBlockRows = 256;
constexpr int64_t kBlockSlots = 2048;
// The largest operand that is not prefetched, because it stays in the second-level cache.
constexpr int64_t kCachedBytes = 1 << 20;
// The least work for which a thread is started, in elements. Starting a thread takes some ten
// microseconds, or longer if all cores are busy.
constexpr int64_t kThreadWork = 1 << 20;

const LoopTable& loops_of(Instructions instructions) {
  switch (instructions) {
    case Instructions::kPlain: return plain_loops();
    case Instructions::kAvx2: return *avx2_loops();
    case Instructions::kAvx512: return *avx512_loops();
  }
  return plain_loops();
}
template <class T>
const RowLoops<T>& row_loops(Instructions instructions) {
  TESSERA_CHECK(supported(instructions), "instructions {}", instructions_name(instructions));
  if constexpr (std::is_same_v<T, float>) {
    return loops_of(instructions).f32;
  } else {
    return loops_of(instructions).f64;
  }
}

// Calls f(i) once for each i in [0, count), on up to `threads` threads. A thread that is done takes
// the next i.
template <class F>
void on_threads(int threads, int64_t count, const F& f) {
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    for (int64_t i = next++; i < count; i = next++) f(i);
  };
  std::vector<std::jthread> others;
  for (int64_t i = 1; i < std::min<int64_t>(threads, count); ++i) others.emplace_back(work);
  work();
}

int useful_threads(int threads, int64_t elements) {
  return static_cast<int>(std::clamp<int64_t>(elements / kThreadWork, 1, std::max(threads, 1)));
}

template <class T>
class Product {
 public:
  Product(const CsrView<T>& graph, const SpmmOptions& options) : graph_(graph), options_(options) {}

  int64_t slots() const { return slots_; }

  // Checks the options and the matrix and counts its slots. `operand` is the matrix whose rows the
  // columns name; the loops read or write it.
  Status prepare(const Matrix<const T>& operand) {
    TESSERA_TRY_VOID(check(options_.sampling));
    const int64_t most = std::numeric_limits<int32_t>::max();
    const int64_t width = sampled() ? options_.sampling.width : most;
    const auto good = [&](int64_t row) {  // without branches, as it runs for every row
      const int64_t n = degree(row);
      return (n >= 0) & (n <= most) & (graph_.begin[row] >= 0) & (graph_.end[row] <= graph_.edges);
    };
    bool all_good = true;
    for (int64_t row = 0; row < graph_.rows; ++row) {
      all_good &= good(row);
      slots_ += std::min(degree(row), width);
    }
    for (int64_t row = 0; row < graph_.rows && !all_good; ++row) {
      if (!good(row)) {
        return invalid_input(
            fmt::format("expected edges of row {} inside the {} edges, found {} to {}", row,
                        graph_.edges, graph_.begin[row], graph_.end[row]));
      }
    }
    ahead_ = operand.rows * operand.stride * static_cast<int64_t>(sizeof(T)) > kCachedBytes;
    return {};
  }

  // Divides the rows into `parts` ranges with about equally many slots and rows, and returns their
  // borders.
  std::vector<int64_t> row_borders(int64_t parts) const {
    if (parts == 1) return {0, graph_.rows};
    const int64_t all = slots_ + graph_.rows;
    std::vector<int64_t> borders = {0};
    int64_t done = 0;
    for (int64_t row = 0; row < graph_.rows; ++row) {
      const int64_t part = static_cast<int64_t>(borders.size());
      if (part < parts && done * parts >= all * part) borders.push_back(row);
      done += count(row) + 1;
    }
    borders.push_back(graph_.rows);
    return borders;
  }

  // Calls f(first row, block) for each block of the rows [first, last).
  template <class F>
  void for_each_block(int64_t first, int64_t last, bool with_edges, const F& f) const {
    std::vector<T> scale(static_cast<size_t>(std::min(kBlockRows, last - first)));
    std::vector<int64_t> offsets(scale.size() + 1);
    Slots chosen;
    int64_t next = first;
    for (int64_t row = first; row < last; row = next) {
      RowBlock<T> block;
      int64_t taken = 0;
      for (next = row; next < last && next - row < kBlockRows; ++next) {
        const int64_t more = count(next);
        if (next > row && sampled() && taken + more > kBlockSlots) break;
        taken += more;
      }
      block.rows = next - row;
      if (sampled()) {
        choose(row, next, taken, with_edges, offsets, chosen);
        block.slots = ahead_ ? taken : 0;
        block.begin = offsets.data();
        block.end = offsets.data() + 1;
        block.columns = chosen.columns.data();
        if (graph_.values != nullptr) block.values = chosen.values.data();
        if (with_edges) block.edges = chosen.edges.data();
      } else {
        block.slots = ahead_ ? graph_.edges : 0;
        block.begin = graph_.begin + row;
        block.end = graph_.end + row;
        block.columns = graph_.columns;
        block.values = graph_.values;
      }
      if (options_.reduce == Reduce::kMean || (options_.rescale && sampled())) {
        for (int64_t r = row; r < next; ++r) scale[static_cast<size_t>(r - row)] = factor(r);
        block.scale = scale.data();
      }
      f(row, block);
    }
  }

 private:
  struct Slots {
    std::vector<int32_t> positions, columns;
    std::vector<T> values;
    std::vector<int64_t> edges;
  };

  bool sampled() const { return options_.sampling.sampler != Sampler::kNone; }
  int64_t degree(int64_t row) const { return graph_.end[row] - graph_.begin[row]; }
  int64_t count(int64_t row) const { return sampled_count(options_.sampling, degree(row)); }

  T factor(int64_t row) const {
    const int64_t used = count(row);
    if (options_.reduce == Reduce::kSum) {
      return used == 0
                 ? T(1)
                 : static_cast<T>(static_cast<double>(degree(row)) / static_cast<double>(used));
    }
    const double among = static_cast<double>(used) + options_.norm_bias;
    return among == 0 ? T(0) : static_cast<T>(1 / among);
  }

  void choose(int64_t first, int64_t last, int64_t slots, bool with_edges,
              std::vector<int64_t>& offsets, Slots& chosen) const {
    const size_t size = static_cast<size_t>(slots);
    if (chosen.columns.size() < size) {
      chosen.positions.resize(size);
      chosen.columns.resize(size);
      if (graph_.values != nullptr) chosen.values.resize(size);
      if (with_edges) chosen.edges.resize(size);
    }
    int64_t at = 0;
    for (int64_t row = first; row < last; ++row) {
      offsets[static_cast<size_t>(row - first)] = at;
      const int64_t n = count(row);
      const int64_t begin = graph_.begin[row];
      int32_t* positions = chosen.positions.data() + at;
      sampled_positions(options_.sampling, graph_.first_row + row, degree(row), positions);
      const int32_t* columns = graph_.columns + begin;
      for (int64_t k = 0; k < n; ++k)
        chosen.columns[static_cast<size_t>(at + k)] = columns[positions[k]];
      if (graph_.values != nullptr) {
        const T* values = graph_.values + begin;
        for (int64_t k = 0; k < n; ++k)
          chosen.values[static_cast<size_t>(at + k)] = values[positions[k]];
      }
      if (with_edges) {
        for (int64_t k = 0; k < n; ++k)
          chosen.edges[static_cast<size_t>(at + k)] = begin + positions[k];
      }
      at += n;
    }
    offsets[static_cast<size_t>(last - first)] = at;
  }

  const CsrView<T>& graph_;
  const SpmmOptions& options_;
  int64_t slots_ = 0;
  bool ahead_ = false;
};

template <class T>
Status check_sizes(std::string_view name, const Matrix<T>& matrix, int64_t rows, int64_t columns) {
  if (matrix.rows != rows || matrix.columns != columns) {
    return invalid_input(fmt::format("expected {} of {} x {}, found {} x {}", name, rows, columns,
                                     matrix.rows, matrix.columns));
  }
  if (matrix.rows > 1 && matrix.stride < matrix.columns) {
    return invalid_input(fmt::format("expected rows of {} at least {} apart, found {}", name,
                                     matrix.columns, matrix.stride));
  }
  return {};
}

}  // namespace

Result<Reduce> parse_reduce(std::string_view name) {
  for (size_t i = 0; i < kReduceNames.size(); ++i) {
    if (kReduceNames[i] == name) return static_cast<Reduce>(i);
  }
  return invalid_input(fmt::format("expected sum or mean, found '{}'", short_line(name, 60)));
}

std::string_view instructions_name(Instructions instructions) {
  return kInstructionNames[static_cast<size_t>(instructions)];
}

bool supported(Instructions instructions) {
  switch (instructions) {
    case Instructions::kPlain: return true;
#if defined(__x86_64__)
    case Instructions::kAvx2: return avx2_loops() != nullptr && __builtin_cpu_supports("avx2") != 0;
    case Instructions::kAvx512:
      return avx512_loops() != nullptr && __builtin_cpu_supports("avx512f") != 0;
#else
    case Instructions::kAvx2:
    case Instructions::kAvx512: return false;
#endif
  }
  return false;
}

Instructions best_instructions() {
  for (const Instructions instructions : {Instructions::kAvx512, Instructions::kAvx2}) {
    if (supported(instructions)) return instructions;
  }
  return Instructions::kPlain;
}

template <class T>
CsrView<T> view_of(const CsrGraph& graph, const std::vector<T>& values) {
  TESSERA_CHECK(values.empty() || values.size() == graph.columns.size(), "{} values of {} edges",
                values.size(), graph.edges());
  return {graph.rows(),
          graph.column_count,
          graph.edges(),
          graph.offsets.data(),
          graph.offsets.data() + 1,
          graph.columns.data(),
          values.empty() ? nullptr : values.data()};
}
CsrView<float> view_of(const CsrGraph& graph) { return view_of<float>(graph, graph.values); }

template <class T>
Status check_operands(const CsrView<T>& graph, const SpmmOptions& options, const Matrix<const T>& x,
                      const Matrix<T>& y) {
  Product<T> product(graph, options);
  TESSERA_TRY_VOID(product.prepare(x));
  TESSERA_TRY_VOID(check_sizes("x", x, graph.column_count, x.columns));
  return check_sizes("y", y, graph.rows, x.columns);
}

template <class T>
Status spmm(const CsrView<T>& graph, const SpmmOptions& options, const Matrix<const T>& x,
            const Matrix<T>& y, int threads, Instructions instructions) {
  Product<T> product(graph, options);
  TESSERA_TRY_VOID(product.prepare(x));
  TESSERA_TRY_VOID(check_sizes("x", x, graph.column_count, x.columns));
  TESSERA_TRY_VOID(check_sizes("y", y, graph.rows, x.columns));
  const RowLoops<T>& loops = row_loops<T>(instructions);
  const int used = useful_threads(threads, (product.slots() + graph.rows) * x.columns);
  const std::vector<int64_t> borders = product.row_borders(used == 1 ? 1 : 8 * used);
  on_threads(used, static_cast<int64_t>(borders.size()) - 1, [&](int64_t part) {
    const size_t i = static_cast<size_t>(part);
    product.for_each_block(
        borders[i], borders[i + 1], false, [&](int64_t row, const RowBlock<T>& block) {
          loops.gather(block, x.data, x.stride, y.data + row * y.stride, y.stride, x.columns);
        });
  });
  return {};
}

template <class T>
Status spmm_grad_x(const CsrView<T>& graph, const SpmmOptions& options, const Matrix<const T>& dy,
                   const Matrix<T>& dx, int threads, Instructions instructions) {
  Product<T> product(graph, options);
  TESSERA_TRY_VOID(product.prepare({dx.data, dx.rows, dx.columns, dx.stride}));
  TESSERA_TRY_VOID(check_sizes("dy", dy, graph.rows, dx.columns));
  TESSERA_TRY_VOID(check_sizes("dx", dx, graph.column_count, dx.columns));
  const RowLoops<T>& loops = row_loops<T>(instructions);
  // A part is a range of features that consists of whole cache lines, so that no two threads write
  // to the same line.
  const int64_t line = 64 / static_cast<int64_t>(sizeof(T));
  const int64_t lines = (dx.columns + line - 1) / line;
  const int64_t parts = std::min<int64_t>(
      useful_threads(threads, (product.slots() + graph.column_count) * dx.columns), lines);
  on_threads(static_cast<int>(parts), parts, [&](int64_t part) {
    const int64_t first = lines * part / parts * line;
    const int64_t count = std::min(lines * (part + 1) / parts * line, dx.columns) - first;
    for (int64_t row = 0; row < dx.rows; ++row)
      std::fill_n(dx.data + row * dx.stride + first, count, T(0));
    product.for_each_block(0, graph.rows, false, [&](int64_t row, const RowBlock<T>& block) {
      loops.scatter(block, dy.data + row * dy.stride + first, dy.stride, dx.data + first, dx.stride,
                    count);
    });
  });
  return {};
}

template <class T>
Status spmm_grad_values(const CsrView<T>& graph, const SpmmOptions& options,
                        const Matrix<const T>& dy, const Matrix<const T>& x, T* dvalues,
                        int threads, Instructions instructions) {
  Product<T> product(graph, options);
  TESSERA_TRY_VOID(product.prepare(x));
  TESSERA_TRY_VOID(check_sizes("x", x, graph.column_count, x.columns));
  TESSERA_TRY_VOID(check_sizes("dy", dy, graph.rows, x.columns));
  const RowLoops<T>& loops = row_loops<T>(instructions);
  std::fill_n(dvalues, graph.edges, T(0));
  const int used = useful_threads(threads, product.slots() * x.columns);
  const std::vector<int64_t> borders = product.row_borders(used == 1 ? 1 : 8 * used);
  on_threads(used, static_cast<int64_t>(borders.size()) - 1, [&](int64_t part) {
    const size_t i = static_cast<size_t>(part);
    product.for_each_block(borders[i], borders[i + 1], true,
                           [&](int64_t row, const RowBlock<T>& block) {
                             loops.dots(block, dy.data + row * dy.stride, dy.stride, x.data,
                                        x.stride, dvalues, x.columns);
                           });
  });
  return {};
}

#define TESSERA_SPMM(T)                                                                            \
  template CsrView<T> view_of(const CsrGraph&, const std::vector<T>&);                             \
  template Status spmm(const CsrView<T>&, const SpmmOptions&, const Matrix<const T>&,              \
                       const Matrix<T>&, int, Instructions);                                       \
  template Status check_operands(const CsrView<T>&, const SpmmOptions&, const Matrix<const T>&,    \
                                 const Matrix<T>&);                                                \
  template Status spmm_grad_x(const CsrView<T>&, const SpmmOptions&, const Matrix<const T>&,       \
                              const Matrix<T>&, int, Instructions);                                \
  template Status spmm_grad_values(const CsrView<T>&, const SpmmOptions&, const Matrix<const T>&,  \
                                   const Matrix<const T>&, T*, int, Instructions);
TESSERA_SPMM(float)
TESSERA_SPMM(double)
#undef TESSERA_SPMM

}  // namespace tessera::sparse
