#include "tessera/simulate/classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <set>
#include <string>
#include <unordered_map>

#include "tessera/base/small_vector.h"
#include "tessera/cost/collective_cost.h"
#include "tessera/program/instructions.h"

namespace tessera {
namespace {

// All groups of one mesh over the same axes.
struct GroupSet {
  PlaceId place;
  const Mesh* mesh;
  std::vector<std::string> names;
  Axes axes;
};

std::vector<GroupSet> group_sets(const Lowering& lowering, const std::map<int, Program>& programs) {
  std::vector<GroupSet> out;
  std::set<std::pair<PlaceId, std::vector<std::string>>> seen;
  for (const auto& [rank, program] : programs) {
    for (const Group& group : program.groups) {
      if (!seen.insert({group.place, group.axes}).second) continue;
      GroupSet set{group.place, &lowering.plan().places[group.place.index()].mesh, group.axes, {}};
      for (const std::string& axis : group.axes) set.axes.push_back(set.mesh->find(axis));
      out.push_back(std::move(set));
    }
  }
  return out;
}

// A list of numbers that describes one of a rank's groups, or a peer of its messages. Ranks with
// different views are put into different classes.
using View = SmallVector<int64_t, 12>;
struct HashNumbers {
  template <class Numbers>
  size_t operator()(const Numbers& numbers) const {
    uint64_t out = 0;
    for (const int64_t number : numbers) {
      out = (out ^ static_cast<uint64_t>(number)) * 0x9e3779b97f4a7c15;
      out ^= out >> 32;
    }
    return out;
  }
};

// Returns the view of a group: the colours of its members. A colour is the number of a class so
// far. `members`, `colours`: of the slice.
View view_of(const std::vector<size_t>& members, const std::vector<int32_t>& colours) {
  View out;
  int64_t last = -2;
  for (const size_t member : members) {
    const int64_t colour = colours[member];
    if (colour != last) out.push_back(colour);
    last = colour;
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  out.push_back(-1);
  return out;
}

// Adds to the view how the ranks of a group are placed on the machine: the numbers on which the
// price of their collectives depends.
void add_lie(const GroupPlacement& where, View& out) {
  for (const int64_t number :
       {where.nodes, where.members_a_node, where.groups_a_node, where.sockets,
        std::bit_cast<int64_t>(where.fabric_s), std::bit_cast<int64_t>(where.uplink_rate),
        where.nodes_an_uplink, where.nodes_below, where.device}) {
    out.push_back(number);
  }
}

// Adds to the view how the two ends of a message are placed on the machine. Replicas whose messages
// pass through different numbers of tiers count as equal if no way is narrower than the network
// cards. A hop takes only a microsecond, and telling such replicas apart would double the number of
// classes.
void add_lie_of_message(const Cluster& cluster, int64_t from, int64_t to, int64_t share,
                        const std::vector<bool>* at_work, View& out) {
  GroupPlacement where = place_group(cluster, {from, to}, share, at_work);
  if (where.uplink_rate <= 0 && cluster.switches.empty()) where.fabric_s = 0;
  add_lie(where, out);
  out.push_back(cluster.locate(from).local == cluster.locate(to).local ? 1 : 0);  // rail
}

// The peers with which the ranks of a role exchange messages. A peer is described by its place and
// by its step: how many coordinates further it is on each axis (modulo the size of the axis). Only
// peers on meshes with the same axes as the role's mesh count, because then all ranks of the role
// have the same steps.
struct Peers {
  int32_t role;
  PlaceId place;
  const Mesh* mesh;
  const ResolvedPlan* plan;
  // By place and step: the number of elements that both ends send.
  std::map<std::pair<PlaceId, std::vector<int64_t>>, int64_t> steps;

  int64_t peer(const std::vector<int64_t>& from, PlaceId there,
               const std::vector<int64_t>& step) const {
    std::vector<int64_t> to(from.size());
    for (size_t a = 0; a < from.size(); ++a) to[a] = (from[a] + step[a]) % mesh->axes[a].size;
    return plan->places[there.index()].mesh.rank_at(to);
  }
};
std::vector<Peers> peers_of(const ResolvedPlan& plan, const Lowered& lowered) {
  std::vector<Peers> out;
  for (const auto& [rank, program] : lowered.programs) {
    Peers mine;
    mine.plan = &plan;
    mine.role = lowered.role_of_rank[static_cast<size_t>(rank)];
    mine.place = plan.places_of(rank)[0];
    mine.mesh = &plan.places[mine.place.index()].mesh;
    const std::vector<int64_t> from = mine.mesh->coordinates(rank);
    const auto add = [&](int peer, const Box& region) {
      const PlaceId place = plan.places_of(peer)[0];
      const Mesh& there = plan.places[place.index()].mesh;
      if (there.axes != mine.mesh->axes) return;
      std::vector<int64_t> step = there.coordinates(peer);
      for (size_t a = 0; a < step.size(); ++a) {
        const int64_t size = mine.mesh->axes[a].size;
        step[a] = (step[a] - from[a] + size) % size;
      }
      mine.steps[{place, std::move(step)}] += region.volume();
    };
    for (const auto& [ref, block] : program.blocks) {
      for (const Instruction& instruction : block) {
        if (const auto message = message_of(instruction)) add(message->peer, *message->region);
      }
    }
    if (!mine.steps.empty()) out.push_back(std::move(mine));
  }
  return out;
}

// Returns by axis whether some of the messages go along it.
std::vector<bool> moved_axes(const std::vector<Peers>& peers, const Mesh& mesh) {
  std::vector<bool> out(mesh.axes.size(), false);
  for (const Peers& some : peers) {
    for (const auto& [to, elements] : some.steps) {
      for (size_t a = 0; a < std::min(out.size(), to.second.size()); ++a)
        out[a] = out[a] || to.second[a] != 0;
    }
  }
  return out;
}

// Splits colours, one for each rank of the slice, by the views that the ranks have of their groups
// and peers. If `first`, the views also have how groups and peers are placed on the machine. Returns
// whether there are more colours afterwards.
bool refine(const RankSlice& slice, std::vector<int32_t>& colours,
            const std::vector<int32_t>& roles, const std::vector<GroupSet>& sets,
            const std::vector<Peers>& peers, NodeSharing& sharing, const Cluster& cluster,
            const RankDevices& devices, bool first) {
  std::set<int32_t> before(colours.begin(), colours.end());
  before.erase(-1);
  // By rank of the slice: a number for all views so far. It begins as the rank's colour. With each
  // view it becomes the number of the pair (number before, number of the view).
  std::vector<int64_t> seen(colours.begin(), colours.end());
  int64_t next = 1 + *std::max_element(seen.begin(), seen.end());
  std::unordered_map<std::array<int64_t, 2>, int64_t, HashNumbers> both;
  const auto see = [&](size_t rank, int64_t view) {
    int64_t& now = seen[rank];
    const auto [it, is_new] = both.try_emplace({now, view}, next);
    next += is_new ? 1 : 0;
    now = it->second;
  };
  std::unordered_map<View, int64_t, HashNumbers> views;  // view -> its number
  const auto number_of = [&](const View& view) {
    return views.try_emplace(view, static_cast<int64_t>(views.size())).first->second;
  };
  std::vector<size_t> members;
  for (const GroupSet& set : sets) {
    Axes others;  // each group is handled once, at its first member
    for (size_t a = 0; a < set.mesh->axes.size(); ++a) {
      if (std::ranges::find(set.axes, AxisId(a)) == set.axes.end()) others.emplace_back(a);
    }
    const std::vector<int64_t> origin(set.mesh->axes.size(), 0);
    for (const int start : slice.members(*set.mesh, origin, others)) {
      members.clear();
      for (const int member : slice.members(*set.mesh, set.mesh->coordinates(start), set.axes))
        members.push_back(slice.index(member));
      View view = view_of(members, colours);
      if (first) add_lie(sharing.placement(set.place, set.names, start, slice), view);
      const int64_t seen_by_all = number_of(view);
      for (const size_t member : members) see(member, seen_by_all);
    }
  }
  std::vector<View> peers_of_rank;
  for (const Peers& some : peers) {
    for (size_t i = 0; i < colours.size(); ++i) {
      const int64_t rank = slice.ranks()[i];
      if (roles[static_cast<size_t>(rank)] != some.role) continue;
      const std::vector<int64_t> from = some.mesh->coordinates(rank);
      // The views of the peers are sorted, so that peers that exchange equally many elements differ
      // only by their views and not by their order.
      const int64_t beside = first ? sharing.ranks_on_node(some.place, rank) : 1;
      peers_of_rank.clear();
      for (const auto& [to, elements] : some.steps) {
        const int64_t peer = some.peer(from, to.first, to.second);
        View& view = peers_of_rank.emplace_back();
        view.push_back(elements);
        view.push_back(colours[slice.index(peer)]);
        if (first) {
          add_lie_of_message(cluster, devices.device_of(rank), devices.device_of(peer), beside,
                             sharing.nodes_of(some.place), view);
        }
      }
      std::sort(peers_of_rank.begin(), peers_of_rank.end());
      for (const View& view : peers_of_rank) see(i, number_of(view));
    }
  }
  std::unordered_map<int64_t, int32_t> number;
  for (size_t i = 0; i < colours.size(); ++i) {
    if (colours[i] < 0) continue;
    colours[i] = number.try_emplace(seen[i], static_cast<int32_t>(number.size())).first->second;
  }
  return number.size() > before.size();
}

}  // namespace

NodeSharing::NodeSharing(const ResolvedPlan& plan, const RankDevices& devices,
                         const Cluster& cluster)
    : plan_(&plan), devices_(&devices), cluster_(&cluster) {
  has_narrow_ways_ = !cluster.switches.empty() ||
                     std::any_of(cluster.tiers.begin(), cluster.tiers.end(),
                                 [](const FabricTier& tier) { return tier.oversubscription > 1; });
}

const std::vector<bool>* NodeSharing::nodes_with(const std::vector<std::string>& axes) {
  if (!has_narrow_ways_) return nullptr;
  const auto [it, is_new] = nodes_with_.try_emplace(axes);
  if (!is_new) return &it->second;
  // By group, which its place and its first member name: its nodes.
  std::map<std::pair<PlaceId, int64_t>, std::vector<int64_t>> groups;
  for (int64_t rank = 0; rank < plan_->ranks; ++rank) {
    const int64_t node = cluster_->locate(devices_->device_of(rank)).node;
    for (const auto& group : groups_of(axes, rank)) groups[group].push_back(node);
  }
  it->second.assign(static_cast<size_t>(cluster_->nodes()), false);
  for (const auto& [group, nodes] : groups) {
    const int64_t first = lowest_switch(*cluster_, nodes.front());
    const bool crosses = std::any_of(nodes.begin(), nodes.end(), [&](int64_t node) {
      return lowest_switch(*cluster_, node) != first;
    });
    for (size_t i = 0; i < nodes.size() && crosses; ++i)
      it->second[static_cast<size_t>(nodes[i])] = true;
  }
  return &it->second;
}

const std::vector<bool>* NodeSharing::nodes_of(PlaceId place) {
  if (!has_narrow_ways_) return nullptr;
  const auto [it, is_new] = nodes_of_.try_emplace(place);
  if (!is_new) return &it->second;
  it->second.assign(static_cast<size_t>(cluster_->nodes()), false);
  for (int64_t rank = 0; rank < plan_->ranks; ++rank) {
    if (!plan_->places[place.index()].mesh.contains(rank)) continue;
    it->second[static_cast<size_t>(cluster_->locate(devices_->device_of(rank)).node)] = true;
  }
  return &it->second;
}

std::vector<int64_t> NodeSharing::ranks_beside(int64_t rank) const {
  const int64_t device = devices_->device_of(rank);
  const int64_t first = device - cluster_->locate(device).local;
  std::vector<int64_t> out;
  for (int64_t d = first; d < first + cluster_->type_of(device).devices; ++d) {
    const int64_t other = devices_->rank_on(d);
    if (other >= 0 && other < plan_->ranks) out.push_back(other);
  }
  return out;
}

// Returns the groups over axes of these names to which a rank belongs, one for each of its places
// whose mesh has all the axes. A group is named by its place and its first member.
std::vector<std::pair<PlaceId, int64_t>> NodeSharing::groups_of(
    const std::vector<std::string>& axes, int64_t rank) const {
  std::vector<std::pair<PlaceId, int64_t>> out;
  for (const PlaceId place : plan_->places_of(rank)) {
    const Mesh& mesh = plan_->places[place.index()].mesh;
    std::vector<int64_t> coordinates = mesh.coordinates(rank);
    const bool all = std::all_of(axes.begin(), axes.end(), [&](const std::string& name) {
      const AxisId id = mesh.find(name);
      if (id.valid()) coordinates[id.index()] = 0;
      return id.valid();
    });
    if (all) out.emplace_back(place, mesh.rank_at(coordinates));
  }
  return out;
}

int64_t NodeSharing::groups_on_node(const std::vector<std::string>& axes, int rank) const {
  std::set<std::pair<PlaceId, int64_t>> origins;
  for (const int64_t beside : ranks_beside(rank)) {
    for (const auto& group : groups_of(axes, beside)) origins.insert(group);
  }
  return static_cast<int64_t>(origins.size());
}

int64_t NodeSharing::groups_a_node(const std::vector<std::string>& axes,
                                   const std::vector<int>& members) {
  int64_t most = 1;
  int64_t last = -1;
  for (const int member : members) {
    const int64_t node = cluster_->locate(devices_->device_of(member)).node;
    if (node == last) continue;
    last = node;
    const auto [it, fresh] = known_.try_emplace({axes, node}, 0);
    if (fresh) it->second = groups_on_node(axes, member);
    most = std::max(most, it->second);
  }
  return most;
}

const GroupPlacement& NodeSharing::placement(PlaceId place, const std::vector<std::string>& names,
                                             int64_t rank, const RankSlice& slice) {
  const Mesh& mesh = plan_->places[place.index()].mesh;
  std::vector<int64_t> first = mesh.coordinates(rank);
  Axes axes;
  for (const std::string& name : names) {
    axes.push_back(mesh.find(name));
    first[axes.back().index()] = 0;
  }
  const auto [it, fresh] = placements_.try_emplace({place, names, mesh.rank_at(first)});
  if (fresh) {
    it->second = place_group(*cluster_, devices_->devices_of(mesh.group(first, axes)),
                             groups_a_node(names, slice.members(mesh, first, axes)),
                             nodes_with(names));
  }
  return it->second;
}

int64_t NodeSharing::ranks_on_node(PlaceId place, int64_t rank) const {
  int64_t count = 0;
  for (const int64_t beside : ranks_beside(rank))
    count += plan_->places[place.index()].mesh.contains(beside) ? 1 : 0;
  return std::max<int64_t>(1, count);
}

Status Lowered::add(int rank) {
  if (programs.contains(rank)) return {};
  const std::optional<int> other = counts ? std::nullopt : alike.like(rank);
  const auto known = other ? programs.find(*other) : programs.end();
  if (known != programs.end()) {
    if (auto program = alike.program(known->second, rank, offsets)) {
      programs.emplace(rank, std::move(*program));
      made_of.emplace(rank, *other);
      return {};
    }
  }
  TESSERA_TRY(Program program, lowering->lower(rank, offsets));
  if (counts) counts(program);
  programs.emplace(rank, std::move(program));
  return {};
}

namespace {

int64_t instructions_of(const Program& program) {
  int64_t out = 0;
  for (const auto& [ref, block] : program.blocks) out += std::ssize(block);
  return out;
}

// Returns the sum over the classes of the number of instructions in one program of the class. The
// instructions are counted in the program of the representative of the class's rank class
// (Lowered::roles), which has as many of them and is made already.
int64_t instructions_of(const Classes& classes, const Lowered& lowered) {
  int64_t out = 0;
  for (const PlayedClass& one : classes.all) {
    const int32_t role = lowered.role_of_rank[static_cast<size_t>(one.representative)];
    out += instructions_of(
        lowered.programs.at(lowered.roles[static_cast<size_t>(role)].representative));
  }
  return out;
}

}  // namespace

Result<Classes> make_classes(Lowered& lowered, const Cluster& cluster, RankFold fold,
                             const std::vector<int64_t>& alone, NodeSharing& sharing,
                             const std::function<bool(int64_t)>& may_play) {
  Classes out;
  const std::vector<RankClass>& roles = lowered.roles;
  const std::vector<int32_t>& role = lowered.role_of_rank;
  const ResolvedPlan& plan = lowered.lowering->plan();
  std::vector<Peers> peers;
  out.slice = RankSlice(plan.ranks);
  if (fold == RankFold::kExact) {
    for (const RankClass& one : roles) TESSERA_TRY_VOID(lowered.add(one.representative));
    peers = peers_of(plan, lowered);
    if (alone.empty() && lowered.devices.in_order()) {
      out.slice =
          RankSlice(plan, role, cluster, moved_axes(peers, plan.places.front().mesh));
    }
  }
  const RankSlice& slice = out.slice;
  std::map<std::vector<StageId>, int32_t> of_stages;
  std::map<std::pair<int64_t, int64_t>, int32_t> of_parts;
  const auto number_in = [](auto& known, auto key) {
    return known.try_emplace(std::move(key), static_cast<int32_t>(known.size())).first->second;
  };
  std::vector<int32_t> colours;  // by rank of the slice
  for (const int64_t rank : slice.ranks()) {
    int32_t colour = role[static_cast<size_t>(rank)];
    if (colour >= 0 && fold == RankFold::kNone) {
      colour = static_cast<int32_t>(rank);
    } else if (colour >= 0 && fold == RankFold::kPlaces) {
      colour = number_in(of_stages, roles[static_cast<size_t>(colour)].stages);
    } else if (colour >= 0) {
      // Ranks on different parts of the cluster are in different classes, and each device of `alone`
      // is a class of its own.
      const int64_t device = lowered.devices.device_of(rank);
      int64_t where = cluster.parts.size() > 1 ? cluster.locate(device).part : 0;
      if (std::find(alone.begin(), alone.end(), device) != alone.end()) where = -1 - device;
      colour = number_in(of_parts, std::pair<int64_t, int64_t>{colour, where});
    }
    colours.push_back(colour);
  }
  if (fold == RankFold::kExact) {
    const std::vector<GroupSet> sets = group_sets(*lowered.lowering, lowered.programs);
    for (bool first = true; refine(slice, colours, role, sets, peers, sharing, cluster,
                                   lowered.devices, first);)
      first = false;
  }
  std::map<int32_t, int32_t> index;  // colour -> class; classes are in the order of lowest ranks
  for (size_t i = 0; i < colours.size(); ++i) {
    if (colours[i] < 0) continue;
    const auto rank = static_cast<size_t>(slice.ranks()[i]);
    const auto [it, fresh] = index.try_emplace(colours[i], static_cast<int32_t>(out.all.size()));
    if (fresh) {
      out.all.push_back({static_cast<int>(rank), 0, roles[static_cast<size_t>(role[rank])].stages});
    }
    out.all[static_cast<size_t>(it->second)].ranks += slice.alike();
    colours[i] = it->second;
  }
  out.of_rank = slice.spread(colours);
  if (may_play && fold == RankFold::kExact) {
    const int64_t instructions = instructions_of(out, lowered);
    if (!may_play(instructions)) {
      return tl::unexpected(
          Error{ErrorCode::kCheckFailed,
                fmt::format(
                    "{} classes of ranks, with {} instructions in all, are more than may be played",
                    out.all.size(), instructions)});
    }
  }
  for (const PlayedClass& one : out.all) TESSERA_TRY_VOID(lowered.add(one.representative));
  return out;
}

}  // namespace tessera
