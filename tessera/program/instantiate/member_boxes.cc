#include "tessera/program/instantiate/member_boxes.h"

#include <algorithm>

namespace tessera {
namespace {

size_t number_of(const std::vector<Box>& boxes) {
  uint64_t out = boxes.size();
  for (const Box& box : boxes) {
    for (const Interval& dim : box.dims) {
      for (const int64_t value : {dim.begin, dim.size}) {
        out = (out ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15;
        out ^= out >> 32;
      }
    }
  }
  return out;
}

// Returns the boxes of the group's members, in row-major order of the coordinates on its axes.
std::vector<Box> boxes_of(const MemberBoxes::Group& group, const Region& region,
                          const std::vector<int64_t>& shape) {
  std::vector<int64_t> at = group.first;
  int64_t members = 1;
  for (const AxisId axis : group.axes) members *= group.mesh.axis(axis).size;
  std::vector<Box> out;
  out.reserve(static_cast<size_t>(members));
  for (int64_t m = 0; m < members; ++m) {
    out.push_back(evaluate(region, group.mesh, shape, at));
    for (auto axis = group.axes.rbegin(); axis != group.axes.rend(); ++axis) {
      if (++at[axis->index()] < group.mesh.axis(*axis).size) break;
      at[axis->index()] = 0;
    }
  }
  return out;
}

}  // namespace

MemberBoxes::Group& MemberBoxes::group(const Mesh& mesh, const std::vector<int64_t>& coordinates,
                                       const Axes& axes) {
  std::vector<int64_t> sizes, first = coordinates;
  for (const MeshAxis& axis : mesh.axes) sizes.push_back(axis.size);
  for (const AxisId axis : axes) first[axis.index()] = 0;
  const std::lock_guard lock(mutex_);
  const auto [it, fresh] = groups_.try_emplace({std::move(sizes), axes, first});
  if (fresh) it->second = {mesh, axes, std::move(first), {}};
  return it->second;
}

SharedBoxes MemberBoxes::of(Group& group, const Region& region, const std::vector<int64_t>& shape) {
  const std::lock_guard lock(mutex_);
  for (const Group::List& list : group.lists) {
    if (list.shape == shape && list.region == region) return list.boxes;
  }
  SharedBoxes boxes(boxes_of(group, region, shape));
  const size_t number = number_of(boxes);
  const auto [begin, end] = lists_.equal_range(number);
  const auto equal =
      std::find_if(begin, end, [&](const auto& list) { return list.second == boxes; });
  if (equal != end) {
    boxes = equal->second;
  } else {
    lists_.emplace(number, boxes);
  }
  group.lists.push_back({shape, region, boxes});
  return boxes;
}

CollectiveKind MemberBoxes::class_of(const Redistribution& what) {
  const std::lock_guard lock(mutex_);
  const auto [known, fresh] =
      classes_.try_emplace({what.hold.list().data(), what.need.list().data(), what.combiner});
  if (fresh) known->second = classify(what);
  return known->second;
}

}  // namespace tessera
