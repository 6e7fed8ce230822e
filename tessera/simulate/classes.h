// Classes of ranks that are played as one rank. The ranks of a class have the same program up to
// places (Lowering::roles), on equal devices; their groups sit alike on the machine and consist of
// the same classes. Classes are split until that holds (colour refinement), so that what happens to
// one rank of a class happens to all.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "tessera/cluster/cluster.h"
#include "tessera/cost/collective_cost.h"
#include "tessera/program/alike_programs.h"
#include "tessera/program/lower.h"

namespace tessera {

// Counts the ranks and groups that share a node's network cards.
class NodeSharing {
 public:
  // Keeps the addresses of all arguments, which must outlive it.
  NodeSharing(const ResolvedPlan& plan, const RankDevices& devices, const Cluster& cluster);
  // Returns how many groups of ranks over axes of these names have members on one node, over all
  // places whose meshes have such axes; the most of all nodes on which one of `members` is.
  int64_t groups_a_node(const std::vector<std::string>& axes, const std::vector<int>& members);
  // Returns the number of ranks of a place on the node of the rank, at least 1.
  int64_t ranks_on_node(PlaceId place, int64_t rank) const;

 private:
  int64_t groups_on_node(const std::vector<std::string>& axes, int rank) const;
  std::vector<int64_t> ranks_beside(int64_t rank) const;  // on its node, itself too

  const ResolvedPlan* plan_;
  const RankDevices* devices_;
  const Cluster* cluster_;
  std::vector<std::vector<PlaceId>> places_;                               // by rank
  std::map<std::pair<std::vector<std::string>, int64_t>, int64_t> known_;  // by axes and node
};

struct PlayedClass {
  int representative = 0;
  int64_t ranks = 1;
  std::vector<StageId> stages;
};
struct Classes {
  std::vector<PlayedClass> all;
  std::vector<int32_t> of_rank;  // -1: in no mesh
};
// A lowering's roles and the programs of some ranks, made once.
struct Lowered {
  explicit Lowered(const Lowering& l)
      : lowering(&l),
        devices(l.plan().devices),
        roles(l.roles(&role_of_rank)),
        alike(l.texts(), l.plan()) {}
  const Lowering* lowering;  // outlives it
  RankDevices devices;
  std::vector<int32_t> role_of_rank;
  std::vector<RankClass> roles;
  AlikePrograms alike;
  std::map<int, int> made_of;              // by rank: the rank of whose program its own was made
  std::map<int, Program> programs;         // by rank
  bool offsets = false;                    // of buffers in their arenas
  std::function<void(Program&)> counts{};  // as of SimulateOptions
  Status add(int rank);
};
enum class RankFold : uint8_t {
  kNone,    // every rank is a class
  kExact,   // ranks of a class as described above are one
  kPlaces,  // the ranks of the same stages, whatever their pieces and nodes: the first speaks for
            // all
};
// Divides the ranks into classes. `alone`: devices that are a class each (stragglers), with kExact.
// `may_play`: SimulateOptions::may_play, asked with kExact. Afterwards `lowered` has the programs
// of all representatives.
Result<Classes> make_classes(Lowered& lowered, const Cluster& cluster, RankFold fold,
                             const std::vector<int64_t>& alone, NodeSharing& sharing,
                             const std::function<bool(int64_t)>& may_play = {});

}  // namespace tessera
