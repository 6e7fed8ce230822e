// Which ranks are played as one. A class: ranks with the same program up to places
// (Lowering::roles), on equal devices, whose groups sit alike on the machine and consist of the
// same classes. Classes are split until that holds (colour refinement), so what happens to one rank
// of a class happens to all.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tessera/cluster/cluster.h"
#include "tessera/cost/collective_cost.h"
#include "tessera/program/lower.h"

namespace tessera {

struct PlayedClass {
  int representative = 0;
  int64_t ranks = 1;
  std::vector<StageId> stages;
};
struct Classes {
  std::vector<PlayedClass> all;
  std::vector<int32_t> of_rank;     // -1: in no mesh
  std::map<int, Program> programs;  // of the representatives, by rank
};
// `alone`: devices that are a class each (stragglers). fold = false: every rank is a class.
Result<Classes> make_classes(const Lowering& lowering, const Cluster& cluster, bool fold,
                             const std::vector<int64_t>& alone);

// How many groups of a mesh's ranks, over axes of these names, have members on a node with this
// device, counting the meshes of all places that have such axes: they share its network cards.
int64_t groups_on_node(const ResolvedPlan& plan, const Cluster& cluster,
                       const std::vector<std::string>& axes, int64_t device);
// Ranks of a mesh on the node of the device.
int64_t ranks_on_node(const Mesh& mesh, const Cluster& cluster, int64_t device);

}  // namespace tessera
