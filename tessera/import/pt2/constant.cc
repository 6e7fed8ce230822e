#include "tessera/import/pt2/constant.h"

#include <algorithm>
#include <cstddef>

#include "tessera/base/convert.h"
#include "tessera/import/pt2/names.h"

namespace tessera::pt2 {
namespace {

std::vector<int64_t> strides_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

// Calls f(index into x) for each element of `shape` in order, where x is read with these strides.
template <class F>
void walk(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, int64_t begin,
          F f) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<int64_t> at(shape.size());
  int64_t place = begin;
  for (int64_t i = 0; i < count; ++i) {
    f(place);
    for (size_t d = shape.size(); d-- > 0;) {
      place += strides[d];
      if (++at[d] < shape[d]) break;
      place -= strides[d] * shape[d];
      at[d] = 0;
    }
  }
}

Constant read_with(const Constant& x, std::vector<int64_t> shape,
                   const std::vector<int64_t>& strides, int64_t begin = 0) {
  Constant out{x.dtype, std::move(shape), {}};
  walk(out.shape, strides, begin,
       [&](int64_t place) { out.values.push_back(x.values[static_cast<size_t>(place)]); });
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
  if (shape.size() < x.shape.size()) return std::nullopt;
  const size_t lead = shape.size() - x.shape.size();
  const std::vector<int64_t> from = strides_of(x.shape);
  std::vector<int64_t> strides(shape.size());
  for (size_t d = lead; d < shape.size(); ++d) {
    const int64_t size = x.shape[d - lead];
    if (shape[d] == -1) shape[d] = size;
    if (size != shape[d] && size != 1) return std::nullopt;
    strides[d] = size == 1 ? 0 : from[d - lead];
  }
  if (!constant_elements(shape)) return std::nullopt;
  return read_with(x, std::move(shape), strides);
}

std::optional<Constant> merge(const Constant& a, const Constant& b,
                              const std::function<double(double, double)>& f) {
  std::vector<int64_t> shape(std::max(a.shape.size(), b.shape.size()), 1);
  for (const Constant* x : {&a, &b}) {
    for (size_t i = 1; i <= x->shape.size(); ++i) {
      int64_t& size = shape[shape.size() - i];
      if (size == 1) size = x->shape[x->shape.size() - i];
    }
  }
  const auto left = expand(a, shape), right = expand(b, shape);
  if (!left || !right) return std::nullopt;
  Constant out = *left;
  for (size_t i = 0; i < out.values.size(); ++i) out.values[i] = f(out.values[i], right->values[i]);
  return out;
}

std::optional<Constant> permute(const Constant& x, const std::vector<int64_t>& order) {
  if (order.size() != x.shape.size()) return std::nullopt;
  const std::vector<int64_t> from = strides_of(x.shape);
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
  std::vector<int64_t> strides = strides_of(x.shape), shape = x.shape;
  const int64_t first = begin * strides[at];
  shape[at] = (end - begin + step - 1) / step;
  strides[at] *= step;
  return read_with(x, std::move(shape), strides, first);
}

std::optional<Constant> concatenate(const std::vector<Constant>& parts, int64_t dim) {
  const auto at = static_cast<size_t>(dim);
  if (parts.empty() || at >= parts[0].shape.size()) return std::nullopt;
  Constant out{parts[0].dtype, parts[0].shape, {}};
  out.shape[at] = 0;
  for (const Constant& part : parts) {
    std::vector<int64_t> expected = parts[0].shape;
    if (part.shape.size() != expected.size()) return std::nullopt;
    expected[at] = part.shape[at];
    if (part.shape != expected) return std::nullopt;
    out.shape[at] += part.shape[at];
  }
  if (!constant_elements(out.shape)) return std::nullopt;
  int64_t lead = 1;
  for (size_t d = 0; d < at; ++d) lead *= out.shape[d];
  for (int64_t i = 0; i < lead; ++i) {
    for (const Constant& part : parts) {
      const int64_t run = part.elements() / lead;
      out.values.insert(out.values.end(), part.values.begin() + i * run,
                        part.values.begin() + (i + 1) * run);
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
  std::vector<std::byte> narrow(x.values.size() * static_cast<size_t>(dtype_bytes(x.dtype)));
  auto* const values = reinterpret_cast<std::byte*>(x.values.data());
  convert(DType::kFloat64, values, x.dtype, narrow.data(), x.elements());
  convert(x.dtype, narrow.data(), DType::kFloat64, values, x.elements());
}

}  // namespace tessera::pt2
