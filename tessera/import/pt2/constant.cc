#include "tessera/import/pt2/constant.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "tessera/base/convert.h"
#include "tessera/import/pt2/names.h"

namespace tessera::pt2 {
namespace {

// Returns the row-major strides of x, or zeros if x has no elements.
std::vector<int64_t> strides_of(const Constant& x) {
  const std::vector<int64_t>& shape = x.shape;
  if (x.values.empty()) return std::vector<int64_t>(shape.size(), 0);
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

// Calls f(places) for each element of `shape` in row-major order. places[i] is the index of the
// element in operand i, which has strides[i]; the index of the first element is `begin`.
template <size_t kOperands, class F>
void walk(const std::vector<int64_t>& shape,
          const std::array<std::vector<int64_t>, kOperands>& strides, int64_t begin, F f) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<int64_t> at(shape.size());
  std::array<int64_t, kOperands> places{};
  places.fill(begin);
  for (int64_t i = 0; i < count; ++i) {
    f(places);
    for (size_t d = shape.size(); d-- > 0;) {
      const bool last = ++at[d] == shape[d];
      for (size_t x = 0; x < kOperands; ++x)
        places[x] += last ? -strides[x][d] * (shape[d] - 1) : strides[x][d];
      if (!last) break;
      at[d] = 0;
    }
  }
}

// Returns the strides that read x as a tensor of that shape, or nothing if x cannot be broadcast.
std::optional<std::vector<int64_t>> broadcast_strides(const Constant& x,
                                                      const std::vector<int64_t>& shape) {
  if (shape.size() < x.shape.size()) return std::nullopt;
  const size_t lead = shape.size() - x.shape.size();
  const std::vector<int64_t> from = strides_of(x);
  std::vector<int64_t> strides(shape.size());
  for (size_t d = lead; d < shape.size(); ++d) {
    const int64_t size = x.shape[d - lead];
    if (size != shape[d] && size != 1) return std::nullopt;
    strides[d] = size == 1 ? 0 : from[d - lead];
  }
  return strides;
}

// Returns the shape to which the operands are broadcast. If there is none, the shape does not fit
// some of the operands.
std::vector<int64_t> common_shape(const std::vector<const Constant*>& operands) {
  std::vector<int64_t> shape;
  for (const Constant* x : operands) {
    shape.insert(shape.begin(), std::max(shape.size(), x->shape.size()) - shape.size(), 1);
    for (size_t i = 1; i <= x->shape.size(); ++i) {
      int64_t& size = shape[shape.size() - i];
      if (size == 1) size = x->shape[x->shape.size() - i];
    }
  }
  return shape;
}

Constant read_with(const Constant& x, std::vector<int64_t> shape,
                   const std::vector<int64_t>& strides, int64_t begin = 0) {
  Constant out{x.dtype, std::move(shape), {}};
  if (x.values.empty()) return out;
  out.values.reserve(static_cast<size_t>(constant_elements(out.shape).value_or(0)));
  walk<1>(out.shape, {strides}, begin, [&](const std::array<int64_t, 1>& at) {
    out.values.push_back(x.values[static_cast<size_t>(at[0])]);
  });
  return out;
}

}  // namespace

std::optional<int64_t> constant_elements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0 || (size > 0 && count > kMaxConstant / size)) return std::nullopt;
    count *= size;
  }
  return count;
}

std::optional<Constant> expand(const Constant& x, std::vector<int64_t> shape) {
  for (size_t i = 1; i <= std::min(shape.size(), x.shape.size()); ++i) {
    int64_t& size = shape[shape.size() - i];
    if (size == -1) size = x.shape[x.shape.size() - i];
  }
  const auto strides = broadcast_strides(x, shape);
  if (!strides || !constant_elements(shape)) return std::nullopt;
  return read_with(x, std::move(shape), *strides);
}

