#include "tessera/simulate/classes.h"

#include <algorithm>
#include <set>
#include <string>

namespace tessera {
namespace {

// Groups of one mesh over some axes.
struct GroupSet {
  const Mesh* mesh;
  std::vector<AxisId> axes;
};

int64_t node_of(const Cluster& cluster, int64_t device) { return cluster.locate(device).node; }

std::vector<GroupSet> group_sets(const Lowering& lowering, const std::map<int, Program>& programs) {
  std::vector<GroupSet> out;
  std::set<std::pair<PlaceId, std::vector<AxisId>>> seen;
  const ResolvedPlan& plan = lowering.plan();
  for (const auto& [rank, program] : programs) {
    for (const Group& group : program.groups) {
      for (const PlaceId place : plan.places_of(program.rank)) {
        if (!seen.insert({place, group.axes}).second) continue;
        out.push_back({&plan.places[place.index()].mesh, group.axes});
      }
    }
  }
  return out;
}

// What a rank of a group sees of it: the members' colours, and how they lie on the nodes.
std::vector<int64_t> view_of(const std::vector<int>& members, const std::vector<int32_t>& colours,
                             const Cluster& cluster) {
  std::map<int64_t, int64_t> on_node;
  std::vector<int64_t> out;
  for (const int member : members) {
    out.push_back(colours[static_cast<size_t>(member)]);
    ++on_node[node_of(cluster, member)];
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  int64_t most = 0;
  for (const auto& [node, count] : on_node) most = std::max(most, count);
  out.push_back(-static_cast<int64_t>(on_node.size()) - 1);
  out.push_back(most);
  return out;
}

// Splits colours by what the ranks see of their groups; true if there are more afterwards.
bool refine(std::vector<int32_t>& colours, const std::vector<GroupSet>& sets,
            const Cluster& cluster) {
  std::set<int32_t> before(colours.begin(), colours.end());
  before.erase(-1);
  std::vector<std::vector<int64_t>> seen(colours.size());
  for (size_t rank = 0; rank < colours.size(); ++rank) seen[rank].push_back(colours[rank]);
  for (const GroupSet& set : sets) {
    const int64_t size = set.mesh->size();
    for (int64_t i = 0; i < size; ++i) {
      // The first member of each group speaks for it.
      std::vector<int64_t> coordinates(set.mesh->axes.size());
      int64_t rest = i;
      for (size_t a = set.mesh->axes.size(); a-- > 0;) {
        coordinates[a] = rest % set.mesh->axes[a].size;
        rest /= set.mesh->axes[a].size;
      }
      if (std::any_of(set.axes.begin(), set.axes.end(),
                      [&](AxisId axis) { return coordinates[axis.index()] != 0; })) {
        continue;
      }
      const std::vector<int> members = set.mesh->group(coordinates, set.axes);
      const std::vector<int64_t> view = view_of(members, colours, cluster);
      for (const int member : members) {
        auto& mine = seen[static_cast<size_t>(member)];
        mine.insert(mine.end(), view.begin(), view.end());
      }
    }
  }
  std::map<std::vector<int64_t>, int32_t> number;
  for (size_t rank = 0; rank < colours.size(); ++rank) {
    if (colours[rank] < 0) continue;
    colours[rank] =
        number.try_emplace(seen[rank], static_cast<int32_t>(number.size())).first->second;
  }
  return number.size() > before.size();
}

}  // namespace

int64_t ranks_on_node(const Mesh& mesh, const Cluster& cluster, int64_t device) {
  // Ranks of a node are consecutive: look at the neighbours only.
  const Location at = cluster.locate(device);
  const int64_t first = device - at.local;
  const int64_t size = cluster.type_of(device).devices;
  int64_t count = 0;
  for (int64_t d = first; d < first + size; ++d) count += mesh.contains(d) ? 1 : 0;
  return count;
}

int64_t groups_on_node(const ResolvedPlan& plan, const Cluster& cluster,
                       const std::vector<std::string>& axes, int64_t device) {
  const Location at = cluster.locate(device);
  const int64_t first = device - at.local;
  const int64_t size = cluster.type_of(device).devices;
  int64_t groups = 0;
  for (const Place& place : plan.places) {
    std::vector<AxisId> ids;
    for (const std::string& name : axes) ids.push_back(place.mesh.find(name));
    if (!std::all_of(ids.begin(), ids.end(), [](AxisId id) { return id.valid(); })) continue;
    std::set<int64_t> origins;  // of the groups with a member on the node
    for (int64_t d = first; d < first + size; ++d) {
      if (!place.mesh.contains(d)) continue;
      std::vector<int64_t> coordinates = place.mesh.coordinates(d);
      for (const AxisId id : ids) coordinates[id.index()] = 0;
      origins.insert(place.mesh.rank_at(coordinates));
    }
    groups += static_cast<int64_t>(origins.size());
  }
  return std::max<int64_t>(1, groups);
}

Result<Classes> make_classes(const Lowering& lowering, const Cluster& cluster, bool fold,
                             const std::vector<int64_t>& alone) {
  Classes out;
  std::vector<int32_t> colours = lowering.role_of_ranks();
  const std::vector<RankClass> roles = lowering.roles();
  const std::vector<int32_t> role = colours;
  if (!fold) {
    for (size_t rank = 0; rank < colours.size(); ++rank) {
      if (colours[rank] >= 0) colours[rank] = static_cast<int32_t>(rank);
    }
  } else {
    // Parts of other device types, and single devices, are classes of their own.
    std::map<std::pair<int64_t, int64_t>, int32_t> number;
    for (size_t rank = 0; rank < colours.size(); ++rank) {
      if (colours[rank] < 0) continue;
      const auto device = static_cast<int64_t>(rank);
      int64_t where = cluster.parts.size() > 1 ? cluster.locate(device).part : 0;
      if (std::find(alone.begin(), alone.end(), device) != alone.end()) where = -1 - device;
      colours[rank] =
          number.try_emplace({colours[rank], where}, static_cast<int32_t>(number.size()))
              .first->second;
    }
    for (const RankClass& one : roles) {
      TESSERA_TRY(Program program, lowering.lower(one.representative));
      out.programs.emplace(one.representative, std::move(program));
    }
    const std::vector<GroupSet> sets = group_sets(lowering, out.programs);
    while (refine(colours, sets, cluster)) {
    }
  }
  std::map<int32_t, int32_t> index;  // colour -> class, by lowest rank
  out.of_rank.assign(colours.size(), -1);
  for (size_t rank = 0; rank < colours.size(); ++rank) {
    if (colours[rank] < 0) continue;
    const auto [it, fresh] = index.try_emplace(colours[rank], static_cast<int32_t>(out.all.size()));
    if (fresh) {
      out.all.push_back({static_cast<int>(rank), 0, roles[static_cast<size_t>(role[rank])].stages});
    }
    ++out.all[static_cast<size_t>(it->second)].ranks;
    out.of_rank[rank] = it->second;
  }
  for (const PlayedClass& one : out.all) {
    if (out.programs.contains(one.representative)) continue;
    TESSERA_TRY(Program program, lowering.lower(one.representative));
    out.programs.emplace(one.representative, std::move(program));
  }
  return out;
}

}  // namespace tessera
