// Intervals and boxes (hyper-rectangles of indices) describe which elements layouts, views and
// collectives mean. An interval is half-open and is stored as begin and size.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/shared_list.h"
#include "tessera/base/small_vector.h"

namespace tessera {

struct Interval {
  int64_t begin = 0;
  int64_t size = 0;
  int64_t end() const { return begin + size; }
  bool empty() const { return size <= 0; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

// Returns piece `index` of `count` of an interval. If the size is not a multiple of count, the
// first (size mod count) pieces have one more element than the others (docs/theory/superscaler.md
// section 2). If count > size, the last pieces are empty.
Interval split_interval(Interval whole, int64_t count, int64_t index);
Interval intersect(Interval a, Interval b);

// A `Box` has one interval for each dim. A box of rank 0 (a scalar) has volume 1.
struct Box {
  using Dims = SmallVector<Interval, 4>;
  Dims dims;
  Box() = default;
  explicit Box(Dims d) : dims(std::move(d)) {}
  static Box whole(const std::vector<int64_t>& shape);
  size_t rank() const { return dims.size(); }
  int64_t volume() const;
  bool empty() const { return volume() == 0; }
  std::vector<int64_t> shape() const;
  bool contains(const Box& inner) const;
  std::string to_string() const;  // "[0:4, 8:16]", half-open; "[]" for a scalar
  friend bool operator==(const Box&, const Box&) = default;
};

Box intersect(const Box& a, const Box& b);
// Returns the parts of `a` that lie outside `b`, as disjoint boxes.
std::vector<Box> subtract(const Box& a, const Box& b);
// The boxes of all members of a group, by member. The list is shared because a group may have
// thousands of members and many instructions have the same list.
using SharedBoxes = SharedList<Box>;

std::vector<int64_t> row_major_strides(const std::vector<int64_t>& shape);

}  // namespace tessera