std::optional<Constant> merge(const Constant& a, const Constant& b,
                              const std::function<double(double, double)>& f) {
  Constant out{a.dtype, common_shape({&a, &b}), {}};
  const auto left = broadcast_strides(a, out.shape), right = broadcast_strides(b, out.shape);
  const auto count = constant_elements(out.shape);
  if (!left || !right || !count) return std::nullopt;
  out.values.reserve(static_cast<size_t>(*count));
  walk<2>(out.shape, {*left, *right}, 0, [&](const std::array<int64_t, 2>& at) {
    out.values.push_back(
        f(a.values[static_cast<size_t>(at[0])], b.values[static_cast<size_t>(at[1])]));
  });
  return out;
}

std::optional<Constant> choose(const Constant& condition, const Constant& a, const Constant& b) {
  Constant out{a.dtype, common_shape({&condition, &a, &b}), {}};
  const auto truths = broadcast_strides(condition, out.shape),
             left = broadcast_strides(a, out.shape), right = broadcast_strides(b, out.shape);
  const auto count = constant_elements(out.shape);
  if (!truths || !left || !right || !count) return std::nullopt;
  out.values.reserve(static_cast<size_t>(*count));
  walk<3>(out.shape, {*truths, *left, *right}, 0, [&](const std::array<int64_t, 3>& at) {
    const bool first = condition.values[static_cast<size_t>(at[0])] != 0;
    out.values.push_back(first ? a.values[static_cast<size_t>(at[1])]
                               : b.values[static_cast<size_t>(at[2])]);
  });
  return out;
}

std::optional<Constant> permute(const Constant& x, const std::vector<int64_t>& order) {
  if (order.size() != x.shape.size()) return std::nullopt;
  const std::vector<int64_t> from = strides_of(x);
  std::vector<int64_t> shape, strides;
  for (const int64_t d : order) {
    const auto at = static_cast<size_t>(d);
    if (at >= x.shape.size()) return std::nullopt;
    shape.push_back(x.shape[at]);
    strides.push_back(from[at]);
  }
  if (constant_elements(shape) != x.elements()) return std::nullopt;
  return read_with(x, std::move(shape), strides);
}

std::optional<Constant> slice(const Constant& x, int64_t dim, int64_t begin, int64_t end,
                              int64_t step) {
  const auto at = static_cast<size_t>(dim);
  if (at >= x.shape.size() || step < 1) return std::nullopt;
  const int64_t size = x.shape[at];
  if (begin < 0) begin += size;
  if (end < 0) end += size;
  begin = std::clamp<int64_t>(begin, 0, size);
  end = std::clamp<int64_t>(end, begin, size);
  step = std::min(step, std::max<int64_t>(size, 1));
  std::vector<int64_t> strides = strides_of(x), shape = x.shape;
  const int64_t first = begin * strides[at];
  shape[at] = (end - begin + step - 1) / step;
  strides[at] *= step;
  return read_with(x, std::move(shape), strides, first);
}

std::optional<Constant> concatenate(const std::vector<const Constant*>& parts, int64_t dim) {
  const auto at = static_cast<size_t>(dim);
  if (parts.empty() || at >= parts[0]->shape.size()) return std::nullopt;
  Constant out{parts[0]->dtype, parts[0]->shape, {}};
  out.shape[at] = 0;
  for (const Constant* part : parts) {
    std::vector<int64_t> expected = parts[0]->shape;
    if (part->shape.size() != expected.size()) return std::nullopt;
    expected[at] = part->shape[at];
    if (part->shape != expected ||
        __builtin_add_overflow(out.shape[at], part->shape[at], &out.shape[at]))
      return std::nullopt;
  }
  if (!constant_elements(out.shape)) return std::nullopt;
  int64_t lead = 1;
  for (size_t d = 0; d < at; ++d) lead *= out.shape[d];
  for (int64_t i = 0; i < lead; ++i) {
    for (const Constant* part : parts) {
      const int64_t run = part->elements() / lead;
      out.values.insert(out.values.end(), part->values.begin() + i * run,
                        part->values.begin() + (i + 1) * run);
    }
  }
  return out;
}

