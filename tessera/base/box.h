// Intervals and boxes (hyper-rectangles of indices): the geometry under layouts, views and
// collectives. All values; half-open; begin/size form.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

struct Interval {
  int64_t begin = 0;
  int64_t size = 0;
  int64_t end() const { return begin + size; }
  bool empty() const { return size <= 0; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

// Piece `index` of `count` of an interval. Uneven cut: the first size mod count pieces have one
// more element (superscaler.md section 2). Pieces may be empty when count > size.
Interval split_interval(Interval whole, int64_t count, int64_t index);
Interval intersect(Interval a, Interval b);

// One interval a dim. A box of rank 0 (a scalar) has volume 1.
struct Box {
  std::vector<Interval> dims;
  Box() = default;
  explicit Box(std::vector<Interval> d) : dims(std::move(d)) {}
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
// The parts of `a` that lie outside `b`, as disjoint boxes.
std::vector<Box> subtract(const Box& a, const Box& b);
// A list of boxes that many values share (who holds what in a group of thousands, in every
// instruction alike): copies cost nothing, a write to a shared list copies it first.
class SharedBoxes {
 public:
  SharedBoxes() = default;
  SharedBoxes(std::vector<Box> boxes)  // NOLINT: a list of boxes is one
      : boxes_(std::make_shared<std::vector<Box>>(std::move(boxes))) {}
  SharedBoxes(std::initializer_list<Box> boxes) : SharedBoxes(std::vector<Box>(boxes)) {}
  const std::vector<Box>& list() const { return boxes_ ? *boxes_ : none(); }
  operator const std::vector<Box>&() const { return list(); }  // NOLINT: reads as one
  size_t size() const { return list().size(); }
  bool empty() const { return list().empty(); }
  const Box& operator[](size_t i) const { return list()[i]; }
  const Box& front() const { return list().front(); }
  const Box& back() const { return list().back(); }
  auto begin() const { return list().begin(); }
  auto end() const { return list().end(); }
  void push_back(Box box) { own().push_back(std::move(box)); }
  void assign(size_t count, const Box& box) { own().assign(count, box); }
  void set(size_t i, Box box) { own()[i] = std::move(box); }
  friend bool operator==(const SharedBoxes& a, const SharedBoxes& b) {
    return a.boxes_ == b.boxes_ || a.list() == b.list();
  }

 private:
  static const std::vector<Box>& none();
  std::vector<Box>& own();
  std::shared_ptr<std::vector<Box>> boxes_;
};

std::vector<int64_t> row_major_strides(const std::vector<int64_t>& shape);

}  // namespace tessera
