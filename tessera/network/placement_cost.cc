#include "tessera/network/placement_cost.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "tessera/network/order_index.h"

namespace tessera {
namespace {

// Swaps after which a PlacementState counts everything again, so that rounding errors do not grow.
constexpr int64_t kSwapsBetweenCounts = 20'000;

}  // namespace

DeviceNumbers::DeviceNumbers(const OrderNetwork& network) {
  for (size_t m = 0; m < network.machines.size(); ++m) {
    first_.push_back(count());
    machine_of_.insert(machine_of_.end(), index_of(network.machines[m].devices),
                       static_cast<int64_t>(m));
  }
}

// The bytes of a device to and from others of its machine, and to and from other machines through
// its network card.
struct PlacementCosts::DeviceBytes {
  double sent_inside = 0, taken_inside = 0, sent_outside = 0, taken_outside = 0;
};

// Returns how long the devices and cards of a machine take for the bytes.
double PlacementCosts::seconds_of(std::span<const DeviceBytes> bytes, const OrderMachine& machine) {
  double seconds = 0, all = 0;
  const size_t devices = std::max<size_t>(1, bytes.size());
  // Several cards of a device work together; several devices may share a card.
  const size_t cards = std::min(index_of(machine.cards), devices);
  const double card_rate = machine.rate() / static_cast<double>(cards);
  double sent = 0, taken = 0;  // through the card of the device
  for (size_t d = 0; d < bytes.size(); ++d) {
    const DeviceBytes& one = bytes[d];
    all += one.sent_inside;
    if (machine.device_rate > 0 && machine.switched) {
      seconds =
          std::max(seconds, std::max(one.sent_inside, one.taken_inside) / machine.device_rate);
    }
    if (d > 0 && d * cards / devices != (d - 1) * cards / devices) sent = taken = 0;
    sent += one.sent_outside;
    taken += one.taken_outside;
    if (card_rate > 0) seconds = std::max(seconds, std::max(sent, taken) / card_rate);
  }
  if (machine.device_rate > 0 && !machine.switched)
    seconds = std::max(seconds, all / machine.device_rate);
  return seconds;
}

PlacementCosts::PlacementCosts(const PlanTraffic& traffic, const OrderNetwork& network,
                               const OrderRoutes& routes, const std::vector<int64_t>& devices)
    : network_(&network), routes_(&routes) {
  const DeviceNumbers numbers(network);
  std::vector<int32_t> slots;  // by rank
  for (const int64_t device : devices)
    slots.push_back(static_cast<int32_t>(numbers.machine_of(device)));
  std::vector<DeviceBytes> bytes(index_of(numbers.count()));
  std::vector<int32_t> members(network.machines.size(), 0);  // of a group, by slot
  for (const TrafficKind& given : traffic.kinds) {
    const size_t first = kinds_.size(), phases = std::max<size_t>(1, given.phases.size());
    kinds_.resize(first + phases);
    std::map<int32_t, std::vector<size_t>> by_stage;  // that receives
    for (size_t p = 0; p < phases; ++p) {
      kinds_[first + p].shape = given.shape;
      kinds_[first + p].rounds = given.phases.empty() ? given.rounds : given.phases[p].rounds;
      by_stage[given.phases.empty() ? 0 : given.phases[p].to].push_back(first + p);
    }
    std::vector<std::vector<int32_t>> touched(phases);  // ranks, perhaps repeatedly
    for (const GroupFlow& group : given.groups) {
      add_group(group, slots, devices, kinds_[first], bytes, members);
      touched[0].insert(touched[0].end(), group.members.begin(), group.members.end());
    }
    std::vector<std::vector<const RankFlow*>> by_phase(phases);
    for (const RankFlow& message : given.messages)
      by_phase[index_of(message.phase)].push_back(&message);
    for (size_t p = 0; p < phases; ++p) {
      for (const RankFlow* message : by_phase[p]) {
        add_message(*message, slots, devices, kinds_[first + p], bytes);
        touched[p].insert(touched[p].end(), {message->from, message->to});
      }
      add_slots(touched[p], slots, numbers, bytes, kinds_[first + p]);
    }
    std::vector<std::vector<size_t>>& together = together_.emplace_back();
    for (auto& [stage, kinds] : by_stage) together.push_back(std::move(kinds));
  }
}

void PlacementCosts::add_slots(const std::vector<int32_t>& touched,
                               const std::vector<int32_t>& slots, const DeviceNumbers& numbers,
                               std::vector<DeviceBytes>& bytes, Kind& out) const {
  std::vector<char> seen(network_->machines.size(), 0);
  for (const int32_t rank : touched) seen[index_of(slots[index_of(rank)])] = 1;
  for (size_t slot = 0; slot < seen.size(); ++slot) {
    if (seen[slot] != 0) out.slots.push_back(static_cast<int32_t>(slot));
  }
  const auto devices_of = [&](int32_t slot) {
    return std::span(bytes).subspan(index_of(numbers.first_of(slot)),
                                    index_of(network_->machines[index_of(slot)].devices));
  };
  for (const OrderMachine& type : routes_->types()) {
    std::vector<double>& seconds = out.slot_s.emplace_back();
    for (const int32_t slot : out.slots) {
      const std::span<const DeviceBytes> here = devices_of(slot);
      seconds.push_back(std::ssize(here) == type.devices ? seconds_of(here, type) : 0);
    }
  }
  for (const int32_t slot : out.slots) std::ranges::fill(devices_of(slot), DeviceBytes());
}

void PlacementCosts::add_group(const GroupFlow& given, const std::vector<int32_t>& slots,
                               const std::vector<int64_t>& devices, Kind& out,
                               std::vector<DeviceBytes>& bytes, std::vector<int32_t>& members) {
  Group group{{}, static_cast<int32_t>(given.members.size()), given.bytes};
  for (const int32_t rank : given.members) {
    const int32_t slot = slots[index_of(rank)];
    if (members[index_of(slot)]++ == 0) group.parts.push_back({slot, 0});
  }
  const auto n = static_cast<double>(given.members.size());
  for (const int32_t rank : given.members) {
    const auto here = static_cast<double>(members[index_of(slots[index_of(rank)])]);
    double inside = (here - 1) * given.bytes, outside = (n - here) * given.bytes;
    if (out.shape == FlowShape::kRing) {
      // The ring enters and leaves a machine once; the members' cards share that.
      inside = here > 1 ? given.bytes : 0;
      outside = here < n ? given.bytes / here : 0;
    }
    DeviceBytes& one = bytes[index_of(devices[index_of(rank)])];
    one.sent_inside += inside;
    one.taken_inside += inside;
    one.sent_outside += outside;
    one.taken_outside += outside;
  }
  for (Part& part : group.parts) part.members = std::exchange(members[index_of(part.slot)], 0);
  if (group.parts.size() == 1) {
    out.inside = true;
  } else {
    out.groups.push_back(std::move(group));
  }
}

void PlacementCosts::add_message(const RankFlow& message, const std::vector<int32_t>& slots,
                                 const std::vector<int64_t>& devices, Kind& out,
                                 std::vector<DeviceBytes>& bytes) {
  const int32_t from = slots[index_of(message.from)], to = slots[index_of(message.to)];
  DeviceBytes &sender = bytes[index_of(devices[index_of(message.from)])],
              &taker = bytes[index_of(devices[index_of(message.to)])];
  if (from == to) {
    sender.sent_inside += message.bytes;
    taker.taken_inside += message.bytes;
    out.inside = true;
  } else {
    sender.sent_outside += message.bytes;
    taker.taken_outside += message.bytes;
    out.flows.push_back({from, to, message.bytes});
  }
}

PlacementCosts::Loads PlacementCosts::no_loads() const {
  Loads out;
  out.bytes.assign(network_->links(), 0);
  out.members.assign(network_->switches.size(), 0);
  return out;
}

void PlacementCosts::add_group_loads(const Kind& kind, const Group& group, const Order& order,
                                     double sign, Loads& out) const {
  out.switches.clear();
  for (const Part& part : group.parts) {
    for (const int64_t s : routes_->above(order[index_of(part.slot)])) {
      if (out.members[index_of(s)] == 0) out.switches.push_back(s);
      out.members[index_of(s)] += part.members;
    }
  }
  const auto add = [&](int64_t link, double bytes) {
    out.bytes[index_of(link)] += sign * bytes;
    out.changed.push_back(static_cast<int32_t>(link));
  };
  const bool ring = kind.shape == FlowShape::kRing;
  for (const int64_t s : out.switches) {
    const int64_t below = out.members[index_of(s)], beyond = group.members - below;
    if (beyond == 0) continue;
    const double bytes = ring ? group.bytes : static_cast<double>(below * beyond) * group.bytes;
    add(2 * s, bytes);
    add(2 * s + 1, bytes);
  }
  for (size_t p = 0; p < network_->paths.size(); ++p) {
    const OrderPath& path = network_->paths[p];
    const int64_t a = out.members[index_of(path.from)], b = out.members[index_of(path.to)];
    if (a == 0 || b == 0) continue;
    const auto link = static_cast<int64_t>(2 * network_->switches.size() + 2 * p);
    if (!ring) {
      add(link, static_cast<double>(a * b) * group.bytes);
      add(link + 1, static_cast<double>(a * b) * group.bytes);
      continue;
    }
    // The ring goes from switch to switch in the order of their numbers, and back from the last to
    // the first if no member is elsewhere.
    const int64_t above = network_->switches[index_of(path.from)].above;
    std::vector<int64_t> round;
    int64_t below = 0;
    for (const int64_t s : out.switches) {
      if (network_->switches[index_of(s)].above != above) continue;
      round.push_back(s);
      below += out.members[index_of(s)];
    }
    std::ranges::sort(round);
    for (size_t i = 0; i < round.size(); ++i) {
      const bool last = i + 1 == round.size();
      if (last && below < group.members) continue;
      const int64_t from = round[i], to = round[last ? 0 : i + 1];
      if (from == path.from && to == path.to) add(link, group.bytes);
      if (from == path.to && to == path.from) add(link + 1, group.bytes);
    }
  }
  for (const int64_t s : out.switches) out.members[index_of(s)] = 0;
}

void PlacementCosts::add_item(const Kind& kind, size_t item, const Order& order, double sign,
                              Loads& out) const {
  if (kind.shape != FlowShape::kMessages)
    return add_group_loads(kind, kind.groups[item], order, sign, out);
  const Flow& flow = kind.flows[item];
  for (const int32_t link : routes_->links(order[index_of(flow.from)], order[index_of(flow.to)])) {
    out.bytes[index_of(link)] += sign * flow.bytes;
    out.changed.push_back(link);
  }
}

double PlacementCosts::latency_of(const Kind& kind, size_t item, const Order& order) const {
  const auto between = [&](int32_t a, int32_t b) {
    return routes_->latency_s(order[index_of(a)], order[index_of(b)]);
  };
  if (kind.shape == FlowShape::kMessages)
    return between(kind.flows[item].from, kind.flows[item].to);
  const std::vector<Part>& parts = kind.groups[item].parts;
  double latency = 0;
  for (size_t i = 1; i < parts.size(); ++i)
    latency = std::max(latency, between(parts[0].slot, parts[i].slot));
  return latency;
}

double PlacementCosts::slot_seconds(const Kind& kind, const Order& order, size_t at) const {
  return kind.slot_s[index_of(routes_->type_of(order[index_of(kind.slots[at])]))][at];
}

PlacementCosts::KindCost PlacementCosts::kind_cost(const Kind& kind, const Order& order) const {
  KindCost out;
  Loads loads = no_loads();
  double latency = kind.inside ? routes_->latency_inside_s() : 0;
  for (size_t i = 0; i < kind.items(); ++i) {
    add_item(kind, i, order, 1, loads);
    latency = std::max(latency, latency_of(kind, i, order));
  }
  for (size_t at = 0; at < kind.slots.size(); ++at)
    out.seconds = std::max(out.seconds, slot_seconds(kind, order, at));
  out.bound = kind.items() > 0 ? Bound::kCards : Bound::kInside;
  std::ranges::sort(loads.changed);  // the first of several equal links is named
  loads.changed.erase(std::ranges::unique(loads.changed).begin(), loads.changed.end());
  for (const int32_t changed : loads.changed) {
    const auto link = index_of(changed);
    const double rate = network_->link_rate(link);
    if (rate == 0 || loads.bytes[link] / rate <= out.seconds) continue;
    out.seconds = loads.bytes[link] / rate;
    out.bound = Bound::kLink;
    out.link = link;
  }
  if (kind.rounds * latency > out.seconds) out.bound = Bound::kLatency;
  out.seconds += kind.rounds * latency;
  return out;
}

std::string PlacementCosts::bound_text(const KindCost& cost) const {
  switch (cost.bound) {
    case Bound::kInside: return "links inside machines";
    case Bound::kCards: return "network cards";
    case Bound::kLink: return network_->link_name(cost.link);
    case Bound::kLatency: return "latency";
  }
  return "";
}

std::vector<PlacementCosts::KindCost> PlacementCosts::cost_by_kind(const Order& order) const {
  std::vector<KindCost> costs, out;
  for (const Kind& kind : kinds_) costs.push_back(kind_cost(kind, order));
  for (size_t what = 0; what < together_.size(); ++what) {
    // The kind is bounded by what bounds the longest of its phases.
    KindCost longest;
    for (const std::vector<size_t>& together : together_[what]) {
      for (const size_t kind : together) {
        if (costs[kind].seconds >= longest.seconds) longest = costs[kind];
      }
    }
    longest.seconds = kind_seconds(what, [&](size_t kind) { return costs[kind].seconds; });
    out.push_back(longest);
  }
  return out;
}

double PlacementCosts::cost(const Order& order) const {
  double out = 0;
  for (const KindCost& kind : cost_by_kind(order)) out += kind.seconds;
  return out;
}

double PlacementCosts::bound() const {
  double near = std::numeric_limits<double>::infinity();
  for (size_t a = 0; a < routes_->places(); ++a) {
    for (size_t b = 0; b < routes_->places(); ++b) {
      if (a != b || routes_->has_several(a))
        near = std::min(near, routes_->latency_between_places_s(a, b));
    }
  }
  std::vector<double> bounds;
  for (const Kind& kind : kinds_) {
    double seconds = 0;
    for (size_t at = 0; at < kind.slots.size(); ++at) {
      const int64_t devices = network_->machines[index_of(kind.slots[at])].devices;
      double least = std::numeric_limits<double>::infinity();
      for (size_t type = 0; type < kind.slot_s.size(); ++type) {
        if (routes_->types()[type].devices == devices)
          least = std::min(least, kind.slot_s[type][at]);
      }
      seconds = std::max(seconds, least);
    }
    bounds.push_back(seconds +
                     kind.rounds * std::max(kind.items() > 0 ? near : 0,
                                            kind.inside ? routes_->latency_inside_s() : 0));
  }
  double out = 0;
  for (size_t what = 0; what < together_.size(); ++what)
    out += kind_seconds(what, [&](size_t kind) { return bounds[kind]; });
  return out;
}

PlacementState::PlacementState(const PlacementCosts& costs, Order order)
    : costs_(&costs), order_(std::move(order)) {
  for (const PlacementCosts::Kind& kind : costs.kinds_) {
    std::vector<std::vector<uint32_t>>& at_slot = at_slot_.emplace_back(order_.size());
    for (uint32_t g = 0; g < kind.groups.size(); ++g) {
      for (const PlacementCosts::Part& part : kind.groups[g].parts)
        at_slot[index_of(part.slot)].push_back(g);
    }
    for (uint32_t f = 0; f < kind.flows.size(); ++f) {
      for (const int32_t slot : {kind.flows[f].from, kind.flows[f].to})
        at_slot[index_of(slot)].push_back(f);
    }
  }
  start();
}

void PlacementState::start() {
  swaps_ = 0;
  kinds_.clear();
  for (size_t k = 0; k < costs_->kinds_.size(); ++k) {
    const PlacementCosts::Kind& kind = costs_->kinds_[k];
    Kind& state = kinds_.emplace_back();
    state.loads = costs_->no_loads();
    state.links = MaxTree(state.loads.bytes.size());
    state.slots = MaxTree(kind.slots.size());
    state.latencies = MaxTree(kind.items());
    state.seen.assign(kind.items(), 0);
    state.inside_s = kind.inside ? costs_->routes_->latency_inside_s() : 0;
    for (size_t i = 0; i < kind.items(); ++i) {
      costs_->add_item(kind, i, order_, 1, state.loads);
      state.latencies.set(i, costs_->latency_of(kind, i, order_));
    }
    for (size_t at = 0; at < kind.slots.size(); ++at)
      state.slots.set(at, costs_->slot_seconds(kind, order_, at));
    finish(k);
  }
  add_up();
}

void PlacementState::add_up() {
  cost_ = 0;
  for (size_t what = 0; what < costs_->together_.size(); ++what)
    cost_ += costs_->kind_seconds(what, [&](size_t kind) { return kinds_[kind].seconds; });
}

void PlacementState::finish(size_t kind) {
  Kind& state = kinds_[kind];
  for (const int32_t link : state.loads.changed) {
    const double rate = costs_->network().link_rate(index_of(link));
    if (rate > 0) state.links.set(index_of(link), state.loads.bytes[index_of(link)] / rate);
  }
  state.loads.changed.clear();
  state.seconds = std::max(state.links.max(), state.slots.max()) +
                  costs_->kinds_[kind].rounds * std::max(state.inside_s, state.latencies.max());
}

void PlacementState::swap(int64_t a, int64_t b) {
  if (++swaps_ > kSwapsBetweenCounts) {
    std::swap(order_[index_of(a)], order_[index_of(b)]);
    return start();
  }
  for (size_t k = 0; k < kinds_.size(); ++k) {
    const PlacementCosts::Kind& kind = costs_->kinds_[k];
    Kind& state = kinds_[k];
    affected_.clear();
    for (const int64_t slot : {a, b}) {
      for (const uint32_t item : at_slot_[k][index_of(slot)]) {
        if (std::exchange(state.seen[item], swaps_) != swaps_) affected_.push_back(item);
      }
    }
    for (const uint32_t item : affected_) costs_->add_item(kind, item, order_, -1, state.loads);
    std::swap(order_[index_of(a)], order_[index_of(b)]);
    for (const uint32_t item : affected_) {
      costs_->add_item(kind, item, order_, 1, state.loads);
      state.latencies.set(item, costs_->latency_of(kind, item, order_));
    }
    for (const int64_t slot : {a, b}) {
      const auto at = std::ranges::lower_bound(kind.slots, static_cast<int32_t>(slot));
      if (at == kind.slots.end() || *at != slot) continue;
      const auto i = static_cast<size_t>(at - kind.slots.begin());
      state.slots.set(i, costs_->slot_seconds(kind, order_, i));
    }
    std::swap(order_[index_of(a)], order_[index_of(b)]);
    finish(k);
  }
  std::swap(order_[index_of(a)], order_[index_of(b)]);
  add_up();
}

}  // namespace tessera