std::optional<Constant> matrix_product(const Constant& a, const Constant& b) {
  const size_t ra = a.shape.size(), rb = b.shape.size();
  if (ra < 2 || rb < 2 || a.shape[ra - 1] != b.shape[rb - 2]) return std::nullopt;
  const int64_t m = a.shape[ra - 2], k = a.shape[ra - 1], n = b.shape[rb - 1];
  std::vector<int64_t> lead(a.shape.begin(), a.shape.end() - 2);
  if (std::vector<int64_t>(b.shape.begin(), b.shape.end() - 2) != lead) return std::nullopt;
  Constant out{a.dtype, lead, {}};
  out.shape.insert(out.shape.end(), {m, n});
  const auto count = constant_elements(out.shape);
  if (!count || (k > 0 && *count > 16 * kMaxConstant / k)) return std::nullopt;
  out.values.assign(static_cast<size_t>(*count), 0);
  for (int64_t i = 0; i < *count; ++i) {
    const int64_t matrix = i / (m * n), row = i / n % m, column = i % n;
    double sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      sum += a.values[static_cast<size_t>((matrix * m + row) * k + j)] *
             b.values[static_cast<size_t>((matrix * k + j) * n + column)];
    }
    out.values[static_cast<size_t>(i)] = sum;
  }
  return out;
}

std::optional<Constant> triangle(Constant x, int64_t diagonal, bool lower) {
  if (x.shape.size() < 2) return std::nullopt;
  const int64_t columns = x.shape.back(), rows = x.shape[x.shape.size() - 2];
  for (int64_t i = 0; i < x.elements(); ++i) {
    const int64_t above = i % columns - i / columns % rows - diagonal;
    if (lower ? above > 0 : above < 0) x.values[static_cast<size_t>(i)] = 0;
  }
  return x;
}

Constant without_repeats(const Constant& x, size_t kept) {
  Constant out = x;
  for (size_t d = 0; d + kept < x.shape.size(); ++d) {
    const auto dim = static_cast<int64_t>(d);
    const std::optional<Constant> first = slice(out, dim, 0, 1, 1);
    if (!first || out.shape[d] < 2) continue;
    const std::optional<Constant> again = expand(*first, out.shape);
    if (again && again->values == out.values) out = *first;
  }
  return out;
}

bool all_equal(const Constant& x, double value) {
  return std::all_of(x.values.begin(), x.values.end(), [&](double v) { return v == value; });
}

bool counts_up(const Constant& x) {
  for (size_t i = 0; i < x.values.size(); ++i) {
    if (x.values[i] != static_cast<double>(i)) return false;
  }
  return true;
}

bool is_causal_mask(const Constant& x, bool above) {
  if (x.shape.size() < 2) return false;
  const int64_t columns = x.shape.back(), rows = x.shape[x.shape.size() - 2];
  if (rows != columns) return false;
  for (int64_t i = 0; i < x.elements(); ++i) {
    const bool later = i % columns > i / columns % rows;
    if ((x.values[static_cast<size_t>(i)] != 0) != (later == above)) return false;
  }
  return true;
}

void round_values(Constant& x) {
  constexpr size_t kMost = 1 << 16;  // values that are rounded at a time
  std::vector<std::byte> narrow(kMost * static_cast<size_t>(dtype_bytes(x.dtype)));
  for (size_t at = 0; at < x.values.size(); at += kMost) {
    const auto count = static_cast<int64_t>(std::min(kMost, x.values.size() - at));
    auto* const values = reinterpret_cast<std::byte*>(x.values.data() + at);
    convert(DType::kFloat64, values, x.dtype, narrow.data(), count);
    convert(x.dtype, narrow.data(), DType::kFloat64, values, count);
  }
}

}  // namespace tessera::pt2
