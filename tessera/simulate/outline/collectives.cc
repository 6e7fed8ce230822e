#include <algorithm>
#include <map>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/simulate/outline/player.h"

namespace tessera {
namespace {

using GroupFacts = PlayerOutline::GroupFacts;

const GroupFacts& facts(PlayerOutline& p, int index) {
  GroupFacts& facts = p.groups[static_cast<size_t>(index)];
  if (facts.known) return facts;
  facts.known = true;
  const Group& group = p.program.groups[static_cast<size_t>(index)];
  facts.axes = join(group.axes, " ");
  const RankSlice& slice = p.shared.out.classes.slice;
  facts.where = p.shared.sharing.placement(group.place, group.axes, p.program.rank, slice);
  const Mesh& mesh = p.shared.lowering().plan().places[group.place.index()].mesh;
  Axes axes;
  for (const std::string& axis : group.axes) axes.push_back(mesh.find(axis));
  for (const int member : slice.members(mesh, mesh.coordinates(p.program.rank), axes))
    facts.classes.push_back(p.shared.class_of(member));
  std::sort(facts.classes.begin(), facts.classes.end());
  facts.classes.erase(std::unique(facts.classes.begin(), facts.classes.end()), facts.classes.end());
  return facts;
}

// Returns the node of each member of a group, numbered in the order of first members.
const std::vector<int64_t>& nodes(PlayerOutline& p, int group) {
  std::vector<int64_t>& out = p.groups[static_cast<size_t>(group)].nodes;
  if (!out.empty()) return out;
  std::map<int64_t, int64_t> numbers;
  for (const int member : p.program.groups[static_cast<size_t>(group)].members) {
    out.push_back(
        numbers.try_emplace(p.node_of(member), static_cast<int64_t>(numbers.size())).first->second);
  }
  return out;
}

// Returns the counted load of an exchange over several nodes, else an empty load. With more than
// kMostCounted members it is empty too, because counting would take long.
ExchangeLoad load(PlayerOutline& p, const Issue& issue, const GroupFacts& facts) {
  constexpr int64_t kMostCounted = 256;
  const bool sums = issue.combiner && !issue.named;
  if (issue.kind != CollectiveKind::kExchange || sums || facts.where.nodes == 1 ||
      facts.where.members > kMostCounted) {
    return {};
  }
  return p.shared.bytes.load(issue, nodes(p, issue.group));
}

// Returns whether the tensor is the gradient of a parameter or of a form of it.
bool is_gradient(const Graph& graph, TensorId tensor) {
  return graph.tensor(tensor).role == Role::kGradient && graph.is_parameter_gradient(tensor);
}
bool is_parameter(const Graph& graph, TensorId tensor) {
  const Role role = graph.tensor(tensor).role;
  return role == Role::kOptimizerState || role == Role::kParameter ||
         (role == Role::kActivation && graph.parameter_of(tensor).valid());
}

Moves moves(const PlayerOutline& p, const Issue& issue) {
  const TensorId tensor = issue.transfers[0].tensor;
  const Role role = p.graph.tensor(tensor).role;
  const bool between_ops = (role == Role::kActivation && !is_parameter(p.graph, tensor)) ||
                           (role == Role::kGradient && !is_gradient(p.graph, tensor));
  if (p.ref.once() || !between_ops) return Moves::kOther;
  const bool tokens = issue.kind == CollectiveKind::kAllToAll && p.shared.routed[tensor.index()];
  return tokens ? Moves::kTokens : Moves::kActivations;
}

// Returns the number of experts that each token goes to if the issue moves tokens, else 1.
int64_t choices(const PlayerOutline& p, const Issue& issue) {
  return moves(p, issue) == Moves::kTokens ? p.shared.choices : 1;
}

// Returns whether the host waits right after the issue, because the style does not overlap
// collectives of gradients (or parameters) with compute.
bool blocks(const PlayerOutline& p, const Issue& issue) {
  const TensorId tensor = issue.transfers[0].tensor;
  const Style& style = p.shared.options.style;
  if (is_gradient(p.graph, tensor)) return !style.overlap_gradients;
  return is_parameter(p.graph, tensor) && !style.overlap_parameters;
}

void add_collective(PlayerOutline& p, const Issue& issue) {
  const Group& group = p.program.groups[static_cast<size_t>(issue.group)];
  const GroupFacts& where = facts(p, issue.group);
  const std::string kind(collective_name(issue.kind));
  Item& item =
      p.push(ItemKind::kIssue, PriceTag::kCollective,
             entry<PricedCollective>(p.shared.out.collectives, p.shared.collectives,
                                     {issue.kind, where.where, p.shared.bytes.whole(issue),
                                      moves(p, issue), load(p, issue, where), choices(p, issue)}));
  item.lane = Lane::kCollective;
  item.spent = Spent::kCollective;
  item.handle = p.handles.at(issue.handle);
  item.stream = issue.group;
  item.parties = static_cast<int32_t>(where.classes.size());
  item.bytes = p.shared.bytes.sent(issue, static_cast<size_t>(group.index));
  item.account = p.account(kind, where.axes, item.bytes);
  item.label = p.shared.label([&] { return moved_tensors(issue, p.graph); },
                              [&] { return kind + " " + where.axes; });
  if (item.parties > 1) {
    // The key has the number of the stage in the plan and not its index on the rank, because the
    // index may differ between members of the group.
    const auto chunk = static_cast<size_t>(p.program.family(p.ref).chunk);
    Key key{0,
            static_cast<int64_t>(p.ref.kind),
            p.ref.once() ? 0 : p.program.stages[chunk].value,
            p.program.smaller(p.ref) ? 1 : 0,
            static_cast<int64_t>(issue.kind),
            issue.transfers[0].tensor.value,
            group.place.value};
    const Mesh& mesh = p.shared.lowering().plan().places[group.place.index()].mesh;
    for (const std::string& axis : group.axes) key.push_back(mesh.find(axis).value);
    key.insert(key.end(), where.classes.begin(), where.classes.end());
    key.push_back(p.seen[key]++);
    item.match = p.shared.matches[key];
  }
  // Ranks in one node carry a collective out themselves. One between nodes that is awaited in
  // another block proceeds in the network, whatever the ranks wait for meanwhile.
  const bool at_its_wait = p.postponed.contains({p.ref, static_cast<size_t>(p.instruction)});
  const bool inside = where.where.nodes == 1;
  if (p.type.device.synchronous && (inside || at_its_wait)) {
    if (inside) item.members = static_cast<int32_t>(group.members.size());
    // The program's own wait may come later. For it the engine keeps the outcome only if the host
    // waits here.
    return p.add_wait(item.handle, 0, !at_its_wait);
  }
  if (blocks(p, issue)) p.add_wait(item.handle, 0, true);
}

}  // namespace

void add(PlayerOutline& p, const Issue& issue) {
  if (!p.type.device.synchronous && !p.ref.once() &&
      is_gradient(p.graph, issue.transfers[0].tensor) && blocks(p, issue)) {
    p.late.push_back(static_cast<size_t>(p.instruction));
    return;
  }
  const std::pair<BlockRef, size_t> place{p.ref, static_cast<size_t>(p.instruction)};
  if (!p.postponed.contains(place)) add_collective(p, issue);
}

void add_issued_at(PlayerOutline& p, size_t position) {
  const Instruction& instruction = p.program.block(p.ref)[position];
  const int32_t at = std::exchange(p.instruction, static_cast<int32_t>(position));
  const When when = std::exchange(p.when, instruction.when);
  add_collective(p, std::get<Issue>(instruction.body));
  p.instruction = at;
  p.when = when;
}

void add_late(PlayerOutline& p, size_t which) {
  const size_t position = p.late[which];
  p.late.erase(p.late.begin() + static_cast<std::ptrdiff_t>(which));
  add_issued_at(p, position);
}

void find_pairs(PlayerOutline& p) {
  for (const auto& [ref, block] : p.program.blocks) {
    std::map<int, size_t> issued;
    for (size_t i = 0; i < block.size(); ++i) {
      if (const auto* issue = std::get_if<Issue>(&block[i].body)) issued[issue->handle] = i;
      const auto* wait = std::get_if<Wait>(&block[i].body);
      if (wait == nullptr || wait->lag != 0) continue;
      const auto found = issued.find(wait->handle);
      if (found == issued.end() || block[found->second].when != block[i].when) continue;
      p.deferred[{ref, i}] = found->second;
      p.postponed.insert({ref, found->second});
    }
  }
}

}  // namespace tessera
