#include "tessera/base/box.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/check.h"

namespace tessera {

Interval split_interval(Interval whole, int64_t count, int64_t index) {
  TESSERA_CHECK(count > 0 && index >= 0 && index < count, "count {} index {}", count, index);
  const int64_t base = whole.size / count;
  const int64_t more = whole.size % count;
  return {whole.begin + index * base + std::min(index, more), base + (index < more ? 1 : 0)};
}

Interval intersect(Interval a, Interval b) {
  const int64_t begin = std::max(a.begin, b.begin);
  const int64_t end = std::min(a.end(), b.end());
  return {begin, std::max<int64_t>(0, end - begin)};
}

Box Box::whole(const std::vector<int64_t>& shape) {
  Box box;
  box.dims.reserve(shape.size());
  for (int64_t size : shape) box.dims.push_back({0, size});
  return box;
}

int64_t Box::volume() const {
  int64_t volume = 1;
  for (const Interval& dim : dims) volume *= std::max<int64_t>(0, dim.size);
  return volume;
}

std::vector<int64_t> Box::shape() const {
  std::vector<int64_t> shape;
  shape.reserve(dims.size());
  for (const Interval& dim : dims) shape.push_back(dim.size);
  return shape;
}

bool Box::contains(const Box& inner) const {
  if (inner.empty()) return true;
  if (inner.rank() != rank()) return false;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (inner.dims[i].begin < dims[i].begin || inner.dims[i].end() > dims[i].end()) return false;
  }
  return true;
}

std::string Box::to_string() const {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) out += ", ";
    out += fmt::format("{}:{}", dims[i].begin, dims[i].end());
  }
  return out + "]";
}

Box intersect(const Box& a, const Box& b) {
  TESSERA_CHECK(a.rank() == b.rank(), "ranks {} and {}", a.rank(), b.rank());
  Box out;
  out.dims.reserve(a.rank());
  for (size_t i = 0; i < a.rank(); ++i) out.dims.push_back(intersect(a.dims[i], b.dims[i]));
  return out;
}

std::vector<Box> subtract(const Box& a, const Box& b) {
  std::vector<Box> out;
  const Box common = intersect(a, b);
  if (common.empty()) {
    if (!a.empty()) out.push_back(a);
    return out;
  }
  Box rest = a;
  for (size_t i = 0; i < a.rank(); ++i) {
    const Interval cut = common.dims[i];
    if (cut.begin > rest.dims[i].begin) {
      Box piece = rest;
      piece.dims[i] = {rest.dims[i].begin, cut.begin - rest.dims[i].begin};
      out.push_back(std::move(piece));
    }
    if (cut.end() < rest.dims[i].end()) {
      Box piece = rest;
      piece.dims[i] = {cut.end(), rest.dims[i].end() - cut.end()};
      out.push_back(std::move(piece));
    }
    rest.dims[i] = cut;
  }
  return out;
}

std::vector<int64_t> row_major_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * std::max<int64_t>(1, shape[i]);
  }
  return strides;
}

}  // namespace tessera
