// The ranks that stand for all ranks of a plan. On a machine of equal nodes most ranks differ from
// others only by where they are counted: the replicas of a stage have equal programs, and which of
// the equal nodes below a switch a replica has changes nothing. Ranks are numbered with digits (a
// mesh's axes, divided further where nodes and switches begin). If any permutation of the values of
// a digit exchanges equal ranks of equal groups, ranks that differ in this digit alone are alike,
// and those with the value 0 stand for the others.
//
// Digits of a plan whose meshes are equal and together number the ranks, on devices that are in
// order on a cluster of one part with tiers; of any other plan each rank stands for itself.
//
//   RankSlice slice(plan, roles, cluster, moved);  // dp = 8192, tp = 8 on nodes of 8 devices
//   slice.ranks();   // {0}: it stands for 65,536 ranks
//   slice.alike();   // 65,536
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/cluster/cluster.h"
#include "tessera/plan/plan.h"

namespace tessera {

class RankSlice {
 public:
  explicit RankSlice(int64_t ranks);  // each rank stands for itself
  // `roles`: by rank, a number that is equal only for ranks with equal programs. `moved`: whether
  // messages go along this axis of the meshes, so that its coordinates are not alike.
  RankSlice(const ResolvedPlan& plan, const std::vector<int32_t>& roles, const Cluster& cluster,
            const std::vector<bool>& moved);

  const std::vector<int64_t>& ranks() const { return ranks_; }  // in ascending order
  int64_t alike() const { return alike_; }  // the number of ranks for which each of them stands
  // Returns the index in ranks() of a rank of the slice.
  size_t index(int64_t rank) const;
  // Returns the ranks of the slice in the group that differs from `coordinates` on `axes`. The
  // coordinates on other axes must be those of a rank of the slice.
  std::vector<int> members(const Mesh& mesh, const std::vector<int64_t>& coordinates,
                           const Axes& axes) const;
  // Returns the value of each rank: that of the rank of the slice which stands for it.
  std::vector<int32_t> spread(const std::vector<int32_t>& of_slice) const;

 private:
  // A rank has the value rank / weight mod size.
  struct Digit {
    int64_t weight = 1, size = 1;
    bool alike = false;
  };

  bool find_digits(const ResolvedPlan& plan, const Cluster& cluster, const std::vector<bool>& moved);
  bool has_equal_roles(const std::vector<int32_t>& roles, size_t digit) const;
  void number_ranks();

  int64_t all_;
  std::vector<Digit> digits_;  // from the largest weight to 1
  std::vector<int64_t> ranks_;
  int64_t alike_ = 1;
};

}  // namespace tessera
