#include "tessera/runtime/kernels/windows/window_pool.h"

#include <algorithm>
#include <limits>

#include "tessera/runtime/kernels/row_loops/rows.h"

namespace tessera::kernels {
namespace {

constexpr size_t kLast = WindowPool::kDims - 1;

// Calls f(rows) for each row of windows of a map, in the order of memory; `rows` has the numbers of
// the map's rows that these windows cover.
template <class F>
void each_row_of_windows(const WindowPool& pool, F&& f) {
  std::vector<int64_t> rows;
  for (const auto& [first_plane, end_plane] : pool.windows[0]) {
    for (const auto& [first, end] : pool.windows[1]) {
      rows.clear();
      for (int64_t plane = first_plane; plane < end_plane; ++plane) {
        for (int64_t row = first; row < end; ++row) rows.push_back(plane * pool.elements[1] + row);
      }
      f(rows);
    }
  }
}

// Returns whether x is larger than y. A NaN counts as larger than all numbers.
template <class A>
bool is_larger(A x, A y) {
  return !(x <= y || y != y);
}

template <class A>
void find_largest(const WindowPool& pool, A* y, const A* x, int64_t maps) {
  const RowOps<A>& ops = row_ops<A>();
  const auto& [planes, heights, width] = pool.elements;
  std::vector<A> largest(static_cast<size_t>(width));
  for (int64_t map = 0; map < maps; ++map, x += planes * heights * width) {
    each_row_of_windows(pool, [&](const std::vector<int64_t>& rows) {
      std::fill(largest.begin(), largest.end(), -std::numeric_limits<A>::infinity());
      for (const int64_t row : rows) ops.larger(largest.data(), x + row * width, width);
      for (const auto& [first, end] : pool.windows[kLast]) {
        A most = -std::numeric_limits<A>::infinity();
        for (int64_t i = first; i < end; ++i) {
          const A element = largest[static_cast<size_t>(i)];
          most = is_larger(element, most) ? element : most;
        }
        *y++ = most;
      }
    });
  }
}

template <class A>
void pass_to_largest(const WindowPool& pool, A* dx, const A* dy, const A* x, int64_t maps) {
  const RowOps<A>& ops = row_ops<A>();
  const auto& [planes, heights, width] = pool.elements;
  const int64_t size = planes * heights * width;
  const auto columns = static_cast<size_t>(width);
  std::vector<A> largest(columns);
  std::vector<int32_t> row_of(columns);  // position in `rows` of the largest element of a column
  std::fill(dx, dx + maps * size, A{0});
  for (int64_t map = 0; map < maps; ++map, x += size, dx += size) {
    each_row_of_windows(pool, [&](const std::vector<int64_t>& rows) {
      if (rows.empty()) {
        dy += pool.windows[kLast].size();
        return;
      }
      std::copy_n(x + rows.front() * width, columns, largest.begin());
      std::fill(row_of.begin(), row_of.end(), 0);
      for (size_t k = 1; k < rows.size(); ++k) {
        ops.larger_of(largest.data(), row_of.data(), x + rows[k] * width, static_cast<int32_t>(k),
                      width);
      }
      for (const auto& [first, end] : pool.windows[kLast]) {
        const A gradient = *dy++;
        if (first >= end) continue;
        auto best = static_cast<size_t>(first);
        for (auto i = best + 1; i < static_cast<size_t>(end); ++i) {
          if (is_larger(largest[i], largest[best]) ||
              (largest[i] == largest[best] && row_of[i] < row_of[best])) {
            best = i;
          }
        }
        dx[rows[static_cast<size_t>(row_of[best])] * width + static_cast<int64_t>(best)] +=
            gradient;
      }
    });
  }
}

template <class A>
void add_up(const WindowPool& pool, A* y, const A* x, int64_t maps, A factor) {
  const RowOps<A>& ops = row_ops<A>();
  const auto& [planes, heights, width] = pool.elements;
  std::vector<A> sums(static_cast<size_t>(width));
  for (int64_t map = 0; map < maps; ++map, x += planes * heights * width) {
    each_row_of_windows(pool, [&](const std::vector<int64_t>& rows) {
      std::fill(sums.begin(), sums.end(), A{0});
      for (const int64_t row : rows) ops.add(sums.data(), x + row * width, width);
      for (const auto& [first, end] : pool.windows[kLast]) {
        A sum = 0;
        for (int64_t i = first; i < end; ++i) sum += sums[static_cast<size_t>(i)];
        *y++ = sum * factor;
      }
    });
  }
}

template <class A>
void pass_to_all(const WindowPool& pool, A* dx, const A* dy, int64_t maps, A factor) {
  const RowOps<A>& ops = row_ops<A>();
  const auto& [planes, heights, width] = pool.elements;
  const int64_t size = planes * heights * width;
  std::vector<A> row_of_sums(static_cast<size_t>(width));
  std::fill(dx, dx + maps * size, A{0});
  for (int64_t map = 0; map < maps; ++map, dx += size) {
    each_row_of_windows(pool, [&](const std::vector<int64_t>& rows) {
      std::fill(row_of_sums.begin(), row_of_sums.end(), A{0});
      for (const auto& [first, end] : pool.windows[kLast]) {
        const A gradient = *dy++ * factor;
        for (int64_t i = first; i < end; ++i) row_of_sums[static_cast<size_t>(i)] += gradient;
      }
      for (const int64_t row : rows) ops.add(dx + row * width, row_of_sums.data(), width);
    });
  }
}

int64_t maps_of(const WindowPool& pool, const at::Tensor& x) {
  int64_t size = 1;
  for (const int64_t extent : pool.elements) size *= extent;
  return size == 0 ? 0 : x.numel() / size;
}

// Calls f<A>() with the type of the tensor's elements.
template <class F>
void with_type(const at::Tensor& x, F&& f) {
  if (x.scalar_type() == at::kDouble) return f.template operator()<double>();
  f.template operator()<float>();
}

}  // namespace

void WindowPool::largest(const at::Tensor& y, const at::Tensor& x) const {
  with_type(x, [&]<class A>() {
    find_largest(*this, y.data_ptr<A>(), x.data_ptr<A>(), maps_of(*this, x));
  });
}

void WindowPool::largest_gradient(const at::Tensor& dx, const at::Tensor& dy,
                                  const at::Tensor& x) const {
  with_type(x, [&]<class A>() {
    pass_to_largest(*this, dx.data_ptr<A>(), dy.data_ptr<A>(), x.data_ptr<A>(), maps_of(*this, x));
  });
}

void WindowPool::sums(const at::Tensor& y, const at::Tensor& x, double factor) const {
  with_type(x, [&]<class A>() {
    add_up(*this, y.data_ptr<A>(), x.data_ptr<A>(), maps_of(*this, x), static_cast<A>(factor));
  });
}

void WindowPool::sums_gradient(const at::Tensor& dx, const at::Tensor& dy, double factor) const {
  with_type(dx, [&]<class A>() {
    pass_to_all(*this, dx.data_ptr<A>(), dy.data_ptr<A>(), maps_of(*this, dx),
                static_cast<A>(factor));
  });
}

}  // namespace tessera::kernels
