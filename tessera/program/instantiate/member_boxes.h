// Keeps which boxes the members of groups have of tensors, for all programs of a lowering. The
// members of a group, of groups beside it and of groups of equal places have equal boxes, so each
// list is made once. Two lists that are equal are one list: their addresses tell whether they are
// equal. Private to tessera/program; several threads may use one object.
//
//   MemberBoxes boxes;
//   MemberBoxes::Group& group = boxes.group(mesh, coordinates, axes);
//   const SharedBoxes held = boxes.of(group, region, shape);
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "tessera/program/place_text.h"

namespace tessera {

class MemberBoxes {
 public:
  struct Group;
  // Returns the entry of the group that differs from `coordinates` on `axes`. All groups that have
  // the same coordinates on the other axes of meshes with the same sizes have one entry.
  Group& group(const Mesh& mesh, const std::vector<int64_t>& coordinates, const Axes& axes);
  // Returns the boxes of the region of a tensor of this shape, by member of the group.
  SharedBoxes of(Group& group, const Region& region, const std::vector<int64_t>& shape);
  // Returns the kind of a collective, which follows from its boxes (classify). The boxes must be
  // those of of().
  CollectiveKind class_of(const Redistribution& what);

  struct Group {
    struct List {
      std::vector<int64_t> shape;
      Region region;
      SharedBoxes boxes;
    };
    Mesh mesh;  // the sizes count, neither ranks nor names
    Axes axes;
    std::vector<int64_t> first;  // coordinates of the first member
    std::vector<List> lists;
  };

 private:
  using GroupKey = std::tuple<std::vector<int64_t>, Axes, std::vector<int64_t>>;
  using ClassKey = std::tuple<const Box*, const Box*, std::optional<Combiner>>;

  std::mutex mutex_;
  std::map<GroupKey, Group> groups_;                    // by sizes, axes, coordinates of the first
  std::unordered_multimap<size_t, SharedBoxes> lists_;  // by a number made of the boxes
  std::map<ClassKey, CollectiveKind> classes_;          // by what is held and needed
};

}  // namespace tessera
