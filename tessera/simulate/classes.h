// Classes of ranks that are played as one rank. The ranks of a class have equal programs except for
// origins, groups and peers (Lowering::roles) and run on equal devices. Their groups are spread
// over the nodes of the machine alike and have members of the same classes. Classes are split until
// all this holds (colour refinement). Therefore all ranks of a class take the same time. For a
// regular plan, only the ranks that stand for others (rank_slice.h) are looked at.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "tessera/cluster/cluster.h"
#include "tessera/cost/collective_cost.h"
#include "tessera/program/copies/alike_programs.h"
#include "tessera/program/lower.h"
#include "tessera/simulate/rank_slice.h"

namespace tessera {

// Counts the ranks and groups that share a node's network cards.
class NodeSharing {
 public:
  // Keeps references to all arguments, which must outlive the object.
  NodeSharing(const ResolvedPlan& plan, const RankDevices& devices, const Cluster& cluster);
  // Returns how many groups over axes of these names have members on the same node, counted over
  // all places whose meshes have such axes. Among the nodes on which any of `members` is, the node
  // with the most groups counts.
  int64_t groups_a_node(const std::vector<std::string>& axes, const std::vector<int>& members);
  // Returns how the group of the rank over the place's axes of these names lies on the machine. The
  // rank must be one of the slice, or the first of a group that has such a rank.
  const GroupPlacement& placement(PlaceId place, const std::vector<std::string>& axes, int64_t rank,
                                  const RankSlice& slice);
  // Returns how many ranks of the place are on the node of the rank; at least 1.
  int64_t ranks_on_node(PlaceId place, int64_t rank) const;
  // Returns for each node whether it has members of groups over axes of these names that have members
  // below several of the lowest switches (whether it has ranks of the place). These nodes share ways
  // between switches. Null if no way is narrower than the network cards, because then no price
  // depends on it.
  const std::vector<bool>* nodes_with(const std::vector<std::string>& axes);
  const std::vector<bool>* nodes_of(PlaceId place);

 private:
  int64_t groups_on_node(const std::vector<std::string>& axes, int rank) const;
  std::vector<std::pair<PlaceId, int64_t>> groups_of(const std::vector<std::string>& axes,
                                                     int64_t rank) const;
  std::vector<int64_t> ranks_beside(int64_t rank) const;  // all ranks on the rank's node

  const ResolvedPlan* plan_;
  const RankDevices* devices_;
  const Cluster* cluster_;
  std::map<std::tuple<PlaceId, std::vector<std::string>, int64_t>, GroupPlacement> placements_;
  std::map<std::pair<std::vector<std::string>, int64_t>, int64_t> known_;  // by axes and node
  bool has_narrow_ways_ = false;
  std::map<std::vector<std::string>, std::vector<bool>> nodes_with_;
  std::map<PlaceId, std::vector<bool>> nodes_of_;
};

struct PlayedClass {
  int representative = 0;
  int64_t ranks = 1;
  std::vector<StageId> stages;
};
struct Classes {
  std::vector<PlayedClass> all;
  std::vector<int32_t> of_rank;  // -1: in no mesh
  RankSlice slice{0};            // has the representatives
};
// A lowering with its rank classes (roles) and the programs of some ranks, each made once.
struct Lowered {
  explicit Lowered(const Lowering& l)
      : lowering(&l),
        devices(l.plan().devices),
        roles(l.roles(&role_of_rank)),
        alike(l.texts(), l.plan()) {}
  const Lowering* lowering;  // must outlive this object
  RankDevices devices;
  std::vector<int32_t> role_of_rank;
  std::vector<RankClass> roles;
  AlikePrograms alike;
  // By rank: the rank from whose program its program was made (alike_programs.h).
  std::map<int, int> made_of;
  std::map<int, Program> programs;         // by rank
  bool offsets = false;                    // whether buffers of programs have offsets in arenas
  std::function<void(Program&)> counts{};  // SimulateOptions::counts
  Status add(int rank);                    // makes the rank's program unless it is there
};
enum class RankFold : uint8_t {
  kNone,    // every rank is a class of its own
  kExact,   // the classes that are described at the top of this file
  kPlaces,  // all ranks of the same stages are a class, whatever their pieces and nodes
};
// Divides the ranks into classes. Afterwards `lowered` has the programs of all representatives.
// Only with kExact are used: `alone`, the devices whose ranks are each a class of their own
// (stragglers), and `may_play`, which is SimulateOptions::may_play.
Result<Classes> make_classes(Lowered& lowered, const Cluster& cluster, RankFold fold,
                             const std::vector<int64_t>& alone, NodeSharing& sharing,
                             const std::function<bool(int64_t)>& may_play = {});

}  // namespace tessera
